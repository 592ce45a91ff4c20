/* The pages of docs/rules as bytes; written by cmake/embed_rules.cmake. */
#ifndef LARDER_GATEWAY_COMMANDS_RULE_PAGES_H
#define LARDER_GATEWAY_COMMANDS_RULE_PAGES_H

#include <stdint.h>

typedef struct lar_rule_page {
    const char *id; /* "LR001" */
    const unsigned char *text;
    uint32_t len;
} lar_rule_page;

extern const lar_rule_page lar_rule_pages[];
extern const uint32_t lar_rule_page_count;

#endif
