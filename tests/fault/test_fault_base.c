/* Every allocation of base fails once: the answer is NO_MEMORY, nothing leaks, and the object is usable. */
#include "base/arena.h"
#include "base/json_scan.h"
#include "base/splice.h"
#include "tests/fault/fail_alloc.h"
#include "tests/unit_base/expect.h"

typedef lar_error (*job)(void);

/* Fails the first, the second ... allocation until the job needs no more. Returns how many there were. */
static unsigned fail_each(job run) {
    for (unsigned n = 1;; n++) {
        fail_alloc_at(n);
        lar_error e = run();
        long live = fail_alloc_live();
        bool failed = fail_alloc_end();
        assert_int_equal(live, 0);
        if (!failed) {
            assert_ok(e);
            return n - 1;
        }
        assert_error(e, NO_MEMORY);
        assert_true(n < 1000);
    }
}

/* A document that makes nodes and stack grow several times. */
static lar_slice large_document(void) {
    static char text[20000];
    size_t n = 0;
    for (int i = 0; i < 100; i++) text[n++] = '[';
    for (int i = 0; i < 2000; i++) {
        memcpy(text + n, "\"\\n\",", 5);
        n += 5;
    }
    text[n++] = '1';
    for (int i = 0; i < 100; i++) text[n++] = ']';
    return lar_slice_of(text, n);
}

static lar_json_isa tried;

static lar_error parse_job(void) {
    lar_json j;
    lar_diag d = {0};
    lar_json_init(&j);
    lar_error e = lar_json_parse_isa(tried, &j, large_document(), NULL, &d);
    if (e) {
        if (j.count) e = LAR_CORRUPT;
        if (!d.text[0] || d.has_offset) e = LAR_CORRUPT;
        if (lar_json_parse_isa(tried, &j, LAR_SLICE("[1"), NULL, &d) == LAR_OK) e = LAR_CORRUPT;
    }
    lar_json_release(&j);
    return e;
}

static void parsing(void **state) {
    (void)state;
    for (int isa = 0; isa <= (int)lar_json_isa_best(); isa++) {
        tried = (lar_json_isa)isa;
        assert_in_range(fail_each(parse_job), 6, 12); /* 256 to 4096 nodes, 32 to 128 levels */
    }
}

/* Parsed outside the watch; the jobs only read it. */
static lar_json tree;

static lar_error decode_job(void) {
    lar_buf out;
    lar_buf_init(&out, 1 << 20);
    lar_error e = LAR_OK;
    size_t before = 0;
    for (uint32_t i = 0; !e && i < tree.count; i++) {
        before = out.len;
        if (lar_json_is(&tree, i, LAR_JSON_STRING)) e = lar_json_decode(&tree, i, &out);
    }
    if (e && out.len != before) e = LAR_CORRUPT;
    lar_buf_release(&out);
    return e;
}

static lar_error pointer_job(void) {
    lar_buf out;
    lar_buf_init(&out, 1 << 20);
    lar_error e = LAR_OK;
    size_t before = 0;
    for (uint32_t i = 0; !e && i < tree.count; i += 50) {
        before = out.len;
        e = lar_json_pointer(&tree, i, &out);
    }
    if (e && out.len != before) e = LAR_CORRUPT;
    lar_buf_release(&out);
    return e;
}

static lar_error escape_job(void) {
    lar_buf out;
    lar_buf_init(&out, 1 << 20);
    lar_error e = LAR_OK;
    size_t before = 0;
    for (int i = 0; !e && i < 200; i++) {
        before = out.len;
        e = lar_json_escape(&out, LAR_SLICE("plain text\nwith \"quotes\" and \x01 in it"));
    }
    if (e && out.len != before) e = LAR_CORRUPT;
    lar_buf_release(&out);
    return e;
}

static void reading_and_escaping(void **state) {
    (void)state;
    lar_json_init(&tree);
    assert_ok(lar_json_parse(&tree, large_document(), NULL, NULL));
    assert_in_range(fail_each(decode_job), 3, 20);
    assert_in_range(fail_each(pointer_job), 3, 20);
    lar_json_release(&tree);
    assert_in_range(fail_each(escape_job), 3, 20);
}

static lar_error arena_job(void) {
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    bool ok = true;
    for (int i = 0; ok && i < 50; i++) {
        char *p = lar_arena_zalloc(&a, 3000);
        ok = p && lar_arena_copy(&a, LAR_SLICE("copied")).ptr && lar_arena_printf(&a, "%d", i).ptr;
        if (ok) memset(p, 1, 3000);
    }
    lar_arena_reset(&a, 1 << 16);
    if (ok) ok = lar_arena_alloc(&a, 100000) != NULL;
    lar_arena_release(&a);
    return ok ? LAR_OK : LAR_NO_MEMORY;
}

static lar_error buf_job(void) {
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    lar_error e = LAR_OK;
    size_t done = 0;
    for (int i = 0; !e && i < 2000; i++) {
        e = i % 2 ? lar_buf_add(&b, "12345", 5) : lar_buf_printf(&b, "%05d", 12345);
        done += !e;
    }
    if (b.len != done * 5) e = LAR_CORRUPT;
    for (size_t i = 0; i < b.len; i++)
        if (b.ptr[i] != (char)('1' + i % 5)) e = LAR_CORRUPT;
    lar_buf_release(&b);
    return e;
}

static lar_error splice_job(void) {
    lar_arena a;
    lar_splices s;
    lar_arena_init(&a, 1 << 20);
    lar_splices_init(&s, &a);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < 1000; i++) e = lar_splices_add(&s, 1000 - i, 1000 - i, LAR_SLICE("x"));
    if (!e) e = lar_splices_finish(&s, 1000);
    if (!e && lar_splices_length(&s, 1000) != 2000) e = LAR_CORRUPT;
    lar_arena_release(&a);
    return e;
}

static void memory_and_splices(void **state) {
    (void)state;
    assert_in_range(fail_each(arena_job), 10, 100);
    assert_in_range(fail_each(buf_job), 3, 20);
    assert_in_range(fail_each(splice_job), 3, 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing),
        cmocka_unit_test(reading_and_escaping),
        cmocka_unit_test(memory_and_splices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
