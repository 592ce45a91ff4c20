/* Lets one test build put known bugs of others back (bugs.def). In every other build LAR_BUG() is 0, and the compiler
 * drops what it guards. */
#ifndef LARDER_ENGINE_COMPUTE_BUG_SWITCH_H
#define LARDER_ENGINE_COMPUTE_BUG_SWITCH_H

typedef enum lar_bug {
    LAR_BUG_NONE,
#define LAR_BUG_ROW(name, item, text) LAR_BUG_##name,
#include "engine/compute/bugs.def"
#undef LAR_BUG_ROW
    LAR_BUG_COUNT
} lar_bug;

#ifdef LAR_PUT_BUGS_BACK
extern lar_bug lar_bug_now; /* the test's own variable */
#define LAR_BUG(name) (lar_bug_now == LAR_BUG_##name)
#else
#define LAR_BUG(name) 0
#endif

#endif
