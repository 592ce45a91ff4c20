/* What output.c and output_events.c share: an answer as it is gathered. Private to policies/output*. */
#ifndef LARDER_POLICIES_OUTPUT_PARTS_H
#define LARDER_POLICIES_OUTPUT_PARTS_H

#include "policies/output.h"

/* A part that grows with the stream. */
typedef struct lar_output_piece {
    lar_output_kind kind; /* TEXT or CALL */
    uint32_t index;       /* as the stream numbers it */
    lar_buf id, name;
    lar_buf text;     /* of a CALL: its arguments so far; of a TEXT: the blanks that may be its end */
    lar_hasher *hash; /* of a TEXT: all before those blanks */
    bool some;        /* of a TEXT: it is not of blanks only */
    bool from_start;  /* of a CALL: what stands in `text` is what its block began with */
} lar_output_piece;

typedef struct lar_output_gathered {
    uint32_t index; /* of the choice or item */
    bool whole;
    lar_output_piece *pieces;
    uint32_t count, cap;
    lar_buf reasoning;
} lar_output_gathered;

/* Where the string of an event goes. */
typedef enum lar_output_sink { LAR_SINK_NONE, LAR_SINK_PART, LAR_SINK_REASONING, LAR_SINK_NOWHERE } lar_output_sink;

/* Most events of a stream are the one before with another string in it: they are told by the bytes around it. */
typedef struct lar_output_pattern {
    lar_buf front, back;
    lar_output_sink sink;
    uint32_t message, piece;
} lar_output_pattern;

struct lar_output {
    lar_protocol protocol;
    bool reasoning, given_up;
    lar_output_gathered *messages;
    uint32_t count, cap;
    size_t bytes;
    lar_json *json; /* borrowed: the event that is read */
    lar_buf decoded;
    lar_output_pattern pattern;
    /* of the event that is being read */
    uint32_t strings, string_node; /* how many were taken; the last one */
    bool other;                    /* it said something else, too */
};

/* Finds or adds. NULL: too many, or no memory; then the answer is given up. */
lar_output_gathered *lar_output_message_of(lar_output *o, uint32_t index);
lar_output_piece *lar_output_piece_of(lar_output *o, lar_output_gathered *m, lar_output_kind kind, uint32_t index);
/* The decoded text of a string, until the next call; empty if it is none. */
lar_slice lar_output_string(lar_output *o, uint32_t node);
/* Appends; gives up over the bound. */
void lar_output_append(lar_output *o, lar_output_piece *p, lar_slice text);
void lar_output_keep(lar_output *o, lar_buf *to, lar_slice text);
/* Reads the event in *o->json. */
void lar_output_read_event(lar_output *o, lar_slice type);

#endif
