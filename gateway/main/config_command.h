/* Options of the command line to a configuration; `larder config` and `larder check`. */
#ifndef LARDER_GATEWAY_CONFIG_COMMAND_H
#define LARDER_GATEWAY_CONFIG_COMMAND_H

#include "gateway/config/config.h"

typedef enum lar_exit { LAR_EXIT_OK, LAR_EXIT_FAILED, LAR_EXIT_USAGE, LAR_EXIT_CONFIG, LAR_EXIT_DRILL } lar_exit;

/* Reads "-c FILE", "--option value" and "--option=value" from argv[first..argc) and loads. On LAR_EXIT_OK the caller
 * owns `*out`; else what to do was printed to stderr. `*out` is NULL with LAR_EXIT_OK if help was asked for
 * and printed. */
lar_exit lar_command_load(int argc, char **argv, int first, lar_config **out);

/* argv[0] is the command's own name. `check` also reads the certificates that `serve` would. Both return a lar_exit. */
int lar_command_config(int argc, char **argv);
int lar_command_check(int argc, char **argv);

#endif
