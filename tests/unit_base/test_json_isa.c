/* The vector parsers against the reference, and the reference's UTF-8 against a decoder written from the
 * definition: random documents, mutated ones, every alignment, every kind of byte sequence at the seams. */
#include "base/json_scan.h"
#include "tests/unit_base/expect.h"

enum { BODY_MAX = 1 << 16, ROUNDS = 220, MUTATIONS = 6, ALIGNMENTS = 64 };

/* How often a vector parser asked the reference about a string or a plain value (by the linker's --wrap):
 * never for what is right, or it would be right but slow. */
static unsigned asked;

lar_error __real_lar_json_scan_string(const lar_json_run *run, const unsigned char *p, const unsigned char **end,
                                      uint8_t *flags);
lar_error __real_lar_json_scan_plain(const lar_json_run *run, const unsigned char *p, lar_json_kind *kind,
                                     const unsigned char **end);
lar_error __wrap_lar_json_scan_string(const lar_json_run *run, const unsigned char *p, const unsigned char **end,
                                      uint8_t *flags);
lar_error __wrap_lar_json_scan_plain(const lar_json_run *run, const unsigned char *p, lar_json_kind *kind,
                                     const unsigned char **end);

lar_error __wrap_lar_json_scan_string(const lar_json_run *run, const unsigned char *p, const unsigned char **end,
                                      uint8_t *flags) {
    asked++;
    return __real_lar_json_scan_string(run, p, end, flags);
}

lar_error __wrap_lar_json_scan_plain(const lar_json_run *run, const unsigned char *p, lar_json_kind *kind,
                                     const unsigned char **end) {
    asked++;
    return __real_lar_json_scan_plain(run, p, kind, end);
}

static void compare(lar_slice body, const char *what, uint64_t round) {
    lar_json want, got;
    lar_diag want_d = {0};
    lar_json_init(&want);
    lar_json_init(&got);
    lar_error e = lar_json_parse_scalar(&want, body, NULL, &want_d);
    for (int isa = 1; isa <= (int)lar_json_isa_best(); isa++) {
        lar_diag d = {0};
        asked = 0;
        lar_error f = lar_json_parse_isa((lar_json_isa)isa, &got, body, NULL, &d);
        assert_true(asked <= (e != LAR_OK));
        bool same = e == f && d.has_offset == want_d.has_offset && d.offset == want_d.offset &&
                    strcmp(d.text, want_d.text) == 0 && got.count == want.count &&
                    (!want.count || memcmp(got.nodes, want.nodes, want.count * sizeof *want.nodes) == 0);
        if (!same)
            fail_msg("%s, round %llu, parser %d: \"%s\" instead of \"%s\" for %.*s", what, (unsigned long long)round,
                     isa, d.text, want_d.text, LAR_FMT(body));
    }
    lar_json_release(&want);
    lar_json_release(&got);
}

static void add(lar_buf *b, const char *text) { assert_ok(lar_buf_add_slice(b, lar_slice_cstr(text))); }

static const char *pick(const char *const *list, size_t count, uint64_t *seed) {
    return list[next_random(seed) % count];
}

static void add_string(lar_buf *b, uint64_t *seed) {
    static const char *const pieces[] = {"a",
                                         "the cache ",
                                         "\\n",
                                         "\\\\",
                                         "\\\"",
                                         "\\u4f60",
                                         "\\ud83d\\ude00",
                                         "\\uD800",
                                         "\\/",
                                         "\xC3\xA9",
                                         "\xE4\xBD\xA0\xE5\xA5\xBD",
                                         "\xF0\x9F\x98\x80",
                                         "\xED\x9F\xBF",
                                         "\xEE\x80\x80",
                                         "\xF4\x8F\xBF\xBF",
                                         "\x7f",
                                         "0123456789012345678901234567890123456789012345678901234567890123456789",
                                         "\\\\\\\\\\\\\\\\\\\\\\\\\\\\",
                                         "{}[],:"};
    uint64_t count = next_random(seed) % (next_random(seed) % 8 ? 6 : 60);
    add(b, "\"");
    for (uint64_t i = 0; i < count; i++) add(b, pick(pieces, sizeof pieces / sizeof pieces[0], seed));
    add(b, "\"");
}

static void add_blanks(lar_buf *b, uint64_t *seed) {
    static const char *const blanks[] = {"",
                                         "",
                                         "",
                                         "",
                                         " ",
                                         " ",
                                         "\n",
                                         "\r\n\t",
                                         "\n                ",
                                         "\n                                                                      "};
    add(b, pick(blanks, sizeof blanks / sizeof blanks[0], seed));
}

static void add_leaf(lar_buf *b, uint64_t *seed) {
    static const char *const leaves[] = {"null", "true",  "false", "0",       "-0",
                                         "12",   "-3.25", "1e9",   "0.5E-07", "123456789012345678901234567890"};
    if (next_random(seed) % 2) add_string(b, seed);
    else add(b, pick(leaves, sizeof leaves / sizeof leaves[0], seed));
}

/* A document with containers opened and closed at random; without recursion, so depth is a string. */
static void add_document(lar_buf *b, uint64_t *seed) {
    char open[24];
    size_t depth = 0;
    bool first = true;
    add_blanks(b, seed);
    for (uint64_t left = next_random(seed) % 40 + 1;; left -= left > 0) {
        bool close = depth && (left == 0 || next_random(seed) % 4 == 0);
        if (close) {
            add(b, open[--depth] == '{' ? "}" : "]");
        } else {
            if (depth && !first) add(b, ",");
            add_blanks(b, seed);
            if (depth && open[depth - 1] == '{') {
                add_string(b, seed);
                add_blanks(b, seed);
                add(b, ":");
                add_blanks(b, seed);
            }
            bool nest = left && depth < sizeof open && next_random(seed) % 3 == 0;
            if (nest) {
                open[depth++] = next_random(seed) % 2 ? '{' : '[';
                add(b, open[depth - 1] == '{' ? "{" : "[");
                first = true;
                continue;
            }
            add_leaf(b, seed);
        }
        first = false;
        add_blanks(b, seed);
        if (!depth) return;
    }
}

/* One small damage: a byte changed, removed, doubled, or the end cut off. */
static void mutate(lar_buf *b, uint64_t *seed) {
    static const unsigned char bytes[] = {'"',  '\\', 0,    0x1f, 0x7f, 0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF0,
                                          0xF4, 0xF5, 0xFF, ',',  ':',  '{',  ']',  '1',  'e',  '.',  'u',  ' '};
    if (!b->len) return;
    size_t at = next_random(seed) % b->len;
    switch (next_random(seed) % 4) {
    case 0: b->ptr[at] = (char)bytes[next_random(seed) % sizeof bytes]; break;
    case 1: memmove(b->ptr + at, b->ptr + at + 1, b->len - at - 1), b->len--; break;
    case 2: b->len = at; break;
    default: b->ptr[at] = (char)(b->ptr[at] ^ (1 << next_random(seed) % 8)); break;
    }
}

static void at_every_alignment(lar_slice body, uint64_t round) {
    for (size_t shift = 0; shift < ALIGNMENTS; shift++) {
        char *block = malloc(shift + body.len + 1); /* a sanitizer sees a read behind the last byte */
        assert_non_null(block);
        memcpy(block + shift + 1, body.ptr, body.len);
        compare(lar_slice_of(block + shift + 1, body.len), "random", round);
        free(block);
    }
}

static void random_documents_give_one_tree(void **state) {
    (void)state;
    uint64_t seed = 0x9E3779B97F4A7C15u;
    lar_buf body, damaged;
    lar_buf_init(&body, BODY_MAX);
    lar_buf_init(&damaged, BODY_MAX);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        lar_buf_reset(&body, BODY_MAX);
        add_document(&body, &seed);
        lar_json j;
        lar_diag d = {0};
        lar_json_init(&j);
        lar_error e = lar_json_parse_scalar(&j, lar_buf_slice(&body), NULL, &d);
        if (e)
            fail_msg("round %llu is no JSON: %s in %.*s", (unsigned long long)round, d.text,
                     LAR_FMT(lar_buf_slice(&body)));
        lar_json_release(&j);
        at_every_alignment(lar_buf_slice(&body), round);
        for (int m = 0; m < MUTATIONS; m++) {
            lar_buf_reset(&damaged, BODY_MAX);
            assert_ok(lar_buf_add_slice(&damaged, lar_buf_slice(&body)));
            for (uint64_t n = next_random(&seed) % 3 + 1; n; n--) mutate(&damaged, &seed);
            if (damaged.len) compare(lar_buf_slice(&damaged), "mutated", round);
        }
    }
    lar_buf_release(&body);
    lar_buf_release(&damaged);
}

/* UTF-8 from its definition: decode, then ask whether the shortest form of that code point is these bytes. */
static bool is_utf8(const unsigned char *p, size_t len) {
    for (size_t i = 0, n; i < len; i += n) {
        static const struct {
            unsigned char mask, lead;
            uint32_t least;
        } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
        for (n = 1; n <= 4 && (p[i] & forms[n - 1].mask) != forms[n - 1].lead; n++) {}
        if (n > 4 || len - i < n) return false;
        uint32_t code = p[i] & (unsigned char)~forms[n - 1].mask;
        for (size_t k = 1; k < n; k++) {
            if ((p[i + k] & 0xC0) != 0x80) return false;
            code = code << 6 | (p[i + k] & 0x3F);
        }
        if (code < forms[n - 1].least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    }
    return true;
}

static void check_sequence(char *body, size_t before, const unsigned char *bytes, size_t len) {
    memset(body, 'x', before + len + 8);
    body[0] = '"';
    memcpy(body + before + 1, bytes, len);
    body[before + len + 7] = '"';
    lar_slice s = lar_slice_of(body, before + len + 8);
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa <= (int)lar_json_isa_best(); isa++) {
        lar_error e = lar_json_parse_isa((lar_json_isa)isa, &j, s, NULL, NULL);
        if ((e == LAR_OK) != is_utf8(bytes, len) || (e && e != LAR_JSON_UTF8))
            fail_msg("parser %d: %s for %02x %02x %02x %02x (%zu)", isa, lar_error_name(e), bytes[0], bytes[1],
                     bytes[2], bytes[3], len);
    }
    lar_json_release(&j);
}

static void utf8_is_exact_for_every_sequence(void **state) {
    (void)state;
    static const unsigned char edges[] = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xF0, 0xFF};
    enum { EDGES = sizeof edges };
    char body[200];
    for (unsigned a = 0x80; a < 0x100; a++) {
        for (unsigned b = 0x70; b < 0x100; b++) {
            check_sequence(body, 0, (unsigned char[4]){(unsigned char)a, (unsigned char)b}, 2);
            if (a < 0xE0) continue;
            for (unsigned c = 0; c < EDGES; c++)
                check_sequence(body, (a + b) % 70, (unsigned char[4]){(unsigned char)a, (unsigned char)b, edges[c]}, 3);
        }
    }
    for (unsigned a = 0xE0; a < 0x100; a++)
        for (unsigned n = 0; n < EDGES * EDGES * EDGES; n++)
            check_sequence(body, (a * 7 + n) % 70,
                           (unsigned char[4]){(unsigned char)a, edges[n % EDGES], edges[n / EDGES % EDGES],
                                              edges[n / EDGES / EDGES]},
                           4);
}

static void sequences_are_whole_at_every_seam(void **state) {
    (void)state;
    static const char *const bytes[] = {"\xE4\xBD\xA0", "\xF0\x9F\x98\x80",
                                        "\xC3\xA9",     "\xE4\xBD",
                                        "\xF0\x9F\x98", "\xC3",
                                        "\xA0",         "\xED\xA0\x80",
                                        "\\u4f60",      "\\",
                                        "\\\\",         "\\n",
                                        "\\u4f6",       "\\x",
                                        "\x1f",         "\"",
                                        "\\\""};
    char body[300];
    for (size_t before = 0; before < 140; before++) {
        for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
            for (size_t after = 0; after < 3; after++) {
                size_t len = strlen(bytes[i]);
                memset(body, 'x', sizeof body);
                body[0] = '"';
                memcpy(body + 1 + before, bytes[i], len);
                body[1 + before + len + after] = '"';
                compare(lar_slice_of(body, before + len + after + 2), bytes[i], before);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_documents_give_one_tree),
        cmocka_unit_test(utf8_is_exact_for_every_sequence),
        cmocka_unit_test(sequences_are_whole_at_every_seam),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
