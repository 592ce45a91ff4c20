/* Makes the n-th allocation fail, by the linker's --wrap: see lar_fault_test in CMakeLists.txt.
 * Counts what is still allocated, so that a leak on an error path shows without a sanitizer too.
 * Only the code that is linked in statically is watched; shared libraries are not. */
#ifndef LARDER_TESTS_FAIL_ALLOC_H
#define LARDER_TESTS_FAIL_ALLOC_H

#include <stdbool.h>

/* From now on the n-th malloc, calloc, realloc or aligned_alloc returns NULL; 0: none does. Counting begins anew. */
void fail_alloc_at(unsigned n);
/* Ends the watch. True if an allocation was made to fail. */
bool fail_alloc_end(void);
/* Blocks taken since fail_alloc_at and not given back; negative if older ones were given back. */
long fail_alloc_live(void);

#endif
