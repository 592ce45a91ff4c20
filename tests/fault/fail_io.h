/* Makes calls to the disk fail, by the linker's --wrap: pwrite, pread, fdatasync, fsync, ftruncate, openat. Any thread;
 * only the code that is linked in statically is touched, so LMDB's own calls are not. */
#ifndef LARDER_TESTS_FAIL_IO_H
#define LARDER_TESTS_FAIL_IO_H

typedef enum fail_io_call {
    FAIL_IO_PWRITE,
    FAIL_IO_PREAD,
    FAIL_IO_FDATASYNC,
    FAIL_IO_FSYNC,
    FAIL_IO_FTRUNCATE,
    FAIL_IO_OPENAT,
    FAIL_IO_CALLS
} fail_io_call;

/* From now on: `good` calls of this kind succeed, then `bad` fail with errno `error`; then all succeed again. */
void fail_io_after(fail_io_call call, unsigned good, unsigned bad, int error);
/* pwrite and pread take at most this many bytes a call, and every third call is interrupted; 0: all that is asked
 * for. */
void fail_io_short(unsigned bytes);
/* pwrite waits until fail_io_go. */
void fail_io_hold(void);
void fail_io_go(void);
/* Nothing fails any more. */
void fail_io_end(void);
/* How many failed since it was armed last. */
unsigned fail_io_failed(fail_io_call call);

#endif
