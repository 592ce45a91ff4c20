/* Any file as a log of requests: byte 0 picks the reading and a protocol, the rest is the file.
 * 1. what is given out is JSON with a protocol, and its record lies in the file;
 * 2. every byte of a body has a place inside the file;
 * 3. lines never go back; the log ends, and stays ended. */
#include "gateway/commands/request_log.h"
#include "tests/fuzz/fuzz.h"

enum { REQUESTS_MAX = 4096 };

static void check(lar_request_log *l, const lar_log_request *r, uint64_t lines) {
    lar_json j;
    lar_diag d;
    uint64_t line, column;
    if (r->form == LAR_LOG_EXPORT) return;
    FUZZ_CHECK(r->protocol != LAR_PROTOCOL_NONE && r->protocol < LAR_PROTOCOL_COUNT);
    lar_json_init(&j);
    static const lar_json_limits limits = {.depth_max = 600, .nodes_max = 64u << 20};
    FUZZ_CHECK(lar_json_parse(&j, r->body, &limits, &d) == LAR_OK);
    FUZZ_CHECK(lar_json_is(&j, 0, LAR_JSON_OBJECT));
    if (r->answer != LAR_JSON_NONE) FUZZ_CHECK(r->answer < r->answer_json->count);
    for (size_t at = 0; at < r->body.len; at += 1 + r->body.len / 64) {
        lar_request_log_place(l, (uint32_t)at, &line, &column);
        FUZZ_CHECK(line >= 1 && line <= lines && column >= 1);
    }
    lar_json_release(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 1u << 18) return 0;
    lar_slice text = lar_slice_of((const char *)data + 1, size - 1);
    uint64_t lines = 1;
    for (size_t i = 0; i < text.len; i++) lines += text.ptr[i] == '\n';
    lar_request_log_options o = {.reading = (lar_log_reading)(data[0] % 3),
                                 .protocol = data[0] & 0x40 ? LAR_PROTOCOL_MESSAGES : LAR_PROTOCOL_NONE};
    lar_request_log *l;
    lar_log_request r;
    lar_diag d;
    if (lar_request_log_open_text("fuzz", text, &o, &l, &d) != LAR_OK) return 0;
    uint64_t last = 0;
    lar_error e = LAR_OK;
    for (int i = 0; i < REQUESTS_MAX && (e = lar_request_log_next(l, &r, &d)) != LAR_NOT_FOUND; i++) {
        FUZZ_CHECK(r.line >= last && r.line <= lines);
        last = r.line;
        if (!e) check(l, &r, lines);
        else FUZZ_CHECK(e != LAR_IO);
    }
    if (e == LAR_NOT_FOUND) FUZZ_CHECK(lar_request_log_next(l, &r, &d) == LAR_NOT_FOUND);
    lar_request_log_close(l);
    return 0;
}
