/* Names of endings and spellings, for records, tables and exports. Any thread; no memory. */
#include "store/journal.h"

static const char *const endings[LAR_END_COUNT] = {
    [LAR_END_COMPLETE] = "complete",
    [LAR_END_REFUSED] = "refused",
    [LAR_END_UPSTREAM_ERROR] = "upstream-error",
    [LAR_END_UPSTREAM_FAILED] = "upstream-failed",
    [LAR_END_CLIENT_GONE] = "client-gone",
    [LAR_END_SHUTDOWN] = "shutdown",
};

static const char *const spellings[LAR_SPELLING_COUNT] = {
    [LAR_SPELLING_NONE] = "none",
    [LAR_SPELLING_DEEPSEEK] = "deepseek",
    [LAR_SPELLING_OPENAI_CHAT] = "openai-chat",
    [LAR_SPELLING_OPENAI_RESPONSES] = "openai-responses",
    [LAR_SPELLING_TOP_CACHED] = "top-cached",
    [LAR_SPELLING_ANTHROPIC] = "anthropic",
    [LAR_SPELLING_GEMINI] = "gemini",
    [LAR_SPELLING_PLAIN] = "plain",
};

const char *lar_ending_name(lar_ending e) { return (unsigned)e < LAR_END_COUNT ? endings[e] : "unknown"; }
const char *lar_spelling_name(lar_spelling s) { return (unsigned)s < LAR_SPELLING_COUNT ? spellings[s] : "unknown"; }
