/* The span tree, the reader and the splices against slower witnesses:
 * 1. every instruction set gives the reference's tree, or its error and offset;
 * 2. what is accepted, cJSON accepts with the same values (three known limits of cJSON apart, below);
 * 3. spans nest, and between them stands only white space and punctuation;
 * 4. the pointer of a node leads back to it; decoded text survives escaping and reading;
 * 5. splices give what a naive rebuild gives.
 * Memory: everything is freed before the function returns, so that leaks show. */
#include <cjson/cJSON.h>

#include "base/json_scan.h"
#include "base/splice.h"
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT_MAX = 1 << 24, SAMPLES = 64 };

static void same_trees(const lar_json *a, const lar_json *b) {
    FUZZ_CHECK(a->count == b->count);
    FUZZ_CHECK(a->count == 0 || memcmp(a->nodes, b->nodes, a->count * sizeof *a->nodes) == 0);
}

/* The block has no spare byte, and begins at every offset in turn, so that wide loads show. */
static void compare_instruction_sets(const lar_json *reference, lar_slice body, lar_error expected,
                                     const lar_diag *want) {
    size_t shift = body.len % 67;
    char *block = malloc(body.len + shift + 1);
    if (!block) abort();
    memcpy(block + shift + 1, body.ptr, body.len);
    lar_slice moved = lar_slice_of(block + shift + 1, body.len);
    for (int isa = LAR_JSON_SCALAR + 1; isa <= (int)lar_json_isa_best(); isa++) {
        lar_json j;
        lar_diag d = {0};
        lar_json_init(&j);
        lar_error e = lar_json_parse_isa((lar_json_isa)isa, &j, moved, NULL, &d);
        FUZZ_CHECK(e == expected);
        FUZZ_CHECK(d.has_offset == want->has_offset && d.offset == want->offset);
        FUZZ_CHECK(strcmp(d.text, want->text) == 0);
        same_trees(&j, reference);
        lar_json_release(&j);
    }
    free(block);
}

static void only_blanks_and(const lar_json *j, uint32_t from, uint32_t to, const char *punctuation) {
    FUZZ_CHECK(from <= to);
    size_t found = 0;
    for (uint32_t i = from; i < to; i++) {
        char c = j->body.ptr[i];
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
        FUZZ_CHECK(c == punctuation[found]);
        found++;
    }
    FUZZ_CHECK(punctuation[found] == 0);
}

static void check_spans(const lar_json *j) {
    const lar_json_node *n = j->nodes;
    uint32_t bom = j->body.len >= 3 && memcmp(j->body.ptr, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    only_blanks_and(j, bom, n[0].start, "");
    only_blanks_and(j, n[0].end, (uint32_t)j->body.len, "");
    FUZZ_CHECK(n[0].next == j->count && n[0].depth == 0);
    for (uint32_t i = 0; i < j->count; i++) {
        FUZZ_CHECK(n[i].start < n[i].end && n[i].end <= j->body.len && n[i].next > i && n[i].next <= j->count);
        bool object = n[i].kind == LAR_JSON_OBJECT;
        if (!object && n[i].kind != LAR_JSON_ARRAY) {
            FUZZ_CHECK(n[i].next == i + 1 && n[i].count == 0);
            continue;
        }
        uint32_t at = n[i].start + 1, children = 0;
        for (uint32_t c = i + 1; c < n[i].next; c = n[c].next) {
            bool value = object && children % 2 == 1;
            only_blanks_and(j, at, n[c].start, children == 0 ? "" : value ? ":" : ",");
            FUZZ_CHECK(n[c].depth == n[i].depth + 1);
            FUZZ_CHECK(!!(n[c].flags & LAR_JSON_KEY) == (object && !value));
            at = n[c].end;
            children++;
        }
        only_blanks_and(j, at, n[i].end - 1, "");
        FUZZ_CHECK(n[i].count == (object ? children / 2 : children) && (!object || children % 2 == 0));
    }
}

static lar_slice decoded(const lar_json *j, uint32_t node, lar_buf *out) {
    lar_buf_reset(out, TEXT_MAX);
    FUZZ_CHECK(lar_json_decode(j, node, out) == LAR_OK);
    return lar_buf_slice(out);
}

/* Known limits of cJSON 1.7: it refuses an escaped lone surrogate, and cuts numbers at 63 bytes.
 * (Its third, a nesting over 1,000, is beyond larder's default.) */
static bool beyond_cjson(const lar_json *j) {
    lar_buf text;
    lar_buf_init(&text, TEXT_MAX);
    bool beyond = false;
    for (uint32_t i = 0; i < j->count && !beyond; i++) {
        if (j->nodes[i].kind == LAR_JSON_NUMBER) beyond = lar_json_raw(j, i).len > 62;
        if (!(j->nodes[i].flags & LAR_JSON_ESCAPED)) continue;
        lar_slice s = decoded(j, i, &text);
        const unsigned char *p = (const unsigned char *)s.ptr, *end = p + s.len;
        for (size_t n; p < end && !beyond; p += n) {
            n = lar_utf8_sequence(p, end);
            beyond = n == 0;
        }
    }
    lar_buf_release(&text);
    return beyond;
}

static void same_text(const lar_json *j, uint32_t node, const char *theirs, lar_buf *text) {
    lar_slice ours = decoded(j, node, text);
    if (ours.len && memchr(ours.ptr, 0, ours.len)) return; /* cJSON's text ends there */
    FUZZ_CHECK(theirs && lar_slice_eq_cstr(ours, theirs));
    FUZZ_CHECK(lar_json_eq(j, node, lar_slice_cstr(theirs)));
}

static void same_value(const lar_json *j, uint32_t node, const cJSON *theirs, lar_buf *text) {
    double number;
    switch (lar_json_kind_of(j, node)) {
    case LAR_JSON_NULL: FUZZ_CHECK(cJSON_IsNull(theirs)); break;
    case LAR_JSON_FALSE: FUZZ_CHECK(cJSON_IsFalse(theirs)); break;
    case LAR_JSON_TRUE: FUZZ_CHECK(cJSON_IsTrue(theirs)); break;
    case LAR_JSON_NUMBER:
        FUZZ_CHECK(cJSON_IsNumber(theirs));
        if (lar_json_double(j, node, &number)) FUZZ_CHECK(memcmp(&number, &theirs->valuedouble, sizeof number) == 0);
        break;
    case LAR_JSON_STRING:
        FUZZ_CHECK(cJSON_IsString(theirs));
        same_text(j, node, theirs->valuestring, text);
        break;
    case LAR_JSON_ARRAY: FUZZ_CHECK(cJSON_IsArray(theirs)); break;
    case LAR_JSON_OBJECT: FUZZ_CHECK(cJSON_IsObject(theirs)); break;
    }
}

/* Walks both trees in document order; parents[] is cJSON's way back up. */
static void compare_with_cjson(const lar_json *j) {
    if (beyond_cjson(j)) return;
    lar_buf text;
    lar_buf_init(&text, TEXT_MAX);
    char *copy = malloc(j->body.len + 1);
    const cJSON **parents = calloc(258, sizeof *parents);
    if (!copy || !parents) abort();
    memcpy(copy, j->body.ptr, j->body.len);
    copy[j->body.len] = 0;
    cJSON *root = cJSON_ParseWithLengthOpts(copy, j->body.len + 1, NULL, 1);
    FUZZ_CHECK(root != NULL);
    const cJSON *at = root;
    for (uint32_t i = 0; i < j->count; i++) {
        const lar_json_node *n = &j->nodes[i];
        FUZZ_CHECK(at != NULL);
        if (n->flags & LAR_JSON_KEY) {
            same_text(j, i, at->string, &text);
            continue;
        }
        same_value(j, i, at, &text);
        FUZZ_CHECK(n->depth < 257);
        parents[n->depth] = at;
        if (n->count) {
            at = at->child;
            continue;
        }
        FUZZ_CHECK(at->child == NULL);
        if (i + 1 < j->count) at = parents[j->nodes[i + 1].depth]->next;
    }
    cJSON_Delete(root);
    free(parents);
    free(copy);
    lar_buf_release(&text);
}

/* Follows an RFC 6901 pointer by the tree's public readers; NONE where a name on the way is not unique. */
static uint32_t follow(const lar_json *j, lar_slice pointer) {
    uint32_t node = 0;
    size_t at = 0;
    lar_buf name;
    lar_buf_init(&name, TEXT_MAX);
    while (at < pointer.len && node != LAR_JSON_NONE) {
        FUZZ_CHECK(pointer.ptr[at] == '/');
        lar_buf_reset(&name, TEXT_MAX);
        for (at++; at < pointer.len && pointer.ptr[at] != '/'; at++) {
            char c = pointer.ptr[at];
            if (c == '~') c = pointer.ptr[++at] == '0' ? '~' : '/';
            FUZZ_CHECK(lar_buf_add(&name, &c, 1) == LAR_OK);
        }
        FUZZ_CHECK(lar_buf_add(&name, "", 1) == LAR_OK);
        if (lar_json_is(j, node, LAR_JSON_ARRAY)) node = lar_json_at(j, node, (uint32_t)strtoul(name.ptr, NULL, 10));
        else if (strlen(name.ptr) + 1 != name.len || lar_json_get_count(j, node, name.ptr) != 1) node = LAR_JSON_NONE;
        else node = lar_json_get(j, node, name.ptr);
    }
    lar_buf_release(&name);
    return node;
}

static void check_pointers(const lar_json *j) {
    lar_buf pointer;
    lar_buf_init(&pointer, TEXT_MAX);
    uint32_t step = j->count / SAMPLES + 1;
    for (uint32_t i = 0; i < j->count; i += step) {
        lar_buf_reset(&pointer, TEXT_MAX);
        FUZZ_CHECK(lar_json_pointer(j, i, &pointer) == LAR_OK);
        uint32_t back = follow(j, lar_buf_slice(&pointer));
        FUZZ_CHECK(back == LAR_JSON_NONE || back == (j->nodes[i].flags & LAR_JSON_KEY ? i + 1 : i));
    }
    lar_buf_release(&pointer);
}

static void check_escaping(const lar_json *j) {
    lar_buf text, again, body;
    lar_buf_init(&text, TEXT_MAX);
    lar_buf_init(&again, TEXT_MAX);
    lar_buf_init(&body, TEXT_MAX);
    lar_json other;
    lar_json_init(&other);
    for (uint32_t i = 0; i < j->count; i++) {
        if (j->nodes[i].kind != LAR_JSON_STRING) continue;
        lar_slice plain = decoded(j, i, &text);
        lar_buf_reset(&body, TEXT_MAX);
        FUZZ_CHECK(lar_buf_add(&body, "\"", 1) == LAR_OK);
        FUZZ_CHECK(lar_json_escape(&body, plain) == LAR_OK);
        FUZZ_CHECK(lar_buf_add(&body, "\"", 1) == LAR_OK);
        FUZZ_CHECK(lar_json_parse(&other, lar_buf_slice(&body), NULL, NULL) == LAR_OK);
        FUZZ_CHECK(lar_slice_eq(decoded(&other, 0, &again), plain));
    }
    lar_json_release(&other);
    lar_buf_release(&text);
    lar_buf_release(&again);
    lar_buf_release(&body);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The edited body, built span by span with a search for each next one; false if the list is not valid. */
static bool rebuild(const lar_splice *list, uint32_t count, lar_slice body, lar_buf *out) {
    bool used[8] = {false};
    size_t at = 0;
    for (uint32_t done = 0; done < count; done++) {
        uint32_t best = count;
        for (uint32_t i = 0; i < count; i++) {
            if (used[i]) continue;
            bool first = best == count || list[i].start < list[best].start;
            bool insert_first = !first && list[i].start == list[best].start && list[i].start == list[i].end &&
                                list[best].end > list[best].start;
            if (first || insert_first) best = i;
        }
        used[best] = true;
        if (list[best].start < at || list[best].end > body.len) return false;
        if (lar_buf_add(out, body.ptr + at, list[best].start - at)) abort();
        if (lar_buf_add_slice(out, list[best].with)) abort();
        at = list[best].end;
    }
    if (lar_buf_add(out, body.ptr + at, body.len - at)) abort();
    return true;
}

static void check_splices(lar_slice body, uint64_t seed) {
    lar_arena arena;
    lar_arena_init(&arena, 1 << 20);
    lar_splices s;
    lar_splices_init(&s, &arena);
    lar_splice list[8];
    uint64_t state = seed | 1;
    uint32_t count = (uint32_t)(next_random(&state) % 9);
    uint32_t room = (uint32_t)body.len + (next_random(&state) % 8 == 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t a = (uint32_t)(next_random(&state) % (room + 1)), b = (uint32_t)(next_random(&state) % (room + 1));
        if (next_random(&state) % 2) b = a + (uint32_t)(next_random(&state) % 3);
        list[i] = (lar_splice){a < b ? a : b, a < b ? b : a, lar_slice_of("0123456789", next_random(&state) % 11)};
        FUZZ_CHECK(lar_splices_add(&s, list[i].start, list[i].end, list[i].with) == LAR_OK);
    }
    lar_buf naive, ours;
    lar_buf_init(&naive, TEXT_MAX);
    lar_buf_init(&ours, TEXT_MAX);
    bool valid = rebuild(list, count, body, &naive);
    FUZZ_CHECK(lar_splices_finish(&s, body.len) == (valid ? LAR_OK : LAR_INVALID));
    if (valid) {
        struct iovec iov[17];
        FUZZ_CHECK(lar_splices_iov_max(&s) <= 17);
        uint32_t used = lar_splices_iov(&s, body, iov);
        FUZZ_CHECK(used <= lar_splices_iov_max(&s));
        for (uint32_t i = 0; i < used; i++) {
            FUZZ_CHECK(iov[i].iov_len > 0);
            FUZZ_CHECK(lar_buf_add(&ours, iov[i].iov_base, iov[i].iov_len) == LAR_OK);
        }
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&ours), lar_buf_slice(&naive)));
        FUZZ_CHECK(lar_splices_length(&s, body.len) == naive.len);
        for (size_t i = 0; i < body.len; i++) {
            bool replaced = false;
            for (uint32_t k = 0; k < count; k++) replaced |= list[k].start <= i && i < list[k].end;
            size_t to = lar_splices_map(&s, i);
            FUZZ_CHECK(to <= naive.len);
            if (!replaced) FUZZ_CHECK(to < naive.len && naive.ptr[to] == body.ptr[i]);
        }
        FUZZ_CHECK(lar_splices_map(&s, body.len) == naive.len);
    }
    lar_buf_release(&naive);
    lar_buf_release(&ours);
    lar_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lar_slice body = lar_slice_of((const char *)data, size);
    lar_json j;
    lar_diag d = {0};
    lar_json_init(&j);
    lar_error e = lar_json_parse_scalar(&j, body, NULL, &d);
    compare_instruction_sets(&j, body, e, &d);
    FUZZ_CHECK(e == LAR_OK || (j.count == 0 && d.has_offset && d.offset <= size));
    if (e == LAR_OK) {
        check_spans(&j);
        compare_with_cjson(&j);
        check_pointers(&j);
        check_escaping(&j);
    }
    uint64_t seed = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) seed = (seed ^ data[i]) * 1099511628211u;
    if (size) check_splices(body, seed);
    lar_json_release(&j);
    return 0;
}
