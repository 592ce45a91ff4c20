/* larder explain: why one request hit the provider's cache as it did. argv begins behind the command's name. Exit
 * codes: 0 explained, 1 no store or no such request, 2 usage. */
#ifndef LARDER_GATEWAY_COMMANDS_EXPLAIN_H
#define LARDER_GATEWAY_COMMANDS_EXPLAIN_H

int lar_command_explain(int argc, char **argv);

#endif
