/* Reports as JSON: whole numbers, and the end of each (header: report_json.h). Called by plan_report_json.c,
 * plan_serve.c and kv_check_report.c. One thread; blocks on the output. */
#include "gateway/local/report_json.h"

#include <inttypes.h>

bool lar_report_put(cJSON *to, const char *name, uint64_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddRawToObject(to, name, text) != NULL;
}

lar_error lar_report_print(cJSON *root, lar_report_state state, FILE *to) {
    char *text = root && state == LAR_REPORT_WHOLE ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text) return LAR_NO_MEMORY;
    int written = fprintf(to, "%s\n", text);
    cJSON_free(text);
    return written < 0 ? LAR_IO : LAR_OK;
}
