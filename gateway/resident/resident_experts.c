/* Experts in a budget, as metrics by layer and as JSON with advice (header: resident.h).
 * Called by admin.c when it is asked; the engine counts. Any thread; blocks on /proc/meminfo only.
 * Invariant: names need no escapes (config_lists.c), and advice has no quotes. Memory: the caller's buffer. Not here:
 * sums (resident_metrics.c), what the advice is (expert_advice.c). */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "engine/experts/expert_advice.h"
#include "gateway/resident/memory_left.h"
#include "gateway/resident/resident_parts.h"

/* -- metrics ------------------------------------------------------------------------------------------------------- */

typedef struct layer_row {
    const char *name, *kind, *help;
    size_t offset; /* of its count */
} layer_row;

static const layer_row layer_rows[] = {
#define LAR_EXPERT_METRIC(field, name, kind, labels, help) {name, kind, help, offsetof(lar_expert_layer_counts, field)},
#include "gateway/resident/expert_metrics.def"
#undef LAR_EXPERT_METRIC
};

static lar_error layers_text(const lar_resident *r, const layer_row *l, lar_buf *out) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < lar_engine_expert_layers(r->engine); i++) {
        lar_expert_layer_counts c = lar_engine_expert_layer(r->engine, i);
        uint64_t value;
        memcpy(&value, (const char *)&c + l->offset, sizeof value);
        e = lar_buf_printf(out, "larder_%s{upstream=\"%s\",layer=\"%u\"} %" PRIu64 "\n", l->name, r->o.config->name,
                           (unsigned)c.number, value);
    }
    return e;
}

lar_error lar_resident_expert_metrics(lar_resident *const *residents, uint32_t count, lar_buf *out) {
    uint32_t layers = 0;
    lar_error e = LAR_OK;
    for (uint32_t r = 0; r < count; r++)
        if (lar_resident_is_ready(residents[r])) layers += lar_engine_expert_layers(residents[r]->engine);
    for (size_t i = 0; layers && !e && i < sizeof layer_rows / sizeof *layer_rows; i++) {
        const layer_row *l = &layer_rows[i];
        e = lar_buf_printf(out, "# HELP larder_%s %s\n# TYPE larder_%s %s\n", l->name, l->help, l->name, l->kind);
        for (uint32_t r = 0; !e && r < count; r++)
            if (lar_resident_is_ready(residents[r])) e = layers_text(residents[r], l, out);
    }
    return e;
}

/* -- GET /experts ------------------------------------------------------------------------------------------------- */

static lar_error counts_json(const lar_expert_counts *c, lar_buf *out) {
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {{"bytes", c->bytes},           {"all_bytes", c->all_bytes}, {"slots", c->slots},
                  {"experts", c->experts},       {"hits", c->hits},           {"misses", c->misses},
                  {"bytes_read", c->bytes_read}, {"failures", c->failures},   {"run_us", c->run_us},
                  {"stall_us", c->stall_us}};
    lar_error e = LAR_OK;
    for (size_t i = 0; !e && i < sizeof fields / sizeof *fields; i++)
        e = lar_buf_printf(out, ",\"%s\":%" PRIu64, fields[i].name, fields[i].value);
    return e;
}

static lar_error layers_json(const lar_resident *r, lar_buf *out) {
    lar_error e = lar_buf_printf(out, ",\"layers\":[");
    for (uint32_t i = 0; !e && i < lar_engine_expert_layers(r->engine); i++) {
        lar_expert_layer_counts c = lar_engine_expert_layer(r->engine, i);
        e = lar_buf_printf(out, "%s{\"layer\":%u,\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 "}", i ? "," : "",
                           (unsigned)c.number, c.hits, c.misses);
    }
    return e ? e : lar_buf_printf(out, "]");
}

static lar_error advice_json(const lar_expert_counts *c, lar_buf *out) {
    char lines[LAR_EXPERT_ADVICE_LINES][LAR_EXPERT_ADVICE_BYTES];
    lar_diag unknown = {0};
    uint64_t left = 0;
    if (lar_memory_left("", &left, &unknown)) left = 0;
    uint32_t count = lar_expert_advice(c, left, lines);
    lar_error e = lar_buf_printf(out, ",\"advice\":[");
    for (uint32_t i = 0; !e && i < count; i++) e = lar_buf_printf(out, "%s\"%s\"", i ? "," : "", lines[i]);
    return e ? e : lar_buf_printf(out, "]}");
}

lar_error lar_resident_experts_json(lar_resident *const *residents, uint32_t count, lar_buf *out) {
    lar_error e = lar_buf_printf(out, "{\"engines\":[");
    bool more = false;
    for (uint32_t i = 0; !e && i < count; i++) {
        const lar_resident *r = residents[i];
        if (!lar_resident_is_ready(r)) continue;
        lar_expert_counts c = lar_engine_experts(r->engine);
        if (!c.bytes) continue;
        e = lar_buf_printf(out, "%s{\"upstream\":\"%s\"", more ? "," : "", r->o.config->name);
        if (!e) e = counts_json(&c, out);
        if (!e) e = layers_json(r, out);
        if (!e) e = advice_json(&c, out);
        more = true;
    }
    return e ? e : lar_buf_printf(out, "]}\n");
}
