/* A place for tools in templates of DeepSeek's that have none.
 * Flow: lar_engine_text_read, where a template does not read `tools`. Any thread; never blocks. Why the source is
 * changed and no text goes into the system message: what the template writes may be special tokens, which the format's
 * explanation consists of, and what a message carries never is.
 * Source: DeepSeek-V3.1's model card, section ToolCall; for V3 and R1 the same with the form that their templates print
 * calls in. Memory: the caller's buffer. */
#include "engine/text/template_tools.h"

#define HEAD                                                                                                           \
    "{% if tools %}{{ '\\n\\n## Tools\\nYou have access to the following tools:\\n\\n' }}{% for t in tools %}"         \
    "{{ '### ' + t.function.name + '\\nDescription: ' + (t.function.description or '') + '\\n\\nParameters: ' + "      \
    "((t.function.parameters or {}) | tojson) + '\\n\\n' }}{% endfor %}"                                               \
    "{{ 'IMPORTANT: ALWAYS adhere to this exact format for tool use:\\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
#define MIDDLE                                                                                                         \
    "<｜tool▁call▁end｜>{additional_tool_calls}<｜tool▁calls▁end｜>\\n\\nWhere:\\n"                        \
    "- `tool_call_name` must be an exact match to one of the available tools\\n"                                       \
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool\\'s Parameters Schema\\n"
#define END "' }}{% endif %}"

static const char block_v31[] = HEAD "tool_call_name<｜tool▁sep｜>tool_call_arguments" MIDDLE
                                     "- For multiple tool calls, chain them directly without separators or spaces" END;
static const char block_v3[] = HEAD "function<｜tool▁sep｜>tool_call_name\\n```json\\ntool_call_arguments\\n```" MIDDLE
                                    "- For multiple tool calls, put a line end between them" END;

/* Behind the one place that prints the system text; 0: there is none, or several. */
static size_t find_place(lar_slice source) {
    static const char *const forms[] = {"{{ns.system_prompt}}", "{{ ns.system_prompt }}"};
    size_t place = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t len = strlen(forms[i]), at = 0;
        const char *found;
        while ((found = memmem(source.ptr + at, source.len - at, forms[i], len)) != NULL) {
            if (place) return 0;
            place = at = (size_t)(found - source.ptr) + len;
        }
    }
    return place;
}

lar_error lar_template_tools_add(lar_slice source, lar_output_format calls, lar_buf *out) {
    bool known = calls == LAR_OUTPUT_FORMAT_V3 || calls == LAR_OUTPUT_FORMAT_V31;
    size_t place = known && source.len ? find_place(source) : 0;
    if (!place) return LAR_NOT_FOUND;
    lar_error e = lar_buf_add(out, source.ptr, place);
    if (!e) e = lar_buf_add_slice(out, calls == LAR_OUTPUT_FORMAT_V3 ? LAR_SLICE(block_v3) : LAR_SLICE(block_v31));
    return e ? e : lar_buf_add(out, source.ptr + place, source.len - place);
}
