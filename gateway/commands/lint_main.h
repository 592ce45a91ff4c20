/* larder lint: see `larder lint --help`. argv begins behind the command's name. Exit status: 0 nothing found,
 * 1 findings, 2 usage or input that cannot be read. */
#ifndef LARDER_GATEWAY_COMMANDS_LINT_MAIN_H
#define LARDER_GATEWAY_COMMANDS_LINT_MAIN_H

int lar_command_lint(int argc, char **argv);

#endif
