/* The order of a JSON value's members, as bytes that fit every value that is the same but for that order.
 *
 * It holds no text: for every object with two members or more, in preorder with members sorted by the hash of their
 * names, the place in that sorting of the first member, of the second, and so on; one byte each, or two in an object
 * of more than 256. */
#ifndef LARDER_POLICIES_JSON_ORDER_H
#define LARDER_POLICIES_JSON_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"

typedef struct lar_json_member {
    uint64_t name; /* hash of the decoded name */
    uint32_t key;
    uint32_t rank; /* place in the sorting; NONE once an order has used it */
} lar_json_member;

/* The members of all objects in a value, each object's in two orders. The arrays live in the arena. */
typedef struct lar_json_order {
    const lar_json *json; /* borrowed */
    uint32_t root, skip;  /* the value; a key of it that is left out, or NONE */
    uint32_t *first;         /* per node from `root` on: index of its first member below */
    lar_json_member *sorted; /* by name */
    uint32_t *want;          /* keys in the order to be sent: as they stand, or as lar_json_order_apply says */
    uint32_t *stack;         /* of nodes, room for all */
} lar_json_order;

/* Reads o->root, which is set like `json` and `skip`. *fits is false if a name stands in an object twice: then there is
 * no order. NO_MEMORY. */
LAR_MUST_USE lar_error lar_json_order_read(lar_json_order *o, lar_arena *arena, bool *fits);
/* Appends the order in which the members stand; what lar_buf_add says. */
LAR_MUST_USE lar_error lar_json_order_write(const lar_json_order *o, lar_arena *arena, lar_buf *out);
/* Fills `want`; false if that is no order of these members. Once for each read. */
bool lar_json_order_apply(lar_json_order *o, lar_slice order);
/* Members of an object, without the one that is left out. */
static inline uint32_t lar_json_order_count(const lar_json_order *o, uint32_t object) {
    return o->json->nodes[object].count - (object == o->root && o->skip != LAR_JSON_NONE);
}

#endif
