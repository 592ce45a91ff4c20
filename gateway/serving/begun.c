/* An answer that somebody else began: what the model must have read to go on with it.
 * Flow: prompts.c, behind the rendered prompt -> lar_begun_append. Any thread; never blocks.
 * Why the generation prompt and then the text, and no assistant message through the template: that is what a model has
 * read that wrote it itself. Why the last word is taken back: the other side may have cut the text where this tokenizer
 * would not, and a word cut in two goes on as another one. The model writes it again, held to its bytes, and may end it
 * as it likes ("token healing", as guidance has it). Where it would have written the same tokens it does so again.
 * Invariants: 1. what was begun is never read as special tokens. 2. the prompt's own tokens stay as they are.
 * Memory: the text, its ids; of the vocabulary, what fits a word of WORD_BYTES_MAX bytes. */
#include "gateway/serving/ask.h"

enum { TEXT_BYTES_MAX = 64 << 20, SPANS_MAX = 2, WORD_TOKENS_MAX = 8, WORD_BYTES_MAX = 32 };

typedef struct begun_text {
    lar_buf text;
    lar_text_span plain[SPANS_MAX];
    size_t plain_count;
} begun_text;

lar_error lar_begun_check(const lar_ask *a, lar_refusal *no) {
    const char *field = !a->stream ? "stream" : a->samples != 1 ? "n" : a->logprobs ? "logprobs" : NULL;
    if (!field && !a->add_generation_prompt) field = "add_generation_prompt";
    if (!field) return LAR_OK;
    return lar_refuse(no, field, LAR_CODE_UNSUPPORTED_VALUE, "%s: an answer that has begun cannot go on with that",
                      field);
}

static lar_error add_plain(begun_text *t, lar_slice text) {
    if (!text.len) return LAR_OK;
    size_t start = t->text.len;
    lar_error e = lar_buf_add_slice(&t->text, text);
    t->plain[t->plain_count++] = (lar_text_span){start, t->text.len};
    return e;
}

static lar_error add_mark(begun_text *t, bool wanted, const char *mark) {
    return wanted ? lar_buf_add_slice(&t->text, lar_slice_cstr(mark)) : LAR_OK;
}

/* With the marks that the model would have written. */
static lar_error write_text(const lar_serving *s, const lar_serving_begun *b, const lar_prompt *p, begun_text *t,
                            lar_refusal *no) {
    bool reasons = b->reasoning.len > 0;
    if (reasons && (!s->thinks || p->reasoning_shut))
        return lar_refuse(no, "messages", LAR_CODE_UNSUPPORTED_VALUE,
                          "messages: the answer began with reasoning, and this model does not reason here");
    lar_error e = add_mark(t, reasons && !p->reasoning_open, LAR_THINK_BEGIN);
    if (!e) e = add_plain(t, b->reasoning);
    if (!e) e = add_mark(t, b->content.len && (reasons || p->reasoning_open), LAR_THINK_END);
    return e ? e : add_plain(t, b->content);
}

static bool is_end(const lar_serving *s, uint32_t id) {
    for (uint32_t i = 0; i < s->end_count; i++)
        if (s->ends[i] == id) return true;
    return false;
}

/* A mark is no beginning of a text, whether the files call it special or not. */
static bool is_mark(const lar_serving *s, uint32_t id, lar_slice bytes) {
    return lar_tokenizer_is_special(s->text.tokenizer, id) || is_end(s, id) ||
           lar_slice_eq_cstr(bytes, LAR_THINK_BEGIN) || lar_slice_eq_cstr(bytes, LAR_THINK_END) ||
           lar_output_format_marks(s->text.calls, bytes);
}

/* The tokens that could come where `rest` is to come. */
static lar_error find_row(const lar_serving *s, lar_slice rest, lar_prompt *p) {
    const lar_tokenizer *t = s->text.tokenizer;
    uint32_t size = lar_tokenizer_size(t) < s->vocab ? lar_tokenizer_size(t) : s->vocab;
    lar_error e = LAR_OK;
    for (uint32_t id = 0; !e && id < size; id++) {
        lar_slice bytes = lar_tokenizer_bytes(t, id);
        size_t n = bytes.len < rest.len ? bytes.len : rest.len;
        if (!n || memcmp(bytes.ptr, rest.ptr, n) != 0 || is_mark(s, id, bytes)) continue;
        e = lar_ids_add(&p->opening_ids, id);
        if (!e) e = lar_ids_add(&p->opening_bytes, (uint32_t)bytes.len);
    }
    return e;
}

/* `word` is to come again. One whose bytes are no tokens here at some place stays as it was. */
static lar_error open_with(const lar_serving *s, lar_slice word, lar_prompt *p, bool *opens) {
    lar_error e = LAR_OK;
    size_t before = 0;
    *opens = true;
    for (size_t at = 0; !e && *opens && at < word.len; at++) {
        e = find_row(s, lar_slice_of(word.ptr + at, word.len - at), p);
        p->opening_ends[at] = (uint32_t)p->opening_ids.count;
        *opens = p->opening_ids.count > before;
        before = p->opening_ids.count;
    }
    if (!e && *opens) p->again_bytes = (uint32_t)word.len;
    return e;
}

/* How many tokens before the last word, with the blank in front of it. A text without blanks has words of a few
 * tokens. */
static uint32_t before_last_word(const lar_serving *s, const lar_ids *begun, size_t *bytes) {
    const lar_tokenizer *t = s->text.tokenizer;
    uint32_t n = (uint32_t)begun->count;
    *bytes = 0;
    for (uint32_t taken = 0; n && taken < WORD_TOKENS_MAX; taken++) {
        lar_slice b = lar_tokenizer_bytes(t, begun->ids[n - 1]);
        if (!b.len || is_mark(s, begun->ids[n - 1], b) || *bytes + b.len > WORD_BYTES_MAX) break;
        *bytes += b.len;
        n--;
        if (b.ptr[0] == ' ' || b.ptr[0] == '\n' || b.ptr[0] == '\t') break;
    }
    return n;
}

/* The last word goes, and comes again. */
static lar_error take_back(const lar_serving *s, lar_slice text, const lar_ids *begun, uint32_t *kept, lar_prompt *p) {
    size_t bytes;
    bool opens;
    uint32_t n = before_last_word(s, begun, &bytes);
    lar_error e = open_with(s, lar_slice_of(text.ptr + text.len - bytes, bytes), p, &opens);
    *kept = opens && bytes ? n : (uint32_t)begun->count;
    return e;
}

static lar_error append(const lar_serving *s, const lar_begun_text *what, lar_slice text, const lar_ids *begun,
                        lar_prompt *p) {
    const lar_serving_begun *b = what->begun;
    uint32_t kept = (uint32_t)begun->count, end = lar_tokenizer_find(s->text.tokenizer, LAR_SLICE(LAR_THINK_END));
    lar_error e = what->from->endpoint == LAR_SERVING_CHAT ? take_back(s, text, begun, &kept, p) : LAR_OK;
    for (uint32_t i = 0; !e && i < kept; i++) {
        e = lar_ids_add(&p->ids, begun->ids[i]);
        if (b->reasoning.len && begun->ids[i] == end) p->begun_reasoning = i + 1;
    }
    if (b->reasoning.len && !b->content.len) p->begun_reasoning = kept;
    p->begun_tokens = (uint32_t)begun->count;
    p->begun_ids = kept;
    lar_slice tail = b->content.len ? b->content : b->reasoning;
    size_t most = LAR_OUTPUT_STOP_BYTES_MAX, skip = tail.len > most ? tail.len - most : 0;
    p->begun_content = b->content.len > 0;
    return e ? e : lar_buf_add(&p->begun_tail, tail.ptr + skip, tail.len - skip);
}

lar_error lar_begun_append(const lar_serving *s, const lar_begun_text *what, lar_prompt *p, lar_refusal *no) {
    begun_text t = {.plain_count = 0};
    lar_ids ids;
    lar_diag d = {.text = ""};
    if (!what->begun->reasoning.len && !what->begun->content.len) return LAR_OK;
    lar_buf_init(&t.text, TEXT_BYTES_MAX);
    lar_ids_init(&ids, LAR_BPE_IDS_MAX);
    lar_error e = write_text(s, what->begun, p, &t, no);
    if (!e) {
        const lar_marked_text marked = {.text = lar_buf_slice(&t.text),
                                        .plain = t.plain,
                                        .plain_count = t.plain_count,
                                        .stop = what->from->gone};
        e = lar_tokenizer_encode(s->text.tokenizer, &marked, &ids, &d);
        if (e && e != LAR_NO_MEMORY && e != LAR_CLIENT_GONE) e = lar_refuse_error(no, e, d.text);
    }
    if (!e) e = append(s, what, lar_buf_slice(&t.text), &ids, p);
    lar_ids_release(&ids);
    lar_buf_release(&t.text);
    return e;
}
