/* Asks a template how it wants the arguments of calls, by rendering a conversation that holds one.
 * Flow: whoever hands calls of tools to a template asks once a model; it parses nothing and renders (template.h).
 * Thread: any. Never blocks. Why: no field of a model's files says it; OpenAI's API carries text, transformers' users
 * pass objects, and templates were written for one or the other. Memory: freed before it returns. */
#include "engine/text/template.h"

#define PROBE_KEY "larder_probe_key"
#define PROBE_VALUE "larder_probe_value"

/* Without and with text beside the call: some templates show calls only where there is no text, some fail there. */
static const char *const conversations[] = {
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call00001\","
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
    "\"{\\\"" PROBE_KEY "\\\": \\\"" PROBE_VALUE "\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call00001\","
    "\"name\":\"f\",\"content\":\"r\"}]",
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\","
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
    "\"{\\\"" PROBE_KEY "\\\": \\\"" PROBE_VALUE "\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call00001\","
    "\"name\":\"f\",\"content\":\"r\"}]"};

/* True if the text appears in what is rendered from one of the conversations. */
static bool shows(const lar_template *t, lar_template_arguments arguments, lar_slice text) {
    bool found = false;
    for (size_t i = 0; i < sizeof conversations / sizeof *conversations && !found; i++) {
        lar_template_values *v = lar_template_values_new(1 << 20);
        lar_template_text out = {.span_count = 0};
        bool good = v && !lar_template_set_messages(v, lar_slice_cstr(conversations[i]), arguments, NULL);
        if (good) lar_template_set_now(v, 0);
        good = good && !lar_template_set_bool(v, "add_generation_prompt", true);
        good = good && !lar_template_set_text(v, "bos_token", LAR_SLICE(""), LAR_TEMPLATE_OWN);
        good = good && !lar_template_set_text(v, "eos_token", LAR_SLICE(""), LAR_TEMPLATE_OWN);
        if (good && !lar_template_render(t, v, NULL, &out, NULL) && out.bytes.len)
            found = memmem(out.bytes.ptr, out.bytes.len, text.ptr, text.len) != NULL;
        lar_template_text_release(&out);
        lar_template_values_free(v);
    }
    return found;
}

bool lar_template_wants_objects(const lar_template *t) {
    /* Text that is printed as JSON once more has escaped quotes: that is not found. */
    if (shows(t, LAR_TEMPLATE_ARGUMENTS_AS_IS, LAR_SLICE("{\"" PROBE_KEY "\": \"" PROBE_VALUE "\"}"))) return false;
    return shows(t, LAR_TEMPLATE_ARGUMENTS_OBJECT, LAR_SLICE(PROBE_VALUE));
}
