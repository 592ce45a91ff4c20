/* What two requests of one client show together (header: checks.h): fields, settings and images that changed.
 * Flow: linter -> lar_check_pair. Pure; never blocks; memory of the notes' arena, for sentences.
 * A setting that switches counts only inside a conversation: two conversations may well have different models. Two
 * requests are of one conversation if both hold an answer of the model in the same bytes, or if the client opens both
 * with the same message and the second one goes on. What is lost follows Anthropic's published table (its guide on
 * caching: what invalidates the cache); for others only what reports show is said. Not here: which requests are put
 * side by side. */
#include "policies/checks.h"

#include "policies/checks_parts.h"
#include "policies/checks_text.h"
#include "policies/text.h"

enum { SHARED_MAX = 64 };

/* -- values ------------------------------------------------------------------------------------------------------ */

/* Equal values, but for white space: a node of one tree at a time, side by side. `skip`: a node of the first tree whose
 * twin may differ, or NONE. */
static bool same_value(const lar_json *a, uint32_t x, const lar_json *b, uint32_t y, uint32_t skip) {
    if (x == LAR_JSON_NONE || y == LAR_JSON_NONE) return x == y;
    if (a->nodes[x].next - x != b->nodes[y].next - y) return false;
    for (uint32_t k = 0; x + k < a->nodes[x].next; k++) {
        const lar_json_node *p = &a->nodes[x + k], *q = &b->nodes[y + k];
        if (p->kind != q->kind || p->count != q->count) return false;
        if (p->kind == LAR_JSON_ARRAY || p->kind == LAR_JSON_OBJECT || x + k == skip) continue;
        if (!lar_slice_eq(lar_json_raw(a, x + k), lar_json_raw(b, y + k))) return false;
    }
    return true;
}

static uint32_t first_of(const lar_request_view *v, lar_role role) {
    for (uint32_t i = 0; i < v->segment_count; i++) {
        if (v->segments[i].role == role) return v->segments[i].node;
    }
    return LAR_JSON_NONE;
}

/* A bounded look: the same answer of the model at the same place. */
static bool same_answer(const lar_request_view *a, const lar_request_view *b) {
    uint32_t n = a->segment_count < b->segment_count ? a->segment_count : b->segment_count;
    for (uint32_t i = 0; i < n && i < SHARED_MAX; i++) {
        if (a->segments[i].role != LAR_ROLE_ASSISTANT || b->segments[i].role != LAR_ROLE_ASSISTANT) continue;
        if (same_value(a->json, a->segments[i].node, b->json, b->segments[i].node, LAR_JSON_NONE)) return true;
    }
    return false;
}

static bool same_opening(const lar_request_view *a, const lar_request_view *b) {
    uint32_t x = first_of(a, LAR_ROLE_USER), y = first_of(b, LAR_ROLE_USER);
    return x != LAR_JSON_NONE && same_value(a->json, x, b->json, y, LAR_JSON_NONE);
}

/* -- LR102 --------------------------------------------------------------------------------------------------------- */

static lar_error check_identity(const lar_request_view *a, const lar_request_view *b, lar_slice provider, bool together,
                                lar_notes *notes) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < LAR_CHECK_FIELDS && !e; i++) {
        const lar_check_field *f = &lar_check_fields()[i];
        uint32_t x = lar_check_field_get(a, f), y = lar_check_field_get(b, f);
        if (y == LAR_JSON_NONE || same_value(a->json, x, b->json, y, LAR_JSON_NONE)) continue;
        if (x == LAR_JSON_NONE && !together) continue;
        bool number = lar_json_is(b->json, y, LAR_JSON_NUMBER);
        lar_slice value = number ? lar_json_raw(b->json, y) : lar_json_inner(b->json, y);
        /* another conversation may be another user's */
        if (!together && !lar_check_per_request(value)) continue;
        bool splits =
            lar_slice_ieq(provider, lar_slice_cstr(f->provider)) || (provider.len == 0 && !f->random_is_usual);
        lar_note n = {.rule = LAR_RULE_LR102, .node = y};
        n.severity = splits ? LAR_SEVERITY_ERROR : LAR_SEVERITY_WARNING;
        n.what = lar_arena_printf(notes->arena, "%s%s%s changes from one request to the next", f->in ? f->in : "",
                                  f->in ? "." : "", f->name);
        n.advice = lar_arena_printf(notes->arena, "%s Send one value in all requests of a conversation.",
                                    lar_check_field_effect(f, provider));
        e = lar_check_note(notes, b->json, n);
    }
    return e;
}

/* -- LR103 --------------------------------------------------------------------------------------------------------- */

typedef enum loss {
    LOSS_ALL,      /* tools, system and messages */
    LOSS_SYSTEM,   /* system and messages */
    LOSS_MESSAGES, /* messages */
    LOSS_MODEL,    /* messages; tools and system as the model has it */
    LOSS_UNKNOWN,
    LOSS_NONE
} loss;

static const char *const loss_texts[] = {
    [LOSS_ALL] = "It costs the whole cached prefix: tools, system text and messages.",
    [LOSS_SYSTEM] = "It costs the cached system text and messages; the tools stay.",
    [LOSS_MESSAGES] = "It costs the cached messages; tools and system text stay.",
    [LOSS_MODEL] = "It costs the cached messages, and with some models tools and system text too.",
    [LOSS_UNKNOWN] = "What it costs is not documented: it may be the whole cached prefix.",
    [LOSS_NONE] = "It is not part of this provider's key.",
};

/* A setting, the path to it, and what a switch of it costs: with Anthropic, OpenAI, others. */
typedef struct setting {
    const char *in, *name;
    loss anthropic, openai, other;
} setting;

static const setting settings[] = {
    {NULL, "model", LOSS_ALL, LOSS_ALL, LOSS_ALL},
    {NULL, "thinking", LOSS_MODEL, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {NULL, "enable_thinking", LOSS_UNKNOWN, LOSS_UNKNOWN, LOSS_ALL},
    {NULL, "chat_template_kwargs", LOSS_UNKNOWN, LOSS_UNKNOWN, LOSS_ALL},
    {NULL, "reasoning_effort", LOSS_MODEL, LOSS_ALL, LOSS_UNKNOWN},
    {"reasoning", "effort", LOSS_MODEL, LOSS_ALL, LOSS_UNKNOWN},
    {"output_config", "effort", LOSS_MODEL, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {NULL, "speed", LOSS_SYSTEM, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {NULL, "tool_choice", LOSS_MESSAGES, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {NULL, "parallel_tool_calls", LOSS_UNKNOWN, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {NULL, "response_format", LOSS_UNKNOWN, LOSS_ALL, LOSS_UNKNOWN},
    {NULL, "output_format", LOSS_UNKNOWN, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {"output_config", "format", LOSS_UNKNOWN, LOSS_UNKNOWN, LOSS_UNKNOWN},
    {"text", "format", LOSS_UNKNOWN, LOSS_ALL, LOSS_UNKNOWN},
};

static loss loss_of(const setting *s, lar_protocol p, lar_slice provider) {
    bool anthropic = provider.len == 0 ? p == LAR_PROTOCOL_MESSAGES
                                       : lar_slice_ieq(provider, LAR_SLICE("anthropic")) ||
                                             lar_slice_ieq(provider, LAR_SLICE("bedrock"));
    if (anthropic) return s->anthropic;
    if (lar_slice_ieq(provider, LAR_SLICE("openai")) || lar_slice_ieq(provider, LAR_SLICE("azure"))) return s->openai;
    /* measured on its coding endpoint: settings of the generation are no part of the key */
    bool effort = s->in && lar_slice_eq_cstr(lar_slice_cstr(s->name), "effort");
    effort |= lar_slice_eq_cstr(lar_slice_cstr(s->name), "reasoning_effort");
    if (effort && lar_slice_ieq(provider, LAR_SLICE("kimi"))) return LOSS_NONE;
    return s->other;
}

/* The value, or the object it should be in: where a note can point. */
static uint32_t setting_get(const lar_request_view *v, const setting *s) {
    uint32_t object = s->in ? lar_json_get(v->json, 0, s->in) : 0;
    return lar_json_get(v->json, object, s->name);
}

static lar_slice shown(const lar_request_view *v, uint32_t node, lar_arena *arena) {
    if (node == LAR_JSON_NONE) return LAR_SLICE("nothing");
    lar_slice raw = lar_json_raw(v->json, node);
    return raw.len <= 60 ? raw : lar_arena_printf(arena, "a value of %zu bytes", raw.len);
}

static lar_error check_settings(const lar_request_view *a, const lar_request_view *b, lar_slice provider,
                                lar_notes *notes) {
    lar_error e = LAR_OK;
    for (size_t i = 0; i < sizeof settings / sizeof *settings && !e; i++) {
        const setting *s = &settings[i];
        uint32_t x = setting_get(a, s), y = setting_get(b, s);
        if (same_value(a->json, x, b->json, y, LAR_JSON_NONE)) continue;
        loss l = loss_of(s, b->protocol, provider);
        lar_slice was = shown(a, x, notes->arena), is = shown(b, y, notes->arena);
        lar_note n = {.rule = LAR_RULE_LR103, .node = y == LAR_JSON_NONE ? 0 : y};
        n.severity = l == LOSS_NONE ? LAR_SEVERITY_INFO : LAR_SEVERITY_WARNING;
        n.what = was.ptr && is.ptr
                     ? lar_arena_printf(notes->arena, "%s%s%s switches inside a conversation, from %.*s to %.*s",
                                        s->in ? s->in : "", s->in ? "." : "", s->name, LAR_FMT(was), LAR_FMT(is))
                     : (lar_slice){NULL, 0};
        n.advice = lar_arena_printf(notes->arena, "%s Keep it for a conversation; say what is new in a message.",
                                    loss_texts[l]);
        e = lar_check_note(notes, b->json, n);
    }
    return e;
}

/* -- LR104 --------------------------------------------------------------------------------------------------------- */

static lar_slice without_query(lar_slice url) {
    const char *q = url.len ? memchr(url.ptr, '?', url.len) : NULL;
    return lar_slice_of(url.ptr, q ? (size_t)(q - url.ptr) : url.len);
}

/* The image at the same place has another address: the same one but for its query, or in a message that is the same
 * but for it. */
static bool other_address(const lar_request_view *a, uint32_t x, const lar_request_view *b, uint32_t y,
                          bool rest_same) {
    lar_slice was = lar_json_inner(a->json, x), is = lar_json_inner(b->json, y);
    if (lar_slice_eq(was, is)) return false;
    return rest_same || lar_slice_eq(without_query(was), without_query(is));
}

static lar_error check_images(const lar_request_view *a, const lar_request_view *b, uint32_t i, lar_notes *notes) {
    uint32_t c = a->segments[i].content, d = b->segments[i].content;
    if (!lar_json_is(a->json, c, LAR_JSON_ARRAY) || !lar_json_is(b->json, d, LAR_JSON_ARRAY)) return LAR_OK;
    uint32_t p = lar_json_first(a->json, c), q = lar_json_first(b->json, d);
    while (p != LAR_JSON_NONE && q != LAR_JSON_NONE) {
        uint32_t x = lar_check_image(a, p), y = lar_check_image(b, q);
        bool images = x != LAR_JSON_NONE && y != LAR_JSON_NONE;
        if (images && other_address(a, x, b, y, same_value(a->json, c, b->json, d, x))) {
            lar_note n = {.rule = LAR_RULE_LR104, .severity = LAR_SEVERITY_WARNING, .node = y};
            n.what = LAR_SLICE("the image at this place had another address in the request before");
            n.advice =
                LAR_SLICE("The prefix ends in front of it. Send the image by an address that stays, by a file id, or "
                          "as data in the same bytes each time.");
            lar_error e = lar_check_note(notes, b->json, n);
            if (e) return e;
        }
        p = lar_json_after(a->json, c, p);
        q = lar_json_after(b->json, d, q);
    }
    return LAR_OK;
}

lar_error lar_check_pair(const lar_request_view *before, const lar_request_view *after, lar_slice provider,
                         lar_notes *notes) {
    bool answer = same_answer(before, after), opening = same_opening(before, after);
    lar_error e = check_identity(before, after, provider, answer || opening, notes);
    /* the same question asked again may well be put to another model */
    bool goes_on = answer || (opening && after->segment_count > before->segment_count);
    if (!e && goes_on) e = check_settings(before, after, provider, notes);
    uint32_t n = before->segment_count < after->segment_count ? before->segment_count : after->segment_count;
    for (uint32_t i = 0; i < n && !e; i++) {
        if (before->segments[i].role == LAR_ROLE_USER && after->segments[i].role == LAR_ROLE_USER)
            e = check_images(before, after, i, notes);
    }
    return e;
}
