/* An answer as it goes by: gathers what must be remembered of it, and remembers it once it is whole (header: output.h).
 * Flow: the relay's events -> pattern or parser -> output_events.c -> pieces; at the end output_record.c -> memories.
 * Loop thread; never blocks; never touches the answer itself.
 * Invariants: 1. of texts only a hash and the blanks at the end are kept, of calls the arguments. 2. all that is held
 * is bounded by LAR_OUTPUT_ANSWER_MAX; beyond it the answer is given up. 3. an event that fits the pattern would have
 * been read the same way by the parser. 4. nothing is remembered of a message that is not whole.
 * Memory: the heap, freed with the answer. */
#include <stdlib.h>

#include "policies/output_parts.h"
#include "policies/text.h"

enum {
    FRONT_MAX = 1024,
    BACK_MAX = 512,
    NAME_MAX = 512,
    PIECE_BYTES = 256, /* counted for one beside what it holds */
    EVENT_NODES_MAX = 16 * 1024
};

lar_output *lar_output_new(const lar_output_options *options) {
    lar_output *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->protocol = options->protocol;
    o->reasoning = options->reasoning;
    o->json = options->work;
    lar_buf_init(&o->decoded, LAR_OUTPUT_ANSWER_MAX);
    lar_buf_init(&o->pattern.front, FRONT_MAX);
    lar_buf_init(&o->pattern.back, BACK_MAX);
    return o;
}

static void release_messages(lar_output *o) {
    for (uint32_t i = 0; i < o->count; i++) {
        lar_output_gathered *m = &o->messages[i];
        for (uint32_t k = 0; k < m->count; k++) {
            lar_buf_release(&m->pieces[k].id);
            lar_buf_release(&m->pieces[k].name);
            lar_buf_release(&m->pieces[k].text);
            free(m->pieces[k].hash);
        }
        free(m->pieces);
        lar_buf_release(&m->reasoning);
    }
    free(o->messages);
    o->messages = NULL;
    o->count = o->cap = 0;
    o->bytes = 0;
}

void lar_output_free(lar_output *o) {
    if (!o) return;
    release_messages(o);
    lar_buf_release(&o->decoded);
    lar_buf_release(&o->pattern.front);
    lar_buf_release(&o->pattern.back);
    free(o);
}

static void give_up(lar_output *o) {
    release_messages(o);
    o->given_up = true;
}

size_t lar_output_bytes(const lar_output *o) { return o->bytes; }

static void count_bytes(lar_output *o, size_t more) {
    o->bytes += more;
    if (o->bytes > LAR_OUTPUT_ANSWER_MAX) o->given_up = true; /* its memory goes at the end of the event */
}

/* -- messages and pieces ------------------------------------------------------------------------------ */

lar_output_gathered *lar_output_message_of(lar_output *o, uint32_t index) {
    for (uint32_t i = o->count; i-- > 0;)
        if (o->messages[i].index == index) return &o->messages[i];
    o->other = true;
    if (o->count == o->cap && o->cap < LAR_OUTPUT_MESSAGES_MAX) {
        uint32_t cap = o->cap ? o->cap * 2 : 1;
        lar_output_gathered *more = realloc(o->messages, cap * sizeof *more);
        if (more) {
            o->messages = more;
            o->cap = cap;
        }
    }
    if (o->count == o->cap) {
        o->given_up = true;
        return NULL;
    }
    lar_output_gathered *m = &o->messages[o->count++];
    *m = (lar_output_gathered){.index = index};
    lar_buf_init(&m->reasoning, LAR_OUTPUT_ANSWER_MAX);
    return m;
}

lar_output_piece *lar_output_piece_of(lar_output *o, lar_output_gathered *m, lar_output_kind kind, uint32_t index) {
    for (uint32_t k = m->count; k-- > 0;)
        if (m->pieces[k].index == index && m->pieces[k].kind == kind) return &m->pieces[k];
    o->other = true;
    if (m->count == m->cap && m->cap < LAR_OUTPUT_PARTS_MAX) {
        uint32_t cap = m->cap ? m->cap * 2 : 1;
        lar_output_piece *more = realloc(m->pieces, cap * sizeof *more);
        if (more) {
            m->pieces = more;
            m->cap = cap;
        }
    }
    lar_hasher *hash = kind == LAR_OUTPUT_TEXT ? aligned_alloc(_Alignof(lar_hasher), sizeof *hash) : NULL;
    if (m->count == m->cap || (kind == LAR_OUTPUT_TEXT && !hash)) {
        free(hash);
        o->given_up = true;
        return NULL;
    }
    lar_output_piece *p = &m->pieces[m->count++];
    *p = (lar_output_piece){.kind = kind, .index = index, .hash = hash};
    lar_buf_init(&p->id, NAME_MAX);
    lar_buf_init(&p->name, NAME_MAX);
    lar_buf_init(&p->text, LAR_OUTPUT_ANSWER_MAX);
    if (hash) lar_hasher_init(hash);
    count_bytes(o, PIECE_BYTES + (hash ? sizeof *hash : 0));
    return p;
}

void lar_output_keep(lar_output *o, lar_buf *to, lar_slice text) {
    if (lar_buf_add_slice(to, text) != LAR_OK) o->given_up = true;
    count_bytes(o, text.len);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

void lar_output_append(lar_output *o, lar_output_piece *p, lar_slice text) {
    if (p->kind != LAR_OUTPUT_TEXT) {
        if (p->from_start && text.len) p->text.len = 0;
        if (text.len) p->from_start = false;
        lar_output_keep(o, &p->text, text);
        return;
    }
    size_t end = text.len;
    while (end && is_blank(text.ptr[end - 1])) end--;
    if (end) { /* the blanks before it were not its end */
        lar_hasher_add(p->hash, p->text.ptr, p->text.len);
        lar_hasher_add(p->hash, text.ptr, end);
        p->text.len = 0;
        p->some = true;
    }
    lar_output_keep(o, &p->text, lar_slice_of(text.ptr + end, text.len - end));
}

/* -- events ------------------------------------------------------------------------------------------- */

/* The inside of a JSON string, decoded. */
static lar_slice decode(lar_output *o, lar_slice raw) {
    if (!memchr(raw.ptr, '\\', raw.len)) return raw;
    o->decoded.len = 0;
    if (lar_buf_reserve(&o->decoded, raw.len) != LAR_OK) {
        o->given_up = true;
        return LAR_SLICE("");
    }
    return lar_slice_of(o->decoded.ptr, lar_text_decode(raw, o->decoded.ptr));
}

lar_slice lar_output_string(lar_output *o, uint32_t node) {
    if (!lar_json_is(o->json, node, LAR_JSON_STRING)) return LAR_SLICE("");
    lar_slice raw = lar_json_inner(o->json, node);
    return raw.len ? decode(o, raw) : raw;
}

/* True if these bytes are the inside of one string. */
static bool is_inside(lar_slice s) {
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '"') return false;
        if (s.ptr[i] == '\\' && ++i == s.len) return false;
    }
    return true;
}

static bool fits_pattern(lar_output *o, lar_slice data) {
    lar_output_pattern *p = &o->pattern;
    if (p->sink == LAR_SINK_NONE || data.len < p->front.len + p->back.len) return false;
    if (memcmp(data.ptr, p->front.ptr, p->front.len) != 0) return false;
    if (memcmp(data.ptr + data.len - p->back.len, p->back.ptr, p->back.len) != 0) return false;
    lar_slice raw = lar_slice_of(data.ptr + p->front.len, data.len - p->front.len - p->back.len);
    if (!is_inside(raw)) return false;
    if (p->sink == LAR_SINK_NOWHERE || raw.len == 0) return true;
    lar_output_gathered *m = &o->messages[p->message];
    if (p->sink == LAR_SINK_REASONING) lar_output_keep(o, &m->reasoning, decode(o, raw));
    else lar_output_append(o, &m->pieces[p->piece], decode(o, raw));
    return true;
}

/* The event that was just read becomes the pattern, if all it had to say is one string. */
static void learn_pattern(lar_output *o, lar_slice data) {
    lar_output_pattern *p = &o->pattern;
    lar_output_sink sink = o->strings == 1 && !o->other ? p->sink : LAR_SINK_NONE;
    p->sink = LAR_SINK_NONE;
    p->front.len = p->back.len = 0;
    if (sink == LAR_SINK_NONE) return;
    const lar_json_node *n = &o->json->nodes[o->string_node];
    if (lar_buf_add(&p->front, data.ptr, n->start + 1u) != LAR_OK) return;
    if (lar_buf_add(&p->back, data.ptr + n->end - 1, data.len - n->end + 1) == LAR_OK) p->sink = sink;
}

/* Of a stream of the responses API only whole items are read. */
static bool worth_reading(const lar_output *o, lar_slice type, lar_slice data) {
    static const char done[] = "response.output_item.done";
    if (data.len == 0 || data.ptr[0] != '{') return false;
    if (o->protocol != LAR_PROTOCOL_RESPONSES) return true;
    if (type.len) return lar_slice_eq_cstr(type, done);
    return memmem(data.ptr, data.len, done, sizeof done - 1) != NULL;
}

void lar_output_event(lar_output *o, lar_slice type, lar_slice data) {
    static const lar_json_limits limits = {.depth_max = 64, .nodes_max = EVENT_NODES_MAX};
    if (o->given_up || fits_pattern(o, data)) goto out;
    if (!worth_reading(o, type, data) || lar_json_parse(o->json, data, &limits, NULL) != LAR_OK) return;
    o->strings = 0;
    o->other = false;
    lar_output_read_event(o, type);
    if (!o->given_up) learn_pattern(o, data);
out:
    if (o->given_up) give_up(o);
}

/* -- the end ------------------------------------------------------------------------------------------ */

/* Work space for the messages of one answer. */
typedef struct keeper {
    const lar_output_memory *memory;
    lar_json_forms forms;
    lar_buf record;
    lar_output_message message;
} keeper;

static bool start_keeping(keeper *k, const lar_output_memory *m, const lar_json *j, lar_protocol p) {
    *k = (keeper){.memory = m, .message = {.json = j, .protocol = p, .role = LAR_ROLE_ASSISTANT, .arena = m->arena}};
    lar_json_forms_init(&k->forms, m->arena);
    lar_buf_init(&k->record, 2 * LAR_OUTPUT_RECORD_MAX);
    k->message.room = LAR_OUTPUT_PARTS_MAX;
    k->message.parts = lar_arena_alloc(m->arena, LAR_OUTPUT_PARTS_MAX * sizeof *k->message.parts);
    return k->message.parts != NULL;
}

static void end_keeping(keeper *k) {
    lar_json_forms_release(&k->forms);
    lar_buf_release(&k->record);
}

static void put(const lar_output_memory *m, const lar_memory_ops *ops, lar_hash key, lar_slice value) {
    lar_memory_put(ops, &key, value, m->arena);
}

/* Remembers the message that lies in k->message. */
static void keep_message(keeper *k, lar_slice reasoning) {
    const lar_output_memory *m = k->memory;
    lar_output_core core = lar_output_core_of(k->message.parts, k->message.count);
    bool calls = false;
    for (uint32_t i = 0; i < k->message.count; i++) calls |= k->message.parts[i].kind != LAR_OUTPUT_TEXT;
    if (!lar_output_core_some(&core)) return;
    if (m->reasoning && m->texts && reasoning.len)
        put(m, m->texts, lar_output_key_of(m->scope, LAR_OUTPUT_REASONING, core.keyed), reasoning);
    k->record.len = 0;
    if (!m->forms || lar_output_record(&k->forms, &k->message, m, &k->record) != LAR_OK) return;
    lar_slice record = lar_buf_slice(&k->record);
    put(m, m->forms, lar_output_key_of(m->scope, LAR_OUTPUT_HERE, lar_hash_join(m->context, core.keyed)), record);
    if (!calls) return;
    put(m, m->forms, lar_output_key_of(m->scope, LAR_OUTPUT_KEYED, core.keyed), record);
    put(m, m->forms, lar_output_key_of(m->scope, LAR_OUTPUT_FREE, core.free), record);
}

/* In the order in which a request holds them: a chat message has its text first, whatever came first. */
static void keep_gathered(keeper *k, const lar_output_gathered *g) {
    bool sorted = k->message.protocol == LAR_PROTOCOL_CHAT;
    uint32_t work = 0, rounds = sorted ? 2 : 1;
    k->message.count = 0;
    for (uint32_t n = 0; n < g->count * rounds; n++) {
        const lar_output_piece *p = &g->pieces[n % g->count];
        if (sorted && (p->kind == LAR_OUTPUT_TEXT) != (n < g->count)) continue;
        lar_output_part *part = &k->message.parts[k->message.count++];
        *part = (lar_output_part){.kind = p->kind,
                                  .node = LAR_JSON_NONE,
                                  .id = lar_buf_slice(&p->id),
                                  .name = lar_buf_slice(&p->name)};
        if (p->kind == LAR_OUTPUT_TEXT) {
            lar_output_text(part, lar_hasher_end(p->hash), !p->some, lar_buf_slice(&p->text));
        } else if (lar_output_hash(&k->forms, NULL, part, lar_buf_slice(&p->text), &work) != LAR_OK) {
            return;
        }
    }
    keep_message(k, lar_buf_slice(&g->reasoning));
}

void lar_output_remember(lar_output *o, const lar_output_memory *m) {
    keeper k;
    if (o->given_up || !start_keeping(&k, m, NULL, o->protocol)) return;
    for (uint32_t i = 0; i < o->count; i++) {
        if (o->messages[i].whole) keep_gathered(&k, &o->messages[i]);
    }
    end_keeping(&k);
    release_messages(o);
    o->given_up = true;
}

/* -- an answer in one piece --------------------------------------------------------------------------- */

static lar_slice decoded_copy(const lar_json *j, uint32_t node, lar_arena *arena) {
    lar_slice raw = lar_json_inner(j, node);
    if (!(j->nodes[node].flags & LAR_JSON_ESCAPED)) return raw;
    char *to = lar_arena_alloc(arena, raw.len + 1);
    return to ? lar_slice_of(to, lar_text_decode(raw, to)) : (lar_slice){NULL, 0};
}

static void keep_body_message(keeper *k, uint32_t node) {
    const lar_json *j = k->message.json;
    uint32_t work = 0;
    lar_slice reasoning = LAR_SLICE("");
    lar_output_read(&k->message, node);
    for (uint32_t i = 0; i < k->message.count; i++) {
        lar_output_part *p = &k->message.parts[i];
        lar_slice text =
            p->kind == LAR_OUTPUT_INPUT ? lar_json_raw(j, p->node) : decoded_copy(j, p->node, k->memory->arena);
        if (!text.ptr || lar_output_hash(&k->forms, j, p, text, &work) != LAR_OK) return;
    }
    uint32_t thoughts = k->memory->reasoning ? lar_json_get(j, node, "reasoning_content") : LAR_JSON_NONE;
    if (lar_json_is(j, thoughts, LAR_JSON_STRING)) reasoning = decoded_copy(j, thoughts, k->memory->arena);
    keep_message(k, reasoning);
}

void lar_output_remember_body(const lar_json *j, lar_protocol p, const lar_output_memory *m) {
    keeper k;
    uint32_t list = LAR_JSON_NONE;
    if (!lar_json_is(j, 0, LAR_JSON_OBJECT) || j->body.len > LAR_OUTPUT_ANSWER_MAX) return;
    if (!start_keeping(&k, m, j, p)) return;
    if (p == LAR_PROTOCOL_CHAT) list = lar_json_get(j, 0, "choices");
    if (p == LAR_PROTOCOL_RESPONSES) list = lar_json_get(j, 0, "output");
    if (p == LAR_PROTOCOL_MESSAGES) keep_body_message(&k, 0);
    if (lar_json_is(j, list, LAR_JSON_ARRAY)) {
        uint32_t n = 0;
        for (uint32_t i = lar_json_first(j, list); i != LAR_JSON_NONE && n < LAR_OUTPUT_MESSAGES_MAX;
             i = lar_json_after(j, list, i), n++) {
            uint32_t message = p == LAR_PROTOCOL_CHAT ? lar_json_get(j, i, "message") : i;
            if (lar_json_is(j, message, LAR_JSON_OBJECT)) keep_body_message(&k, message);
        }
    }
    end_keeping(&k);
}
