/* What is said of counts, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <string.h>

#include "engine/experts/expert_advice.h"

#define GB (1ull << 30)

/* A cache that does well: a third of the bytes, four fifths of the hits. */
static const lar_expert_counts well = {.bytes = 3 * GB,
                                       .all_bytes = 9 * GB,
                                       .slots = 333,
                                       .experts = 1000,
                                       .hits = 80000,
                                       .misses = 20000,
                                       .bytes_read = 90 * GB,
                                       .run_us = 1000000,
                                       .stall_us = 200000,
                                       .read_us = 900000,
                                       .pack_us = 300000};

static void advice_is(const lar_expert_counts *c, uint64_t available, const char *says) {
    char lines[LAR_EXPERT_ADVICE_LINES][LAR_EXPERT_ADVICE_BYTES];
    uint32_t n = lar_expert_advice(c, available, lines);
    if (!says) {
        if (n) fail_msg("%s", lines[0]);
        return;
    }
    assert_int_equal(n, 1);
    if (!strstr(lines[0], says)) fail_msg("%s", lines[0]);
    assert_true(strlen(lines[0]) < LAR_EXPERT_ADVICE_BYTES - 1);
}

static void each_has_its_cause(void **state) {
    (void)state;
    lar_expert_counts c = well;
    advice_is(&c, 0, NULL);
    advice_is(&c, 4 * GB, NULL);
    advice_is(&(lar_expert_counts){0}, 1, NULL);
    c.bytes = 85 * GB / 10;
    advice_is(&c, 4 * GB, "512 MiB more hold all experts");
    advice_is(&c, 0, "hold all experts");
    advice_is(&c, GB, "leaves 1024 MiB for all else"); /* all of them would not fit, either */
    c = well, c.hits = 37000, c.misses = 63000;
    advice_is(&c, 0, "37 % of the experts that were used were in memory, where 33 %");
    c.hits = 39000, c.misses = 61000;
    advice_is(&c, 0, NULL);
    c = well, c.stall_us = 510000;
    advice_is(&c, 0, "51 % of the time");
    c = well, c.pack_us = 1000000;
    advice_is(&c, 0, "packing experts took longer");
    c = well, c.buffered = true;
    advice_is(&c, 0, "no direct reads");
    advice_is(&well, 300 << 20, "leaves 300 MiB for all else");
}

static void little_is_not_judged(void **state) {
    (void)state;
    lar_expert_counts c = well;
    c.hits = 0, c.misses = LAR_EXPERT_ADVICE_LOOKUPS - 1, c.stall_us = c.run_us, c.pack_us = 2 * c.read_us;
    advice_is(&c, 0, NULL);
}

static void all_of_them_find_room(void **state) {
    (void)state;
    char lines[LAR_EXPERT_ADVICE_LINES][LAR_EXPERT_ADVICE_BYTES];
    lar_expert_counts c = well;
    c.bytes = c.all_bytes - 1, c.hits = 1, c.stall_us = c.run_us, c.pack_us = 2 * c.read_us, c.buffered = true;
    assert_int_equal(lar_expert_advice(&c, 100, lines), LAR_EXPERT_ADVICE_LINES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_has_its_cause), cmocka_unit_test(little_is_not_judged),
                                       cmocka_unit_test(all_of_them_find_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
