/* A model whose experts are partly on disk: the bits of one that has them all in memory, whatever the budget; the
 * budget kept; counts; and files that cannot be read, refuse direct reads, deliver little at a time, or hold what is no
 * number.
 * pread and open are wrapped (link option --wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engine/engine.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"
#include "tests/unit_engine/model/golden.h"

enum { TOKENS = 12 };

static uint32_t ids[TOKENS];

/* -- the file system ---------------------------------------------------------------------------------------------- */

static atomic_uint reads_done;
static atomic_uint fail_at;      /* this read, from 1, fails with EIO; 0: none */
static atomic_bool refuse_open;  /* open refuses O_DIRECT */
static atomic_bool refuse_reads; /* reads do, as on some file systems */
static atomic_bool little;       /* at most 4096 bytes a read, and sometimes a signal */

ssize_t __real_pread(int fd, void *to, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset) {
    unsigned turn = atomic_fetch_add(&reads_done, 1) + 1;
    bool direct = fcntl(fd, F_GETFL) & O_DIRECT;
    assert_true((uintptr_t)to % 4096 == 0 && n % 4096 == 0 && offset % 4096 == 0);
    if (turn == atomic_load(&fail_at)) return errno = EIO, -1;
    if (direct && atomic_load(&refuse_reads)) return errno = EINVAL, -1;
    if (atomic_load(&little) && turn % 5 == 0) return errno = EINTR, -1;
    if (atomic_load(&little) && n > 4096) n = 4096;
    return __real_pread(fd, to, n, offset);
}

int __wrap_open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    if (flags & O_DIRECT && atomic_load(&refuse_open)) return errno = EINVAL, -1;
    return __real_open(path, flags, mode);
}

/* -- models ------------------------------------------------------------------------------------------------------- */

static const model_shape base = {.layers = 4,
                                 .dense_layers = 1,
                                 .hidden = 64,
                                 .heads = 2,
                                 .kv_rank = 32,
                                 .nope = 16,
                                 .rope = 8,
                                 .v_dim = 16,
                                 .dense_ff = 96,
                                 .expert_ff = 32,
                                 .experts = 16,
                                 .experts_used = 4,
                                 .shared = 1,
                                 .groups = 1,
                                 .groups_used = 1,
                                 .expert_scale = 1,
                                 .vocab = 300,
                                 .context = 64,
                                 .eps = 1e-5,
                                 .rope_base = 10000,
                                 .embedding = 1,
                                 .seed = 11};

/* A random model in the box; its path. */
static const char *write_model(file_box *box, const char *name, const model_shape *s, lar_model_form form,
                               char path[BOX_PATH_BYTES]) {
    if (form == LAR_MODEL_FOLDER) box_folder(box, name);
    model_write(s, form, box_path(box, name, path));
    return path;
}

/* The mix of Q4_K with larger types in half of the layers: experts of two sizes. */
static const char *mixed(file_box *box, char path[BOX_PATH_BYTES]) {
    model_shape s = base;
    s.layers = 5, s.hidden = 256, s.expert_ff = 256, s.type = LAR_DTYPE_Q4_K, s.mix = true, s.experts = 8;
    s.experts_used = 2;
    return write_model(box, "mixed.gguf", &s, LAR_MODEL_GGUF, path);
}

static lar_engine *open_how(const lar_engine_options *o) {
    lar_engine *e;
    lar_diag d = {0};
    if (lar_engine_open(o, &e, &d))
        fail_msg("%s, %llu bytes: %s", o->path, (unsigned long long)o->expert_bytes, d.text);
    return e;
}

/* What the refusal of one byte says that is needed, and what all experts take. */
static lar_expert_sizes sizes_of(lar_engine_options o) {
    lar_engine *e;
    lar_diag d = {0};
    unsigned long long least = 0, all = 0;
    o.expert_bytes = 1;
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_LIMIT);
    assert_null(e);
    const char *at = strstr(d.text, "at least "), *whole = strstr(d.text, "all of them are ");
    assert_non_null(at);
    assert_non_null(whole);
    assert_int_equal(sscanf(at, "at least %llu", &least), 1);
    assert_int_equal(sscanf(whole, "all of them are %llu", &all), 1);
    return (lar_expert_sizes){all, least};
}

/* Logits of all tokens, fed `chunk` at a time, appended to a new sequence. */
static float *all_logits(lar_engine *e, uint32_t chunk) {
    uint32_t vocab = lar_engine_info_of(e).vocab, wanted[TOKENS];
    float *logits = malloc((size_t)TOKENS * vocab * sizeof *logits);
    lar_sequence *s;
    lar_diag d = {0};
    assert_int_equal(lar_sequence_new(e, TOKENS, &s, &d), LAR_OK);
    for (uint32_t i = 0; i < TOKENS; i++) wanted[i] = i;
    for (uint32_t at = 0; at < TOKENS; at += chunk) {
        uint32_t n = chunk < TOKENS - at ? chunk : TOKENS - at;
        lar_engine_part p = {s, ids + at, n, wanted, n};
        if (lar_engine_step(e, &p, 1, logits + (size_t)at * vocab, &d)) fail_msg("%s", d.text);
    }
    lar_sequence_free(s);
    return logits;
}

/* -- the same bits ------------------------------------------------------------------------------------------------ */

static void check_counts(const lar_engine *e, uint64_t budget, const lar_expert_sizes *sizes) {
    lar_expert_counts c = lar_engine_experts(e);
    uint64_t hits = 0, misses = 0;
    if (budget >= sizes->all) {
        assert_int_equal(c.bytes, 0);
        assert_int_equal(lar_engine_expert_layers(e), 0);
        return;
    }
    assert_true(c.bytes <= budget && c.all_bytes == sizes->all && c.slots >= 1 && c.slots < c.experts);
    for (uint32_t i = 0; i < lar_engine_expert_layers(e); i++) {
        lar_expert_layer_counts l = lar_engine_expert_layer(e, i);
        hits += l.hits, misses += l.misses;
    }
    assert_true(hits == c.hits && misses == c.misses && misses > 0);
    assert_int_equal(c.reads, 3 * c.misses);
    assert_true(c.bytes_read > 0 && c.failures == 0 && c.stall_us <= c.run_us);
}

typedef struct run {
    uint64_t budget;
    uint32_t chunk;
} run;

/* From the least to all. */
static void same_bits(lar_engine_options o) {
    lar_expert_sizes z = sizes_of(o);
    const run runs[] = {{z.least, 5}, {z.least + (z.all - z.least) / 3, 1}, {z.all - 1, 5}, {z.all, TOKENS}};
    lar_engine *resident = open_how(&o);
    float *wanted = all_logits(resident, TOKENS);
    size_t bytes = (size_t)TOKENS * lar_engine_info_of(resident).vocab * sizeof *wanted;
    lar_engine_close(resident);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        o.expert_bytes = runs[i].budget;
        lar_engine *e = open_how(&o);
        float *got = all_logits(e, runs[i].chunk);
        if (memcmp(got, wanted, bytes) != 0)
            fail_msg("%s, %s, %llu of %llu bytes, %u tokens at once: other logits", o.path, o.cpu,
                     (unsigned long long)runs[i].budget, (unsigned long long)z.all, runs[i].chunk);
        free(got);
        check_counts(e, runs[i].budget, &z);
        lar_engine_close(e);
    }
    free(wanted);
}

static void golden_models_give_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_MODELS; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, GOLDEN_MODELS_DIR "/%s", golden_names[i]);
        same_bits((lar_engine_options){.path = path, .cpu = "auto", .threads = 2});
    }
    char path[512];
    (void)snprintf(path, sizeof path, GOLDEN_MODELS_DIR "/v3-fp8");
    same_bits((lar_engine_options){.path = path, .cpu = "reference", .threads = 1});
    same_bits((lar_engine_options){.path = path, .cpu = "scalar", .threads = 1, .tokens_max = 5});
}

static void every_type_gives_the_same_bits(void **state) {
    static const struct {
        lar_dtype type;
        lar_model_form form;
    } rows[] = {{LAR_DTYPE_Q4_K, LAR_MODEL_GGUF},   {LAR_DTYPE_Q6_K, LAR_MODEL_GGUF},  {LAR_DTYPE_Q8_0, LAR_MODEL_GGUF},
                {LAR_DTYPE_Q5_1, LAR_MODEL_GGUF},   {LAR_DTYPE_F16, LAR_MODEL_GGUF},   {LAR_DTYPE_F32, LAR_MODEL_GGUF},
                {LAR_DTYPE_IQ4_NL, LAR_MODEL_GGUF}, {LAR_DTYPE_BF16, LAR_MODEL_FOLDER}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[BOX_PATH_BYTES], name[16];
        model_shape s = base;
        s.type = rows[i].type, s.seed = 40 + i;
        if (s.type == LAR_DTYPE_Q4_K || s.type == LAR_DTYPE_Q6_K) s.hidden = 256, s.expert_ff = 256, s.experts = 6;
        (void)snprintf(name, sizeof name, "t%zu%s", i, rows[i].form == LAR_MODEL_GGUF ? ".gguf" : "");
        write_model(*state, name, &s, rows[i].form, path);
        same_bits(
            (lar_engine_options){.path = path, .cpu = "auto", .threads = 2, .activations = LAR_ACTIVATIONS_BY_TYPE});
    }
}

static void experts_of_two_sizes_share_the_budget(void **state) {
    char path[BOX_PATH_BYTES];
    lar_engine_options o = {.path = mixed(*state, path), .cpu = "auto", .threads = 2};
    same_bits(o);
    o.cpu = "reference";
    same_bits(o);
}

/* Several sequences in one step, layers without shared experts, every expert used by every token. */
static void shapes_at_the_edge_give_the_same_bits(void **state) {
    char path[BOX_PATH_BYTES];
    model_shape s = base;
    s.type = LAR_DTYPE_BF16, s.dense_layers = 0, s.shared = 0, s.experts = 3, s.experts_used = 3, s.hidden = 33;
    s.expert_ff = 5, s.layers = 2;
    write_model(*state, "edge", &s, LAR_MODEL_FOLDER, path);
    same_bits((lar_engine_options){.path = path, .cpu = "auto", .threads = 3, .tokens_max = 4});
    s = base, s.type = LAR_DTYPE_Q8_0, s.experts = 40, s.experts_used = 1, s.layers = 2;
    write_model(*state, "many.gguf", &s, LAR_MODEL_GGUF, path);
    same_bits((lar_engine_options){.path = path, .cpu = "auto", .threads = 1});
}

static void a_dense_model_needs_no_budget(void **state) {
    char path[BOX_PATH_BYTES];
    model_shape s = base;
    s.type = LAR_DTYPE_BF16, s.dense_layers = s.layers;
    write_model(*state, "dense", &s, LAR_MODEL_FOLDER, path);
    lar_engine *e = open_how(&(lar_engine_options){.path = path, .expert_bytes = 1});
    assert_int_equal(lar_engine_experts(e).bytes, 0);
    lar_engine_close(e);
}

/* -- what is in memory -------------------------------------------------------------------------------------------- */

enum { RANGES = 32, PAGE = 4096 };

/* Pages that hold nothing but experts. */
typedef struct expert_pages {
    uint64_t first[RANGES], end[RANGES]; /* pages of the file */
    uint64_t count, all;
} expert_pages;

static expert_pages expert_pages_of(const char *path) {
    expert_pages p = {.count = 0};
    lar_model_files *f;
    lar_diag d = {0};
    assert_int_equal(lar_model_files_open(path, &f, &d), LAR_OK);
    for (uint32_t i = 0; i < lar_model_files_count(f); i++) {
        const lar_tensor *t = lar_model_files_at(f, i);
        uint64_t at = (uint64_t)(t->data - lar_model_files_part(f, 0)->bytes);
        if (!strstr(t->name, "exps")) continue;
        assert_true(p.count < RANGES);
        p.first[p.count] = (at + PAGE - 1) / PAGE, p.end[p.count] = (at + t->bytes) / PAGE;
        p.all += p.end[p.count] - p.first[p.count];
        p.count++;
    }
    lar_model_files_close(f);
    return p;
}

/* How many of them the page cache has. (A page that is touched brings megabytes around it: none is, here.) */
static uint64_t cached_pages(const char *path, const expert_pages *p) {
    struct stat st;
    uint64_t cached = 0;
    int fd = __real_open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    size_t bytes = (size_t)st.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    unsigned char *in = malloc(bytes / PAGE + 1);
    assert_true(map != MAP_FAILED && in);
    assert_int_equal(mincore(map, bytes, in), 0);
    for (uint64_t r = 0; r < p->count; r++)
        for (uint64_t k = p->first[r]; k < p->end[r]; k++) cached += in[k] & 1;
    free(in);
    assert_int_equal(munmap(map, bytes) | close(fd), 0);
    return cached;
}

/* What was written goes to the disk, so that it can leave the page cache. */
static void settle(const char *path) {
    int fd = __real_open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fsync(fd) | close(fd), 0);
}

static bool is_memory(const char *path) {
    struct statfs fs;
    assert_int_equal(statfs(path, &fs), 0);
    return fs.f_type == TMPFS_MAGIC;
}

static void experts_are_not_in_memory_twice(void **state) {
    char path[BOX_PATH_BYTES];
    model_shape s = base;
    s.type = LAR_DTYPE_F32, s.hidden = 128, s.expert_ff = 256, s.layers = 3, s.experts = 24;
    write_model(*state, "large.gguf", &s, LAR_MODEL_GGUF, path);
    if (is_memory(path)) skip();
    settle(path);
    expert_pages pages = expert_pages_of(path);
    for (int buffered = 0; buffered < 2; buffered++) {
        atomic_store(&refuse_open, buffered);
        lar_engine_options o = {.path = path, .threads = 2};
        o.expert_bytes = sizes_of(o).all / 3;
        lar_engine *e = open_how(&o);
        free(all_logits(e, 1));
        free(all_logits(e, TOKENS));
        lar_expert_counts c = lar_engine_experts(e);
        assert_true(c.bytes_read > pages.all * PAGE && c.buffered == buffered);
        uint64_t cached = cached_pages(path, &pages);
        if (cached > pages.all / 20)
            fail_msg("%d: %llu of %llu pages", buffered, (unsigned long long)cached, (unsigned long long)pages.all);
        lar_engine_close(e);
        atomic_store(&refuse_open, false);
    }
}

/* -- file systems ------------------------------------------------------------------------------------------------- */

static void file_systems_without_direct_reads_will_do(void **state) {
    char path[BOX_PATH_BYTES];
    lar_engine_options o = {.path = mixed(*state, path), .threads = 2};
    lar_engine *e = open_how(&o);
    float *wanted = all_logits(e, 5);
    size_t bytes = (size_t)TOKENS * lar_engine_info_of(e).vocab * sizeof *wanted;
    lar_engine_close(e);
    o.expert_bytes = sizes_of(o).all / 2;
    for (int how = 0; how < 3; how++) {
        atomic_store(how == 0 ? &refuse_open : how == 1 ? &refuse_reads : &little, true);
        e = open_how(&o);
        float *got = all_logits(e, 5);
        assert_memory_equal(got, wanted, bytes);
        if (how < 2) assert_true(lar_engine_experts(e).buffered);
        free(got);
        lar_engine_close(e);
        atomic_store(&refuse_open, false), atomic_store(&refuse_reads, false), atomic_store(&little, false);
    }
    free(wanted);
}

/* Read `n` of a step fails: the step says which expert, changes nothing, and goes well when it is tried again. false:
 * the step has no such read. */
static bool fail_read(lar_engine *e, uint32_t n, const float *wanted) {
    uint32_t vocab = lar_engine_info_of(e).vocab, last = 5;
    float *got = malloc(vocab * sizeof *got);
    uint64_t failures = lar_engine_experts(e).failures;
    lar_diag d = {0};
    lar_sequence *s;
    assert_int_equal(lar_sequence_new(e, TOKENS, &s, &d), LAR_OK);
    lar_engine_part p = {s, ids, 6, &last, 1};
    atomic_store(&reads_done, 0), atomic_store(&fail_at, n);
    lar_error error = lar_engine_step(e, &p, 1, got, &d);
    atomic_store(&fail_at, 0);
    if (error) {
        assert_int_equal(error, LAR_IO);
        assert_non_null(strstr(d.text, "layer "));
        assert_non_null(strstr(d.text, ", expert "));
        assert_non_null(strstr(d.text, "mixed.gguf: reading byte"));
        assert_int_equal(lar_sequence_length(s), 0);
        assert_int_equal(lar_engine_experts(e).failures, failures + 1);
        assert_int_equal(lar_engine_step(e, &p, 1, got, &d), LAR_OK);
    }
    assert_int_equal(lar_sequence_length(s), 6);
    assert_memory_equal(got, wanted, vocab * sizeof *got);
    lar_sequence_free(s);
    free(got);
    return error != LAR_OK;
}

static void a_read_that_fails_ends_the_step_and_nothing_else(void **state) {
    char path[BOX_PATH_BYTES];
    uint32_t failed = 0;
    lar_engine_options o = {.path = mixed(*state, path), .threads = 2};
    lar_engine *e = open_how(&o);
    float *wanted = all_logits(e, TOKENS);
    const float *sixth = wanted + (size_t)5 * lar_engine_info_of(e).vocab;
    lar_engine_close(e);
    lar_expert_sizes z = sizes_of(o);
    for (int budget = 0; budget < 2; budget++) {
        o.expert_bytes = budget ? z.all / 2 : z.least;
        e = open_how(&o);
        uint32_t n = 1;
        while (fail_read(e, n, sixth)) n++, failed++;
        lar_engine_close(e);
    }
    assert_true(failed > 40);
    free(wanted);
}

static void cut_file(const char *path, off_t bytes) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - bytes), 0);
}

/* A file that becomes shorter is an error of the step that reads there. (Its mapping is not touched.) */
static void a_file_that_shrinks_fails_the_step(void **state) {
    char path[BOX_PATH_BYTES];
    uint32_t first = 0;
    lar_diag d = {0};
    lar_sequence *s;
    lar_engine_options o = {.path = mixed(*state, path), .threads = 1};
    o.expert_bytes = sizes_of(o).least;
    lar_engine *e = open_how(&o);
    float *logits = malloc(lar_engine_info_of(e).vocab * sizeof *logits);
    assert_int_equal(lar_sequence_new(e, TOKENS, &s, &d), LAR_OK);
    lar_engine_part p = {s, ids, 1, &first, 1};
    assert_int_equal(lar_engine_step(e, &p, 1, logits, &d), LAR_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    cut_file(path, st.st_size * 2 / 3);
    lar_error error = lar_engine_step(e, &p, 1, logits, &d);
    for (int i = 0; !error && i < 20; i++) error = lar_engine_step(e, &p, 1, logits, &d);
    assert_int_equal(error, LAR_IO);
    assert_non_null(strstr(d.text, "it was longer when it was opened"));
    lar_sequence_free(s);
    free(logits);
    lar_engine_close(e);
}

/* -- damaged experts ---------------------------------------------------------------------------------------------- */

/* Where the bytes of a tensor lie in the file. */
static off_t place_of(const char *path, const char *name) {
    lar_model_files *f;
    lar_diag d = {0};
    assert_int_equal(lar_model_files_open(path, &f, &d), LAR_OK);
    const lar_tensor *t = lar_model_files_find(f, name);
    assert_non_null(t);
    off_t at = (off_t)(t->data - lar_model_files_part(f, lar_model_files_part_of(f, t))->bytes);
    lar_model_files_close(f);
    return at;
}

static void put_in_file(const char *path, off_t at, const void *bytes, size_t n) {
    int fd = __real_open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
    assert_int_equal(close(fd), 0);
}

/* All experts in memory: the model is refused. In a budget: every step that uses that expert is. */
static void what_is_no_number_never_reaches_the_logits(void **state) {
    char path[BOX_PATH_BYTES], file[BOX_PATH_BYTES];
    static const uint8_t nan[] = {0xc0, 0x7f};
    model_shape s = base;
    s.type = LAR_DTYPE_BF16;
    write_model(*state, "nan", &s, LAR_MODEL_FOLDER, path);
    box_path(*state, "nan/model.safetensors", file);
    for (uint32_t e = 0; e < s.experts; e++) {
        char name[80];
        (void)snprintf(name, sizeof name, "model.layers.2.mlp.experts.%u.down_proj.weight", e);
        put_in_file(file, place_of(path, name) + 2 * (off_t)(s.expert_ff * 3 + e), nan, sizeof nan);
    }
    lar_engine *e;
    lar_diag d = {0};
    lar_engine_options o = {.path = path, .threads = 2};
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_INVALID);
    o.expert_bytes = sizes_of(o).all / 2;
    e = open_how(&o);
    lar_sequence *q;
    uint32_t last = 3;
    float *logits = malloc(lar_engine_info_of(e).vocab * sizeof *logits);
    assert_int_equal(lar_sequence_new(e, TOKENS, &q, &d), LAR_OK);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(lar_engine_step(e, &(lar_engine_part){q, ids, 4, &last, 1}, 1, logits, &d), LAR_CORRUPT);
        assert_non_null(strstr(d.text, "layer 2, expert "));
        assert_non_null(strstr(d.text, "holds a NaN or an infinity"));
        assert_int_equal(lar_sequence_length(q), 0);
    }
    lar_sequence_free(q);
    free(logits);
    lar_engine_close(e);
}

/* Names and shapes are looked at when the model is opened, experts' too. */
static void a_model_that_lacks_an_expert_is_refused(void **state) {
    char path[BOX_PATH_BYTES], file[BOX_PATH_BYTES];
    model_shape s = base;
    s.type = LAR_DTYPE_BF16;
    write_model(*state, "lacking", &s, LAR_MODEL_FOLDER, path);
    box_path(*state, "lacking/model.safetensors", file);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    static char head[1 << 16];
    size_t n = fread(head, 1, sizeof head, f);
    char *at = memmem(head, n, "layers.3.mlp.experts.7.up_proj", 30);
    assert_non_null(at);
    assert_int_equal(fseek(f, at - head, SEEK_SET), 0);
    assert_int_equal(fwrite("layers.3.mlp.experts.7.up_porj", 1, 30, f), 30);
    assert_int_equal(fclose(f), 0);
    lar_engine *e;
    lar_diag d = {0};
    assert_int_equal(lar_engine_open(&(lar_engine_options){.path = path, .expert_bytes = 1 << 20}, &e, &d),
                     LAR_INVALID);
    assert_non_null(strstr(d.text, "experts.7.up_proj.weight' is missing"));
}

/* -- any thread --------------------------------------------------------------------------------------------------- */

static atomic_bool reading_ends;

static void *read_counts(void *engine) {
    uint64_t last = 0;
    while (!atomic_load(&reading_ends)) {
        lar_expert_counts c = lar_engine_experts(engine);
        if (c.misses < last) return engine;
        last = c.misses;
        (void)lar_engine_expert_layer(engine, 0);
        (void)usleep(100);
    }
    return NULL;
}

static void counts_are_read_while_a_step_runs(void **state) {
    char path[BOX_PATH_BYTES];
    pthread_t thread;
    void *wrong;
    lar_engine_options o = {.path = mixed(*state, path), .threads = 2};
    o.expert_bytes = sizes_of(o).all / 2;
    lar_engine *e = open_how(&o);
    assert_int_equal(pthread_create(&thread, NULL, read_counts, e), 0);
    for (int i = 0; i < 5; i++) free(all_logits(e, 1));
    atomic_store(&reading_ends, true);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    lar_engine_close(e);
}

static int prepare(void **state) {
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (i * 71 + 5) % 100;
    return box_setup(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_give_the_same_bits),
        cmocka_unit_test(every_type_gives_the_same_bits),
        cmocka_unit_test(experts_of_two_sizes_share_the_budget),
        cmocka_unit_test(shapes_at_the_edge_give_the_same_bits),
        cmocka_unit_test(a_dense_model_needs_no_budget),
        cmocka_unit_test(experts_are_not_in_memory_twice),
        cmocka_unit_test(file_systems_without_direct_reads_will_do),
        cmocka_unit_test(a_read_that_fails_ends_the_step_and_nothing_else),
        cmocka_unit_test(a_file_that_shrinks_fails_the_step),
        cmocka_unit_test(what_is_no_number_never_reaches_the_logits),
        cmocka_unit_test(a_model_that_lacks_an_expert_is_refused),
        cmocka_unit_test(counts_are_read_while_a_step_runs),
    };
    return cmocka_run_group_tests(tests, prepare, box_teardown);
}
