/* Typed reading of GGUF metadata.
 * Called by engine/model, engine/text and `larder inspect`; any thread; never blocks. Why typed: converters write one
 * value with several widths, and a wrong kind must be an error that names the key, not a number that is off.
 * Invariants: what lar_gguf_read accepted is well-formed, so nothing here looks for ends again. Memory: borrowed. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "engine/files/float_bits.h"
#include "engine/files/gguf.h"

typedef enum value_kind { UNSIGNED, SIGNED, FLOATING, TRUTH, TEXT, NESTED } value_kind;
typedef struct type_row {
    const char *name;
    unsigned width;
    value_kind kind;
} type_row;
static const type_row types[LAR_GGUF_TYPE_COUNT] = {
    [LAR_GGUF_U8] = {"u8", 1, UNSIGNED},     [LAR_GGUF_I8] = {"i8", 1, SIGNED},
    [LAR_GGUF_U16] = {"u16", 2, UNSIGNED},   [LAR_GGUF_I16] = {"i16", 2, SIGNED},
    [LAR_GGUF_U32] = {"u32", 4, UNSIGNED},   [LAR_GGUF_I32] = {"i32", 4, SIGNED},
    [LAR_GGUF_F32] = {"f32", 4, FLOATING},   [LAR_GGUF_BOOL] = {"bool", 1, TRUTH},
    [LAR_GGUF_STRING] = {"string", 0, TEXT}, [LAR_GGUF_ARRAY] = {"list", 0, NESTED},
    [LAR_GGUF_U64] = {"u64", 8, UNSIGNED},   [LAR_GGUF_I64] = {"i64", 8, SIGNED},
    [LAR_GGUF_F64] = {"f64", 8, FLOATING},
};

unsigned lar_gguf_width(lar_gguf_type type) { return types[type].width; }

static int compare_key(const void *key, const void *value) {
    const lar_slice *x = key, *y = &((const lar_gguf_value *)value)->key;
    int order = memcmp(x->ptr, y->ptr, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

const lar_gguf_value *lar_gguf_find(const lar_gguf *g, const char *key) {
    lar_slice wanted = lar_slice_cstr(key);
    return g->count ? bsearch(&wanted, g->values, g->count, sizeof *g->values, compare_key) : NULL;
}

static lar_error find(const lar_gguf *g, const char *key, const lar_gguf_value **out, lar_diag *d) {
    *out = lar_gguf_find(g, key);
    return *out ? LAR_OK : lar_fail(LAR_NOT_FOUND, d, "%.100s: its metadata has no %s", g->name, key);
}

static lar_error wrong(const lar_gguf *g, const lar_gguf_value *v, const char *wanted, lar_diag *d) {
    return lar_fail(LAR_INVALID, d, "%.100s: metadata %.*s: expected %s, found %s%s", g->name, LAR_FMT(v->key), wanted,
                    v->list ? "a list of " : "", types[v->type].name);
}

static lar_slice string_at(const uint8_t *p) { return lar_slice_of((const char *)p + 8, lar_le64(p)); }

lar_error lar_gguf_string(const lar_gguf *g, const char *key, lar_slice *out, lar_diag *d) {
    const lar_gguf_value *v;
    lar_error e = find(g, key, &v, d);
    if (e) return e;
    if (v->list || v->type != LAR_GGUF_STRING) return wrong(g, v, "a string", d);
    *out = string_at(v->data);
    return LAR_OK;
}

static uint64_t raw_at(const lar_gguf_value *v, uint64_t i) {
    const uint8_t *p = v->data + i * types[v->type].width;
    switch (types[v->type].width) {
    case 1: return *p;
    case 2: return lar_le16(p);
    case 4: return lar_le32(p);
    default: return lar_le64(p);
    }
}

int64_t lar_gguf_integer_at(const lar_gguf_value *v, uint64_t i) {
    LAR_ASSERT(i < v->count && types[v->type].kind != FLOATING && types[v->type].width);
    uint64_t raw = raw_at(v, i);
    if (types[v->type].kind != SIGNED) return raw > INT64_MAX ? INT64_MAX : (int64_t)raw;
    switch (types[v->type].width) {
    case 1: return (int8_t)raw;
    case 2: return (int16_t)raw;
    case 4: return (int32_t)raw;
    default: return (int64_t)raw;
    }
}

double lar_gguf_float_at(const lar_gguf_value *v, uint64_t i) {
    LAR_ASSERT(i < v->count && types[v->type].width);
    if (types[v->type].kind != FLOATING) return (double)lar_gguf_integer_at(v, i);
    uint64_t raw = raw_at(v, i);
    if (v->type == LAR_GGUF_F32) return (double)lar_bits_float((uint32_t)raw);
    double f;
    memcpy(&f, &raw, sizeof f);
    return f;
}

static bool is_integer(const lar_gguf_value *v) {
    return types[v->type].kind == UNSIGNED || types[v->type].kind == SIGNED;
}

lar_error lar_gguf_u64(const lar_gguf *g, const char *key, uint64_t *out, lar_diag *d) {
    const lar_gguf_value *v;
    lar_error e = find(g, key, &v, d);
    if (e) return e;
    if (v->list || !is_integer(v)) return wrong(g, v, "a whole number", d);
    int64_t n = lar_gguf_integer_at(v, 0);
    if (n < 0) return lar_fail(LAR_INVALID, d, "%.100s: metadata %s: %" PRId64 " is negative", g->name, key, n);
    *out = types[v->type].kind == UNSIGNED ? raw_at(v, 0) : (uint64_t)n;
    return LAR_OK;
}

lar_error lar_gguf_f64(const lar_gguf *g, const char *key, double *out, lar_diag *d) {
    const lar_gguf_value *v;
    lar_error e = find(g, key, &v, d);
    if (e) return e;
    if (v->list || !(is_integer(v) || types[v->type].kind == FLOATING)) return wrong(g, v, "a number", d);
    *out = lar_gguf_float_at(v, 0);
    return LAR_OK;
}

lar_error lar_gguf_bool(const lar_gguf *g, const char *key, bool *out, lar_diag *d) {
    const lar_gguf_value *v;
    lar_error e = find(g, key, &v, d);
    if (e) return e;
    if (v->list || v->type != LAR_GGUF_BOOL) return wrong(g, v, "a bool", d);
    *out = v->data[0] != 0;
    return LAR_OK;
}

lar_error lar_gguf_strings_of(const lar_gguf *g, const char *key, lar_gguf_strings *out, lar_diag *d) {
    const lar_gguf_value *v;
    lar_error e = find(g, key, &v, d);
    if (e) return e;
    if (!v->list || v->type != LAR_GGUF_STRING) return wrong(g, v, "a list of strings", d);
    *out = (lar_gguf_strings){.left = v->count, .at = v->data};
    return LAR_OK;
}

bool lar_gguf_strings_next(lar_gguf_strings *s, lar_slice *out) {
    if (!s->left) return false;
    *out = string_at(s->at);
    s->at += 8 + out->len;
    s->left--;
    return true;
}

lar_error lar_gguf_list(const lar_gguf *g, const char *key, lar_gguf_numbers kind, const lar_gguf_value **out,
                        lar_diag *d) {
    lar_error e = find(g, key, out, d);
    if (e) return e;
    value_kind found = types[(*out)->type].kind;
    bool fits =
        found == UNSIGNED || found == SIGNED || found == TRUTH || (kind == LAR_GGUF_FLOATS && found == FLOATING);
    if ((*out)->list && fits) return LAR_OK;
    return wrong(g, *out, kind == LAR_GGUF_FLOATS ? "a list of numbers" : "a list of whole numbers", d);
}
