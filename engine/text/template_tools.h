/* A place for tools in templates that have none: DeepSeek publishes V2.5, V3, R1 and V3.1 with templates that print
 * calls and results, but not what may be called, and says in V3.1's model card what to write behind the system text. */
#ifndef LARDER_ENGINE_TEXT_TEMPLATE_TOOLS_H
#define LARDER_ENGINE_TEXT_TEMPLATE_TOOLS_H

#include "engine/text/output_stream.h"
#include "engine/text/template.h"

/* Appends the source with the variable `tools` printed behind the system text. NOT_FOUND: it is no such template (its
 * calls are in another form, or the one place where it prints the system text is not there); LIMIT, NO_MEMORY. Without
 * tools the new template renders what the old one does. */
LAR_MUST_USE lar_error lar_template_tools_add(lar_slice source, lar_output_format calls, lar_buf *out);

#endif
