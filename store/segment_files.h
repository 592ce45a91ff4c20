/* Segment files in the folder pages/ of a store. Everything blocks on the disk. */
#ifndef LARDER_STORE_SEGMENT_FILES_H
#define LARDER_STORE_SEGMENT_FILES_H

#include "base/log.h"
#include "store/segment_record.h"

/* Makes the folder (0700) where it is missing, and opens it. IO with `d`. */
LAR_MUST_USE lar_error lar_segment_folder_open(const char *dir, lar_log *log, int *fd, lar_diag *d);

/* A new file (0600) with its head, open for writing behind it; syncs neither. FULL, IO; nothing is left then. */
LAR_MUST_USE lar_error lar_segment_create(int folder, uint64_t number, int *fd);
/* Opens one to go on writing at `end`; what lies behind is cut off. IO. */
LAR_MUST_USE lar_error lar_segment_resume(int folder, uint64_t number, uint64_t end, int *fd);
/* All of it, or an error: FULL (no room, quota, a limit on file sizes), IO. errno says which. */
LAR_MUST_USE lar_error lar_segment_write(int fd, const uint8_t *bytes, uint64_t count, uint64_t offset);
/* Reads the record's head and the page, and checks both. CORRUPT: not there, not whole, or not the page that it should
 * be, whatever `to` now holds; IO: the disk says so; BUSY: no descriptor or memory to open the file with. */
LAR_MUST_USE lar_error lar_segment_read(int folder, const lar_digest *key, const lar_segment_place *place, uint8_t *to);
void lar_segment_remove(int folder, uint64_t number);

/* Calls `each` for every segment file whose head is sound; files with a segment's name and another content are removed,
 * all others are left alone. IO (also where no descriptor is free), and what `each` says. */
typedef lar_error (*lar_segment_each)(void *context, uint64_t number, uint64_t file_bytes);
LAR_MUST_USE lar_error lar_segment_list(int folder, lar_segment_each each, void *context);

#endif
