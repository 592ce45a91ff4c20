/* larder inspect for programs: one JSON document.
 * Called by inspect.c; blocks on stdout. Names of numbers are those of config.json, whatever the form of the model, so
 * that a reader needs one set of names. Memory: the document; a member that memory was too short for makes it
 * NO_MEMORY. Not here: what is said in it (inspect_read.c). */
#include <cjson/cJSON.h>

#include "gateway/commands/present.h"
#include "gateway/local/inspect.h"

static cJSON *sum(const lar_inspect_sum *s) {
    cJSON *o = cJSON_CreateObject();
    bool whole = cJSON_AddNumberToObject(o, "tensors", (double)s->tensors) &&
                 cJSON_AddNumberToObject(o, "parameters", (double)s->values) &&
                 cJSON_AddNumberToObject(o, "bytes", (double)s->bytes);
    if (whole) return o;
    cJSON_Delete(o);
    return NULL;
}

static bool add_item(cJSON *o, const char *name, cJSON *item) {
    if (item && cJSON_AddItemToObject(o, name, item)) return true;
    cJSON_Delete(item);
    return false;
}

/* NULL where the text is empty: there is none. */
static bool add_text(cJSON *o, const char *name, const char *text) {
    return *text ? cJSON_AddStringToObject(o, name, text) != NULL : cJSON_AddNullToObject(o, name) != NULL;
}

/* NULL: there is none. */
static bool add_part(cJSON *o, const char *name, const lar_inspect_part *p) {
    if (p->state == LAR_INSPECT_NONE) return cJSON_AddNullToObject(o, name) != NULL;
    cJSON *part = cJSON_AddObjectToObject(o, name);
    return part && cJSON_AddBoolToObject(part, "supported", p->state == LAR_INSPECT_READ) &&
           add_text(part, "text", p->text);
}

static bool add_files(cJSON *o, const lar_inspection *i) {
    cJSON *list = cJSON_AddArrayToObject(o, "files");
    bool ok = list != NULL;
    for (uint32_t k = 0; ok && k < lar_model_files_parts(i->files); k++) {
        const lar_file_view *part = lar_model_files_part(i->files, k);
        char shown[LAR_SHOWN_BYTES];
        lar_present_name(lar_slice_cstr(part->name), shown);
        cJSON *file = cJSON_CreateObject();
        ok = cJSON_AddStringToObject(file, "name", shown) && cJSON_AddNumberToObject(file, "bytes", (double)part->size);
        if (ok) ok = cJSON_AddItemToArray(list, file);
        if (!ok) cJSON_Delete(file);
    }
    return ok;
}

static bool add_numbers(cJSON *o, const lar_inspection *i) {
    cJSON *numbers = cJSON_AddObjectToObject(o, "dimensions");
    bool ok = numbers != NULL;
    for (int k = 0; ok && k < LAR_INSPECT_FIELD_COUNT; k++) {
        const lar_inspect_field_row *row = lar_inspect_field_of((lar_inspect_field)k);
        const char *name = row->config ? row->config : row->gguf;
        if (i->known[k]) ok = cJSON_AddNumberToObject(numbers, name, (double)i->field[k]) != NULL;
    }
    return ok;
}

static bool add_sums(cJSON *o, const lar_inspection *i) {
    cJSON *kinds = cJSON_AddObjectToObject(o, "by_kind"), *types = cJSON_AddObjectToObject(o, "by_type");
    bool ok = kinds && types && add_item(o, "all", sum(&i->all));
    for (int k = 0; ok && k < LAR_KIND_COUNT; k++)
        if (i->by_kind[k].tensors) ok = add_item(kinds, lar_tensor_kind_name((lar_tensor_kind)k), sum(&i->by_kind[k]));
    for (int k = 0; ok && k < LAR_DTYPE_COUNT; k++)
        if (i->by_type[k].tensors) ok = add_item(types, lar_dtype_info_of((lar_dtype)k)->name, sum(&i->by_type[k]));
    return ok;
}

static cJSON *lack(const lar_tensor_lack *l) {
    cJSON *o = cJSON_CreateObject();
    bool whole = cJSON_AddStringToObject(o, "tensor", l->name) && cJSON_AddStringToObject(o, "expected", l->expected) &&
                 add_text(o, "found", l->found);
    if (whole) return o;
    cJSON_Delete(o);
    return NULL;
}

static bool add_lacks(cJSON *o, const lar_inspection *i) {
    cJSON *list = cJSON_AddArrayToObject(o, "lacks");
    bool ok = list && cJSON_AddNumberToObject(o, "lack_count", i->lack_count);
    for (uint32_t k = 0; ok && k < i->lack_count && k < LAR_INSPECT_LACKS_MAX; k++) {
        cJSON *item = lack(&i->lacks[k].lack);
        ok = item && cJSON_AddItemToArray(list, item);
        if (!ok) cJSON_Delete(item);
    }
    return ok;
}

static cJSON *tensor(const lar_tensor *t) {
    cJSON *o = cJSON_CreateObject();
    bool whole = cJSON_AddStringToObject(o, "name", t->name) &&
                 cJSON_AddStringToObject(o, "type", lar_dtype_info_of(t->type)->name) &&
                 cJSON_AddNumberToObject(o, "bytes", (double)t->bytes);
    cJSON *shape = whole ? cJSON_AddArrayToObject(o, "shape") : NULL;
    whole = shape != NULL;
    for (uint32_t k = 0; whole && k < t->dims; k++) {
        cJSON *n = cJSON_CreateNumber((double)t->shape[k]);
        whole = n && cJSON_AddItemToArray(shape, n);
        if (!whole) cJSON_Delete(n);
    }
    if (whole) return o;
    cJSON_Delete(o);
    return NULL;
}

static bool add_tensors(cJSON *o, const lar_inspection *i) {
    cJSON *list = cJSON_AddArrayToObject(o, "tensors");
    bool ok = list != NULL;
    for (uint32_t k = 0; ok && k < lar_model_files_count(i->files); k++) {
        cJSON *item = tensor(lar_model_files_at(i->files, k));
        ok = item && cJSON_AddItemToArray(list, item);
        if (!ok) cJSON_Delete(item);
    }
    return ok;
}

lar_error lar_inspect_print_json(const lar_inspection *i, lar_inspect_detail detail) {
    cJSON *o = cJSON_CreateObject();
    bool gguf = lar_model_files_form(i->files) == LAR_MODEL_GGUF;
    bool ok = cJSON_AddStringToObject(o, "form", gguf ? "gguf" : "folder") &&
              add_text(o, "architecture", i->architecture) && add_text(o, "name", i->name) &&
              cJSON_AddBoolToObject(o, "runs", lar_inspect_runs(i)) && add_text(o, "refused", i->refused.text) &&
              add_part(o, "tokenizer", &i->tokenizer) && add_part(o, "template", &i->chat_template);
    ok = ok && add_files(o, i) && add_numbers(o, i) && add_sums(o, i) && add_lacks(o, i);
    if (ok && detail == LAR_INSPECT_TENSORS) ok = add_tensors(o, i);
    if (ok) return lar_present_document(o, stdout);
    cJSON_Delete(o);
    return LAR_NO_MEMORY;
}
