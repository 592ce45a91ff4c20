/* Any body as its provider prints it: byte 0 picks protocol, order and a cache, the rest is the body.
 * 1. pieces lie end to end and are the whole text; blocks end in order, inside it;
 * 2. every byte of the text has a place in the body, inside the piece's value;
 * 3. a value that is printed anew is JSON with the same values;
 * 4. tokens cover the text, blocks end at tokens in order, and no cache serves more than the prompt. */
#include "policies/cachesim.h"
#include "policies/reprint.h"
#include "tests/fuzz/fuzz.h"

static void check_places(const lar_rendering *r) {
    lar_render_place place;
    size_t at = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        FUZZ_CHECK(r->pieces[i].at == at && r->pieces[i].text.len > 0);
        at += r->pieces[i].text.len;
    }
    FUZZ_CHECK(at == r->bytes);
    for (size_t offset = 0; offset < r->bytes; offset += 1 + r->bytes / 97) {
        FUZZ_CHECK(lar_render_where(r, offset, &place));
        const lar_json_node *piece = &r->json->nodes[place.piece->node], *inner = &r->json->nodes[place.node];
        FUZZ_CHECK(place.body_offset >= piece->start && place.body_offset <= piece->end);
        FUZZ_CHECK(inner->start >= piece->start && inner->end <= piece->end);
    }
    FUZZ_CHECK(!lar_render_where(r, r->bytes, &place));
}

static void check_reprint(const lar_json *j, lar_arena *arena) {
    lar_slice text;
    lar_json again;
    lar_diag d;
    if (lar_json_get(j, 0, "cache_control") != LAR_JSON_NONE) return;
    if (lar_reprint(j, 0, arena, &text) != LAR_OK) return;
    lar_json_init(&again);
    lar_error e = lar_json_parse(&again, text, NULL, &d);
    FUZZ_CHECK(e == LAR_OK || e == LAR_JSON_UTF8); /* a lone surrogate is printed in its three bytes */
    if (!e) FUZZ_CHECK(again.count == j->count);
    lar_json_release(&again);
}

static void check_cache(const lar_rendering *r, const char *name) {
    lar_cachesim_options o = {.provider = lar_provider_find(lar_slice_cstr(name)), .automatic_marker = true};
    lar_cachesim *sim = lar_cachesim_new(&o);
    lar_prompt p;
    lar_cachesim_usage u;
    lar_prompt_init(&p);
    if (sim && lar_prompt_set(&p, 0, r) == LAR_OK) {
        FUZZ_CHECK(p.tokens <= r->bytes && (p.tokens > 0) == (r->bytes > 0));
        for (uint32_t b = 0; b < p.block_count; b++)
            FUZZ_CHECK(p.blocks[b].tokens <= p.tokens && (b == 0 || p.blocks[b].tokens >= p.blocks[b - 1].tokens));
        for (int i = 0; i < 2; i++) {
            FUZZ_CHECK(lar_cachesim_request(sim, &p, 1, 0, &u) == LAR_OK);
            FUZZ_CHECK(u.hit + u.write <= u.prompt && (i > 0 || u.hit == 0));
        }
        FUZZ_CHECK(lar_prompt_common(&p, &p) == p.tokens);
    }
    lar_prompt_release(&p);
    lar_cachesim_free(sim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES,
                                             LAR_PROTOCOL_COMPLETIONS};
    static const char *const caches[] = {"vllm", "openai", "deepseek", "anthropic"};
    if (size < 1 || size > 1u << 17) return 0;
    lar_json j;
    lar_arena arena;
    lar_request_view v;
    lar_rendering r;
    lar_diag d;
    lar_json_init(&j);
    lar_arena_init(&arena, 64u << 20);
    lar_slice body = lar_slice_of((const char *)data + 1, size - 1);
    if (lar_json_parse(&j, body, NULL, &d) == LAR_OK &&
        lar_request_view_read(&v, &j, protocols[data[0] & 3], &arena, &d) == LAR_OK) {
        lar_render_order order = data[0] & 4 ? LAR_RENDER_SYSTEM_FIRST : LAR_RENDER_TOOLS_FIRST;
        if (lar_render_request(&r, &v, order, &arena) == LAR_OK) {
            check_places(&r);
            check_cache(&r, caches[data[0] >> 3 & 3]);
        }
        check_reprint(&j, &arena);
    }
    lar_arena_release(&arena);
    lar_json_release(&j);
    return 0;
}
