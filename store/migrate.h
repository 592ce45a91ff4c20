/* Upgrades of the environment's format, one step a version. */
#ifndef LARDER_STORE_MIGRATE_H
#define LARDER_STORE_MIGRATE_H

#include "store/env.h"

/* Brings an environment of format `from` to LAR_FORMAT inside `txn`; LMDB's code. All tables are open. */
LAR_MUST_USE int lar_migrate(lar_env *e, MDB_txn *txn, uint32_t from);

#endif
