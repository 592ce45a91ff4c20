/* What tokenizer_config.json adds to a tokenizer: which tokens begin and end a text, and whether a text begins with
 * one. Flow: tokenizer_json.c and tokenizer_tiktoken.c call once the tokens are known. Any thread; blocks on nothing
 * but malloc. */
#include "base/json.h"
#include "engine/text/tokenizer_core.h"

/* "bos_token": a text, or an object with the text as "content". */
static lar_error config_token(const lar_tokenizer *t, const lar_json *j, const char *name, uint32_t *id, lar_diag *d) {
    uint32_t node = lar_json_get_last(j, 0, name);
    if (lar_json_is(j, node, LAR_JSON_OBJECT)) node = lar_json_get_last(j, node, "content");
    if (node == LAR_JSON_NONE || lar_json_is(j, node, LAR_JSON_NULL)) return LAR_OK;
    if (!lar_json_is(j, node, LAR_JSON_STRING))
        return lar_fail(LAR_INVALID, d, "tokenizer_config.json: %s: a text is expected", name);
    lar_buf text;
    lar_buf_init(&text, LAR_TOKENIZER_FILE);
    lar_error e = lar_json_decode(j, node, &text);
    if (!e) *id = lar_tokenizer_find(t, lar_buf_slice(&text));
    lar_buf_release(&text);
    if (e || *id != LAR_TOKEN_NONE) return e;
    return lar_fail(LAR_INVALID, d, "tokenizer_config.json: %s: there is no such token", name);
}

lar_error lar_tokenizer_configure(lar_tokenizer *t, lar_slice config, lar_diag *d) {
    lar_json j;
    lar_json_init(&j);
    lar_diag why = {0};
    lar_error e = lar_json_parse(&j, config, NULL, &why);
    if (e) e = lar_fail(e, d, "tokenizer_config.json: %.250s", why.text[0] ? why.text : lar_error_text(e));
    if (!e) e = config_token(t, &j, "bos_token", &t->bos, d);
    if (!e) e = config_token(t, &j, "eos_token", &t->eos, d);
    if (!e && lar_json_is(&j, lar_json_get_last(&j, 0, "add_bos_token"), LAR_JSON_TRUE)) {
        if (t->bos == LAR_TOKEN_NONE)
            e = lar_fail(LAR_INVALID, d, "tokenizer_config.json: add_bos_token is set, but there is no bos_token");
        t->prefix[0] = t->bos;
        t->prefix_count = 1;
    }
    lar_json_release(&j);
    return e;
}
