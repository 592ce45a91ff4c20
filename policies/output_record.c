/* A remembered message as bytes: written from an answer, applied to a message that a client returns (header: output.h).
 *
 *     [version][16 bytes: hash of all parts as written, in its scope][parts], each of them
 *     t n blanks    a text and the blanks at its end        b n blanks    a text of blanks only
 *     f n n form    JSON in a form (json_form.h)            a             bytes that mean themselves
 *     o 16 bytes    JSON of no describable form: the key of its text in the memory of texts
 *
 * Called by output.c, canon_output.c; loop thread; never blocks.
 * Invariants: 1. a message is put back whole, with just the bytes that its hash says, or stays. 2. a record holds no
 * text but blanks. 3. every key holds the scope. Memory: the arena, the work space. */
#include "policies/output.h"

enum { VERSION = 1, HEAD_BYTES = 17 };

lar_hash lar_output_key_of(lar_hash scope, lar_output_key kind, lar_hash core) {
    static const char kinds[] = {'h', 'm', 'n', 'r', 't'};
    char bytes[33];
    bytes[0] = kinds[kind];
    memcpy(bytes + 1, scope.bytes, 16);
    memcpy(bytes + 17, core.bytes, 16);
    return lar_hash_of(lar_slice_of(bytes, sizeof bytes));
}

static lar_hash text_key(lar_hash scope, lar_hash exact) {
    char bytes[33] = {'o'};
    memcpy(bytes + 1, scope.bytes, 16);
    memcpy(bytes + 17, exact.bytes, 16);
    return lar_hash_of(lar_slice_of(bytes, sizeof bytes));
}

/* -- writing ---------------------------------------------------------------------------------------- */

static lar_error write_tail(const lar_output_part *p, lar_buf *out) {
    char head[2] = {p->empty ? 'b' : 't', (char)p->tail.len};
    if (p->empty && p->tail.len == 0) return LAR_OK;
    if (p->tail.len > LAR_OUTPUT_TAIL_MAX) return LAR_INVALID;
    lar_error e = lar_buf_add(out, head, sizeof head);
    return e ? e : lar_buf_add_slice(out, p->tail);
}

/* The text itself goes to the memory of texts. */
static lar_error write_odd(const lar_output_part *p, const lar_output_memory *m, lar_buf *out) {
    if (!m->texts) return LAR_INVALID;
    lar_hash key = text_key(m->scope, p->exact);
    lar_memory_put(m->texts, &key, p->text, m->arena);
    lar_error e = lar_buf_add(out, "o", 1);
    return e ? e : lar_buf_add(out, key.bytes, sizeof key.bytes);
}

static lar_error write_json(lar_json_forms *f, const lar_json *j, const lar_output_part *p, const lar_output_memory *m,
                            lar_buf *out) {
    size_t at = out->len;
    bool value = p->kind == LAR_OUTPUT_INPUT;
    if (!p->json) return lar_buf_add(out, "a", 1);
    if (!value && !lar_json_forms_parse(f, p->text)) return LAR_INVALID;
    lar_error e = lar_buf_add(out, "f\0\0", 3);
    if (!e) e = lar_json_form_read(f, value ? j : &f->json, value ? p->node : 0, p->text, out);
    if (!e) {
        size_t n = out->len - at - 3;
        out->ptr[at + 1] = (char)(n & 255);
        out->ptr[at + 2] = (char)(n >> 8);
        return LAR_OK;
    }
    if (e != LAR_INVALID) return e;
    out->len = at;
    return write_odd(p, m, out);
}

lar_error lar_output_record(lar_json_forms *f, const lar_output_message *message, const lar_output_memory *m,
                            lar_buf *out) {
    size_t before = out->len;
    char version = VERSION;
    lar_hash exact = lar_hash_join(m->scope, lar_output_core_of(message->parts, message->count).exact);
    lar_error e = lar_buf_add(out, &version, 1);
    if (!e) e = lar_buf_add(out, exact.bytes, sizeof exact.bytes);
    for (uint32_t i = 0; i < message->count && !e; i++) {
        const lar_output_part *p = &message->parts[i];
        e = p->kind == LAR_OUTPUT_TEXT ? write_tail(p, out) : write_json(f, message->json, p, m, out);
    }
    if (e || out->len - before > LAR_OUTPUT_RECORD_MAX) {
        out->len = before;
        return e && e != LAR_LIMIT ? e : LAR_INVALID;
    }
    return LAR_OK;
}

/* -- reading ---------------------------------------------------------------------------------------- */

bool lar_output_same(lar_slice record, lar_hash scope, const lar_output_core *core) {
    lar_hash exact = lar_hash_join(scope, core->exact);
    if (record.len < HEAD_BYTES || record.ptr[0] != VERSION) return true;
    return memcmp(record.ptr + 1, exact.bytes, sizeof exact.bytes) == 0;
}

/* The next part of a record, and what it makes of a part of the message. */
typedef struct entry {
    char kind;
    lar_slice bytes;
    lar_slice text;
    bool fits;
} entry;

/* False at its end or where it is damaged. */
static bool next_entry(lar_slice *rest, entry *e) {
    size_t head = 1, n = 0;
    if (rest->len == 0) return false;
    const uint8_t *p = (const uint8_t *)rest->ptr;
    *e = (entry){.kind = rest->ptr[0]};
    if (e->kind == 't' || e->kind == 'b') {
        head = 2;
        n = rest->len < head ? 0 : p[1];
    } else if (e->kind == 'f') {
        head = 3;
        n = rest->len < head ? 0 : p[1] | (size_t)p[2] << 8;
    } else if (e->kind == 'o') {
        n = sizeof(lar_hash);
    } else if (e->kind != 'a') {
        return false;
    }
    if (rest->len < head + n) return false;
    e->bytes = lar_slice_of(rest->ptr + head, n);
    *rest = lar_slice_of(rest->ptr + head + n, rest->len - head - n);
    return true;
}

static lar_error odd_text(const lar_output_memory *m, entry *e) {
    lar_hash key;
    lar_buf value;
    memcpy(key.bytes, e->bytes.ptr, sizeof key.bytes);
    lar_buf_init(&value, 2 * LAR_JSON_FORM_TEXT_MAX);
    e->fits = m->texts && lar_memory_get(m->texts, &key, &value);
    if (e->fits) e->text = lar_arena_copy(m->arena, lar_buf_slice(&value));
    lar_buf_release(&value);
    return e->fits && !e->text.ptr ? LAR_NO_MEMORY : LAR_OK;
}

/* The text that the entry gives a JSON part. */
static lar_error json_text(lar_json_forms *f, const lar_json *j, const lar_output_part *p, const lar_output_memory *m,
                           entry *e) {
    bool value = p->kind == LAR_OUTPUT_INPUT;
    e->text = p->text;
    e->fits = p->json == (e->kind != 'a');
    if (!e->fits || e->kind == 'a') return LAR_OK;
    if (e->kind == 'o') return odd_text(m, e);
    e->fits = value || lar_json_forms_parse(f, p->text);
    if (!e->fits) return LAR_OK;
    lar_error err = lar_json_form_print(f, value ? j : &f->json, value ? p->node : 0, e->bytes);
    e->fits = !err;
    if (!err) e->text = lar_arena_copy(m->arena, lar_buf_slice(&f->text));
    if (!err && !e->text.ptr) return LAR_NO_MEMORY;
    return err == LAR_INVALID || err == LAR_LIMIT ? LAR_OK : err;
}

static lar_error apply_tail(lar_output_part *p, const lar_output_memory *m, entry *e) {
    e->fits = e->kind == (p->empty ? 'b' : 't') && e->bytes.len <= LAR_OUTPUT_TAIL_MAX;
    if (!e->fits || lar_slice_eq(e->bytes, p->tail)) return LAR_OK;
    p->want = p->tail = lar_arena_copy(m->arena, e->bytes);
    if (!p->want.ptr) return LAR_NO_MEMORY;
    p->exact = lar_hash_chain(p->norm, p->want);
    return LAR_OK;
}

/* Gives a part what its entry says. */
static lar_error apply(lar_json_forms *f, const lar_json *j, lar_output_part *p, const lar_output_memory *m, entry *e) {
    if (p->kind == LAR_OUTPUT_TEXT) return apply_tail(p, m, e);
    e->fits = e->kind == 'f' || e->kind == 'o' || e->kind == 'a';
    lar_error err = e->fits ? json_text(f, j, p, m, e) : LAR_OK;
    if (err || !e->fits || lar_slice_eq(e->text, p->text)) return err;
    uint32_t unused = 0;
    lar_output_part written = {.kind = LAR_OUTPUT_CALL};
    err = lar_output_hash(f, NULL, &written, e->text, &unused);
    e->fits = !err && lar_hash_eq(p->norm, written.norm);
    p->exact = written.exact;
    p->want = e->text;
    return err;
}

/* An empty text is as good as none. */
static uint32_t skip_empty(const lar_output_message *m, uint32_t k) {
    while (k < m->count && m->parts[k].kind == LAR_OUTPUT_TEXT && m->parts[k].empty && m->parts[k].tail.len == 0) k++;
    return k;
}

lar_error lar_output_restore(lar_json_forms *f, lar_output_message *message, lar_slice record,
                             const lar_output_memory *m, bool *fits) {
    uint32_t k = 0;
    entry e;
    for (uint32_t i = 0; i < message->count; i++) message->parts[i].want = (lar_slice){NULL, 0};
    *fits = record.len >= HEAD_BYTES && record.ptr[0] == VERSION;
    if (!*fits) return LAR_OK;
    lar_slice rest = lar_slice_of(record.ptr + HEAD_BYTES, record.len - HEAD_BYTES);
    while (*fits && next_entry(&rest, &e)) {
        if (e.kind != 'b') k = skip_empty(message, k); /* where the model wrote blanks, a text must hold them */
        *fits = k < message->count;
        if (!*fits) return LAR_OK;
        lar_error err = apply(f, message->json, &message->parts[k++], m, &e);
        if (err) return err;
        *fits = e.fits;
    }
    *fits = *fits && rest.len == 0 && skip_empty(message, k) == message->count;
    if (!*fits) return LAR_OK;
    lar_output_core core = lar_output_core_of(message->parts, message->count);
    *fits = lar_output_same(record, m->scope, &core);
    return LAR_OK;
}
