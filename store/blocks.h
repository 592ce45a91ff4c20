/* The journal's index by time: for every 1024 neighbouring records the earliest and the latest time. Exact
 * however the clock jumps, and far smaller than a key per record. */
#ifndef LARDER_STORE_BLOCKS_H
#define LARDER_STORE_BLOCKS_H

#include "store/env.h"
#include "store/record.h"

/* LMDB's codes. */
LAR_MUST_USE int lar_block_store(lar_env *e, MDB_txn *txn, uint64_t block, const lar_block *b);
/* True and the span, or false when there is none that can be trusted: then nothing may be left out. */
bool lar_block_load(lar_env *e, MDB_txn *txn, uint64_t block, lar_block *b);
LAR_MUST_USE int lar_block_remove(lar_env *e, MDB_txn *txn, uint64_t block);

#endif
