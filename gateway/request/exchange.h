/* One request and its answer: everything that happens between a complete request head and the journal record.
 *
 * States (exchange_state_move in exchange.c has the table of legal moves):
 *   BODY      the request body is arriving
 *   RECALL    the request is prepared; other larders are asked what they know of it
 *   SHARE     an identical request is under way; its answer is waited for
 *   REPLAY    the client gets a kept answer
 *   WAIT_CONN the request is prepared and waits for an upstream connection
 *   BACKOFF   an attempt failed; another one follows at the deadline, or at once
 *   WAIT_HEAD it was sent; the answer's head has not come
 *   RELAY     the answer is being passed on
 *   DRAIN     the client has its whole answer (or is gone); what the upstream still says is read for its usage
 *   DONE      recorded; the exchange is free
 * Private to gateway/request. */
#ifndef LARDER_GATEWAY_EXCHANGE_H
#define LARDER_GATEWAY_EXCHANGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "gateway/answers/answers.h"
#include "gateway/health/failure.h"
#include "gateway/http1/sse.h"
#include "gateway/net/deadline.h"
#include "gateway/request/gateway.h"
#include "gateway/request/route.h"
#include "gateway/shared/shared.h"

/* What becomes of the client's connection. */
typedef enum client_next { CLIENT_KEEP, CLIENT_CLOSE, CLIENT_ABORT } client_next;

typedef enum exchange_state {
    EXCHANGE_BODY,
    EXCHANGE_RECALL,
    EXCHANGE_SHARE,
    EXCHANGE_REPLAY,
    EXCHANGE_WAIT_CONN,
    EXCHANGE_BACKOFF,
    EXCHANGE_WAIT_HEAD,
    EXCHANGE_RELAY,
    EXCHANGE_DRAIN,
    EXCHANGE_DONE,
    EXCHANGE_STATE_COUNT
} exchange_state;

/* How the answer's body is passed on. */
typedef enum relay_mode {
    RELAY_RAW,   /* bytes as they come */
    RELAY_HOLD,  /* a JSON answer, held whole if it is small: an error in a 200 can still become a 502 (H-47) */
    RELAY_ERROR, /* an answer of 4xx or 5xx, held while another attempt may take its place */
    RELAY_JSON,  /* a JSON answer too large to hold: bytes as they come, a copy for the usage */
    RELAY_SSE    /* event by event */
} relay_mode;

/* One upstream that a request may go to. */
typedef struct lar_target {
    uint32_t upstream; /* index */
    uint32_t place;    /* in the chain: 0 the route's upstream, with its replicas; from 1 on the fallbacks, likewise */
    const char *model; /* to ask it for; "" = as the request says */
} lar_target;

/* What x-larder-cache says of a request whose route keeps answers. */
typedef enum answers_say { ANSWERS_SAY_NOTHING, ANSWERS_SAY_HIT, ANSWERS_SAY_MISS, ANSWERS_SAY_BYPASS } answers_say;

/* A request's part in the cache of answers (exchange_answers.c). */
typedef struct exchange_answers {
    answers_say say;
    bool may_keep; /* as it was prepared for its first target: the answer may be given twice */
    bool keeping;  /* what goes to the client is gathered in `gathered` */
    lar_digest key;
    lar_buf gathered;  /* status line and fields, then the body */
    size_t head_bytes; /* of it; 0: nothing was gathered yet */
    lar_answers_seat seat;
    lar_kept *replay; /* REPLAY: what the client gets, and how much of its body went out */
    size_t replayed;
} exchange_answers;

struct lar_exchange {
    lar_deadline deadline; /* first member: its timer's memory is the exchange's */
    lar_exchange *spare_next;
    lar_loop *loop;
    lar_client *client;
    lar_pool_set *set; /* the configuration and pools this request uses, from begin to the record */
    const lar_config *config;
    exchange_state state;

    /* the request */
    lar_arena arena;
    lar_buf body;
    lar_route route;
    lar_digest scope;
    const lar_http1_head *head; /* the client parser's, valid until the request's answer is done */
    lar_slice cors;
    const char *allow;   /* METHOD: the methods that are right here */
    char request_id[24]; /* of this answer, in x-larder-request-id and the access line */
    size_t budget_bytes; /* counted in gateway->buffered_bytes */
    bool understood;     /* a known endpoint with a parsed JSON body */
    bool head_request, client_is_10, keep_alive;

    /* towards the upstream */
    const lar_upstream_config *upstream;
    const lar_route_config *rule; /* the route that chose it, NULL: none */
    uint32_t upstream_index;
    lar_lease lease;
    lar_buf up_head; /* the head that goes upstream */
    lar_splices *edits;
    struct iovec *iov;
    uint32_t iov_count;
    lar_request_view view;
    lar_canon_out canon;
    uint32_t mended; /* edits of LR015: the body is not the client's any more */
    lar_shared_ask ask;
    uint32_t recall_rounds;
    size_t arena_before; /* bytes used when it was last prepared */
    bool canon_ran, usage_injected, queued;

    /* attempts (attempt.c) */
    lar_target
        targets[LAR_ROUTE_TARGETS_MAX + 1]; /* in the order in which they are asked; behind them there is room for
                                                      who goes on with a stream that broke */
    uint32_t target_count, target;
    uint32_t tries;          /* at the present target, the one under way among them */
    uint32_t attempts;       /* at all of them */
    lar_failure failure;     /* of the first that failed */
    uint32_t wait_ms;        /* the shortest time to come back that was told; 0: none was */
    uint32_t cold_tokens;    /* of the prompt, that a switch made cold: an estimate */
    uint32_t first_upstream; /* index of the route's upstream */
    uint64_t conversation;   /* a hash of its opening; 0: none */
    uint64_t attempt_ns;
    lar_breaker_leave leave;
    bool leave_open; /* the breaker waits to hear how it went */
    bool loaded;     /* counted in the standing's load */
    bool unsent;     /* nothing of the request can have been executed */

    /* the answer */
    relay_mode relay;
    bool last_cr; /* the last event ended in CR: an LF may still belong to it */
    bool head_sent, chunked_out, answer_whole, no_body;
    int status;   /* what the upstream said; what the client sees is in record.status */
    lar_buf held; /* HOLD: the body; SSE: the event under way */
    lar_buf copy; /* JSON: for the usage */
    lar_buf out_head;
    lar_sse sse;
    lar_usage usage;
    bool copy_given_up;        /* JSON: the copy grew too large */
    bool holding;              /* SSE: head and first events wait for content, since there is another target */
    uint64_t hold_ns;          /* until then */
    uint64_t due_ns;           /* what is waited for is late from then on, whatever else is due before */
    lar_buf early;             /* these events */
    bool paused;               /* the upstream is not read: the client is slower */
    struct lar_output *output; /* what is gathered of a stream to be remembered, or NULL */
    struct lar_continuation *continuation; /* of a stream that may go on elsewhere (continuation.c), or NULL */

    exchange_answers answers;

    /* the account */
    lar_journal_record record;
    uint64_t start_ns, first_byte_ns;
    lar_error error;
};

/* -- lifetime (exchange.c) ------------------------------------------------------------------------- */

/* From the loop's spares, or new; NULL when out of memory. */
lar_exchange *lar_exchange_take(lar_loop *l);
/* Frees the loop's spares. */
void lar_exchange_free_spares(lar_loop *l);

/* The head is complete: routes it, checks who asks. LAR_OK: go on with the body. Otherwise an answer was sent
 * (an error, a preflight) and the exchange is DONE. */
LAR_MUST_USE lar_error lar_exchange_begin(lar_exchange *x, lar_client *c, const lar_http1_head *h);
/* The head itself is damaged: an exchange that can only be refused. `h` is static. */
void lar_exchange_begin_damaged(lar_exchange *x, lar_client *c, const lar_http1_head *h);
/* Room in the body's own buffer for what is still to come of a body of known length; len 0 if that is not worth it. */
struct iovec lar_exchange_body_room(lar_exchange *x);
/* A part of the body, which may lie in that room already. An error was answered. */
LAR_MUST_USE lar_error lar_exchange_body(lar_exchange *x, lar_slice part);
/* The body is complete: prepares, sends, relays. May be DONE on return. */
void lar_exchange_run(lar_exchange *x);
/* The request could not be read to its end: answers `e` if nothing was answered yet, records, DONE. */
void lar_exchange_refuse(lar_exchange *x, lar_error e, const lar_diag *d);
/* The client is gone or larder stops: cancels the upstream, records, DONE (or DRAIN for the usage). */
void lar_exchange_abandon(lar_exchange *x, lar_ending why);
/* Says something that the client skips, to see whether it is still there. False: that is not possible now. */
bool lar_exchange_probe(lar_exchange *x);
/* The client's write queue is empty again. */
void lar_exchange_client_drained(lar_exchange *x);

/* -- between the parts ------------------------------------------------------------------------------- */

void lar_exchange_move(lar_exchange *x, exchange_state to);
/* exchange.c: DONE exchanges go to the loop's spares, or are freed (later, by the loop). */
void lar_exchange_recycle(lar_exchange *x);
void lar_exchange_free(lar_exchange *x);
/* exchange.c: whose kept prefixes of a model in this process such a request shares. */
lar_digest lar_exchange_prefix_scope(const lar_exchange *x);
/* warm_prefix.c: tells models that keep prefixes warm what this request begins with; once, when it goes out. */
void lar_exchange_note_prefix(const lar_exchange *x);
/* exchange.c: counts bytes held for this exchange until its record. False: over the process's budget. */
bool lar_exchange_budget(lar_exchange *x, size_t bytes);
/* exchange.c: sets the deadline: `ms`, or what is left of the upstream's total if that is less. */
void lar_exchange_wait(lar_exchange *x, uint32_t ms);
/* finish.c: DRAIN is over. */
void lar_exchange_drained(lar_exchange *x);
/* exchange.c: prepared (or `e`, with `d`): acquires a connection, or answers the error. */
void lar_exchange_send(lar_exchange *x, lar_error e, const lar_diag *d);
/* attempt.c: fills in the targets, once the request is prepared for x->upstream_index; aims at the first. */
void lar_exchange_choose(lar_exchange *x);
/* attempt.c: upstream and upstream_index are the present target's. */
void lar_exchange_aim(lar_exchange *x);
/* attempt.c: sends to the present target, or to a later one, or fails. May be DONE on return. */
void lar_exchange_attempt(lar_exchange *x);
/* attempt.c: the present attempt failed. True: it is seen to, by another attempt or an answer; x may be DONE. False:
 * the caller answers. `wait_ms`: when the upstream wants to be asked again; 0: it did not say. */
bool lar_exchange_recover(lar_exchange *x, lar_failure f, uint32_t wait_ms);
/* attempt.c: the same for an error of larder's own. */
bool lar_exchange_recover_error(lar_exchange *x, lar_error e);
/* attempt.c: recovers, or answers the error. */
void lar_exchange_failed(lar_exchange *x, lar_error e, const char *detail);
/* attempt.c: another attempt might take the place of this answer. */
bool lar_exchange_may_recover(const lar_exchange *x);
/* attempt.c: the attempt brought content. */
void lar_exchange_attempt_well(lar_exchange *x);
/* attempt.c: the exchange ends, however it did. */
void lar_exchange_attempt_over(lar_exchange *x);
/* relay.c: more than signs of life of an answer went to the client. */
bool lar_exchange_has_begun(const lar_exchange *x);
/* attempt.c: of the upstream's total and, until an answer has begun, the route's deadline, whichever ends first;
 * UINT32_MAX: there is none. */
uint32_t lar_exchange_left_ms(const lar_exchange *x);
/* attempt.c: appends the fields that say who answered and what failed before. */
LAR_MUST_USE lar_error lar_exchange_attempt_fields(const lar_exchange *x, lar_buf *out);
/* relay.c: what was held goes out now. */
void lar_exchange_let_go(lar_exchange *x);
/* exchange_answers.c: of the exchange's memory: made, for a new request, for the next one, given back. */
void lar_exchange_answers_init(lar_exchange *x);
void lar_exchange_answers_clear(lar_exchange *x);
void lar_exchange_answers_recycle(lar_exchange *x);
void lar_exchange_answers_release(lar_exchange *x);
/* exchange_answers.c: the request was prepared, and the loop's tree is still that of its body. */
void lar_exchange_answers_prepared(lar_exchange *x);
/* exchange_answers.c: true if the request is not to go upstream: it has its answer (x may be DONE), or waits for one.
 * */
bool lar_exchange_answers_ask(lar_exchange *x);
/* exchange_answers.c: requests of this loop that waited for another one's answer go on. */
void lar_exchange_answers_called(lar_loop *l);
/* exchange_answers.c: it has waited too long. */
void lar_exchange_answers_due(lar_exchange *x);
/* exchange_answers.c: more of a kept answer goes to the client. May be DONE on return. */
void lar_exchange_answers_replay(lar_exchange *x);
/* exchange_answers.c: these bytes of the body go to the client now. */
void lar_exchange_answers_gather(lar_exchange *x, const struct iovec *iov, uint32_t count);
/* exchange_answers.c: the client is slow. True: the upstream is read on, since others wait for this answer, which is
 * gathered up to answers.answer_bytes. */
bool lar_exchange_answers_awaited(lar_exchange *x);
/* exchange_answers.c: the client's part is over: keeps the answer if it is whole, and lets go who waits for it. */
void lar_exchange_answers_over(lar_exchange *x, lar_ending how);
/* exchange_answers.c: appends x-larder-cache, and Age to a kept answer. */
LAR_MUST_USE lar_error lar_exchange_answers_fields(const lar_exchange *x, lar_buf *out);
/* exchange_answers.c: "hit", "miss", "bypass"; "-" where the route keeps none. */
const char *lar_exchange_answers_word(const lar_exchange *x);
/* relay.c: ends x->out_head with framing and Connection. `length` < 0: not known, it is sent in chunks. */
LAR_MUST_USE lar_error lar_exchange_end_head(lar_exchange *x, int64_t length);
/* exchange_recall.c: true if other larders are asked; the exchange goes on by itself then. */
bool lar_exchange_recall(lar_exchange *x);
/* exchange_recall.c: tells the shared memory, if there is one, whose values come next. */
void lar_exchange_share_as(lar_exchange *x);
void lar_exchange_on_recalled(void *exchange, uint32_t changed);
void lar_exchange_on_recall_due(lar_exchange *x);
/* prepare.c: parses, canonicalises, routes by model, builds x->iov; a further call for the same request makes all of it
 * anew. On an error `d` says what the client reads. */
LAR_MUST_USE lar_error lar_exchange_prepare(lar_exchange *x, lar_diag *d);
/* prepare.c: what the rules found and did in the end, for the metrics; once, when it goes out. */
void lar_exchange_count_prepared(lar_exchange *x);
/* prepare.c: span tree and view of x->body. */
LAR_MUST_USE lar_error lar_exchange_parse(lar_exchange *x, lar_diag *d);
/* mend.c: repairs a broken history of tool calls where rule LR015 is on; x->mended says whether it did. An error only
 * if the body cannot be read any more. */
LAR_MUST_USE lar_error lar_exchange_mend(lar_exchange *x, const lar_canon_options *options, lar_diag *d);
/* relay.c: events of the lease in RELAY and DRAIN. */
void lar_exchange_on_head(lar_exchange *x);
void lar_exchange_on_body(lar_exchange *x, lar_slice data);
void lar_exchange_on_end(lar_exchange *x);
void lar_exchange_on_cut(lar_exchange *x, lar_error e, const char *detail);
/* continuation.c: the head of an answer to be relayed is there; an event of its stream goes to the client. */
void lar_exchange_continuation_watch(lar_exchange *x);
void lar_exchange_continuation_event(lar_exchange *x, const lar_sse_event *e);
/* continuation.c: the stream broke: would another upstream go on with it? */
bool lar_exchange_can_continue(const lar_exchange *x, lar_error e);
/* continuation.c: it does (true; x may be DONE), or the caller tells the client that the stream broke. */
bool lar_exchange_continue(lar_exchange *x, lar_error e, const char *detail);
/* continuation.c: another upstream was asked, or answers. */
bool lar_exchange_continues(const lar_exchange *x);
/* continuation.c: its head is there. */
void lar_exchange_continued(lar_exchange *x);
/* continuation.c: what that upstream is to go on with; NULL: it is asked for an answer of its own. */
const struct lar_serving_begun *lar_exchange_begun(const lar_exchange *x);
/* continuation.c: it did not go on: the client reads why the stream broke, and not why nobody mended it. */
void lar_exchange_not_continued(lar_exchange *x, lar_error *e, const char **detail);
/* continuation.c: for the record, whose token counts are filled in. */
void lar_exchange_continuation_record(lar_exchange *x);
void lar_exchange_forget_continuation(lar_exchange *x);
/* continuation.c: the total that the upstream that broke may take; 0: no such limit, or none broke. */
uint32_t lar_exchange_begun_total_ms(const lar_exchange *x);
/* remember_output.c: the head of an answer to be relayed is there; an event of its stream; the stream is whole, or the
 * answer in one piece, which x->usage has just read; nothing more is gathered. */
void lar_exchange_watch_output(lar_exchange *x);
void lar_exchange_output_event(lar_exchange *x, const lar_sse_event *e);
void lar_exchange_output_whole(lar_exchange *x);
void lar_exchange_output_body(lar_exchange *x);
void lar_exchange_forget_output(lar_exchange *x);
/* finish.c: answers a small reply of larder's own; `fields` are whole field lines. Finishes as `how`. */
void lar_exchange_answer(lar_exchange *x, int status, const char *fields, lar_slice body, lar_ending how);
/* finish.c: answers an error of larder's own (nothing sent yet), or in the stream (head sent). Then finishes. */
void lar_exchange_fail(lar_exchange *x, lar_error e, const char *detail);
/* finish.c: the same with a status other than the error's own; nothing was sent yet. */
void lar_exchange_fail_as(lar_exchange *x, int status, lar_error e, const char *detail);
/* The answer is complete for the client: records and DONE, or DRAIN while the upstream has not ended. */
void lar_exchange_finish(lar_exchange *x, lar_ending how, client_next next);
/* relay.c: appends status line and fields of the upstream's answer to out_head, without framing. */
LAR_MUST_USE lar_error lar_exchange_copy_head(lar_exchange *x, int status);
/* finish.c: appends the fields that every answer carries: request id, edits, CORS. */
LAR_MUST_USE lar_error lar_exchange_own_fields(const lar_exchange *x, lar_buf *out);

#endif
