/* larder upstreams: how each upstream of a running larder stands. */
#ifndef LARDER_GATEWAY_COMMANDS_UPSTREAMS_H
#define LARDER_GATEWAY_COMMANDS_UPSTREAMS_H

/* argv begins behind the command's name. Exit codes: 0 done, 1 nothing answers there or no larder, 2 usage. */
int lar_command_upstreams(int argc, char **argv);

#endif
