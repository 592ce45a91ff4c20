/* Any template on any values: it ends, within its limits, and its spans cover what it rendered.
 * Input: JSON of the variables up to a NUL byte, the template behind it; without a NUL all of it is the template. */
#include "engine/text/template.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t head = nul ? (size_t)(nul - data) : 0, skip = nul ? head + 1 : 0;
    lar_slice json = lar_slice_of((const char *)data, head);
    lar_slice source = lar_slice_of((const char *)data + skip, size - skip);
    lar_template *t = NULL;
    lar_diag d = {.text = ""};
    lar_error e = lar_template_parse(source, &t, &d);
    FUZZ_CHECK((e == LAR_OK) == (t != NULL));
    if (e) {
        FUZZ_CHECK(d.text[0]);
        return 0;
    }
    lar_template_values *v = lar_template_values_new(4 << 20);
    lar_template_text out = {.span_count = 0};
    const lar_template_limits limits = {.output_bytes_max = 1 << 16,
                                        .memory_bytes_max = 8 << 20,
                                        .steps_max = 50000,
                                        .depth_max = 32};
    FUZZ_CHECK(v != NULL);
    e = lar_template_set_messages(v, json, LAR_TEMPLATE_ARGUMENTS_OBJECT, &d);
    if (e) e = lar_template_set_json(v, "messages", json, &d);
    if (!e) e = lar_template_set_json(v, "tools", json, &d);
    FUZZ_CHECK(!e || d.text[0]);
    FUZZ_CHECK(!lar_template_set_bool(v, "add_generation_prompt", true));
    FUZZ_CHECK(!lar_template_set_text(v, "bos_token", LAR_SLICE("<BOS>"), LAR_TEMPLATE_OWN));
    lar_template_set_now(v, 1933502400);
    d.text[0] = 0;
    e = lar_template_render(t, v, &limits, &out, &d);
    FUZZ_CHECK(e ? out.bytes.len == 0 && d.text[0] : out.bytes.len <= limits.output_bytes_max);
    uint32_t end = 0;
    for (uint32_t i = 0; i < out.span_count; i++) {
        FUZZ_CHECK(out.spans[i].end > end && (!i || out.spans[i].origin != out.spans[i - 1].origin));
        end = out.spans[i].end;
    }
    FUZZ_CHECK(end == out.bytes.len);
    lar_template_text_release(&out);
    lar_template_values_free(v);
    lar_template_free(t);
    return 0;
}
