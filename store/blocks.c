/* Loads and stores journal blocks inside the caller's transaction. Any thread that owns one; no memory. */
#include "store/blocks.h"

#include "store/bytes.h"

int lar_block_store(lar_env *e, MDB_txn *txn, uint64_t block, const lar_block *b) {
    uint8_t key[8], value[LAR_BLOCK_BYTES];
    lar_bytes_put_be64(key, block);
    lar_block_encode(b, block, value);
    MDB_val k = {sizeof key, key}, v = {sizeof value, value};
    return mdb_put(txn, e->dbi[LAR_DB_BLOCKS], &k, &v, 0);
}

bool lar_block_load(lar_env *e, MDB_txn *txn, uint64_t block, lar_block *b) {
    uint8_t key[8];
    lar_bytes_put_be64(key, block);
    MDB_val k = {sizeof key, key}, v;
    return mdb_get(txn, e->dbi[LAR_DB_BLOCKS], &k, &v) == MDB_SUCCESS &&
           lar_block_decode(block, lar_slice_of(v.mv_data, v.mv_size), b) == LAR_OK;
}

int lar_block_remove(lar_env *e, MDB_txn *txn, uint64_t block) {
    uint8_t key[8];
    lar_bytes_put_be64(key, block);
    MDB_val k = {sizeof key, key};
    int rc = mdb_del(txn, e->dbi[LAR_DB_BLOCKS], &k, NULL);
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}
