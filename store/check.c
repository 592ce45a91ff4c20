/* Walks the pages of an LMDB 0.9 data file by pread and says whether LMDB can be trusted with it.
 * Flow: env.c calls it once at open, before the first look-up. Any thread; blocks on file reads.
 * Why: LMDB maps its file and follows every number in it; a cut or overwritten file is SIGBUS or worse, and
 * with NOSYNC a power cut can leave one. Invariants: 1. no number from the file is used before its range was
 * checked. 2. A page is visited once: cycles end. 3. Nothing is written.
 * Memory: one page, one bit a page, a work list; freed before return.
 * Not here: checksums of records (record.c, record_sums.c). The layout is that of lmdb 0.9's mdb.c. */
#include "store/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ensure.h"

enum {
    PAGE_HEAD = 16,
    PAGE_BRANCH = 0x01,
    PAGE_LEAF = 0x02,
    PAGE_OVERFLOW = 0x04,
    PAGE_META = 0x08,
    PAGE_KINDS = 0x7f,
    NODE_HEAD = 8,
    NODE_BIG = 0x01,
    NODE_DB = 0x02,
    NODE_DUP = 0x04,
    META_BYTES = 136,
    DB_BYTES = 48,
    PAGE_SIZE_MIN = 512,
    PAGE_SIZE_MAX = 65536,
    KEY_BYTES_MAX = 511
};
#define FILE_MAGIC 0xBEEFC0DEu
#define NO_PAGE UINT64_MAX
#define MAP_BYTES_LIMIT (UINT64_C(1) << 46)

/* LMDB writes its file in the machine's own byte order. */
static uint16_t get16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static uint32_t get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static uint64_t get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

typedef struct head {
    uint64_t page_bytes, map_bytes, last_page, txn;
    uint64_t root_free, root_main;
} head;

typedef enum tree_kind { TREE_FREE, TREE_MAIN, TREE_NAMED } tree_kind;

typedef struct todo {
    uint64_t page;
    tree_kind tree;
} todo;

typedef struct walk {
    int fd;
    uint64_t file_bytes;
    head h;
    uint8_t *page, *seen;
    todo *list;
    size_t count, cap;
    lar_diag *d;
} walk;

static lar_error bad(walk *w, uint64_t page, const char *what) {
    return lar_fail_at(LAR_CORRUPT, w->d, page * w->h.page_bytes, "page %" PRIu64 ": %s", page, what);
}

/* Fills `h` from the meta page at `offset`. */
static lar_error read_meta(int fd, uint64_t offset, head *h, lar_diag *d) {
    uint8_t b[PAGE_HEAD + META_BYTES];
    ssize_t n = pread(fd, b, sizeof b, (off_t)offset);
    if (n < 0) return lar_fail(LAR_IO, d, "cannot read the data file: %s", strerror(errno));
    if (n != (ssize_t)sizeof b) return lar_fail_at(LAR_CORRUPT, d, offset, "the data file ends inside its head");
    const uint8_t *m = b + PAGE_HEAD;
    if (!(get16(b + 10) & PAGE_META) || get32(m) != FILE_MAGIC)
        return lar_fail_at(LAR_CORRUPT, d, offset, "the data file has no LMDB head");
    if (get32(m + 4) != 1)
        return lar_fail(LAR_VERSION, d, "the data file is of another LMDB format (%" PRIu32 ")", get32(m + 4));
    h->page_bytes = get32(m + 24);
    h->map_bytes = get64(m + 16);
    h->root_free = get64(m + 24 + 40);
    h->root_main = get64(m + 72 + 40);
    h->last_page = get64(m + 120);
    h->txn = get64(m + 128);
    uint64_t p = h->page_bytes;
    if (p < PAGE_SIZE_MIN || p > PAGE_SIZE_MAX || (p & (p - 1)))
        return lar_fail_at(LAR_CORRUPT, d, offset, "impossible page size");
    if (h->map_bytes > MAP_BYTES_LIMIT || h->last_page < 1 || h->last_page > h->map_bytes / p) {
        return lar_fail_at(LAR_CORRUPT, d, offset, "impossible map size");
    }
    return LAR_OK;
}

static lar_error read_heads(int fd, head *newest, uint64_t *file_bytes, lar_diag *d) {
    struct stat st;
    head second;
    if (fstat(fd, &st) != 0) return lar_fail(LAR_IO, d, "cannot stat the data file: %s", strerror(errno));
    *file_bytes = (uint64_t)st.st_size;
    lar_error e = read_meta(fd, 0, newest, d);
    if (!e) e = read_meta(fd, newest->page_bytes, &second, d);
    if (e) return e;
    if (second.page_bytes != newest->page_bytes) return lar_fail(LAR_CORRUPT, d, "the two heads differ in page size");
    if (second.txn > newest->txn) *newest = second;
    /* Pages freed within their own transaction may lie behind the end of the file, but never that many. */
    if (newest->last_page * newest->page_bytes > *file_bytes * 2 + (UINT64_C(64) << 20)) {
        return lar_fail(LAR_CORRUPT, d, "the data file is cut short");
    }
    return LAR_OK;
}

lar_error lar_check_head(int fd, lar_diag *d) {
    struct stat st;
    head h;
    uint64_t file_bytes;
    if (fstat(fd, &st) != 0) return lar_fail(LAR_IO, d, "cannot stat the data file: %s", strerror(errno));
    return st.st_size == 0 ? LAR_OK : read_heads(fd, &h, &file_bytes, d);
}

static lar_error push(walk *w, uint64_t page, tree_kind tree) {
    if (page == NO_PAGE) return LAR_OK;
    if (page < 2 || page > w->h.last_page)
        return bad(w, page > w->h.last_page ? 0 : page, "a link leads out of the file");
    if (w->seen[page / 8] & (1u << (page % 8))) return bad(w, page, "reached twice");
    w->seen[page / 8] = (uint8_t)(w->seen[page / 8] | 1u << (page % 8));
    if (w->count == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 1024;
        todo *list = realloc(w->list, cap * sizeof *list);
        if (!list) return LAR_NO_MEMORY;
        w->list = list;
        w->cap = cap;
    }
    w->list[w->count++] = (todo){page, tree};
    return LAR_OK;
}

static lar_error check_overflow(walk *w, uint64_t page, uint64_t bytes) {
    uint8_t h[PAGE_HEAD];
    uint64_t pages = (PAGE_HEAD + bytes + w->h.page_bytes - 1) / w->h.page_bytes;
    if (page < 2 || page > w->h.last_page || pages > w->h.last_page + 1 - page)
        return bad(w, 0, "a value leads out of the file");
    if ((page + pages) * w->h.page_bytes > w->file_bytes) return bad(w, page, "the data file is cut short");
    ssize_t n = pread(w->fd, h, sizeof h, (off_t)(page * w->h.page_bytes));
    if (n != (ssize_t)sizeof h) return bad(w, page, "unreadable");
    if (get64(h) != page || (get16(h + 10) & PAGE_KINDS) != PAGE_OVERFLOW || get32(h + 12) < pages)
        return bad(w, page, "no overflow page");
    for (uint64_t p = page; p < page + pages; p++) {
        if (w->seen[p / 8] & (1u << (p % 8))) return bad(w, p, "reached twice");
        w->seen[p / 8] = (uint8_t)(w->seen[p / 8] | 1u << (p % 8));
    }
    return LAR_OK;
}

/* A list of free pages: its own length, then page numbers. */
static lar_error check_free_list(walk *w, uint64_t page, const uint8_t *data, uint64_t bytes) {
    if (bytes < 8 || bytes % 8 || get64(data) != bytes / 8 - 1)
        return bad(w, page, "a list of free pages has a wrong length");
    for (uint64_t at = 8; at < bytes; at += 8) {
        uint64_t free_page = get64(data + at);
        if (free_page < 2 || free_page > w->h.last_page) return bad(w, page, "a free page lies outside the file");
    }
    return LAR_OK;
}

static lar_error check_big_free_list(walk *w, uint64_t page, uint64_t at, uint64_t bytes) {
    uint8_t *data = malloc(bytes ? bytes : 1);
    if (!data) return LAR_NO_MEMORY;
    lar_error e = LAR_OK;
    if (pread(w->fd, data, bytes, (off_t)(at * w->h.page_bytes + PAGE_HEAD)) != (ssize_t)bytes)
        e = bad(w, at, "unreadable");
    if (!e) e = check_free_list(w, page, data, bytes);
    free(data);
    return e;
}

static lar_error check_leaf_node(walk *w, todo t, const uint8_t *node, size_t room) {
    uint16_t flags = get16(node + 4), key_bytes = get16(node + 6);
    uint64_t bytes = (uint64_t)get16(node) | (uint64_t)get16(node + 2) << 16;
    uint64_t held = flags & NODE_BIG ? 8 : bytes;
    if (flags & NODE_DUP)
        return lar_fail(LAR_VERSION, w->d, "store: the folder holds an LMDB file that is not larder's");
    if (flags & ~(NODE_BIG | NODE_DB) || key_bytes == 0 || key_bytes > KEY_BYTES_MAX)
        return bad(w, t.page, "an entry has an impossible shape");
    if (NODE_HEAD + key_bytes + held > room) return bad(w, t.page, "an entry leads out of its page");
    const uint8_t *data = node + NODE_HEAD + key_bytes;
    if (t.tree == TREE_FREE && (key_bytes != 8 || flags & NODE_DB))
        return bad(w, t.page, "an entry of the free list has an impossible shape");
    if (t.tree == TREE_NAMED && flags & NODE_DB) return bad(w, t.page, "a table inside a table");
    if (flags & NODE_DB) {
        if (bytes != DB_BYTES || get16(data + 6) > 32) return bad(w, t.page, "a table has an impossible head");
        if (get16(data + 4))
            return lar_fail(LAR_VERSION, w->d, "store: the folder holds an LMDB file that is not larder's");
        return push(w, get64(data + 40), TREE_NAMED);
    }
    if (flags & NODE_BIG) {
        uint64_t at = get64(data);
        lar_error e = check_overflow(w, at, bytes);
        if (!e && t.tree == TREE_FREE) e = check_big_free_list(w, t.page, at, bytes);
        return e;
    }
    return t.tree == TREE_FREE ? check_free_list(w, t.page, data, bytes) : LAR_OK;
}

static lar_error check_branch_node(walk *w, todo t, const uint8_t *node, size_t room) {
    uint16_t key_bytes = get16(node + 6);
    if (key_bytes > KEY_BYTES_MAX || (size_t)NODE_HEAD + key_bytes > room)
        return bad(w, t.page, "a link leads out of its page");
    return push(w, (uint64_t)get16(node) | (uint64_t)get16(node + 2) << 16 | (uint64_t)get16(node + 4) << 32, t.tree);
}

static lar_error check_page(walk *w, todo t) {
    uint64_t size = w->h.page_bytes;
    if ((t.page + 1) * size > w->file_bytes) return bad(w, t.page, "the data file is cut short");
    ssize_t n = pread(w->fd, w->page, size, (off_t)(t.page * size));
    if (n < 0) return lar_fail(LAR_IO, w->d, "cannot read the data file: %s", strerror(errno));
    if ((uint64_t)n != size) return bad(w, t.page, "the data file is cut short");
    unsigned kind = get16(w->page + 10) & PAGE_KINDS, lower = get16(w->page + 12), upper = get16(w->page + 14);
    if (get64(w->page) != t.page) return bad(w, t.page, "carries another page's number");
    if (kind != PAGE_BRANCH && kind != PAGE_LEAF) return bad(w, t.page, "is of no known kind");
    if (lower < PAGE_HEAD || lower % 2 || lower > upper || upper > size)
        return bad(w, t.page, "has impossible borders");
    unsigned entries = (lower - PAGE_HEAD) / 2;
    if (entries < (kind == PAGE_BRANCH && t.tree != TREE_FREE ? 2u : 1u)) return bad(w, t.page, "has too few entries");
    for (unsigned i = 0; i < entries; i++) {
        unsigned at = get16(w->page + PAGE_HEAD + 2 * i);
        if (at < upper || at + NODE_HEAD > size || at % 2) return bad(w, t.page, "an entry lies outside its page");
        lar_error e = kind == PAGE_LEAF ? check_leaf_node(w, t, w->page + at, size - at)
                                        : check_branch_node(w, t, w->page + at, size - at);
        if (e) return e;
    }
    return LAR_OK;
}

lar_error lar_check_tree(int fd, lar_diag *d) {
    walk w = {.fd = fd, .d = d};
    lar_error e = read_heads(fd, &w.h, &w.file_bytes, d);
    if (e) return e;
    w.page = malloc(w.h.page_bytes);
    w.seen = calloc(1, w.h.last_page / 8 + 1);
    if (!w.page || !w.seen) e = LAR_NO_MEMORY;
    if (!e) e = push(&w, w.h.root_free, TREE_FREE);
    if (!e) e = push(&w, w.h.root_main, TREE_MAIN);
    while (!e && w.count) {
        todo t = w.list[--w.count];
        e = check_page(&w, t);
    }
    free(w.page);
    free(w.seen);
    free(w.list);
    return e;
}
