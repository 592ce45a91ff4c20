/* Pre-tokenisation: steps of regular expressions, each of which cuts the pieces of the one before.
 * Flow: tokenizer_json.c and tokenizer_parts.c add steps when a tokenizer is opened; tokenizer.c walks the pieces of
 * every text. Any thread; the walk takes no memory and blocks on nothing: its state is one range for each step.
 * Sources of the families: the tokenizer.json of DeepSeek-V3; llama.cpp's table of pre-tokenizers for deepseek-llm,
 * deepseek-coder and glm4; tokenization_kimi.py for kimi-k2. */
#include "engine/text/pretoken.h"

enum { WORK_PER_BYTE = 64, WORK_FREE = 1 << 16 };

const char lar_pretoken_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define DEEPSEEK_V3                                                                                                    \
    {                                                                                                                  \
        "\\p{N}{1,3}", "[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+",                                             \
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"        \
            "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"                                               \
    }
#define GLM4                                                                                                           \
    {                                                                                                                  \
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"        \
        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"                                                                              \
    }
/* The letters with case of an older Unicode, as the file of DeepSeek-LLM lists them. */
#define CASED                                                                                                          \
    "\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u01BC-\\u01BF\\u01C4-\\u0293\\u0295-\\u02AF"                \
    "\\u0370-\\u0373\\u0376\\u0377\\u037B-\\u037D\\u037F\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1"                  \
    "\\u03A3-\\u03F5\\u03F7-\\u0481\\u048A-\\u052F\\u0531-\\u0556\\u10A0-\\u10C5\\u13A0-\\u13F5"                       \
    "\\u13F8-\\u13FD\\u1C90-\\u1CBA\\u1CBD-\\u1CBF\\u1D00-\\u1D2B\\u1D6B-\\u1D77\\u1D79-\\u1D9A"                       \
    "\\u1E00-\\u1F15\\u1F18-\\u1F1D\\u1F20-\\u1F45\\u1F48-\\u1F4D\\u1F50-\\u1F57\\u1F59\\u1F5B\\u1F5D"                 \
    "\\u1F5F-\\u1F7D\\u1F80-\\u1FB4\\u1FB6-\\u1FBC\\u1FBE\\u1FC2-\\u1FC4\\u1FC6-\\u1FCC\\u1FD0-\\u1FD3"                \
    "\\u1FD6-\\u1FDB\\u1FE0-\\u1FEC\\u1FF2-\\u1FF4\\u1FF6-\\u1FFC\\u2102\\u2107\\u210A-\\u2113\\u2115"                 \
    "\\u2119-\\u211D\\u2124\\u2126\\u2128\\u212A-\\u212D\\u212F-\\u2134\\u2139\\u213C-\\u213F\\u2145-\\u2149"          \
    "\\u214E\\u2183\\u2184\\u2C00-\\u2C7B\\u2C7E-\\u2CE4\\u2CEB-\\u2CEE\\u2CF2\\u2CF3\\uA640-\\uA66D"                  \
    "\\uA680-\\uA69B\\uA722-\\uA76F\\uA771-\\uA787\\uA78B-\\uA78E\\uAB70-\\uABBF\\uFB00-\\uFB06"                       \
    "\\uFB13-\\uFB17\\uFF21-\\uFF3A\\uFF41-\\uFF5A\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"                          \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"                             \
    "\\x{1E900}-\\x{1E943}"
#define CJK "[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF]+"
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const struct {
    const char *name;
    const char *steps[6];
} families[] = {
    {"deepseek-v3", DEEPSEEK_V3},
    {"joyai-llm", DEEPSEEK_V3},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[A-Za-z" CASED "]+", "\\s?[!-/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002]+",
      "\\s+$", CJK, "\\p{N}"}}, /* digit by digit, as its paper says and its file has it; llama.cpp takes runs */
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {"glm4", GLM4},
    {"chatglm-bpe", GLM4},
    {"kimi-k2",
     {"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" KIMI_SHORT "|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER
      "+" KIMI_LOWER "*" KIMI_SHORT "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
};
enum { FAMILIES = sizeof families / sizeof *families };

void lar_pretoken_release(lar_pretoken *p) {
    for (uint32_t i = 0; i < p->count; i++) lar_regex_free(p->steps[i]);
    *p = (lar_pretoken){0};
}

lar_error lar_pretoken_add(lar_pretoken *p, lar_slice pattern, lar_diag *d) {
    if (p->count == LAR_PRETOKEN_STEPS)
        return lar_fail(LAR_LIMIT, d, "the pre-tokenizer has more than %d steps", LAR_PRETOKEN_STEPS);
    lar_error e = lar_regex_new(pattern, &p->steps[p->count], d);
    if (!e) p->count++;
    return e;
}

lar_error lar_pretoken_add_family(lar_pretoken *p, lar_slice name, lar_diag *d) {
    for (uint32_t i = 0; i < FAMILIES; i++) {
        if (!lar_slice_eq_cstr(name, families[i].name)) continue;
        lar_error e = LAR_OK;
        for (uint32_t k = 0; k < 6 && families[i].steps[k] && !e; k++)
            e = lar_pretoken_add(p, lar_slice_cstr(families[i].steps[k]), d);
        return e;
    }
    return lar_fail(
        LAR_INVALID, d,
        "the pre-tokenizer \"%.*s\" is not supported (deepseek-v3, joyai-llm, deepseek-llm, deepseek-coder, "
        "glm4, chatglm-bpe and kimi-k2 are)",
        (int)(name.len < 40 ? name.len : 40), name.ptr);
}

void lar_pieces_init(lar_pieces *w, const lar_pretoken *steps, lar_slice text, size_t from, size_t end) {
    w->steps = steps;
    w->text = text.ptr;
    w->depth = 0;
    uint64_t work_max = (uint64_t)(end - from) * WORK_PER_BYTE + WORK_FREE;
    for (uint32_t i = 0; i <= steps->count; i++) {
        w->level[i].at = w->level[i].end = w->level[i].match = w->level[i].match_end = 0;
        w->level[i].memo = (lar_regex_memo){.work_max = work_max};
    }
    w->level[0].at = from;
    w->level[0].end = end;
}

/* The next range that step `depth` cuts off; false when it has nothing left. */
static bool cut(lar_pieces *w, uint32_t depth, size_t range[2]) {
    size_t at = w->level[depth].at, end = w->level[depth].end;
    lar_regex_range found;
    if (at == end) return false;
    range[0] = at;
    if (w->level[depth].match == at && w->level[depth].match_end > at) {
        range[1] = w->level[depth].match_end; /* the gap before it was given out */
    } else if (!lar_regex_find(w->steps->steps[depth], w->text, (lar_regex_range){at, end}, &w->level[depth].memo,
                               &found)) {
        range[1] = end;
    } else if (found.first == at) {
        range[1] = found.end;
    } else {
        range[1] = w->level[depth].match = found.first;
        w->level[depth].match_end = found.end;
    }
    w->level[depth].at = range[1];
    return true;
}

lar_error lar_pieces_next(lar_pieces *w, lar_slice *piece, bool *more) {
    uint32_t last = w->steps->count;
    size_t range[2];
    *more = true;
    for (;;) {
        if (w->depth == last) {
            size_t at = w->level[last].at, end = w->level[last].end;
            if (last) w->depth--;
            else w->level[0].at = end;
            *piece = lar_slice_of(w->text + at, end - at);
            *more = at < end;
            return LAR_OK;
        }
        if (!cut(w, w->depth, range)) {
            if (w->depth == 0) break;
            w->depth--;
            continue;
        }
        if (w->level[w->depth].memo.work > w->level[w->depth].memo.work_max) return LAR_LIMIT;
        w->depth++;
        w->level[w->depth].at = range[0];
        w->level[w->depth].end = range[1];
        w->level[w->depth].match = w->level[w->depth].match_end = 0;
        w->level[w->depth].memo.state = 0;
    }
    *more = false;
    return LAR_OK;
}
