/* Keys of volatile values: what stands in front of a value, and whether it says what the value is.
 *
 * A key is compared without blanks, `_`, `-` and case, at the borders of words, so that one row of volatile_keys.def
 * stands for request_id, Request-ID, requestId, `"request_id":`, **Request ID:** and <request_id>. */
#ifndef LARDER_POLICIES_RULES_VOLATILE_KEYS_H
#define LARDER_POLICIES_RULES_VOLATILE_KEYS_H

#include "policies/volatile_text.h"

typedef enum lar_key_shape {
    LAR_SHAPE_ID,     /* one word with a digit */
    LAR_SHAPE_NOUN,   /* the key alone says little: an id that can be nothing else */
    LAR_SHAPE_RANDOM, /* four characters or more */
    LAR_SHAPE_NAME,   /* a word that ends there: host, branch, user */
    LAR_SHAPE_NUMBER, /* digits alone */
    LAR_SHAPE_PATH,
    LAR_SHAPE_COMMIT, /* hexadecimal digits */
    LAR_SHAPE_REST,   /* what git says, up to the line's end */
    LAR_SHAPE_COUNT,  /* a counter, whatever follows */
    LAR_SHAPE_TURN,   /* a counter if it looks like a state: "of 40", '#', at the beginning of a sentence */
    LAR_SHAPE_STEP,   /* the same, but headings are numbered like that too */
    LAR_SHAPE_TOTAL,  /* a counter if its total stands behind it */
    LAR_SHAPE_AMOUNT, /* tokens, per cent, money */
    LAR_SHAPE_LARGE,  /* the same, of thousands */
    LAR_SHAPE_STATE,  /* a word of state in front of an amount that brings its unit */
    LAR_SHAPE_AREA    /* names only what is counted: the state must stand behind the amount */
} lar_key_shape;

typedef enum lar_key_needs { LAR_KEY_ANY, LAR_KEY_SIGN, LAR_KEY_WHOLE } lar_key_needs;

typedef struct lar_key {
    const char *text;
    uint8_t len;
    uint8_t class_id, shape, needs;
} lar_key;

enum { LAR_KEY_BYTES_MAX = 48 };

/* What stands in front of a value, read backwards from it. */
typedef struct lar_key_front {
    size_t value;   /* where the value begins, behind its quote */
    size_t key_end; /* where the key's last word ends */
    size_t at;      /* how far its words were read */
    bool sign;      /* a colon, "=", an arrow, a tag or a cell stands between */
    bool copula;    /* "is", 是 */
    bool hash;      /* '#' */
    char quote;     /* right before the value: " ' `; 0 if none */
    uint32_t len;   /* of low, filled from its end */
    uint64_t words; /* bit k: a word begins at low[LAR_KEY_BYTES_MAX - 1 - k] */
    char low[LAR_KEY_BYTES_MAX];
    uint8_t back[LAR_KEY_BYTES_MAX]; /* key_end minus the byte's place in the text, less one */
} lar_key_front;

enum { LAR_KEY_ROWS_MAX = 6 };
typedef struct lar_key_rows {
    const lar_key *list[LAR_KEY_ROWS_MAX];
} lar_key_rows;

/* False if no words stand in front of it on its line. Never reads before floor. */
bool lar_key_read(lar_slice t, size_t value, size_t floor, lar_key_front *f);
/* Reads what stands in front of it, and finds the rows that it ends with, the longest first; how many. *f is whole only
 * if there are some. */
uint32_t lar_key_find(lar_slice t, size_t value, size_t floor, lar_key_front *f, lar_key_rows *rows);
/* Where in the text a key of that many bytes begins; the name it is part of counts with it (x_request_id). */
size_t lar_key_start(lar_slice t, const lar_key_front *f, size_t bytes, size_t floor);
/* Whether the words in front of the last `bytes` end with `text` (lower case, without blanks). */
bool lar_key_preceded(const lar_key_front *f, size_t bytes, const char *text);

/* The table itself, for its test. */
const lar_key *lar_key_table(uint32_t *count);

#endif
