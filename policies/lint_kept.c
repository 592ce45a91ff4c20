/* Earlier requests: which of them the new one continues or resembles, and which are let go.
 * Flow: lint.c -> kept_read (hashes of the new one, its predecessor) -> the stages that compare -> kept_store.
 * One thread; never blocks. Invariants: 1. at most LAR_LINT_KEPT_MAX requests and LAR_LINT_KEPT_BYTES_MAX of their
 * bodies; the one not compared with for longest goes first. 2. a request that continues another takes its place.
 * Memory: what is kept on the heap, one block each. */
#include <stdlib.h>

#include "policies/lint_state.h"

enum { ALIKE_BYTES_MIN = 64 };

void lar_lint_kept_free(lar_lint_kept *k) { free(k); }

/* -- the new request ----------------------------------------------------------------------------------- */

static lar_error read_texts(lar_lint_run *run, lar_lint_kept *k) {
    k->texts = lar_arena_alloc(run->arena, (run->unit_count + 1) * sizeof *k->texts);
    if (!k->texts) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < run->unit_count; i++) {
        const lar_lint_unit *u = &run->units[i];
        const lar_json_node *n = &run->json->nodes[u->node];
        k->texts[k->text_count++] =
            (lar_lint_text){u->kind,
                            u->norm,
                            lar_hash_low(lar_hash_of(lar_slice_of((const char *)u->form.recipe, u->form.recipe_bytes))),
                            u->node,
                            n->start + 1,
                            n->end - 1};
        if (u->kind == LAR_LINT_OPENING && !k->opening) k->opening = lar_hash_low(u->norm) | 1;
    }
    return LAR_OK;
}

static uint64_t tool_name(const lar_json *j, uint32_t tool) {
    uint32_t name = lar_json_get(j, lar_json_get(j, tool, "function"), "name");
    if (name == LAR_JSON_NONE) name = lar_json_get(j, tool, "name");
    if (name == LAR_JSON_NONE) name = lar_json_get(j, tool, "type");
    return lar_hash_low(lar_hash_of(lar_json_raw(j, name)));
}

static lar_error read_tools(lar_lint_run *run, lar_lint_kept *k) {
    const lar_json *j = run->json;
    uint32_t tools = run->view->tools, text = 0;
    while (text < k->text_count && k->texts[text].kind != LAR_LINT_TOOL) text++;
    if (tools == LAR_JSON_NONE) return LAR_OK;
    k->tools = lar_arena_alloc(run->arena, (j->nodes[tools].count + 1) * sizeof *k->tools);
    if (!k->tools) return LAR_NO_MEMORY;
    for (uint32_t t = lar_json_first(j, tools); t != LAR_JSON_NONE; t = lar_json_after(j, tools, t)) {
        lar_lint_tool *to = &k->tools[k->tool_count++];
        *to = (lar_lint_tool){.name = tool_name(j, t), .node = t, .next = j->nodes[t].next};
        while (text < k->text_count && k->texts[text].node < t) text++;
        for (; text < k->text_count && k->texts[text].node < to->next; text++)
            to->described += lar_hash_low(k->texts[text].norm);
        lar_error e = lar_lint_hash(j, t, LAR_LINT_ORDER_ALL, run->arena, &to->same);
        if (e) return e;
    }
    return LAR_OK;
}

/* The messages behind the head. An opening one counts without its values, which are judged as such. */
static lar_error read_messages(lar_lint_run *run, lar_lint_kept *k) {
    const lar_request_view *v = run->view;
    k->messages = lar_arena_alloc(run->arena, (v->segment_count + 1) * sizeof *k->messages);
    if (!k->messages) return LAR_NO_MEMORY;
    uint32_t i = 0;
    bool opening = true;
    while (i < v->segment_count && v->segments[i].role == LAR_ROLE_SYSTEM) i++;
    for (; i < v->segment_count; i++) {
        lar_lint_message *m = &k->messages[k->message_count++];
        opening = opening && v->segments[i].role == LAR_ROLE_USER;
        *m = (lar_lint_message){.role = v->segments[i].role, .node = v->segments[i].node};
        lar_error e = lar_lint_hash(run->json, m->node, LAR_LINT_ORDER_ARGUMENTS, run->arena, &m->same);
        if (e) return e;
        for (uint32_t u = 0; u < run->unit_count && m->role == LAR_ROLE_USER && opening; u++) {
            const lar_lint_unit *unit = &run->units[u];
            if (unit->kind != LAR_LINT_OPENING || unit->segment != i || !unit->span_count) continue;
            m->same.loose = m->same.strict = lar_hash_low(unit->norm);
        }
    }
    return LAR_OK;
}

/* -- its predecessor ----------------------------------------------------------------------------------- */

static uint32_t common_messages(const lar_lint_kept *a, const lar_lint_kept *b) {
    uint32_t n = 0;
    while (n < a->message_count && n < b->message_count && a->messages[n].same.loose == b->messages[n].same.loose) n++;
    return n;
}

static const lar_lint_text *first_system(const lar_lint_kept *k) {
    return k->text_count && k->texts[0].kind == LAR_LINT_SYSTEM ? &k->texts[0] : NULL;
}

static lar_slice text_bytes(const lar_lint_kept *k, const lar_lint_text *t) {
    return lar_slice_of(k->body.ptr + t->start, t->end - t->start);
}

/* Out of 4: how much of two texts is the same at their beginning and at their end. */
static uint32_t alikeness(lar_slice a, lar_slice b) {
    size_t least = a.len < b.len ? a.len : b.len, most = a.len < b.len ? b.len : a.len, head = 0, tail = 0;
    while (head < least && a.ptr[head] == b.ptr[head]) head++;
    while (tail < least - head && a.ptr[a.len - 1 - tail] == b.ptr[b.len - 1 - tail]) tail++;
    return head + tail < ALIKE_BYTES_MIN ? 0 : (uint32_t)((head + tail) * 4 / (most ? most : 1));
}

/* How near `k` is: 2^30 and more for the same conversation, then the same head, then a head much like it; 0: not. */
static uint64_t nearness(const lar_lint_kept *now, const lar_lint_kept *k) {
    if (k->protocol != now->protocol) return 0;
    if (now->opening && k->opening == now->opening) return (1ull << 30) + common_messages(now, k);
    const lar_lint_text *a = first_system(now), *b = first_system(k);
    if (!a || !b) return 0;
    if (lar_hash_eq(a->norm, b->norm)) return 1u << 20;
    uint32_t alike = alikeness(text_bytes(now, a), text_bytes(k, b));
    return alike >= 3 ? alike : 0;
}

static void find_before(lar_lint_run *run) {
    lar_lint *l = run->l;
    uint64_t best = 0;
    lar_lint_kept *found = NULL;
    for (uint32_t i = l->kept_count; i-- > 0;) { /* of equals the newest */
        uint64_t near = nearness(run->now, l->kept[i]);
        if (near > best) best = near, found = l->kept[i];
        if (near > 1ull << 30 && near - (1ull << 30) == l->kept[i]->message_count) break; /* it goes on from there */
    }
    run->before = found;
    if (!found) return;
    found->used = ++l->uses;
    run->continues = best >= 1ull << 30 && common_messages(run->now, found) == found->message_count;
}

lar_error lar_lint_kept_read(lar_lint_run *run) {
    lar_lint_kept *k = lar_arena_zalloc(run->arena, sizeof *k);
    if (!k) return LAR_NO_MEMORY;
    const lar_lint_request *in = run->in;
    *k = (lar_lint_kept){.body = run->json->body,
                         .protocol = run->view->protocol,
                         .file = in->file,
                         .line = in->line,
                         .column = in->column,
                         .request = run->number,
                         .origin = in->origin,
                         .pointer_front = in->pointer_front,
                         .pointer_skip = in->pointer_skip,
                         .asked = in};
    run->now = k;
    lar_error e = read_texts(run, k);
    if (!e) e = read_tools(run, k);
    if (!e) e = read_messages(run, k);
    if (!e) find_before(run);
    return e;
}

lar_error lar_lint_before_read(lar_lint_run *run) {
    if (run->before_read) return LAR_OK;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_error e = lar_json_parse(&run->before_json, run->before->body, &limits, NULL);
    if (!e) e = lar_request_view_read(&run->before_view, &run->before_json, run->before->protocol, run->arena, NULL);
    run->before_read = !e;
    return e;
}

/* -- keeping ------------------------------------------------------------------------------------------- */

static void let_go(lar_lint *l, uint32_t i) {
    l->kept_bytes -= l->kept[i]->body.len;
    lar_lint_kept_free(l->kept[i]);
    l->kept[i] = l->kept[--l->kept_count];
}

static uint32_t oldest(const lar_lint *l) {
    uint32_t at = 0;
    for (uint32_t i = 1; i < l->kept_count; i++) {
        if (l->kept[i]->used < l->kept[at]->used) at = i;
    }
    return at;
}

static char *put(char *at, const void *bytes, size_t len) {
    if (len) memcpy(at, bytes, len);
    return at + len;
}

lar_error lar_lint_kept_store(lar_lint_run *run) {
    lar_lint *l = run->l;
    const lar_lint_kept *now = run->now;
    for (uint32_t i = 0; run->continues && i < l->kept_count; i++) {
        if (l->kept[i] == run->before) {
            let_go(l, i);
            break;
        }
    }
    size_t texts = now->text_count * sizeof *now->texts, tools = now->tool_count * sizeof *now->tools,
           messages = now->message_count * sizeof *now->messages;
    size_t bytes = now->body.len, front = now->pointer_front.len;
    if (bytes > LAR_LINT_KEPT_BYTES_MAX) return LAR_OK;
    while (l->kept_count && (l->kept_count == LAR_LINT_KEPT_MAX || l->kept_bytes + bytes > LAR_LINT_KEPT_BYTES_MAX))
        let_go(l, oldest(l));
    lar_lint_kept *k = malloc(sizeof *k + texts + tools + messages + bytes + front);
    if (!k) return LAR_NO_MEMORY;
    *k = *now;
    k->asked = NULL;
    char *at = (char *)(k + 1);
    k->texts = (lar_lint_text *)(void *)at;
    at = put(at, now->texts, texts);
    k->tools = (lar_lint_tool *)(void *)at;
    at = put(at, now->tools, tools);
    k->messages = (lar_lint_message *)(void *)at;
    at = put(at, now->messages, messages);
    k->body = lar_slice_of(at, now->body.len);
    at = put(at, now->body.ptr, now->body.len);
    k->pointer_front = lar_slice_of(at, front);
    (void)put(at, now->pointer_front.ptr, front);
    k->used = ++l->uses;
    l->kept[l->kept_count++] = k;
    l->kept_bytes += bytes;
    return LAR_OK;
}
