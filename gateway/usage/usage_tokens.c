/* The numbers of a usage object in every provider's spelling, and the one normal form they are brought to.
 *
 * Called by usage.c. Loop thread; never blocks; no memory.
 * Invariants: 1. A missing, null or mistyped number is unknown, never 0. 2. raw holds what the upstream wrote, as far as
 * 64 bits can. 3. Normal counts are never negative, hit and write never exceed what they are parts of.
 * Why the order in `hits`: an upstream that sends several spellings means the first the most exactly; where they
 * differ, the usage is odd. Sources: providers' API references for the names (docs of the usage fields list them).
 * Not here: where events end, money. */
#include "gateway/usage/usage_parts.h"

/* More tokens than any answer can hold: such a number is a fault, and would drown every sum it is added to. */
#define TOKENS_MAX ((int64_t)1 << 40)

typedef struct spelling_row {
    lar_spelling spelling;
    const char *object; /* inside this member, or NULL */
    const char *name;
} spelling_row;

static const spelling_row hits[] = {
    {LAR_SPELLING_DEEPSEEK, NULL, "prompt_cache_hit_tokens"},
    {LAR_SPELLING_OPENAI_CHAT, "prompt_tokens_details", "cached_tokens"},
    {LAR_SPELLING_OPENAI_RESPONSES, "input_tokens_details", "cached_tokens"},
    {LAR_SPELLING_TOP_CACHED, NULL, "cached_tokens"},
    {LAR_SPELLING_ANTHROPIC, NULL, "cache_read_input_tokens"},
    {LAR_SPELLING_ANTHROPIC, NULL, "cacheReadInputTokens"},
    {LAR_SPELLING_GEMINI, NULL, "cachedContentTokenCount"}};

static const spelling_row prompts[] = {{LAR_SPELLING_PLAIN, NULL, "prompt_tokens"},
                                       {LAR_SPELLING_PLAIN, NULL, "input_tokens"},
                                       {LAR_SPELLING_PLAIN, NULL, "promptTokenCount"},
                                       {LAR_SPELLING_PLAIN, NULL, "inputTokens"}};

static const spelling_row outputs[] = {{LAR_SPELLING_PLAIN, NULL, "completion_tokens"},
                                       {LAR_SPELLING_PLAIN, NULL, "output_tokens"},
                                       {LAR_SPELLING_GEMINI, NULL, "candidatesTokenCount"},
                                       {LAR_SPELLING_PLAIN, NULL, "outputTokens"}};

static const spelling_row writes[] = {{LAR_SPELLING_PLAIN, NULL, "cache_creation_input_tokens"},
                                      {LAR_SPELLING_PLAIN, NULL, "cacheWriteInputTokens"},
                                      {LAR_SPELLING_PLAIN, NULL, "cache_write_tokens"},
                                      {LAR_SPELLING_PLAIN, "prompt_tokens_details", "cache_write_tokens"},
                                      {LAR_SPELLING_PLAIN, "input_tokens_details", "cache_write_tokens"},
                                      {LAR_SPELLING_PLAIN, "prompt_tokens_details", "cache_creation_input_tokens"}};

static const spelling_row thoughts[] = {{LAR_SPELLING_PLAIN, "completion_tokens_details", "reasoning_tokens"},
                                        {LAR_SPELLING_PLAIN, "output_tokens_details", "reasoning_tokens"},
                                        {LAR_SPELLING_GEMINI, NULL, "thoughtsTokenCount"},
                                        {LAR_SPELLING_PLAIN, NULL, "reasoning_tokens"}};

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

/* Any JSON number as a count; what is no whole number of 64 bits is brought near and called odd. */
static int64_t count_of(lar_usage *u, uint32_t node) {
    uint64_t whole;
    double d;
    if (lar_json_u64(&u->json, node, &whole)) {
        if (whole <= INT64_MAX) return (int64_t)whole;
        u->odd = true;
        return INT64_MAX;
    }
    if (!lar_json_double(&u->json, node, &d)) {
        u->odd = true;
        return lar_json_raw(&u->json, node).ptr[0] == '-' ? -INT64_MAX : INT64_MAX;
    }
    if (d < 0 || d >= 9e18) {
        u->odd = true;
        return d <= -9e18 ? -INT64_MAX : d < 0 ? (d > -1 ? -1 : (int64_t)d) : INT64_MAX;
    }
    if (d != (double)(int64_t)d) u->odd = true;
    return (int64_t)d;
}

/* A member's count. False if it is absent or null, or no number, which is odd. */
static bool read_count(lar_usage *u, uint32_t object, const char *name, int64_t *out) {
    uint32_t node = lar_json_get_last(&u->json, object, name);
    if (node == LAR_JSON_NONE || lar_json_is(&u->json, node, LAR_JSON_NULL)) return false;
    if (!lar_json_is(&u->json, node, LAR_JSON_NUMBER)) {
        u->odd = true;
        return false;
    }
    *out = count_of(u, node);
    return true;
}

/* The first row that is there; later rows must not contradict it. NULL if none. */
static const spelling_row *read_first(lar_usage *u, uint32_t node, const spelling_row *rows, size_t count, int64_t *out) {
    const spelling_row *found = NULL;
    for (size_t i = 0; i < count; i++) {
        uint32_t object = rows[i].object ? lar_json_get_last(&u->json, node, rows[i].object) : node;
        int64_t v;
        if (!read_count(u, object, rows[i].name, &v)) continue;
        if (!found) {
            found = &rows[i];
            *out = v;
        } else if (v != *out) {
            u->odd = true;
        }
    }
    return found;
}

/* Chunks of several choices: some upstreams count all output so far on every chunk, some only the chunk's own choice.
 * A choice's content that comes with no more than another choice had before can only be the second kind (J-20). */
static void note_output(lar_usage *u, int64_t v, const usage_marks *m) {
    u->raw.output = v;
    if (m->choice < 0) return;
    if (u->last_choice >= 0 && m->choice != u->last_choice && m->content && v > 0 && v <= u->output_top)
        u->per_choice = true;
    u->last_choice = m->choice;
    u->choice_output[m->choice] = v;
    if (v > u->output_top) u->output_top = v;
    if (!u->per_choice) return;
    int64_t sum = 0;
    for (int i = 0; i < LAR_USAGE_CHOICES_MAX; i++)
        if (u->choice_output[i] > 0) sum += u->choice_output[i] < TOKENS_MAX ? u->choice_output[i] : TOKENS_MAX;
    u->raw.output = sum;
}

/* cache_creation: {ephemeral_5m_input_tokens, ephemeral_1h_input_tokens}, where only the parts are given. */
static bool read_write_parts(lar_usage *u, uint32_t node, int64_t *out) {
    uint32_t parts = lar_json_get_last(&u->json, node, "cache_creation");
    int64_t short_lived = 0, long_lived = 0;
    bool a = read_count(u, parts, "ephemeral_5m_input_tokens", &short_lived);
    bool b = read_count(u, parts, "ephemeral_1h_input_tokens", &long_lived);
    if (short_lived < 0 || short_lived > TOKENS_MAX || long_lived < 0 || long_lived > TOKENS_MAX) return false;
    *out = short_lived + long_lived;
    return a || b;
}

/* Anthropic counts cached tokens beside input_tokens; the responses protocol uses the same name for the whole. */
static void note_convention(lar_usage *u, uint32_t node, const spelling_row *prompt, const spelling_row *hit) {
    const lar_json *j = &u->json;
    bool beside_name = lar_json_get(j, node, "cache_read_input_tokens") != LAR_JSON_NONE ||
                       lar_json_get(j, node, "cache_creation_input_tokens") != LAR_JSON_NONE ||
                       lar_json_get(j, node, "cache_creation") != LAR_JSON_NONE ||
                       lar_json_get(j, node, "cacheReadInputTokens") != LAR_JSON_NONE;
    bool whole = lar_json_get(j, node, "prompt_tokens") != LAR_JSON_NONE ||
                 lar_json_is(j, lar_json_get(j, node, "input_tokens_details"), LAR_JSON_OBJECT);
    if (beside_name && !whole) u->beside = true;
    else if (prompt && (hit || whole)) u->beside = false;
}

static bool sums_up(int64_t a, int64_t b, int64_t sum) {
    return a >= 0 && b >= 0 && a <= TOKENS_MAX && b <= TOKENS_MAX && a + b == sum;
}

bool lar_usage_read_object(lar_usage *u, uint32_t node, const usage_marks *m) {
    int64_t v;
    const spelling_row *prompt, *hit, *row;
    if ((prompt = read_first(u, node, ROWS(prompts), &v)) != NULL) u->raw.prompt = v;
    if ((hit = read_first(u, node, ROWS(hits), &v)) != NULL) u->raw.hit = v;
    bool miss = read_count(u, node, "prompt_cache_miss_tokens", &v);
    if (miss) u->raw.miss = v;
    bool any = prompt || hit || miss;
    if (prompt && hit && miss && !sums_up(u->raw.hit, u->raw.miss, u->raw.prompt)) u->odd = true;
    if (read_first(u, node, ROWS(writes), &v) || read_write_parts(u, node, &v)) u->raw.write = v, any = true;
    if (read_first(u, node, ROWS(thoughts), &v)) u->raw.reasoning = v, any = true;
    row = read_first(u, node, ROWS(outputs), &v);
    if (row) note_output(u, v, m), any = true;
    note_convention(u, node, prompt, hit);
    if (!any) return false;
    u->seen = true;
    if (hit) u->spelling = hit->spelling;
    else if (miss) u->spelling = LAR_SPELLING_DEEPSEEK;
    else if (u->spelling == LAR_SPELLING_NONE)
        u->spelling = row && row->spelling == LAR_SPELLING_GEMINI ? LAR_SPELLING_GEMINI : LAR_SPELLING_PLAIN;
    return true;
}

uint32_t lar_usage_find(const lar_json *j) {
    static const char *const holders[] = {NULL, "message", "response", "x_groq"};
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        uint32_t at = holders[i] ? lar_json_get_last(j, 0, holders[i]) : 0;
        uint32_t node = lar_json_get_last(j, at, "usage");
        if (lar_json_is(j, node, LAR_JSON_OBJECT)) return node;
    }
    uint32_t node = lar_json_get_last(j, 0, "usageMetadata");
    if (lar_json_is(j, node, LAR_JSON_OBJECT)) return node;
    node = lar_json_get_last(j, lar_json_at(j, lar_json_get_last(j, 0, "choices"), 0), "usage"); /* Kimi's streams */
    return lar_json_is(j, node, LAR_JSON_OBJECT) ? node : LAR_JSON_NONE;
}

/* -- the normal form --------------------------------------------------------------------------------- */

static int64_t not_negative(int64_t v, bool *clamped) {
    if (v == LAR_TOKENS_UNKNOWN || v >= 0) return v;
    *clamped = true;
    return 0;
}

/* For counts that are parts of no known whole. */
static int64_t believable(int64_t v, bool *clamped) {
    v = not_negative(v, clamped);
    if (v <= TOKENS_MAX) return v;
    *clamped = true;
    return LAR_TOKENS_UNKNOWN;
}

static int64_t part_of(int64_t v, int64_t whole, bool *clamped) {
    if (v == LAR_TOKENS_UNKNOWN || whole == LAR_TOKENS_UNKNOWN || v <= whole) return v;
    *clamped = true;
    return whole;
}

static int64_t or_zero(int64_t v) { return v == LAR_TOKENS_UNKNOWN ? 0 : v; }

/* All prompt tokens, from whatever the upstream counts. */
static int64_t whole_prompt(const lar_usage *u, lar_tokens *t, bool beside, bool *clamped) {
    int64_t prompt = believable(u->raw.prompt, clamped);
    if (beside) {
        t->hit = believable(t->hit, clamped);
        t->write = believable(t->write, clamped);
        if (prompt == LAR_TOKENS_UNKNOWN) return prompt;
        return prompt + or_zero(t->hit) + or_zero(t->write);
    }
    if (prompt != LAR_TOKENS_UNKNOWN || t->hit == LAR_TOKENS_UNKNOWN || t->miss == LAR_TOKENS_UNKNOWN) return prompt;
    t->hit = believable(t->hit, clamped);
    t->miss = believable(t->miss, clamped);
    return t->hit == LAR_TOKENS_UNKNOWN || t->miss == LAR_TOKENS_UNKNOWN ? LAR_TOKENS_UNKNOWN : t->hit + t->miss;
}

bool lar_usage_tokens(const lar_usage *u, lar_tokens *out) {
    bool clamped = false;
    bool beside = u->rule == LAR_USAGE_BESIDE || (u->rule == LAR_USAGE_BY_SPELLING && u->beside);
    lar_tokens t = {.hit = not_negative(u->raw.hit, &clamped),
                    .miss = not_negative(u->raw.miss, &clamped),
                    .write = not_negative(u->raw.write, &clamped)};
    t.prompt = whole_prompt(u, &t, beside, &clamped);
    t.hit = part_of(t.hit, t.prompt, &clamped);
    t.miss = part_of(t.miss, t.prompt, &clamped);
    if (t.prompt == LAR_TOKENS_UNKNOWN) {
        t.hit = believable(t.hit, &clamped);
        t.miss = believable(t.miss, &clamped);
    } else if (t.hit != LAR_TOKENS_UNKNOWN) {
        if (t.miss != LAR_TOKENS_UNKNOWN && t.hit + t.miss != t.prompt) clamped = true;
        t.miss = t.prompt - t.hit;
    } else if (t.miss != LAR_TOKENS_UNKNOWN) {
        t.hit = t.prompt - t.miss;
    }
    t.write = part_of(believable(t.write, &clamped), t.miss != LAR_TOKENS_UNKNOWN ? t.miss : t.prompt, &clamped);
    t.output = believable(u->raw.output, &clamped);
    t.reasoning = believable(u->raw.reasoning, &clamped);
    if (u->spelling == LAR_SPELLING_GEMINI && t.output != LAR_TOKENS_UNKNOWN) t.output += or_zero(t.reasoning);
    *out = t;
    return clamped;
}
