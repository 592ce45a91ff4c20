/* The numbers of a usage object in every provider's spelling, and the one normal form they are brought to.
 *
 * Called by usage.c. Loop thread; never blocks; no memory.
 * Invariants: 1. A missing, null or mistyped number is unknown, never 0. 2. raw holds what the upstream wrote, as far
 * as 64 bits can. 3. Normal counts are never negative, hit and write never exceed what they are parts of.
 * Why the order in `hits`: an upstream that sends several spellings means the first the most exactly; where they
 * differ, the usage is odd. Sources: providers' API references for the names (docs of the usage fields list them).
 * Not here: where events end, money. */
#include "gateway/usage/usage_parts.h"

/* More tokens than any answer can hold: such a number is a fault, and would drown every sum it is added to. */
#define TOKENS_MAX ((int64_t)1 << 40)

/* Members of a usage object that matter. */
#define MEMBERS(X)                                                                                                     \
    X(PROMPT_TOKENS, "prompt_tokens")                                                                                  \
    X(INPUT_TOKENS, "input_tokens") X(PROMPT_COUNT, "promptTokenCount") X(INPUT_CAMEL, "inputTokens")                  \
        X(COMPLETION_TOKENS, "completion_tokens") X(OUTPUT_TOKENS, "output_tokens")                                    \
            X(CANDIDATES_COUNT, "candidatesTokenCount") X(OUTPUT_CAMEL, "outputTokens")                                \
                X(HIT_TOKENS, "prompt_cache_hit_tokens") X(MISS_TOKENS, "prompt_cache_miss_tokens")                    \
                    X(PROMPT_DETAILS, "prompt_tokens_details") X(INPUT_DETAILS, "input_tokens_details")                \
                        X(COMPLETION_DETAILS, "completion_tokens_details") X(OUTPUT_DETAILS, "output_tokens_details")  \
                            X(CACHED_TOKENS, "cached_tokens") X(CACHE_READ, "cache_read_input_tokens")                 \
                                X(READ_CAMEL, "cacheReadInputTokens") X(CACHED_COUNT, "cachedContentTokenCount")       \
                                    X(CACHE_CREATION, "cache_creation_input_tokens")                                   \
                                        X(CREATION_PARTS, "cache_creation") X(WRITE_CAMEL, "cacheWriteInputTokens")    \
                                            X(CACHE_WRITE, "cache_write_tokens") X(REASONING, "reasoning_tokens")      \
                                                X(THOUGHTS_COUNT, "thoughtsTokenCount")
typedef enum member {
#define X(id, name) M_##id,
    MEMBERS(X)
#undef X
        M_COUNT
} member;

static const lar_slice member_names[M_COUNT] = {
#define X(id, name) {name, sizeof name - 1},
    MEMBERS(X)
#undef X
};

typedef struct spelling_row {
    lar_spelling spelling;
    member at;
    const char *inside; /* the number is this member of the object at `at`; NULL: it is at `at` itself */
} spelling_row;

static const spelling_row hits[] = {{LAR_SPELLING_DEEPSEEK, M_HIT_TOKENS, NULL},
                                    {LAR_SPELLING_OPENAI_CHAT, M_PROMPT_DETAILS, "cached_tokens"},
                                    {LAR_SPELLING_OPENAI_RESPONSES, M_INPUT_DETAILS, "cached_tokens"},
                                    {LAR_SPELLING_TOP_CACHED, M_CACHED_TOKENS, NULL},
                                    {LAR_SPELLING_ANTHROPIC, M_CACHE_READ, NULL},
                                    {LAR_SPELLING_ANTHROPIC, M_READ_CAMEL, NULL},
                                    {LAR_SPELLING_GEMINI, M_CACHED_COUNT, NULL}};

static const spelling_row prompts[] = {{LAR_SPELLING_PLAIN, M_PROMPT_TOKENS, NULL},
                                       {LAR_SPELLING_PLAIN, M_INPUT_TOKENS, NULL},
                                       {LAR_SPELLING_PLAIN, M_PROMPT_COUNT, NULL},
                                       {LAR_SPELLING_PLAIN, M_INPUT_CAMEL, NULL}};

static const spelling_row outputs[] = {{LAR_SPELLING_PLAIN, M_COMPLETION_TOKENS, NULL},
                                       {LAR_SPELLING_PLAIN, M_OUTPUT_TOKENS, NULL},
                                       {LAR_SPELLING_GEMINI, M_CANDIDATES_COUNT, NULL},
                                       {LAR_SPELLING_PLAIN, M_OUTPUT_CAMEL, NULL}};

static const spelling_row writes[] = {{LAR_SPELLING_PLAIN, M_CACHE_CREATION, NULL},
                                      {LAR_SPELLING_PLAIN, M_WRITE_CAMEL, NULL},
                                      {LAR_SPELLING_PLAIN, M_CACHE_WRITE, NULL},
                                      {LAR_SPELLING_PLAIN, M_PROMPT_DETAILS, "cache_write_tokens"},
                                      {LAR_SPELLING_PLAIN, M_INPUT_DETAILS, "cache_write_tokens"},
                                      {LAR_SPELLING_PLAIN, M_PROMPT_DETAILS, "cache_creation_input_tokens"}};

static const spelling_row thoughts[] = {{LAR_SPELLING_PLAIN, M_COMPLETION_DETAILS, "reasoning_tokens"},
                                        {LAR_SPELLING_PLAIN, M_OUTPUT_DETAILS, "reasoning_tokens"},
                                        {LAR_SPELLING_GEMINI, M_THOUGHTS_COUNT, NULL},
                                        {LAR_SPELLING_PLAIN, M_REASONING, NULL}};

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

/* A value's count. False if it is absent or null, or no number, which is odd. */
static bool read_count(lar_usage *u, uint32_t node, int64_t *out) {
    if (node == LAR_JSON_NONE || lar_json_is(&u->json, node, LAR_JSON_NULL)) return false;
    if (!lar_json_is(&u->json, node, LAR_JSON_NUMBER)) {
        u->odd = true;
        return false;
    }
    *out = count_of(u, node);
    return true;
}

/* The first row that is there; later rows must not contradict it. NULL if none. */
static const spelling_row *read_first(lar_usage *u, const uint32_t *at, const spelling_row *rows, size_t count,
                                      int64_t *out) {
    const spelling_row *found = NULL;
    for (size_t i = 0; i < count; i++) {
        uint32_t node = at[rows[i].at];
        int64_t v;
        if (rows[i].inside) node = lar_json_get_last(&u->json, node, rows[i].inside);
        if (!read_count(u, node, &v)) continue;
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
static bool read_write_parts(lar_usage *u, uint32_t parts, int64_t *out) {
    int64_t short_lived = 0, long_lived = 0;
    bool a = read_count(u, lar_json_get_last(&u->json, parts, "ephemeral_5m_input_tokens"), &short_lived);
    bool b = read_count(u, lar_json_get_last(&u->json, parts, "ephemeral_1h_input_tokens"), &long_lived);
    if (short_lived < 0 || short_lived > TOKENS_MAX || long_lived < 0 || long_lived > TOKENS_MAX) return false;
    *out = short_lived + long_lived;
    return a || b;
}

/* Anthropic counts cached tokens beside input_tokens; the responses protocol uses the same name for the whole. */
static void note_convention(lar_usage *u, const uint32_t *at, const spelling_row *prompt, const spelling_row *hit) {
    bool beside_name = at[M_CACHE_READ] != LAR_JSON_NONE || at[M_CACHE_CREATION] != LAR_JSON_NONE ||
                       at[M_CREATION_PARTS] != LAR_JSON_NONE || at[M_READ_CAMEL] != LAR_JSON_NONE;
    bool whole = at[M_PROMPT_TOKENS] != LAR_JSON_NONE || lar_json_is(&u->json, at[M_INPUT_DETAILS], LAR_JSON_OBJECT);
    if (beside_name && !whole) u->beside = true;
    else if (prompt && (hit || whole)) u->beside = false;
}

static bool sums_up(int64_t a, int64_t b, int64_t sum) {
    return a >= 0 && b >= 0 && a <= TOKENS_MAX && b <= TOKENS_MAX && a + b == sum;
}

bool lar_usage_read_object(lar_usage *u, uint32_t node, const usage_marks *m) {
    int64_t v;
    const spelling_row *prompt, *hit, *row;
    uint32_t at[M_COUNT];
    lar_usage_members(&u->json, node, member_names, M_COUNT, at);
    if ((prompt = read_first(u, at, ROWS(prompts), &v)) != NULL) u->raw.prompt = v;
    if ((hit = read_first(u, at, ROWS(hits), &v)) != NULL) u->raw.hit = v;
    bool miss = read_count(u, at[M_MISS_TOKENS], &v);
    if (miss) u->raw.miss = v;
    bool any = prompt || hit || miss;
    if (prompt && hit && miss && !sums_up(u->raw.hit, u->raw.miss, u->raw.prompt)) u->odd = true;
    if (read_first(u, at, ROWS(writes), &v) || read_write_parts(u, at[M_CREATION_PARTS], &v))
        u->raw.write = v, any = true;
    if (read_first(u, at, ROWS(thoughts), &v)) u->raw.reasoning = v, any = true;
    row = read_first(u, at, ROWS(outputs), &v);
    if (row) note_output(u, v, m), any = true;
    note_convention(u, at, prompt, hit);
    if (!any) return false;
    u->seen = true;
    if (hit) u->spelling = hit->spelling;
    else if (miss) u->spelling = LAR_SPELLING_DEEPSEEK;
    else if (u->spelling == LAR_SPELLING_NONE)
        u->spelling = row && row->spelling == LAR_SPELLING_GEMINI ? LAR_SPELLING_GEMINI : LAR_SPELLING_PLAIN;
    return true;
}

uint32_t lar_usage_find(const lar_json *j, const usage_marks *m) {
    static const usage_root holders[] = {USAGE_ROOT_MESSAGE, USAGE_ROOT_RESPONSE, USAGE_ROOT_GROQ};
    if (lar_json_is(j, m->root[USAGE_ROOT_USAGE], LAR_JSON_OBJECT)) return m->root[USAGE_ROOT_USAGE];
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        uint32_t node = lar_json_get_last(j, m->root[holders[i]], "usage");
        if (lar_json_is(j, node, LAR_JSON_OBJECT)) return node;
    }
    if (lar_json_is(j, m->root[USAGE_ROOT_METADATA], LAR_JSON_OBJECT)) return m->root[USAGE_ROOT_METADATA];
    uint32_t node = lar_json_get_last(j, lar_json_at(j, m->root[USAGE_ROOT_CHOICES], 0), "usage"); /* Kimi's streams */
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
