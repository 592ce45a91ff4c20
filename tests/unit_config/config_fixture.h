/* A folder of its own for a test's files, and loading of YAML text through a file there. */
#ifndef LARDER_TESTS_CONFIG_FIXTURE_H
#define LARDER_TESTS_CONFIG_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/config/config.h"

/* Group set-up and tear-down: makes a folder, makes it the current one, removes every LARDER_ variable. */
int fixture_enter(void **state);
int fixture_leave(void **state);
/* Writes a file in the folder; aborts the test if that fails. */
void fixture_write(const char *name, const void *bytes, size_t len);
/* Loads `yaml` (NULL = no file) as t.yaml. */
lar_error fixture_load(const char *yaml, const lar_config_flag *flags, uint32_t count, lar_config **out, lar_diag *d);
/* Loads what must be valid. */
lar_config *fixture_good(const char *yaml);
/* Loads what must not be valid, with every part (separated by '|') in the message. */
void fixture_bad(const char *yaml, const lar_config_flag *flags, uint32_t count, const char *parts);

#endif
