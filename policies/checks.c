/* What one request shows alone (header: checks.h). Flow: linter -> lar_check_request -> checks_text.c. Pure; never
 * blocks; memory of the notes' arena, for decoded texts and sentences. Every note is a suspicion: one request cannot
 * show that something changes. Not here: two requests (checks_pair.c), volatile text, tool history (history.c). */
#include "policies/checks.h"

#include "policies/checks_parts.h"
#include "policies/checks_text.h"
#include "policies/text.h"

/* Sources: DeepSeek's guide on user_id; vLLM's design of prefix caching (cache_salt); OpenAI's guide on prompt caching
 * (prompt_cache_key routes, the others do not). */
static const lar_check_field fields[LAR_CHECK_FIELDS] = {
    {"user_id", NULL, "Some providers keep the caches of users apart by it.", "deepseek",
     "DeepSeek keeps a cache for each value: nothing is shared between two of them.", false},
    {"user_id", "metadata", "Providers that speak Anthropic's API may keep the caches of users apart by it.",
     "deepseek", "DeepSeek keeps a cache for each value: nothing is shared between two of them.", true},
    {"user", NULL, "Some servers choose the machine by it.", "openai",
     "OpenAI once chose the machine by it; prompt_cache_key and safety_identifier took its place.", false},
    {"safety_identifier", NULL, "It names a user, and does nothing to the cache as far as is known.", "openai",
     "OpenAI does not say that it touches the cache.", true},
    {"cache_salt", NULL, "The salt is part of the first block: two values share nothing.", "vllm",
     "vLLM hashes the salt into the first block: two values share nothing.", false},
    {"prompt_cache_key", NULL, "It chooses the machine that holds the cache.", "openai",
     "OpenAI chooses the machine by it: another value may meet one that never saw the prefix.", true},
};

const lar_check_field *lar_check_fields(void) { return fields; }

uint32_t lar_check_field_get(const lar_request_view *v, const lar_check_field *f) {
    uint32_t object = f->in ? lar_json_get(v->json, 0, f->in) : 0;
    uint32_t node = lar_json_get(v->json, object, f->name);
    lar_json_kind k = lar_json_kind_of(v->json, node);
    return k == LAR_JSON_STRING || k == LAR_JSON_NUMBER ? node : LAR_JSON_NONE;
}

const char *lar_check_field_effect(const lar_check_field *f, lar_slice provider) {
    return lar_slice_ieq(provider, lar_slice_cstr(f->provider)) ? f->there : f->effect;
}

lar_error lar_check_note(lar_notes *notes, const lar_json *j, lar_note note) {
    if (!note.what.ptr || !note.advice.ptr) return LAR_NO_MEMORY;
    if (note.end == 0) {
        note.start = j->nodes[note.node].start;
        note.end = j->nodes[note.node].end;
    }
    if (!note.answer.ptr) note.answer = LAR_SLICE("");
    return lar_notes_add(notes, &note);
}

/* -- LR102 in one request ----------------------------------------------------------------------------------- */

static lar_error check_fields(const lar_request_view *v, lar_slice provider, lar_notes *notes) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < LAR_CHECK_FIELDS && !e; i++) {
        const lar_check_field *f = &fields[i];
        uint32_t node = lar_check_field_get(v, f);
        if (node == LAR_JSON_NONE) continue;
        lar_slice value =
            lar_json_is(v->json, node, LAR_JSON_STRING) ? lar_json_inner(v->json, node) : lar_json_raw(v->json, node);
        if (!lar_check_per_request(value) && (f->random_is_usual || !lar_check_random(value))) continue;
        lar_note n = {.rule = LAR_RULE_LR102, .severity = LAR_SEVERITY_INFO, .node = node};
        n.what = lar_arena_printf(notes->arena, "%s%s%s looks as if it were made up for this request",
                                  f->in ? f->in : "", f->in ? "." : "", f->name);
        n.advice = lar_arena_printf(notes->arena, "%s Send one value as long as the prefix is meant to be shared.",
                                    lar_check_field_effect(f, provider));
        e = lar_check_note(notes, v->json, n);
    }
    return e;
}

/* -- LR101, LR105 in texts ------------------------------------------------------------------------------------ */

static lar_error note_span(const lar_request_view *v, lar_notes *notes, const lar_text *t, lar_check_span at,
                           lar_note n) {
    n.start = lar_text_body_offset(t, at.start);
    n.end = lar_text_body_offset(t, at.end);
    n.severity = LAR_SEVERITY_WARNING;
    return lar_check_note(notes, v->json, n);
}

/* `placeholders`: the text is the client's own, not what a user typed. */
typedef enum text_kind { TEXT_OF_CLIENT, TEXT_OF_USER } text_kind;

static lar_error check_text(const lar_request_view *v, uint32_t node, text_kind kind, lar_notes *notes) {
    if (!lar_json_is(v->json, node, LAR_JSON_STRING)) return LAR_OK;
    lar_text t;
    lar_check_span at = {0, 0};
    lar_error e = lar_text_read(&t, v->json, node, notes->arena);
    while (!e && kind == TEXT_OF_CLIENT && lar_check_placeholder(t.text, at.end, &at)) {
        lar_slice name = lar_slice_of(t.text.ptr + at.start, at.end - at.start);
        lar_note n = {.rule = LAR_RULE_LR101, .node = node};
        n.what = lar_arena_printf(notes->arena, "the placeholder %.*s was sent as it is", LAR_FMT(name));
        n.advice = LAR_SLICE("Fill it in, in the newest user message if its value changes; or leave the line out.");
        e = note_span(v, notes, &t, at, n);
    }
    at = (lar_check_span){0, 0};
    while (!e && lar_check_presigned(t.text, at.end, &at)) {
        lar_note n = {.rule = LAR_RULE_LR105, .node = node};
        n.what = LAR_SLICE("a presigned address: its signature is new each time it is asked for, and it expires");
        n.advice =
            LAR_SLICE("Give a stable name, and let a tool fetch the file; or keep the text of the address for the "
                      "whole conversation.");
        e = note_span(v, notes, &t, at, n);
    }
    return e;
}

static lar_error check_tools(const lar_request_view *v, lar_notes *notes) {
    lar_error e = LAR_OK;
    for (uint32_t t = lar_json_first(v->json, v->tools); t != LAR_JSON_NONE && !e;
         t = lar_json_after(v->json, v->tools, t)) {
        uint32_t function = lar_json_get(v->json, t, "function");
        uint32_t object = function != LAR_JSON_NONE ? function : t;
        e = check_text(v, lar_json_get(v->json, object, "description"), TEXT_OF_CLIENT, notes);
    }
    return e;
}

/* -- LR104 in one request --------------------------------------------------------------------------------------- */

uint32_t lar_check_image(const lar_request_view *v, uint32_t part) {
    const lar_json *j = v->json;
    uint32_t url = lar_json_get(j, part, "image_url"); /* chat: an object; responses: the string */
    if (lar_json_is(j, url, LAR_JSON_OBJECT)) url = lar_json_get(j, url, "url");
    if (url == LAR_JSON_NONE) url = lar_json_get(j, lar_json_get(j, part, "source"), "url");
    if (!lar_json_is(j, url, LAR_JSON_STRING)) return LAR_JSON_NONE;
    lar_slice text = lar_json_inner(j, url);
    bool http = lar_slice_starts_i(text, LAR_SLICE("http://")) || lar_slice_starts_i(text, LAR_SLICE("https://")) ||
                lar_slice_starts_i(text, LAR_SLICE("http:\\/\\/")) ||
                lar_slice_starts_i(text, LAR_SLICE("https:\\/\\/"));
    return http ? url : LAR_JSON_NONE;
}

static lar_error check_image(const lar_request_view *v, uint32_t part, lar_notes *notes) {
    uint32_t url = lar_check_image(v, part);
    if (url == LAR_JSON_NONE) return LAR_OK;
    lar_text t;
    lar_error e = lar_text_read(&t, v->json, url, notes->arena);
    if (e) return e;
    bool presigned = lar_check_url_signed(t.text);
    if (!presigned && !lar_check_url_busted(t.text)) return LAR_OK;
    lar_note n = {.rule = LAR_RULE_LR104, .severity = LAR_SEVERITY_WARNING, .node = url};
    n.what = presigned ? LAR_SLICE("an image by a presigned address, which is another one each time")
                       : LAR_SLICE("an image by an address with a time or a random number in it");
    n.advice =
        LAR_SLICE("Send the image by an address that stays, by a file id, or as data in the same bytes each time.");
    return lar_check_note(notes, v->json, n);
}

/* -- all of it ----------------------------------------------------------------------------------------------------- */

static lar_error check_segment(const lar_request_view *v, const lar_segment *s, lar_notes *notes) {
    text_kind kind = s->role == LAR_ROLE_SYSTEM ? TEXT_OF_CLIENT : TEXT_OF_USER;
    if (!lar_json_is(v->json, s->content, LAR_JSON_ARRAY)) return check_text(v, s->content, kind, notes);
    lar_error e = LAR_OK;
    for (uint32_t p = lar_json_first(v->json, s->content); p != LAR_JSON_NONE && !e;
         p = lar_json_after(v->json, s->content, p)) {
        if (!lar_json_is(v->json, p, LAR_JSON_OBJECT)) continue;
        e = check_text(v, lar_json_get(v->json, p, "text"), kind, notes);
        if (!e) e = check_image(v, p, notes);
    }
    return e;
}

lar_error lar_check_request(const lar_request_view *v, lar_slice provider, lar_notes *notes) {
    lar_error e = check_fields(v, provider, notes);
    if (!e) e = check_tools(v, notes);
    for (uint32_t i = 0; i < v->segment_count && !e; i++) {
        lar_role role = v->segments[i].role;
        if (role == LAR_ROLE_SYSTEM || role == LAR_ROLE_USER) e = check_segment(v, &v->segments[i], notes);
    }
    return e;
}
