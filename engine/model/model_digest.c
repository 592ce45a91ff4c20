/* The name of a model: hashes of its files' pieces, by all workers, and of everything beside them that counts.
 * Flow: engine.c calls once, when pages go to a store. Blocks while files are read.
 * Why XXH3 for the pieces and SHA-256 above them: files are read at the speed of memory, and whoever can choose a
 * model's bytes to fool a hash can choose what the model says.
 * Memory: a hash for each piece, while it works. */
#include "engine/model/model_digest.h"

#include <stdlib.h>

#include "base/hash.h"
#include "engine/compute/workers.h"

enum { PIECE_BYTES = 4 << 20, TEXT_BYTES_MAX = 16 << 20 };

typedef struct piece {
    const uint8_t *bytes;
    uint64_t size;
} piece;

typedef struct pieces {
    piece *list;
    lar_hash *hashes; /* (count) */
    uint64_t count;
} pieces;

/* Where the first tensor of a part begins: before it are names, types and shapes. */
static uint64_t head_bytes(const lar_model_files *f, const lar_file_view *part) {
    uint64_t head = part->size;
    for (uint32_t i = 0; i < lar_model_files_count(f); i++) {
        const uint8_t *data = lar_model_files_at(f, i)->data;
        if (data >= part->bytes && data < part->bytes + head) head = (uint64_t)(data - part->bytes);
    }
    return head;
}

/* Adds what is to be read of one file; with list NULL only counts it. */
static void add(pieces *p, const uint8_t *bytes, uint64_t size) {
    for (uint64_t at = 0; at < size; at += PIECE_BYTES, p->count++)
        if (p->list) p->list[p->count] = (piece){bytes + at, size - at < PIECE_BYTES ? size - at : PIECE_BYTES};
}

static void add_part(pieces *p, const lar_model_files *f, const lar_file_view *part, lar_digest_reach reach) {
    uint64_t head = reach == LAR_DIGEST_SAMPLED ? head_bytes(f, part) : part->size, rest = part->size - head;
    if (rest <= (uint64_t)LAR_DIGEST_SAMPLES * LAR_DIGEST_SAMPLE_BYTES) {
        add(p, part->bytes, part->size);
        return;
    }
    add(p, part->bytes, head);
    for (uint64_t i = 0; i < LAR_DIGEST_SAMPLES; i++) {
        uint64_t at = (rest - LAR_DIGEST_SAMPLE_BYTES) / (LAR_DIGEST_SAMPLES - 1) * i;
        if (i == LAR_DIGEST_SAMPLES - 1) at = rest - LAR_DIGEST_SAMPLE_BYTES;
        add(p, part->bytes + head + at, LAR_DIGEST_SAMPLE_BYTES);
    }
}

static lar_error choose(pieces *p, const lar_model_files *f, lar_digest_reach reach) {
    for (int pass = 0; pass < 2; pass++) {
        p->count = 0;
        for (uint32_t i = 0; i < lar_model_files_parts(f); i++) add_part(p, f, lar_model_files_part(f, i), reach);
        if (pass) break;
        p->list = malloc(p->count * sizeof *p->list);
        p->hashes = malloc(p->count * sizeof *p->hashes);
        if (!p->list || !p->hashes) return LAR_NO_MEMORY;
    }
    return LAR_OK;
}

static void hash_share(void *context, uint32_t part, uint32_t parts) {
    pieces *p = context;
    uint64_t begin, end;
    lar_workers_share(p->count, part, parts, &begin, &end);
    for (; begin < end; begin++)
        p->hashes[begin] = lar_hash_of(lar_slice_of((const char *)p->list[begin].bytes, p->list[begin].size));
}

/* Everything beside the pieces' bytes. */
static lar_error describe(const lar_model_files *f, const lar_model_digest_options *o, lar_buf *out, lar_diag *d) {
    static const char edition[] = "larder model " LARDER_VERSION;
    const uint64_t numbers[] = {(uint64_t)o->activations, (uint64_t)o->attention, (uint64_t)o->reach,
                                o->kernels == lar_kernels_reference()};
    lar_error e = lar_buf_add(out, edition, sizeof edition);
    if (!e) e = lar_buf_add(out, numbers, sizeof numbers);
    for (uint32_t i = 0; !e && i < lar_model_files_parts(f); i++) {
        const uint64_t size = lar_model_files_part(f, i)->size;
        e = lar_buf_add(out, &size, sizeof size);
    }
    if (!e && lar_model_files_form(f) == LAR_MODEL_FOLDER) e = lar_model_files_text(f, "config.json", out, d);
    return e;
}

lar_error lar_model_digest_of(const lar_model_files *f, const lar_model_digest_options *o, lar_digest *out,
                              lar_diag *d) {
    pieces p = {0};
    lar_buf text;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = choose(&p, f, o->reach);
    if (!e) e = describe(f, o, &text, d);
    if (!e) {
        lar_workers_run(o->workers, hash_share, &p);
        const lar_digest parts[] = {lar_digest_of(lar_buf_slice(&text)),
                                    lar_digest_of(lar_slice_of((const char *)p.hashes, p.count * sizeof *p.hashes))};
        *out = lar_digest_of(lar_slice_of((const char *)parts, sizeof parts));
    }
    lar_buf_release(&text);
    free(p.list);
    free(p.hashes);
    return e;
}
