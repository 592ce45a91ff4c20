/* What larder wrote and reads again, and somebody may have edited between: the first byte chooses the edition of a
 * store or a baseline's JSON; the rest is its bytes. 1. no byte outside is read (sanitizers); 2. what is read as a
 * baseline is read again as the same once it was written, and can be compared; 3. every refusal has its reason. */
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/baseline.h"
#include "policies/edition.h"
#include "tests/fuzz/fuzz.h"

static void edition(lar_slice text) {
    lar_edition_change changes[LAR_EDITION_ROWS_MAX];
    lar_slice name;
    uint32_t count;
    if (lar_edition_diff_text(text, &name, changes, &count) != LAR_OK) return;
    FUZZ_CHECK(count <= LAR_EDITION_ROWS_MAX && name.len < LAR_EDITION_NAME_BYTES);
    lar_buf b;
    lar_buf_init(&b, 1 << 16);
    for (uint32_t i = 0; i < count; i++)
        FUZZ_CHECK(changes[i].was != changes[i].is && memchr(changes[i].name, 0, sizeof changes[i].name));
    FUZZ_CHECK(lar_edition_changes_text(changes, count, &b) == LAR_OK);
    lar_buf_release(&b);
}

static void baseline(lar_slice text) {
    lar_baseline *pair = calloc(2, sizeof *pair);
    lar_diag d = {0};
    FUZZ_CHECK(pair);
    lar_error e = lar_baseline_read(text, &pair[0], &d);
    FUZZ_CHECK(!e || d.text[0]);
    if (!e) {
        lar_buf b;
        lar_buf_init(&b, 4 << 20);
        lar_comparison c = lar_baseline_compare(&pair[0], &pair[0]);
        FUZZ_CHECK(c.change < LAR_CHANGE_COUNT && c.change != LAR_CHANGE_BETTER && c.change != LAR_CHANGE_WORSE);
        FUZZ_CHECK(lar_baseline_write(&pair[0], &b) == LAR_OK);
        FUZZ_CHECK(lar_baseline_read(lar_buf_slice(&b), &pair[1], &d) == LAR_OK);
        FUZZ_CHECK(!strcmp(pair[0].name, pair[1].name) && pair[0].prefix_count == pair[1].prefix_count);
        FUZZ_CHECK(pair[0].all.hit == pair[1].all.hit && pair[0].model_count == pair[1].model_count);
        lar_buf_release(&b);
    }
    free(pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    lar_slice rest = lar_slice_of((const char *)data + 1, size - 1);
    if (data[0] & 1) edition(rest);
    else baseline(rest);
    return 0;
}
