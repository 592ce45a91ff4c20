/* A JSON value printed in one form, as a template prints tools: ", " and ": " between, no other white space, only the
 * necessary escapes. Key order and the text of numbers stay. A cache_control member of the value itself is left out:
 * it is for the cache and not for the model. */
#ifndef LARDER_POLICIES_REPRINT_H
#define LARDER_POLICIES_REPRINT_H

#include "base/arena.h"
#include "base/json.h"

/* *out lies in the arena. NO_MEMORY. */
LAR_MUST_USE lar_error lar_reprint(const lar_json *j, uint32_t node, lar_arena *arena, lar_slice *out);
/* The byte of the body that byte `at` of the printed value comes from; the value's end where `at` is behind it. */
uint32_t lar_reprint_body_offset(const lar_json *j, uint32_t node, size_t at);

#endif
