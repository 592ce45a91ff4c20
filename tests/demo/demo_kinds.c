/* The ways in which real clients break prefix caches.
 *
 * Called by the demo player, once a request. Pure but for the random state; never blocks.
 * Why: each way is one that was seen in the wild: clocks, billing nonces, unordered tool registries, editors.
 * Invariant: what is changed never changes what the request means.
 * Memory: the caller's buffers. */
#include "demo_kinds.h"

#include <stdio.h>
#include <time.h>

#include "demo_json.h"

bool demo_kind_find(const char *name, demo_kind *out) {
    static const char *const names[] = {"clean", "clock",       "billing",             "tool_order", "text_form",
                                        "mixed", "schema_keys", "arguments_rewritten", "request_id", "counter",
                                        "workdir"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (demo_kind)i;
        return true;
    }
    return false;
}

demo_kind demo_kind_of(demo_kind kind, uint32_t conversation) {
    return kind == DEMO_KIND_MIXED ? (demo_kind)(DEMO_KIND_CLOCK + conversation % 4) : kind;
}

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016). */
uint32_t demo_random(uint64_t *s, uint32_t below) {
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return (uint32_t)((*s * 0x2545F4914F6CDD1Du) >> 32) % below;
}

static void add_clock(lar_slice text, const demo_moment *m, demo_system_out *out) {
    time_t seconds = (time_t)(m->ms / 1000);
    struct tm t;
    char when[128];
    gmtime_r(&seconds, &t);
    if (m->variant == 0) {
        size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t);
        demo_putf(&out->kept, "%.*s.%03d", (int)n, when, (int)(m->ms % 1000));
        demo_putf(&out->text, "Current time: %.*sZ\n\n", LAR_FMT(lar_buf_slice(&out->kept)));
        demo_put(&out->text, text);
        return;
    }
    if (m->variant == 1) {
        const char *lf = text.len ? memchr(text.ptr, '\n', text.len) : NULL;
        size_t head = lf ? (size_t)(lf - text.ptr) : text.len;
        demo_put(&out->text, lar_slice_of(text.ptr, head));
        size_t n = strftime(when, sizeof when, " The current date and time is %A, %B %d, %Y, %I:%M:%S %p.", &t);
        demo_put(&out->text, lar_slice_of(when, n));
        demo_put(&out->text, lar_slice_of(text.ptr + head, text.len - head));
        n = strftime(when, sizeof when, "%I:%M:%S %p", &t);
        demo_put(&out->kept, lar_slice_of(when, n));
        return;
    }
    demo_put(&out->text, text);
    demo_putf(&out->kept, "%02d时%02d分%02d秒", t.tm_hour, t.tm_min, t.tm_sec);
    demo_putf(&out->text, "\n\n当前时间：%d年%d月%d日 %.*s", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
              LAR_FMT(lar_buf_slice(&out->kept)));
}

static void add_request_id(lar_slice text, uint64_t *random, demo_system_out *out) {
    uint32_t r[4];
    for (int i = 0; i < 4; i++) r[i] = demo_random(random, UINT32_MAX);
    demo_putf(&out->text, "request_id: %08x-%04x-4%03x-9%03x-%08x%04x\n", r[0], r[1] & 0xFFFF, r[1] >> 20, r[2] & 0xFFF,
              r[3], r[2] >> 16);
    demo_put(&out->text, text);
}

static void add_counter(lar_slice text, const demo_moment *m, uint64_t *random, demo_system_out *out) {
    uint32_t left = 200000 - 1371 * m->call - demo_random(random, 300);
    demo_putf(&out->kept, "%u,%03u", left / 1000, left % 1000);
    demo_put(&out->text, text);
    demo_putf(&out->text, "\n\nTurn %u of 80. Remaining budget: %.*s tokens.", m->call + 1,
              LAR_FMT(lar_buf_slice(&out->kept)));
}

static void add_workdir(lar_slice text, const demo_moment *m, uint64_t *random, demo_system_out *out) {
    time_t seconds = (time_t)(m->ms / 1000);
    struct tm t;
    char day[16];
    gmtime_r(&seconds, &t);
    size_t n = strftime(day, sizeof day, "%Y-%m-%d", &t);
    demo_putf(&out->kept, "/tmp/job_%06x", demo_random(random, 1u << 24));
    demo_put(&out->text, text);
    demo_putf(&out->text, "\n\n<env>\nWorking directory: %.*s\nToday's date: %.*s\n</env>",
              LAR_FMT(lar_buf_slice(&out->kept)), (int)n, day);
}

static void reform(lar_slice text, uint64_t *random, lar_buf *out) {
    static const char *const tails[] = {"\n", " \n", "\n\n"};
    bool crlf = demo_random(random, 2) == 0, tail = demo_random(random, 2) == 0;
    if (crlf) DEMO_PUT(out, "\xEF\xBB\xBF");
    for (size_t i = 0; i < text.len; i++) {
        if (crlf && text.ptr[i] == '\n') DEMO_PUT(out, "\r");
        demo_put(out, lar_slice_of(&text.ptr[i], 1));
    }
    if (tail) demo_put(out, lar_slice_cstr(tails[demo_random(random, 3)]));
}

void demo_kind_system(demo_kind kind, lar_slice text, const demo_moment *m, uint64_t *random, demo_system_out *out) {
    switch (kind) {
    case DEMO_KIND_CLOCK: add_clock(text, m, out); break;
    case DEMO_KIND_BILLING:
        demo_putf(&out->text, "x-acme-billing-header: acme_version=2.1.%u; acme_entrypoint=cli; cch=%05x;\n",
                  m->call % 3, demo_random(random, 1u << 20));
        demo_put(&out->text, text);
        break;
    case DEMO_KIND_REQUEST_ID: add_request_id(text, random, out); break;
    case DEMO_KIND_COUNTER: add_counter(text, m, random, out); break;
    case DEMO_KIND_WORKDIR: add_workdir(text, m, random, out); break;
    case DEMO_KIND_TEXT_FORM: reform(text, random, &out->text); break;
    default: demo_put(&out->text, text); break;
    }
}

enum { SHUFFLE_DEPTH_MAX = 16, SHUFFLE_MEMBERS_MAX = 64 };

/* A container that is being printed. */
typedef struct open_container {
    lar_slice keys[SHUFFLE_MEMBERS_MAX], values[SHUFFLE_MEMBERS_MAX];
    uint32_t count, next;
    bool object;
} open_container;

/* False if it is none, or too large or deep to be taken apart. */
static bool open_up(open_container *c, lar_slice value, uint32_t depth, uint64_t *random) {
    *c = (open_container){.object = value.len && value.ptr[0] == '{'};
    if (depth == SHUFFLE_DEPTH_MAX || !(c->object || demo_json_is_array(value))) return false;
    demo_json_iter it = demo_json_open(value);
    lar_slice key = {0}, one;
    while (demo_json_next(&it, &key, &one)) {
        if (c->count == SHUFFLE_MEMBERS_MAX) return false;
        c->keys[c->count] = key;
        c->values[c->count++] = one;
    }
    for (uint32_t i = c->count; c->object && i > 1; i--) {
        uint32_t o = demo_random(random, i);
        lar_slice k = c->keys[i - 1], v = c->values[i - 1];
        c->keys[i - 1] = c->keys[o];
        c->values[i - 1] = c->values[o];
        c->keys[o] = k;
        c->values[o] = v;
    }
    return true;
}

/* "," and ":" without blanks behind them, or with. */
typedef enum blanks { BLANKS_NONE, BLANKS_SOME } blanks;

static void print_shuffled(lar_slice value, uint64_t *random, blanks between, lar_buf *out) {
    static const char *const border[2][2] = {{"[", "]"}, {"{", "}"}};
    open_container stack[SHUFFLE_DEPTH_MAX + 1];
    uint32_t depth = 0;
    while (true) {
        if (open_up(&stack[depth], value, depth, random))
            demo_put(out, lar_slice_cstr(border[stack[depth++].object][0]));
        else demo_put(out, value);
        while (depth && stack[depth - 1].next == stack[depth - 1].count)
            demo_put(out, lar_slice_cstr(border[stack[--depth].object][1]));
        if (!depth) return;
        open_container *c = &stack[depth - 1];
        const char *blank = between == BLANKS_SOME ? " " : "";
        if (c->next) demo_putf(out, ",%s", blank);
        if (c->object) demo_putf(out, "\"%.*s\":%s", LAR_FMT(c->keys[c->next]), blank);
        value = c->values[c->next++];
    }
}

void demo_kind_shuffle(lar_slice value, uint64_t *random, lar_buf *out) {
    print_shuffled(value, random, BLANKS_SOME, out);
}

/* Appends the text with what is not ASCII as \u escapes; it stands in strings only. */
static void put_ascii(lar_slice text, lar_buf *out) {
    const char *end = text.ptr + text.len;
    for (const char *p = text.ptr; p < end;) {
        const unsigned char *u = (const unsigned char *)p;
        uint32_t n = demo_utf8_len(p, end), c = u[0];
        if (n < 2) {
            demo_put(out, lar_slice_of(p++, 1));
            continue;
        }
        c &= 0xFFu >> (n + 1);
        for (uint32_t i = 1; i < n; i++) c = c << 6 | (u[i] & 63u);
        if (c < 0x10000) demo_putf(out, "\\u%04x", c);
        else demo_putf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
        p += n;
    }
}

void demo_kind_print_anew(lar_slice text, uint64_t *random, lar_buf *out) {
    lar_buf plain;
    lar_buf_init(&plain, (size_t)16 << 20);
    print_shuffled(text, random, demo_random(random, 2) ? BLANKS_SOME : BLANKS_NONE, &plain);
    if (demo_random(random, 2)) put_ascii(lar_buf_slice(&plain), out);
    else demo_put(out, lar_buf_slice(&plain));
    lar_buf_release(&plain);
}
