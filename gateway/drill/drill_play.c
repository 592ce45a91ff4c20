/* The stand-in's part in each scene (header: drill_play.h). Called by drill_stand_in.c with its lock held.
 * Never blocks.
 * Why it also refuses by itself: a provider has endpoints, names of models and credentials of its own, and a fallback
 * that asks it for something else would fail on the day it is needed. Sources: the providers' API references, 2026-11.
 * Memory: what was said last, by target. */
#include "gateway/drill/drill_play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Nobody answers in the millisecond that a limit may leave: what comes behind a wait takes its time. */
enum { PAUSE_MS = 30 };
enum { SAID_BYTES_MAX = 1 << 20, HEAD_FIELDS_BYTES = 160 };

typedef struct player {
    lar_drill_stage *stage;
    const lar_drill_scene *scene;
    const lar_drill_target *target;
    const lar_upstream_config *upstream;
    lar_drill_seen *seen;
    lar_drill_voice voice;
    lar_drill_fault fault;
    lar_buf *out;
    lar_drill_after *after;
} player;

void lar_drill_stage_init(lar_drill_stage *s, const lar_drill_plan *plan) {
    *s = (lar_drill_stage){.plan = plan, .scene = LAR_DRILL_NONE};
    for (int t = 0; t < LAR_DRILL_TARGETS_MAX; t++) lar_buf_init(&s->seen[t].said, SAID_BYTES_MAX);
    lar_json_init(&s->json);
}

void lar_drill_stage_release(lar_drill_stage *s) {
    for (int t = 0; t < LAR_DRILL_TARGETS_MAX; t++) lar_buf_release(&s->seen[t].said);
    lar_json_release(&s->json);
}

void lar_drill_stage_begin(lar_drill_stage *s, uint32_t scene, uint32_t round) {
    s->scene = scene;
    s->round = round;
    s->strays = 0;
    for (int t = 0; t < LAR_DRILL_TARGETS_MAX; t++) {
        lar_buf said = s->seen[t].said;
        said.len = 0;
        s->seen[t] = (lar_drill_seen){.said = said};
    }
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

/* A whole answer with its framing. */
static lar_error reply(player *p, int status, const char *fields) {
    const lar_drill_seen *seen = p->seen;
    p->seen->status = (uint16_t)status;
    p->seen->whole = (uint32_t)seen->said.len;
    lar_error e =
        lar_buf_printf(p->out, "HTTP/1.1 %d %s\r\n%sContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                       status, lar_http1_reason(status), fields, seen->said.len);
    if (!e) e = lar_buf_add_slice(p->out, lar_buf_slice(&seen->said));
    *p->after = LAR_DRILL_AFTER_KEEP;
    return e;
}

static lar_error reply_error(player *p, int status, const char *fields, const char *code, const char *message) {
    lar_error e = lar_drill_say_error(p->voice.protocol, code, message, &p->seen->said);
    return e ? e : reply(p, status, fields);
}

static void mark_pieces(lar_drill_seen *seen, const char *name) {
    char text[160];
    for (uint32_t i = 0; i < LAR_DRILL_PIECES && seen->said.len; i++) {
        int n = snprintf(text, sizeof text, "piece %u of %s, ", (unsigned)i, name);
        const char *at = memmem(seen->said.ptr, seen->said.len, text, (size_t)n);
        if (!at) return;
        seen->piece_ends[seen->pieces++] = (uint32_t)(at - seen->said.ptr) + (uint32_t)n;
    }
}

static lar_error reply_whole(player *p) {
    lar_error e = lar_drill_say_whole(&p->voice, &p->seen->said);
    if (!e) e = reply(p, 200, "");
    mark_pieces(p->seen, p->voice.name);
    return e;
}

/* Of the answer that was just made only half of the body, as if the rest were still to come. */
static void cut_in_half(player *p, lar_drill_after after) {
    size_t half = p->seen->said.len / 2;
    p->out->len -= p->seen->said.len - half;
    p->seen->said.len = half;
    p->seen->whole = (uint32_t)half;
    *p->after = after;
}

static lar_error reply_half(player *p, lar_drill_after after) {
    lar_error e = lar_drill_say_whole(&p->voice, &p->seen->said);
    if (!e) e = reply(p, 200, "");
    if (e) return e;
    cut_in_half(p, after);
    mark_pieces(p->seen, p->voice.name);
    return LAR_OK;
}

/* -- streams ------------------------------------------------------------------------------------------------------ */

static lar_error chunk(player *p, size_t from) {
    const lar_buf *said = &p->seen->said;
    if (said->len == from) return LAR_OK;
    lar_error e = lar_buf_printf(p->out, "%zx\r\n", said->len - from);
    if (!e) e = lar_buf_add(p->out, said->ptr + from, said->len - from);
    return e ? e : lar_buf_printf(p->out, "\r\n");
}

static lar_error say(player *p, lar_drill_phase phase, uint32_t i) {
    size_t from = p->seen->said.len;
    lar_error e = lar_drill_say(&p->voice, phase, i, &p->seen->said);
    if (!e) e = chunk(p, from);
    p->seen->whole = (uint32_t)p->seen->said.len;
    if (phase == LAR_DRILL_PIECE) p->seen->piece_ends[p->seen->pieces++] = p->seen->whole;
    return e;
}

static lar_error say_half(player *p, uint32_t i) {
    size_t from = p->seen->said.len;
    lar_error e = lar_drill_say(&p->voice, LAR_DRILL_PIECE, i, &p->seen->said);
    p->seen->piece_ends[p->seen->pieces++] = (uint32_t)p->seen->said.len; /* nobody gets there */
    p->seen->said.len = from + (p->seen->said.len - from) / 2;
    return e ? e : chunk(p, from);
}

static lar_error say_pieces(player *p, uint32_t count) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < count; i++) e = say(p, LAR_DRILL_PIECE, i);
    return e;
}

static lar_error open_stream(player *p) {
    p->seen->status = 200;
    return lar_buf_printf(p->out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
}

static lar_error end_stream(player *p) {
    *p->after = LAR_DRILL_AFTER_KEEP;
    return lar_buf_printf(p->out, "0\r\n\r\n");
}

/* As far as `point`; the connection is left as *after says. */
static lar_error stream_to(player *p, lar_drill_point point) {
    bool pieces = point == LAR_DRILL_AT_PIECES || point == LAR_DRILL_AT_HALF || point == LAR_DRILL_AT_TOOL;
    p->voice.tool = point == LAR_DRILL_AT_TOOL;
    lar_error e = open_stream(p);
    if (!e && point != LAR_DRILL_AT_HEAD) e = say(p, LAR_DRILL_EARLY, 0);
    if (!e && point != LAR_DRILL_AT_HEAD) e = say(p, LAR_DRILL_OPEN, 0);
    if (!e && pieces) e = say_pieces(p, LAR_DRILL_PIECES_BEFORE_CUT);
    if (!e && point == LAR_DRILL_AT_HALF) e = say_half(p, LAR_DRILL_PIECES_BEFORE_CUT);
    if (!e && point == LAR_DRILL_AT_LAST) e = say_pieces(p, LAR_DRILL_PIECES);
    if (!e && point == LAR_DRILL_AT_LAST) e = say(p, LAR_DRILL_FINISH, 0);
    return e;
}

static lar_error stream_whole(player *p) {
    lar_error e = stream_to(p, LAR_DRILL_AT_LAST);
    if (!e) e = say(p, LAR_DRILL_LAST, 0);
    return e ? e : end_stream(p);
}

static lar_error say_text(player *p, const char *event) {
    size_t from = p->seen->said.len;
    lar_error e = lar_buf_add_slice(&p->seen->said, lar_slice_cstr(event));
    p->seen->whole = (uint32_t)p->seen->said.len;
    return e ? e : chunk(p, from);
}

static lar_error stream_error(player *p, lar_drill_point point) {
    lar_buf event;
    lar_buf_init(&event, 4096);
    lar_error e = stream_to(p, point);
    if (!e) e = lar_drill_say_error_event(p->voice.protocol, "the drill's error event", &event);
    if (!e) e = lar_buf_add(&event, "", 1);
    if (!e) e = say_text(p, event.ptr);
    lar_buf_release(&event);
    return e ? e : end_stream(p);
}

/* -- what a provider would not take --------------------------------------------------------------------------------*/

/* "/v1/messages" behind the base of the upstream's URL, in which /v1 may stand already. */
static bool is_endpoint(const player *p, lar_slice path, lar_protocol protocol) {
    lar_slice base = lar_slice_cstr(p->upstream->url.path), end = lar_slice_cstr(lar_drill_path(protocol));
    bool v1 = base.len >= 3 && memcmp(base.ptr + base.len - 3, "/v1", 3) == 0;
    if (v1) base.len -= 3;
    return path.len == base.len + end.len && lar_slice_starts(path, base) &&
           memcmp(path.ptr + base.len, end.ptr, end.len) == 0;
}

/* Has this provider such an endpoint? */
static bool has_endpoint(const lar_upstream_config *u, lar_protocol p) {
    switch (u->profile) {
    case LAR_PROFILE_OPENAI: return p != LAR_PROTOCOL_MESSAGES;
    case LAR_PROFILE_ANTHROPIC: return p != LAR_PROTOCOL_RESPONSES;
    case LAR_PROFILE_DEEPSEEK:
        return strstr(u->url.path, "anthropic") ? p == LAR_PROTOCOL_MESSAGES : p == LAR_PROTOCOL_CHAT;
    case LAR_PROFILE_LARDER: return p == LAR_PROTOCOL_CHAT;
    default: return true;
    }
}

/* True: it was refused, with *e. */
static bool refuse(player *p, const lar_http1_head *h, lar_slice path, lar_error *e) {
    char why[LAR_DRILL_WHY_BYTES];
    const char *model = p->target->model, *code = NULL;
    int status = 404;
    lar_protocol protocol = p->voice.protocol;
    const char *foreign = lar_drill_foreign_model(p->upstream->profile, model);
    bool credential = lar_http1_get(h, "authorization").len || lar_http1_get(h, "x-api-key").len;
    if (!is_endpoint(p, path, protocol)) {
        code = "not_found_error";
        (void)snprintf(why, sizeof why, "%.95s was asked at a path that is no endpoint behind its url",
                       p->target->name);
    } else if (!has_endpoint(p->upstream, protocol)) {
        code = "not_found_error";
        (void)snprintf(why, sizeof why, "a provider of profile %s has no %s",
                       lar_profile_get(p->upstream->profile)->name, lar_drill_path(protocol));
    } else if (p->target->foreign_key) {
        status = 401;
        code = "authentication_error";
        (void)snprintf(why, sizeof why, "%.95s gets %s: give it a key_env", p->target->name,
                       credential ? "the client's credential, which is another provider's" : "no credential");
    } else if (foreign) {
        code = "model_not_found";
        (void)snprintf(why, sizeof why, "%.95s is asked for a model that it does not have, since %s: write %.95s=MODEL",
                       p->target->name, foreign, p->target->name);
    }
    if (!code) return false;
    p->seen->refused = true;
    *e = reply_error(p, status, "", code, why);
    return true;
}

/* -- the play ----------------------------------------------------------------------------------------------------- */

static lar_error refuse_with_time(player *p) {
    char fields[HEAD_FIELDS_BYTES];
    time_t then = time(NULL) + LAR_DRILL_RETRY_SECONDS;
    struct tm tm;
    char date[40] = "";
    if (p->fault == LAR_DRILL_FAULT_RETRY_DATE && gmtime_r(&then, &tm))
        (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (p->fault == LAR_DRILL_FAULT_RETRY_MS)
        (void)snprintf(fields, sizeof fields, "retry-after-ms: %d\r\n", LAR_DRILL_RETRY_MS);
    else if (*date) (void)snprintf(fields, sizeof fields, "Retry-After: %s\r\n", date);
    else (void)snprintf(fields, sizeof fields, "Retry-After: %d\r\n", LAR_DRILL_RETRY_SECONDS);
    return reply_error(p, (int)p->scene->scenario->arg, fields, "rate_limit_error", "the drill's refusal");
}

static lar_error error_in_200(player *p) {
    if (p->scene->streamed) return stream_error(p, LAR_DRILL_AT_ROLE);
    return reply_error(p, 200, "", "overloaded_error", "the drill's error in a 200");
}

static lar_error status_cut(player *p) {
    lar_error e = reply_error(p, (int)p->scene->scenario->arg, "", "drill_error", "the drill's error");
    if (!e) cut_in_half(p, LAR_DRILL_AFTER_CLOSE);
    return e;
}

static lar_error play_fault(player *p) {
    lar_drill_point point = (lar_drill_point)p->scene->scenario->arg;
    lar_error e;
    switch (p->fault) {
    case LAR_DRILL_FAULT_RESET: *p->after = LAR_DRILL_AFTER_RESET; return LAR_OK;
    case LAR_DRILL_FAULT_HANG: *p->after = LAR_DRILL_AFTER_SILENCE; return LAR_OK;
    case LAR_DRILL_FAULT_GARBAGE: return lar_buf_add_slice(p->out, LAR_SLICE("\x01\x02 this is no HTTP\r\n\r\n"));
    case LAR_DRILL_FAULT_HEAD_CUT: return lar_buf_add_slice(p->out, LAR_SLICE("HTTP/1.1 200 OK\r\nContent-Ty"));
    case LAR_DRILL_FAULT_STATUS:
        return reply_error(p, (int)p->scene->scenario->arg, "", "drill_error", "the drill's error");
    case LAR_DRILL_FAULT_STATUS_CUT: return status_cut(p);
    case LAR_DRILL_FAULT_RETRY_MS:
    case LAR_DRILL_FAULT_RETRY_SECONDS:
    case LAR_DRILL_FAULT_RETRY_DATE: return refuse_with_time(p);
    case LAR_DRILL_FAULT_TOO_LONG:
        return reply_error(p, 400, "", "context_length_exceeded",
                           "the drill's prompt is over the maximum context length");
    case LAR_DRILL_FAULT_ERROR_200: return error_in_200(p);
    case LAR_DRILL_FAULT_BODY_CUT: return reply_half(p, LAR_DRILL_AFTER_CLOSE);
    case LAR_DRILL_FAULT_BODY_STALL: return reply_half(p, LAR_DRILL_AFTER_SILENCE);
    case LAR_DRILL_FAULT_CUT: return stream_to(p, point);
    case LAR_DRILL_FAULT_STALL: *p->after = LAR_DRILL_AFTER_SILENCE; return stream_to(p, point);
    case LAR_DRILL_FAULT_ERROR_EVENT: return stream_error(p, point);
    case LAR_DRILL_FAULT_GARBAGE_EVENT: e = open_stream(p); return e ? e : say_text(p, "data: {this is no JSON\n\n");
    default: return LAR_OK; /* CLOSE; REFUSE, NAME and TLS never come here */
    }
}

/* "/s3.1/v1/messages": scene 3, target 1. */
static bool find_part(const lar_drill_stage *s, lar_slice target, uint32_t *scene, uint32_t *part, lar_slice *path) {
    char text[64];
    unsigned a, b;
    int used = 0;
    (void)snprintf(text, sizeof text, "%.*s", (int)(target.len < 63 ? target.len : 63), target.ptr ? target.ptr : "");
    if (sscanf(text, "/s%u.%u%n", &a, &b, &used) != 2) return false;
    *scene = a;
    *part = b;
    *path = lar_slice_of(target.ptr + used, target.len - (size_t)used);
    return a < s->plan->scene_count && b < s->plan->scenes[a].line->target_count;
}

bool lar_drill_cuts_upload(lar_drill_stage *s, const lar_http1_head *h) {
    uint32_t scene, part;
    lar_slice path;
    if (!find_part(s, h->target, &scene, &part, &path) || scene != s->scene) return false;
    lar_drill_fault f = lar_drill_fault_of(&s->plan->scenes[scene], part, s->round, s->seen[part].requests);
    if (f != LAR_DRILL_FAULT_UPLOAD) return false;
    s->seen[part].requests++;
    return true;
}

static void read_body(player *p, lar_slice body) {
    const lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_json *j = &p->stage->json;
    if (lar_json_parse(j, body, &limits, NULL) != LAR_OK || !lar_json_is(j, 0, LAR_JSON_OBJECT)) return;
    p->seen->named_model = lar_json_eq(j, lar_json_get(j, 0, "model"), lar_slice_cstr(p->target->model));
}

lar_error lar_drill_play(lar_drill_stage *s, const lar_http1_head *h, lar_slice body, lar_buf *out,
                         lar_drill_after *after) {
    uint32_t scene, part;
    lar_slice path;
    *after = LAR_DRILL_AFTER_CLOSE;
    s->pause_ms = 0;
    if (!find_part(s, h->target, &scene, &part, &path) || scene != s->scene) {
        s->strays++;
        return LAR_OK;
    }
    player p = {.stage = s, .scene = &s->plan->scenes[scene], .seen = &s->seen[part], .out = out, .after = after};
    p.target = &p.scene->line->targets[part];
    p.upstream = &s->plan->upstreams[p.target->upstream];
    p.voice = (lar_drill_voice){.protocol = p.scene->line->protocol, .name = p.target->name};
    p.fault = lar_drill_fault_of(p.scene, part, s->round, p.seen->requests++);
    p.seen->said.len = p.seen->pieces = p.seen->whole = 0;
    read_body(&p, body);
    lar_error e = LAR_OK;
    if (p.fault != LAR_DRILL_FAULT_NONE) return play_fault(&p);
    if (part && p.scene->wait.option) s->pause_ms = PAUSE_MS;
    if (refuse(&p, h, path, &e)) return e;
    e = p.scene->streamed ? stream_whole(&p) : reply_whole(&p);
    if (p.scene->scenario->course == LAR_DRILL_IDLE && s->round == 0) *after = LAR_DRILL_AFTER_CLOSE;
    return e;
}
