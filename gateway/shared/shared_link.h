/* One loop's connection to the shared server. shared_link.c: the connection; shared_ask.c: what goes over it. */
#ifndef LARDER_GATEWAY_SHARED_LINK_H
#define LARDER_GATEWAY_SHARED_LINK_H

#include "gateway/config/secret.h"
#include "gateway/net/deadline.h"
#include "gateway/net/resolver.h"
#include "gateway/shared/resp.h"
#include "gateway/shared/shared_core.h"

/* Keys of one question, and of all questions of one request. */
enum { LAR_SHARED_KEYS_MAX = LAR_RESP_ITEMS_MAX, LAR_SHARED_REQUEST_KEYS_MAX = 2048, LAR_SHARED_NOTE_SLOTS = 8192 };

/* What values are sealed with. */
typedef struct lar_shared_cover {
    lar_digest key;
    bool sealed; /* false: plain */
} lar_shared_cover;

/* A command under way: one MGET, or some SETs in a row. */
typedef struct lar_shared_question {
    struct lar_shared_question *next;
    lar_shared_ask *ask; /* of an MGET: who waits; NULL: nobody any more */
    uint64_t asked_ns;
    uint32_t puts;  /* SETs whose replies have not come; 0: an MGET */
    uint32_t count; /* keys of an MGET */
    lar_shared_cover cover;
    lar_shared_place places[];
} lar_shared_question;

typedef enum lar_shared_state {
    LAR_SHARED_PAUSED,    /* the deadline says when the next try begins */
    LAR_SHARED_RESOLVING, /* its name is looked up */
    LAR_SHARED_CONNECTING,
    LAR_SHARED_GREETING, /* password and database number are sent, no answer yet */
    LAR_SHARED_UP,
    LAR_SHARED_CLOSING, /* broken; a pause begins once the stream is closed */
    LAR_SHARED_ENDED    /* lar_shared_link_close */
} lar_shared_state;

/* The keys that the rules have looked at since lar_shared_begin: a set, emptied by a new round. */
typedef struct lar_shared_note {
    lar_hash key;
    uint32_t round;
} lar_shared_note;

struct lar_shared_link {
    lar_shared *shared;
    uv_loop_t *loop;
    lar_stream_scratch *scratch;
    lar_shared_seal *seal;
    lar_shared_cover cover; /* of the request that the rules work on */
    struct lar_shared_view {
        lar_shared_link *link;
        lar_shared_kind kind;
    } views[LAR_SHARED_KIND_COUNT]; /* contexts of the memories */
    lar_slice prefix;
    lar_shared_state state;
    lar_stream stream;
    bool stream_open; /* it is initialised and not closed */
    lar_deadline deadline;
    uv_prepare_t prepare; /* sends `out` before the loop waits */
    lar_resolver resolver;
    struct sockaddr_storage peer;
    uint32_t address_index, pause_ms, greetings;
    lar_resp *resp;
    lar_buf out, value, local, envelope;
    lar_shared_question *first, *last; /* in the order of the replies */
    uint32_t late_count;               /* asks in a row that took too long */
    uint64_t quiet_until_ms;           /* nothing is asked before (uv_now) */
    uint32_t round, note_count, new_count;
    lar_shared_place fresh[LAR_SHARED_KEYS_MAX]; /* noted in this round, not asked before */
    lar_shared_note notes[LAR_SHARED_NOTE_SLOTS];
};

/* -- shared_link.c ---- */

/* Sends what is in `out`. False: it could not; the connection ends soon. */
bool lar_shared_link_send(lar_shared_link *l);
/* Sends it before the loop waits again. */
void lar_shared_link_later(lar_shared_link *l);
/* Connected, and not too much is queued. */
bool lar_shared_link_room(const lar_shared_link *l);
/* Ends the connection; a new one is tried after a pause. Every question ends: callbacks of asks run inside. */
void lar_shared_link_broken(lar_shared_link *l, const char *why);

/* -- shared_ask.c ---- */

/* The reply to the first question. */
void lar_shared_answered(lar_shared_link *l, const lar_resp_reply *r);
/* All questions end without an answer. */
void lar_shared_questions_fail(lar_shared_link *l);

#endif
