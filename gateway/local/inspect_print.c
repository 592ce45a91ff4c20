/* larder inspect for people: what the model is, its numbers, its tensors by kind and by type, what it lacks.
 * Called by inspect.c; blocks on stdout. Why the verdict comes last: it is what stays on the screen.
 * Memory: two tables. Not here: JSON (inspect_json.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/commands/present.h"
#include "gateway/local/inspect.h"

enum { AMOUNT_BYTES = 32 };

/* 1.25 GiB, 15.7 B: three digits and a unit. */
static const char *amount(uint64_t n, double step, const char *const units[5], char out[AMOUNT_BYTES]) {
    double v = (double)n;
    int unit = 0;
    while (v >= step && unit < 4) v /= step, unit++;
    if (unit == 0) (void)snprintf(out, AMOUNT_BYTES, "%" PRIu64 "%s", n, units[0]);
    else (void)snprintf(out, AMOUNT_BYTES, "%.*f%s", v < 10 ? 2 : v < 100 ? 1 : 0, v, units[unit]);
    return out;
}

static const char *size_text(uint64_t bytes, char out[AMOUNT_BYTES]) {
    static const char *const units[5] = {" B", " KiB", " MiB", " GiB", " TiB"};
    return amount(bytes, 1024, units, out);
}

static const char *count_text(uint64_t n, char out[AMOUNT_BYTES]) {
    static const char *const units[5] = {"", " K", " M", " B", " T"};
    return amount(n, 1000, units, out);
}

static void print_part(const char *name, const lar_inspect_part *p) {
    static const char *const before[] = {
        [LAR_INSPECT_NONE] = "none", [LAR_INSPECT_READ] = "", [LAR_INSPECT_REFUSED] = "not supported: "};
    (void)printf("%-12s  %s%s\n", name, before[p->state], p->text);
}

static void print_head(const lar_inspection *i) {
    char bytes[AMOUNT_BYTES], values[AMOUNT_BYTES];
    bool gguf = lar_model_files_form(i->files) == LAR_MODEL_GGUF;
    uint32_t parts = lar_model_files_parts(i->files);
    (void)printf("form          %s, %u file%s, %s\n", gguf ? "GGUF" : "Hugging Face folder", parts,
                 parts == 1 ? "" : "s", size_text(i->file_bytes, bytes));
    (void)printf("architecture  %s%s%s%s\n", *i->architecture ? i->architecture : "not said", *i->name ? " (" : "",
                 i->name, *i->name ? ")" : "");
    (void)printf("parameters    %s in %" PRIu64 " tensors\n", count_text(i->all.values, values), i->all.tensors);
    print_part("tokenizer", &i->tokenizer);
    print_part("template", &i->chat_template);
    (void)printf("\n");
    for (int k = 0; k < LAR_INSPECT_FIELD_COUNT; k++)
        if (i->known[k])
            (void)printf("%-36s%10" PRIu64 "\n", lar_inspect_field_of((lar_inspect_field)k)->label, i->field[k]);
}

static void sum_row(lar_table *t, const char *name, const lar_inspect_sum *s, uint64_t all_bytes) {
    char text[AMOUNT_BYTES];
    lar_table_cell(t, "%s", name);
    lar_table_cell(t, "%" PRIu64, s->tensors);
    lar_table_cell(t, "%s", count_text(s->values, text));
    lar_table_cell(t, "%s", size_text(s->bytes, text));
    lar_table_cell(t, "%.1f %%", all_bytes ? 100.0 * (double)s->bytes / (double)all_bytes : 0.0);
}

static lar_table *sum_table(const char *first) {
    const char *const head[] = {first, "tensors", "parameters", "bytes", "share"};
    lar_table *t = lar_table_new(5);
    for (int k = 0; k < 5; k++) lar_table_cell(t, "%s", head[k]);
    return t;
}

static void print_sums(const lar_inspection *i) {
    lar_table *kinds = sum_table("kind"), *types = sum_table("type");
    for (int k = 0; k < LAR_KIND_COUNT; k++)
        if (i->by_kind[k].tensors)
            sum_row(kinds, lar_tensor_kind_name((lar_tensor_kind)k), &i->by_kind[k], i->all.bytes);
    for (int k = 0; k < LAR_DTYPE_COUNT; k++)
        if (i->by_type[k].tensors) sum_row(types, lar_dtype_info_of((lar_dtype)k)->name, &i->by_type[k], i->all.bytes);
    sum_row(types, "all", &i->all, i->all.bytes);
    (void)printf("\n");
    lar_table_print(kinds, stdout);
    (void)printf("\n");
    lar_table_print(types, stdout);
    lar_table_free(kinds);
    lar_table_free(types);
}

static void print_tensors(const lar_inspection *i) {
    uint32_t count = lar_model_files_count(i->files);
    size_t widest = 0;
    for (uint32_t k = 0; k < count; k++) {
        size_t n = strlen(lar_model_files_at(i->files, k)->name);
        if (n > widest) widest = n;
    }
    (void)printf("\n");
    for (uint32_t k = 0; k < count; k++) {
        const lar_tensor *t = lar_model_files_at(i->files, k);
        char shape[LAR_SHAPE_BYTES], bytes[AMOUNT_BYTES];
        lar_tensor_shape_text(t->dims, t->shape, shape);
        (void)printf("%-*s  %-7s  %-22s  %10s\n", (int)widest, t->name, lar_dtype_info_of(t->type)->name, shape,
                     size_text(t->bytes, bytes));
    }
}

static void print_verdict(const lar_inspection *i) {
    (void)printf("\n");
    for (uint32_t k = 0; k < i->lack_count && k < LAR_INSPECT_LACKS_MAX; k++) {
        const lar_tensor_lack *l = &i->lacks[k].lack;
        if (l->problem == LAR_TENSOR_MISSING) (void)printf("missing: %s %s\n", l->name, l->expected);
        else (void)printf("wrong shape: %s: expected %s, found %s\n", l->name, l->expected, l->found);
    }
    if (i->lack_count > LAR_INSPECT_LACKS_MAX) (void)printf("... and %u more\n", i->lack_count - LAR_INSPECT_LACKS_MAX);
    if (*i->refused.text) (void)printf("larder cannot run it: %s\n", i->refused.text);
    else if (i->lack_count)
        (void)printf("larder cannot run it: %u tensors are missing or have another shape\n", i->lack_count);
    else if (i->tokenizer.state == LAR_INSPECT_READ) (void)printf("larder can run it\n");
    else
        (void)printf("larder can run it on token ids alone: %s tokenizer\n",
                     i->tokenizer.state == LAR_INSPECT_NONE ? "there is no" : "it does not read its");
}

void lar_inspect_print(const lar_inspection *i, lar_inspect_detail detail) {
    print_head(i);
    print_sums(i);
    if (detail == LAR_INSPECT_TENSORS) print_tensors(i);
    print_verdict(i);
}
