/* Checks an LMDB data file before LMDB maps it: LMDB trusts its file and would crash on a damaged one. */
#ifndef LARDER_STORE_CHECK_H
#define LARDER_STORE_CHECK_H

#include "base/error.h"

/* The two head pages: CORRUPT, VERSION (of LMDB's file format) or IO. An empty file is OK. */
LAR_MUST_USE lar_error lar_check_head(int fd, lar_diag *d);
/* Every page that the newest snapshot reaches: shape, borders, that it lies inside the file. The caller holds
 * a read transaction, so that no page of the snapshot is written over meanwhile. CORRUPT, IO, NO_MEMORY. */
LAR_MUST_USE lar_error lar_check_tree(int fd, lar_diag *d);

#endif
