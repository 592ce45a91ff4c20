/* Texts of answers in memory, and on disk where the configuration says so (header: output_texts.h).
 * Called through lar_memory_ops by any thread. A get may wait for a page of the mapped file, never for a write.
 * Why apart from the rules' own memory: that holds no text and lives on disk. This one is gone with the process. */
#include "gateway/recall/output_texts.h"

#include <stdlib.h>

#include "gateway/recall/volatile_memory.h"

struct lar_output_texts {
    lar_volatile_memory *memory;
    lar_memory_ops ops;
    const lar_memory_ops *disk;
};

lar_output_texts *lar_output_texts_new(uint64_t bytes_max, const lar_memory_ops *disk) {
    lar_output_texts *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->memory = lar_volatile_memory_new(bytes_max);
    if (!t->memory) {
        free(t);
        return NULL;
    }
    t->ops = lar_volatile_memory_ops(t->memory);
    t->disk = disk;
    return t;
}

void lar_output_texts_free(lar_output_texts *t) {
    if (!t) return;
    lar_volatile_memory_free(t->memory);
    free(t);
}

static lar_error get(void *ctx, const lar_hash *key, lar_buf *out) {
    const lar_output_texts *t = ctx;
    lar_error e = t->ops.get(t->ops.ctx, key, out);
    return e == LAR_NOT_FOUND && t->disk ? t->disk->get(t->disk->ctx, key, out) : e;
}

static void put(void *ctx, const lar_hash *key, lar_slice value) {
    const lar_output_texts *t = ctx;
    t->ops.put(t->ops.ctx, key, value);
    if (t->disk && value.len <= LAR_OUTPUT_DISK_MAX) t->disk->put(t->disk->ctx, key, value);
}

lar_memory_ops lar_output_texts_ops(lar_output_texts *t) {
    return (lar_memory_ops){.ctx = t, .get = get, .put = put};
}
