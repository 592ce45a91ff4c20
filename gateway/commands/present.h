/* Text for people and machines: names that come from clients made harmless, numbers, times, tables. */
#ifndef LARDER_GATEWAY_COMMANDS_PRESENT_H
#define LARDER_GATEWAY_COMMANDS_PRESENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/slice.h"

enum { LAR_SHOWN_BYTES = 512, LAR_TIME_BYTES = 40, LAR_DURATION_BYTES = 24 };

/* For a terminal: control characters, characters that turn or hide text, and bytes that are not UTF-8 as \x1b,
 * \u202e. An empty name is "-". Always terminated. */
void lar_present_name(lar_slice name, char out[LAR_SHOWN_BYTES]);
/* A JSON string with its quotes: valid whatever the bytes are (U+FFFD for what is not UTF-8). */
LAR_MUST_USE lar_error lar_present_json(lar_buf *out, lar_slice text);
/* Prints a document and a line end, and frees it. NO_MEMORY, also if it is NULL: nothing is written; IO, which main.c
 * reports. */
LAR_MUST_USE lar_error lar_present_document(cJSON *taken, FILE *out);
/* 2026-11-29T10:00:00.123Z; a number of milliseconds where no calendar reaches. */
void lar_present_time(int64_t ms, char out[LAR_TIME_BYTES]);
/* "1.234s"; under a second "850ms", under ten milliseconds "3.2ms"; "-" for less than 0 (unknown). */
void lar_present_duration(int64_t us, char out[LAR_DURATION_BYTES]);
/* Columns that a terminal needs for valid UTF-8. */
uint32_t lar_present_width(const char *text);

/* A table: cells are added left to right, top to bottom; the first row is the head. Numbers are right-aligned: all
 * columns but the first. Out of memory, rows are left out and print says so. */
typedef struct lar_table lar_table;
lar_table *lar_table_new(uint32_t columns);
void lar_table_cell(lar_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lar_table_print(const lar_table *t, FILE *out);
void lar_table_free(lar_table *t);

#endif
