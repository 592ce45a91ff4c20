/* JSON text into a buffer. Called by whoever writes replies of the engine; any thread; never blocks.
 * Why not cJSON: a chunk for every token, of parts that are known, needs no tree. */
#include "gateway/serving/json_writer.h"

#include <inttypes.h>
#include <math.h>

#include "base/json.h"

void lar_json_put(lar_json_writer *w, const char *literal) { lar_json_put_raw(w, lar_slice_cstr(literal)); }

void lar_json_put_raw(lar_json_writer *w, lar_slice json) {
    if (!w->error) w->error = lar_buf_add_slice(w->out, json);
}

void lar_json_put_text(lar_json_writer *w, lar_slice text) {
    lar_json_put(w, "\"");
    if (!w->error && text.len) w->error = lar_json_escape(w->out, text);
    lar_json_put(w, "\"");
}

void lar_json_put_u64(lar_json_writer *w, uint64_t v) {
    if (!w->error) w->error = lar_buf_add_u64(w->out, v);
}

void lar_json_put_i64(lar_json_writer *w, int64_t v) {
    if (!w->error) w->error = lar_buf_printf(w->out, "%" PRId64, v);
}

void lar_json_put_logprob(lar_json_writer *w, float v) {
    if (!w->error) w->error = lar_buf_printf(w->out, "%.9g", isfinite(v) ? (double)v : -9999.0);
}
