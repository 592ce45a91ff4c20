/* larder fingerprint. argv begins behind the command's name. Exit codes: 0 done, 1 no memory, 2 usage. */
#ifndef LARDER_GATEWAY_COMMANDS_FINGERPRINT_H
#define LARDER_GATEWAY_COMMANDS_FINGERPRINT_H

int lar_command_fingerprint(int argc, char **argv);

#endif
