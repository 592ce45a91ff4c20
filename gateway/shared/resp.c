/* RESP 2: replies through hiredis's reader, into memory of our own.
 * Flow: shared_link.c feeds what the socket gave and takes replies. One owner; never blocks.
 * Why functions of our own behind the reader: its standard ones allocate for each element, and as many elements as the
 * server claims before one has come. Invariants: 1. texts are copied into `text`, since the reader moves its buffer
 * between two feeds of one reply. 2. a nested array is read over and counts as an element without a text.
 * Memory: one buffer and one list, both bounded. Not here: what a reply means. */
#include "gateway/shared/resp.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#include "base/ensure.h"

enum { KEEP_BYTES = 64 << 10 };

typedef struct place {
    size_t start, len;
    bool is_text;
} place;

struct lar_resp {
    redisReader *reader;
    redisReplyObjectFunctions functions;
    lar_buf text; /* of the reply under way */
    lar_resp_kind kind;
    place whole; /* of a reply that is no array */
    place items[LAR_RESP_ITEMS_MAX];
    lar_slice slices[LAR_RESP_ITEMS_MAX];
    uint32_t count;
    bool done; /* the reply was handed out: the next one begins */
};

bool lar_resp_available(void) { return true; }

static lar_resp *owner_of(const redisReadTask *task) { return task->privdata; }

/* Where the value of this task goes; NULL: it lies deeper than anything larder asks for. */
static place *place_of(lar_resp *r, const redisReadTask *task) {
    if (!task->parent) return &r->whole;
    return task->parent->parent ? NULL : &r->items[task->idx];
}

static lar_resp_kind kind_of(int type) {
    switch (type) {
    case REDIS_REPLY_STATUS: return LAR_RESP_STATUS;
    case REDIS_REPLY_ERROR: return LAR_RESP_ERROR;
    case REDIS_REPLY_INTEGER: return LAR_RESP_INTEGER;
    case REDIS_REPLY_NIL: return LAR_RESP_NIL;
    case REDIS_REPLY_ARRAY: return LAR_RESP_ARRAY;
    default: return LAR_RESP_TEXT;
    }
}

/* Every function returns the owner for "an object was made"; NULL ends the reading as out of memory. */
static void *put(const redisReadTask *task, const char *bytes, size_t len, bool is_text) {
    lar_resp *r = owner_of(task);
    place *p = place_of(r, task);
    if (!task->parent) r->kind = kind_of(task->type);
    if (!p) return r;
    *p = (place){r->text.len, len, is_text};
    return len == 0 || lar_buf_add(&r->text, bytes, len) == LAR_OK ? r : NULL;
}

static void *on_string(const redisReadTask *task, char *bytes, size_t len) {
    return put(task, bytes, len, task->type == REDIS_REPLY_STRING || !task->parent);
}

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

static void *on_array(const redisReadTask *task, element_count elements) {
    lar_resp *r = owner_of(task);
    if (elements > (element_count)LAR_RESP_ITEMS_MAX) return NULL;
    if (task->parent) return put(task, NULL, 0, false);
    r->kind = LAR_RESP_ARRAY;
    r->count = (uint32_t)elements;
    return r;
}

static void *on_integer(const redisReadTask *task, long long value) {
    (void)value;
    return put(task, NULL, 0, false);
}

/* "$-1" and "*-1": the task still says what it began as. */
static void *on_nil(const redisReadTask *task) {
    lar_resp *r = put(task, NULL, 0, false);
    if (!task->parent) r->kind = LAR_RESP_NIL;
    return r;
}

static void on_free(void *object) { (void)object; }

lar_resp *lar_resp_new(void) {
    lar_resp *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->functions = (redisReplyObjectFunctions){.createString = on_string,
                                               .createArray = on_array,
                                               .createInteger = on_integer,
                                               .createNil = on_nil,
                                               .freeObject = on_free};
    r->reader = redisReaderCreateWithFunctions(&r->functions);
    if (!r->reader) {
        free(r);
        return NULL;
    }
    r->reader->privdata = r;
    r->reader->maxbuf = KEEP_BYTES;
    lar_buf_init(&r->text, LAR_RESP_BYTES_MAX);
    return r;
}

void lar_resp_free(lar_resp *r) {
    if (!r) return;
    redisReaderFree(r->reader);
    lar_buf_release(&r->text);
    free(r);
}

lar_error lar_resp_feed(lar_resp *r, lar_slice bytes) {
    if (r->reader->len - r->reader->pos + bytes.len > LAR_RESP_BYTES_MAX) return LAR_LIMIT;
    if (bytes.len == 0) return LAR_OK;
    return redisReaderFeed(r->reader, bytes.ptr, bytes.len) == REDIS_OK ? LAR_OK : LAR_NO_MEMORY;
}

static lar_slice slice_of(const lar_resp *r, const place *p) {
    if (!p->is_text) return (lar_slice){NULL, 0};
    return p->len ? lar_slice_of(r->text.ptr + p->start, p->len) : LAR_SLICE("");
}

lar_error lar_resp_next(lar_resp *r, lar_resp_reply *out) {
    void *whole = NULL;
    if (r->done) {
        lar_buf_reset(&r->text, KEEP_BYTES);
        r->count = 0;
        r->done = false;
    }
    if (redisReaderGetReply(r->reader, &whole) != REDIS_OK) return LAR_INVALID;
    if (!whole) return LAR_NOT_FOUND;
    r->done = true;
    *out = (lar_resp_reply){.kind = r->kind, .items = r->slices, .count = r->count};
    if (r->kind != LAR_RESP_ARRAY) out->text = slice_of(r, &r->whole);
    for (uint32_t i = 0; i < r->count; i++) r->slices[i] = slice_of(r, &r->items[i]);
    return LAR_OK;
}

lar_error lar_resp_command(lar_buf *to, const lar_slice *words, uint32_t count) {
    size_t before = to->len;
    lar_error e = lar_buf_add(to, "*", 1);
    if (!e) e = lar_buf_add_u64(to, count);
    for (uint32_t i = 0; i < count && !e; i++) {
        e = lar_buf_add(to, "\r\n$", 3);
        if (!e) e = lar_buf_add_u64(to, words[i].len);
        if (!e) e = lar_buf_add(to, "\r\n", 2);
        if (!e) e = lar_buf_add_slice(to, words[i]);
    }
    if (!e) e = lar_buf_add(to, "\r\n", 2);
    if (e) to->len = before;
    return e;
}
