/* Holds the tokenizer against cases of another one: tokenizer_check FILE CONFIG.json CASES
 * FILE is a tokenizer.json or a tiktoken.model. CASES is written by tokenizer_cases.mjs, which says what a record is.
 * Every text must have the same ids, and its ids must give the text back; every list of ids must have the same text.
 * Prints the first differences, and how many cases were equal; fails where one was not. With --bench CASES is a text,
 * and it prints how fast it is encoded. Not here: which strings are hard (tokenizer_strings.mjs). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/utf8.h"
#include "engine/text/tokenizer.h"

enum { IDS_MAX = 1 << 26, TEXT_MAX = 1 << 28, SHOWN = 12 };

static lar_buf read_file(const char *path) {
    lar_buf b;
    lar_buf_init(&b, (size_t)1 << 32);
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    for (size_t got = 1; got;) {
        if (lar_buf_reserve(&b, 1 << 20)) abort();
        got = fread(b.ptr + b.len, 1, 1 << 20, f);
        b.len += got;
    }
    (void)fclose(f);
    return b;
}

typedef struct checker {
    lar_tokenizer *t;
    lar_slice cases;
    size_t at;
    lar_ids ids;
    lar_buf text;
    uint64_t equal, different;
    uint8_t *added; /* by id: 1 for added tokens */
    uint32_t size;
} checker;

static uint32_t read_u32(checker *c) {
    uint32_t v;
    if (c->cases.len - c->at < sizeof v) {
        (void)fprintf(stderr, "the cases are cut\n");
        exit(2);
    }
    memcpy(&v, c->cases.ptr + c->at, sizeof v);
    c->at += sizeof v;
    return v;
}

static void show(const char *what, lar_slice text, const uint32_t *want, size_t count) {
    printf("%s: \"", what);
    for (size_t i = 0; i < text.len && i < 300; i++)
        printf(text.ptr[i] < 0x20 || text.ptr[i] == '\\' ? "\\x%02x" : "%c", (unsigned char)text.ptr[i]);
    printf("\"\n  want");
    for (size_t i = 0; i < count; i++) printf(" %u", want[i]);
    printf("\n");
}

/* How many bytes at p are replaced by one U+FFFD: the longest beginning of a valid sequence, at least one byte (the
 * WHATWG's decoder). */
static size_t invalid_length(const unsigned char *p, const unsigned char *end) {
    for (size_t n = 3; n > 1; n--) {
        unsigned char cut[4];
        if ((size_t)(end - p) < n) continue;
        memcpy(cut, p, n);
        for (unsigned fill = 0x80; fill <= 0xBF; fill++) {
            memset(cut + n, (int)fill, 4 - n);
            if (lar_utf8_sequence(cut, cut + 4) > n) return n;
        }
    }
    return 1;
}

/* As TextDecoder replaces what is not UTF-8 in bytes[from, len). */
static void add_replaced(lar_buf *out, lar_slice s) {
    if (s.len == 0) return;
    const unsigned char *p = (const unsigned char *)s.ptr, *end = p + s.len;
    while (p < end) {
        size_t n = lar_utf8_sequence(p, end);
        if (lar_buf_add(out, n ? (const char *)p : "\xEF\xBF\xBD", n ? n : 3)) abort();
        p += n ? n : invalid_length(p, end);
    }
}

static void finish_run(lar_buf *run, lar_buf *out) {
    add_replaced(out, lar_buf_slice(run));
    run->len = 0;
}

/* The reference decodes runs of other tokens each for itself, and added tokens as they are. */
static bool same_decoded(checker *c, const uint32_t *ids, size_t count, lar_slice want) {
    lar_buf run, out;
    lar_buf_init(&run, TEXT_MAX);
    lar_buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < count; i++) {
        bool added = ids[i] < c->size && c->added[ids[i]];
        if (added) finish_run(&run, &out);
        if (lar_tokenizer_decode(c->t, &ids[i], 1, LAR_DECODE_SPECIAL_KEPT, added ? &out : &run)) abort();
    }
    finish_run(&run, &out);
    bool same = lar_slice_eq(lar_buf_slice(&out), want);
    if (!same && c->different < SHOWN) show("decoded differently", want, ids, count);
    lar_buf_release(&run);
    lar_buf_release(&out);
    return same;
}

static bool same_encoded(checker *c, char kind, const uint32_t *ids, size_t count, lar_slice text) {
    lar_diag d = {0};
    c->ids.count = 0;
    c->text.len = 0;
    lar_error e = kind == 'P' ? lar_tokenizer_encode_plain(c->t, text, &c->ids, &d)
                              : lar_tokenizer_encode(c->t, &(lar_marked_text){.text = text}, &c->ids, &d);
    bool same = !e && c->ids.count == count && (!count || memcmp(c->ids.ids, ids, count * sizeof *ids) == 0);
    if (!same && c->different < SHOWN) {
        show(kind == 'P' ? "plain text" : "text", text, ids, count);
        show("  have", (lar_slice){0}, c->ids.ids, c->ids.count);
    }
    if (!same) return false;
    e = lar_tokenizer_decode(c->t, ids, count, LAR_DECODE_SPECIAL_KEPT, &c->text);
    return !e && lar_slice_eq(lar_buf_slice(&c->text), text);
}

static void check_all(checker *c) {
    uint32_t *ids = NULL;
    while (c->at < c->cases.len) {
        char kind = c->cases.ptr[c->at++];
        uint32_t len = read_u32(c);
        if (len > c->cases.len - c->at) exit(2);
        lar_slice text = lar_slice_of(c->cases.ptr + c->at, len);
        c->at += len;
        uint32_t count = read_u32(c);
        if (count > (c->cases.len - c->at) / sizeof *ids) exit(2);
        ids = realloc(ids, (count + 1) * sizeof *ids);
        if (!ids) abort();
        memcpy(ids, c->cases.ptr + c->at, count * sizeof *ids);
        c->at += count * sizeof *ids;
        for (uint32_t i = 0; kind == 'A' && i < count; i++)
            if (ids[i] < c->size) c->added[ids[i]] = 1;
        if (kind == 'A') continue;
        bool same = kind == 'D' ? same_decoded(c, ids, count, text) : same_encoded(c, kind, ids, count, text);
        c->equal += same;
        c->different += !same;
    }
    free(ids);
}

static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --bench: CASES is a text, encoded three times as a whole. */
static int bench(checker *c) {
    for (int i = 0; i < 3; i++) {
        double began = now();
        c->ids.count = 0;
        if (lar_tokenizer_encode_plain(c->t, c->cases, &c->ids, NULL)) return 1;
        double took = now() - began;
        printf("larder,%zu bytes,%zu tokens,%.1f MB/s\n", c->cases.len, c->ids.count,
               (double)c->cases.len / took / 1e6);
    }
    return 0;
}

int main(int argc, char **argv) {
    bool timing = argc == 5 && strcmp(argv[4], "--bench") == 0;
    if (argc != 4 && !timing) {
        (void)fprintf(stderr, "usage: tokenizer_check tokenizer.json|tiktoken.model CONFIG.json CASES [--bench]\n");
        return 2;
    }
    lar_buf json = read_file(argv[1]), config = read_file(argv[2]), cases = read_file(argv[3]);
    lar_diag d = {0};
    checker c = {.cases = lar_buf_slice(&cases)};
    double began = now();
    size_t named = strlen(argv[1]);
    bool tiktoken = named > 6 && strcmp(argv[1] + named - 6, ".model") == 0;
    lar_error e = tiktoken ? lar_tokenizer_from_tiktoken(lar_buf_slice(&json), lar_buf_slice(&config), &c.t, &d)
                           : lar_tokenizer_from_json(lar_buf_slice(&json), lar_buf_slice(&config), &c.t, &d);
    if (e) {
        (void)fprintf(stderr, "%s: %s\n", argv[1], d.text[0] ? d.text : lar_error_text(e));
        return 1;
    }
    if (timing) printf("larder,open,%.0f ms\n", (now() - began) * 1000);
    lar_ids_init(&c.ids, IDS_MAX);
    lar_buf_init(&c.text, TEXT_MAX);
    c.size = lar_tokenizer_size(c.t);
    c.added = calloc(c.size, 1);
    if (!c.added) abort();
    int status = 0;
    if (timing) {
        status = bench(&c);
    } else {
        check_all(&c);
        printf("%llu cases equal, %llu different\n", (unsigned long long)c.equal, (unsigned long long)c.different);
        status = c.different != 0 || c.equal == 0;
    }
    lar_ids_release(&c.ids);
    lar_buf_release(&c.text);
    lar_tokenizer_free(c.t);
    free(c.added);
    lar_buf_release(&json);
    lar_buf_release(&config);
    lar_buf_release(&cases);
    return status;
}
