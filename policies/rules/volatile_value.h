/* The forms of volatile values. Each reads at byte i and returns the offset behind the value, 0 if none is there. */
#ifndef LARDER_POLICIES_RULES_VOLATILE_VALUE_H
#define LARDER_POLICIES_RULES_VOLATILE_VALUE_H

#include "policies/rules/volatile_keys.h"

/* By the key's shape, all but counters and amounts. */
size_t lar_value_read(lar_slice t, const lar_key_front *f, const lar_key *key);
/* A path, absolute or from the home folder; `quote` ends it. */
size_t lar_value_path(lar_slice t, size_t i, char quote);
/* Whether a path is temporary by its form: a random name below /tmp, /var/folders, AppData\Local\Temp. */
bool lar_value_path_is_temporary(lar_slice path);

/* -- volatile_number.c -- */

/* A counter or an amount at f->value. *start: where it begins, a sign of money included. */
typedef struct lar_number {
    size_t start, end;
    size_t behind; /* what belongs to it and stands still: a total, a unit */
    lar_volatile_class class_id;
} lar_number;
bool lar_number_read(lar_slice t, const lar_key_front *f, const lar_key *key, lar_number *out);
/* Without a key: "83,211 tokens left", 第12轮, "[49% - 1,085/2,200 chars]". */
bool lar_number_alone(lar_slice t, size_t i, lar_number *out);

#endif
