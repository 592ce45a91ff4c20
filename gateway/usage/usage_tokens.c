/* The numbers of a usage object in every provider's spelling, and the one normal form they are brought to.
 *
 * Called by usage.c. Loop thread; never blocks; no memory.
 * Invariants: 1. A missing, null, mistyped, negative, huge or broken number is unknown, never 0; so is a sum that
 * it is a part of. 2. raw holds what the upstream wrote, as far as 64 bits can. 3. Normal counts are never negative,
 * hit and write never exceed what they are parts of.
 * Why the order in `hits`: an upstream that sends several spellings means the first the most exactly; where they
 * differ, the usage is odd. Sources: providers' API references for the names (docs of the usage fields list them).
 * Not here: where events end, money. */
#include "gateway/usage/usage_parts.h"

/* More tokens than any answer can hold: such a number is a fault, and would drown every sum it is added to. */
#define TOKENS_MAX ((int64_t)1 << 40)

/* Members of a usage object that matter; usage_parts.h says why by length. */
#define MEMBERS_11(X) X(11, INPUT_CAMEL, "inputTokens")
#define MEMBERS_12(X) X(12, INPUT_TOKENS, "input_tokens") X(12, OUTPUT_CAMEL, "outputTokens")
#define MEMBERS_13(X)                                                                                                  \
    X(13, PROMPT_TOKENS, "prompt_tokens") X(13, OUTPUT_TOKENS, "output_tokens") X(13, CACHED_TOKENS, "cached_tokens")
#define MEMBERS_14(X) X(14, CREATION_PARTS, "cache_creation")
#define MEMBERS_16(X) X(16, PROMPT_COUNT, "promptTokenCount") X(16, REASONING, "reasoning_tokens")
#define MEMBERS_17(X) X(17, COMPLETION_TOKENS, "completion_tokens")
#define MEMBERS_18(X) X(18, CACHE_WRITE, "cache_write_tokens") X(18, THOUGHTS_COUNT, "thoughtsTokenCount")
#define MEMBERS_20(X)                                                                                                  \
    X(20, CANDIDATES_COUNT, "candidatesTokenCount")                                                                    \
    X(20, INPUT_DETAILS, "input_tokens_details") X(20, READ_CAMEL, "cacheReadInputTokens")
#define MEMBERS_21(X)                                                                                                  \
    X(21, PROMPT_DETAILS, "prompt_tokens_details")                                                                     \
    X(21, OUTPUT_DETAILS, "output_tokens_details") X(21, WRITE_CAMEL, "cacheWriteInputTokens")
#define MEMBERS_23(X)                                                                                                  \
    X(23, HIT_TOKENS, "prompt_cache_hit_tokens")                                                                       \
    X(23, CACHE_READ, "cache_read_input_tokens") X(23, CACHED_COUNT, "cachedContentTokenCount")
#define MEMBERS_24(X) X(24, MISS_TOKENS, "prompt_cache_miss_tokens")
#define MEMBERS_25(X) X(25, COMPLETION_DETAILS, "completion_tokens_details")
#define MEMBERS_27(X) X(27, CACHE_CREATION, "cache_creation_input_tokens")
#define MEMBERS(X)                                                                                                     \
    MEMBERS_11(X)                                                                                                      \
    MEMBERS_12(X)                                                                                                      \
    MEMBERS_13(X)                                                                                                      \
    MEMBERS_14(X)                                                                                                      \
    MEMBERS_16(X)                                                                                                      \
    MEMBERS_17(X) MEMBERS_18(X) MEMBERS_20(X) MEMBERS_21(X) MEMBERS_23(X) MEMBERS_24(X) MEMBERS_25(X) MEMBERS_27(X)
typedef enum member {
#define X(len, id, name) M_##id,
    MEMBERS(X)
#undef X
        M_COUNT
} member;

static uint32_t find_member(const char *key, size_t len) {
#define MATCH(length, id, name) USAGE_MATCH(length, name, M_##id)
    switch (len) {
        USAGE_NAMES_OF(MEMBERS, 11)
        USAGE_NAMES_OF(MEMBERS, 12)
        USAGE_NAMES_OF(MEMBERS, 13)
        USAGE_NAMES_OF(MEMBERS, 14)
        USAGE_NAMES_OF(MEMBERS, 16)
        USAGE_NAMES_OF(MEMBERS, 17)
        USAGE_NAMES_OF(MEMBERS, 18)
        USAGE_NAMES_OF(MEMBERS, 20)
        USAGE_NAMES_OF(MEMBERS, 21)
        USAGE_NAMES_OF(MEMBERS, 23)
        USAGE_NAMES_OF(MEMBERS, 24)
        USAGE_NAMES_OF(MEMBERS, 25)
        USAGE_NAMES_OF(MEMBERS, 27)
    default: break;
    }
#undef MATCH
    return M_COUNT;
}

#define X(len, id, name) {name, len},
static const lar_slice member_texts[M_COUNT] = {MEMBERS(X)};
#undef X
static const usage_names member_names = {member_texts, M_COUNT, find_member};

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

/* True if a number's text has a digit that is not 0: then it is no 0, however near it a double brings it. */
static bool has_digit(lar_slice number) {
    for (size_t i = 0; i < number.len && (number.ptr[i] | 0x20) != 'e'; i++)
        if (number.ptr[i] >= '1' && number.ptr[i] <= '9') return true;
    return false;
}

/* A number that is no plain row of digits. What is too large for 64 bits is brought near, still far from believable.
 * False if it is no whole number. */
static bool odd_number(const lar_json *j, uint32_t node, int64_t *out) {
    uint64_t whole;
    double d;
    if (lar_json_u64(j, node, &whole)) {
        *out = whole <= INT64_MAX ? (int64_t)whole : INT64_MAX;
        return true;
    }
    if (!lar_json_double(j, node, &d)) d = lar_json_raw(j, node).ptr[0] == '-' ? -9e18 : 9e18;
    *out = d >= 9e18 ? INT64_MAX : d <= -9e18 ? -INT64_MAX : (int64_t)d;
    return d >= 9e18 || d <= -9e18 || (d == (double)*out && (d != 0 || !has_digit(lar_json_raw(j, node))));
}

static bool missing(const lar_json *j, uint32_t node) {
    return node == LAR_JSON_NONE || lar_json_is(j, node, LAR_JSON_NULL);
}

static bool mistyped(lar_usage *u) {
    u->mistyped++;
    u->odd = true;
    return false;
}

/* A value's count. False if it is absent or null, or no whole number, which is odd. */
static bool read_count(lar_usage *u, uint32_t node, int64_t *out) {
    if (missing(&u->json, node)) return false;
    if (!lar_json_is(&u->json, node, LAR_JSON_NUMBER)) return mistyped(u);
    lar_slice text = lar_json_raw(&u->json, node);
    int64_t v = 0;
    size_t i = 0;
    for (; i < text.len && i < 18 && (unsigned)(text.ptr[i] - '0') < 10; i++) v = v * 10 + (text.ptr[i] - '0');
    if (i < text.len && !odd_number(&u->json, node, &v)) return mistyped(u);
    if (v < 0 || v > TOKENS_MAX) u->odd = true;
    *out = v;
    return true;
}

/* The first row that is there; later rows must not contradict it. NULL if none. */
static const spelling_row *read_first(lar_usage *u, const uint32_t *at, const spelling_row *rows, size_t count,
                                      int64_t *out) {
    const spelling_row *found = NULL;
    for (size_t i = 0; i < count; i++) {
        uint32_t node = at[rows[i].at];
        int64_t v;
        if (node == LAR_JSON_NONE) continue;
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

static bool in_range(int64_t v) { return v >= 0 && v <= TOKENS_MAX; }

/* Chunks of several choices: some upstreams count all output so far on every chunk, some only the chunk's own choice.
 * A choice's content that comes with no more than another choice had before can only be the second kind (J-20). */
static void note_output(lar_usage *u, int64_t v, const usage_marks *m) {
    u->raw.output = v;
    if (m->choice < 0) return;
    if (u->last_choice >= 0 && m->choice != u->last_choice && m->content && v > 0 && v <= u->output_top)
        u->per_choice = true;
    u->last_choice = m->choice;
    u->choice_output[m->choice] = v;
    if (v > u->output_top && in_range(v)) u->output_top = v;
    if (!u->per_choice) return;
    int64_t sum = 0;
    for (int i = 0; i < LAR_USAGE_CHOICES_MAX; i++) {
        if (u->choice_output[i] == LAR_TOKENS_UNKNOWN) continue;
        sum = in_range(u->choice_output[i]) ? sum + u->choice_output[i] : -INT64_MAX;
        if (sum < 0) break; /* a sum with a part that cannot be is unknown */
    }
    u->raw.output = sum;
}

/* cache_creation: {ephemeral_5m_input_tokens, ephemeral_1h_input_tokens}, where only the parts are given. */
static bool read_write_parts(lar_usage *u, uint32_t parts, int64_t *out) {
    int64_t short_lived = 0, long_lived = 0;
    uint32_t before = u->mistyped;
    if (missing(&u->json, parts)) return false;
    if (!lar_json_is(&u->json, parts, LAR_JSON_OBJECT)) return mistyped(u);
    bool a = read_count(u, lar_json_get_last(&u->json, parts, "ephemeral_5m_input_tokens"), &short_lived);
    bool b = read_count(u, lar_json_get_last(&u->json, parts, "ephemeral_1h_input_tokens"), &long_lived);
    *out = !in_range(short_lived) ? short_lived : !in_range(long_lived) ? long_lived : short_lived + long_lived;
    return (a || b) && u->mistyped == before;
}

/* Anthropic counts cached tokens beside input_tokens; the responses protocol uses the same name for the whole. */
static void note_convention(lar_usage *u, const uint32_t *at, const spelling_row *prompt, const spelling_row *hit) {
    bool beside_name = at[M_CACHE_READ] != LAR_JSON_NONE || at[M_CACHE_CREATION] != LAR_JSON_NONE ||
                       at[M_CREATION_PARTS] != LAR_JSON_NONE || at[M_READ_CAMEL] != LAR_JSON_NONE;
    bool whole = at[M_PROMPT_TOKENS] != LAR_JSON_NONE || lar_json_is(&u->json, at[M_INPUT_DETAILS], LAR_JSON_OBJECT);
    if (beside_name && !whole) u->beside = true;
    else if (prompt && (hit || whole)) u->beside = false;
}

static bool sums_up(int64_t a, int64_t b, int64_t sum) { return in_range(a) && in_range(b) && a + b == sum; }

/* The raw count of a part was read, or what stands there is none. */
static void note_part(int64_t *raw, bool *broken, bool read, int64_t v) {
    *broken = !read;
    if (read) *raw = v;
}

bool lar_usage_read_object(lar_usage *u, uint32_t node, const usage_marks *m) {
    int64_t v = 0;
    const spelling_row *prompt, *hit, *row;
    uint32_t at[M_COUNT], before = u->mistyped;
    lar_usage_members(&u->json, node, &member_names, at);
    if ((hit = read_first(u, at, ROWS(hits), &v)) != NULL || u->mistyped != before)
        note_part(&u->raw.hit, &u->hit_broken, hit != NULL, v);
    before = u->mistyped;
    bool write = read_first(u, at, ROWS(writes), &v) || read_write_parts(u, at[M_CREATION_PARTS], &v);
    if (write || u->mistyped != before) note_part(&u->raw.write, &u->write_broken, write, v);
    before = u->mistyped;
    bool thought = read_first(u, at, ROWS(thoughts), &v) != NULL;
    if (thought || u->mistyped != before) note_part(&u->raw.reasoning, &u->reasoning_broken, thought, v);
    if ((prompt = read_first(u, at, ROWS(prompts), &v)) != NULL) u->raw.prompt = v;
    bool miss = read_count(u, at[M_MISS_TOKENS], &v);
    if (miss) u->raw.miss = v;
    bool any = prompt || hit || miss || write || thought;
    if (prompt && hit && miss && !sums_up(u->raw.hit, u->raw.miss, u->raw.prompt)) u->odd = true;
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

/* A count that can be one, or unknown. */
static int64_t believable(int64_t v, bool *clamped) {
    if (v == LAR_TOKENS_UNKNOWN || in_range(v)) return v;
    *clamped = true;
    return LAR_TOKENS_UNKNOWN;
}

static int64_t part_of(int64_t v, int64_t whole, bool *clamped) {
    if (v == LAR_TOKENS_UNKNOWN || whole == LAR_TOKENS_UNKNOWN || v <= whole) return v;
    *clamped = true;
    return whole;
}

static int64_t or_zero(int64_t v) { return v == LAR_TOKENS_UNKNOWN ? 0 : v; }

/* True if a part was given, but not as a count that can be: what it is a part of cannot be summed. */
static bool broken_part(int64_t raw, bool broken) { return broken || (raw != LAR_TOKENS_UNKNOWN && !in_range(raw)); }

/* All prompt tokens, from whatever the upstream counts. */
static int64_t whole_prompt(const lar_usage *u, const lar_tokens *t, bool beside, bool *clamped) {
    int64_t prompt = believable(u->raw.prompt, clamped);
    if (beside) {
        if (prompt == LAR_TOKENS_UNKNOWN || broken_part(u->raw.hit, u->hit_broken) ||
            broken_part(u->raw.write, u->write_broken))
            return LAR_TOKENS_UNKNOWN;
        return prompt + or_zero(t->hit) + or_zero(t->write);
    }
    if (prompt != LAR_TOKENS_UNKNOWN || t->hit == LAR_TOKENS_UNKNOWN || t->miss == LAR_TOKENS_UNKNOWN) return prompt;
    return t->hit + t->miss;
}

bool lar_usage_tokens(const lar_usage *u, lar_tokens *out) {
    bool clamped = false;
    bool beside = u->rule == LAR_USAGE_BESIDE || (u->rule == LAR_USAGE_BY_SPELLING && u->beside);
    lar_tokens t = {.hit = believable(u->raw.hit, &clamped),
                    .miss = believable(u->raw.miss, &clamped),
                    .write = believable(u->raw.write, &clamped)};
    t.prompt = whole_prompt(u, &t, beside, &clamped);
    t.hit = part_of(t.hit, t.prompt, &clamped);
    t.miss = part_of(t.miss, t.prompt, &clamped);
    if (t.prompt == LAR_TOKENS_UNKNOWN) {
        /* nothing to derive */
    } else if (t.hit != LAR_TOKENS_UNKNOWN) {
        if (t.miss != LAR_TOKENS_UNKNOWN && t.hit + t.miss != t.prompt) clamped = true;
        t.miss = t.prompt - t.hit;
    } else if (t.miss != LAR_TOKENS_UNKNOWN) {
        t.hit = t.prompt - t.miss;
    }
    t.write = part_of(t.write, t.miss != LAR_TOKENS_UNKNOWN ? t.miss : t.prompt, &clamped);
    t.output = believable(u->raw.output, &clamped);
    t.reasoning = believable(u->raw.reasoning, &clamped);
    if (u->spelling == LAR_SPELLING_GEMINI && t.output != LAR_TOKENS_UNKNOWN)
        t.output =
            broken_part(u->raw.reasoning, u->reasoning_broken) ? LAR_TOKENS_UNKNOWN : t.output + or_zero(t.reasoning);
    *out = t;
    return clamped;
}
