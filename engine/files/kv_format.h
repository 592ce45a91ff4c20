/* How a token's keys and values can be kept (kv_format.def): what is planned for, and what a sequence does. */
#ifndef LARDER_ENGINE_KV_FORMAT_H
#define LARDER_ENGINE_KV_FORMAT_H

#include <stdint.h>

typedef enum lar_kv {
#define LAR_KV(id, name, value, group, scale, text) LAR_KV_##id,
#include "engine/files/kv_format.def"
#undef LAR_KV
    LAR_KV_COUNT
} lar_kv;

enum { LAR_PAGE_TOKENS = 64 /* kept together, in every format */ };

typedef struct lar_kv_info {
    const char *name;
    uint32_t value_bytes, group, scale_bytes;
    const char *text;
} lar_kv_info;

const lar_kv_info *lar_kv_info_of(lar_kv kv);

#endif
