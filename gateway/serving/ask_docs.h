/* docs/engine-api.md, out of the rows that requests are read by. */
#ifndef LARDER_GATEWAY_ASK_DOCS_H
#define LARDER_GATEWAY_ASK_DOCS_H

#include "base/buf.h"

LAR_MUST_USE lar_error lar_ask_markdown(lar_buf *out);

#endif
