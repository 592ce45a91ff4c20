/* A page store of tests: a list of pages in memory that can fail as a disk does.
 * Flow: a prefix cache calls; tests set the fault. One thread. Memory: a copy of each page. */
#include "tests/unit_engine/cache/memory_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

/* FNV-1a. */
static uint64_t check_of(const uint8_t *bytes, uint64_t size) {
    uint64_t h = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < size; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

static memory_page *find(const memory_store *s, const lar_page_key *key) {
    for (uint32_t i = 0; i < s->count; i++)
        if (lar_digest_eq(&s->pages[i].key, key)) return &s->pages[i];
    return NULL;
}

static bool has(void *context, const lar_page_key *key) { return find(context, key) != NULL; }

static void forget(memory_store *s, memory_page *p) {
    free(p->bytes);
    *p = s->pages[--s->count];
}

static lar_error read_page(void *context, const lar_page_key *key, uint8_t *to, uint64_t bytes) {
    memory_store *s = context;
    memory_page *p = find(s, key);
    s->reads++;
    if (s->fault == STORE_READS_FAIL) return LAR_IO;
    if (!p) return LAR_NOT_FOUND;
    if (s->fault == STORE_DAMAGES) p->bytes[s->reads % p->size] ^= 1;
    memcpy(to, p->bytes, bytes < p->size ? bytes : p->size);
    if (bytes == p->size && check_of(to, bytes) == p->check) return LAR_OK;
    forget(s, p);
    return LAR_NOT_FOUND;
}

static lar_error write_page(void *context, const lar_page_key *key, const uint8_t *from, uint64_t bytes) {
    memory_store *s = context;
    s->writes++;
    if (s->fault == STORE_WRITES_FAIL) return LAR_IO;
    if (find(s, key)) return LAR_OK;
    if (s->count == s->room || (s->ring && s->waiting == s->ring)) return LAR_FULL;
    s->waiting += s->ring > 0;
    memory_page *p = &s->pages[s->count++];
    *p = (memory_page){*key, malloc(bytes), bytes, check_of(from, bytes)};
    LAR_ASSERT(p->bytes != NULL);
    memcpy(p->bytes, from, bytes);
    return LAR_OK;
}

static void flush(void *context) { ((memory_store *)context)->waiting = 0; }

void memory_store_init(memory_store *s, uint32_t room) {
    *s = (memory_store){.store = {s, has, read_page, write_page, flush, NULL}, .room = room};
    s->pages = calloc(room, sizeof *s->pages);
    LAR_ASSERT(s->pages != NULL);
}

void memory_store_clear(memory_store *s) {
    while (s->count) forget(s, &s->pages[s->count - 1]);
}

void memory_store_release(memory_store *s) {
    memory_store_clear(s);
    free(s->pages);
}
