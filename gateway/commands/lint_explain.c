/* A rule's page in short, and the list of rules.
 * Called by lint_args.c; blocks on the output; one thread. The pages of docs/rules are part of the program
 * (cmake/embed_rules.cmake), so that an installed one needs no folder beside it. Memory: none. */
#include <string.h>

#include "gateway/commands/lint_command.h"
#include "gateway/commands/rule_pages.h"
#include "gateway/config/nearest.h"

static const char *const modes[] = {
    [LAR_RULE_MODE_OFF] = "off by default; larder edits once it is turned on",
    [LAR_RULE_MODE_ON] = "on by default; larder edits",
    [LAR_RULE_MODE_LINT] = "reported by larder lint, never edited",
};

static lar_slice next_line(lar_slice *rest) {
    const char *nl = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    size_t n = nl ? (size_t)(nl - rest->ptr) : rest->len;
    lar_slice line = lar_slice_of(rest->ptr, n);
    *rest = lar_slice_of(rest->ptr + n + (nl ? 1 : 0), rest->len - n - (nl ? 1 : 0));
    return line;
}

/* All but the title, the examples (### and what is below) and fenced blocks. */
static void print_page(lar_slice page, FILE *out) {
    bool fence = false, example = false, blank = true;
    (void)next_line(&page);
    while (page.len) {
        lar_slice line = next_line(&page);
        if (lar_slice_starts(line, LAR_SLICE("```"))) fence = !fence;
        else if (!fence && lar_slice_starts(line, LAR_SLICE("### "))) example = true;
        else if (!fence && lar_slice_starts(line, LAR_SLICE("## "))) example = false;
        if (fence || example || lar_slice_starts(line, LAR_SLICE("```"))) continue;
        if (blank && !line.len) continue;
        blank = !line.len;
        if (lar_slice_starts(line, LAR_SLICE("## "))) line = lar_slice_of(line.ptr + 3, line.len - 3);
        (void)fprintf(out, "%.*s\n", LAR_FMT(line));
    }
}

int lar_lint_explain(const char *name, FILE *out) {
    lar_rule r = lar_rule_find(lar_slice_cstr(name));
    if (r == LAR_RULE_COUNT) {
        lar_nearest n;
        lar_nearest_init(&n, lar_slice_cstr(name));
        lar_nearest_offer_rules(&n);
        if (n.best.ptr)
            (void)fprintf(stderr, "larder lint: no rule '%.60s'; did you mean '%.*s'?\n", name, LAR_FMT(n.best));
        else (void)fprintf(stderr, "larder lint: no rule '%.60s'; `larder lint --list-rules` lists them\n", name);
        return LAR_LINT_USAGE;
    }
    (void)fprintf(out, "%s %s: %s\n\n", lar_rule_id(r), lar_rule_name(r), modes[lar_rule_mode_of(r)]);
    for (uint32_t i = 0; i < lar_rule_page_count; i++) {
        if (strcmp(lar_rule_pages[i].id, lar_rule_id(r)) != 0) continue;
        print_page(lar_slice_of((const char *)lar_rule_pages[i].text, lar_rule_pages[i].len), out);
        return fflush(out) ? LAR_LINT_USAGE : LAR_LINT_OK;
    }
    (void)fprintf(out, "%s.\n", lar_rule_text(r));
    return fflush(out) ? LAR_LINT_USAGE : LAR_LINT_OK;
}

int lar_lint_list_rules(FILE *out) {
    static const char *const names[] = {"off", "on", "lint"};
    for (int i = 0; i < LAR_RULE_COUNT; i++)
        (void)fprintf(out, "%-6s  %-20s  %-4s  %s\n", lar_rule_id((lar_rule)i), lar_rule_name((lar_rule)i),
                      names[lar_rule_mode_of((lar_rule)i)], lar_rule_text((lar_rule)i));
    return fflush(out) ? LAR_LINT_USAGE : LAR_LINT_OK;
}
