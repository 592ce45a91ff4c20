/* `larder plan`: the memory that a model and its requests take, on this machine or another. */
#ifndef LARDER_GATEWAY_PLAN_COMMAND_H
#define LARDER_GATEWAY_PLAN_COMMAND_H

/* Exit code: 0 it fits, 1 it does not or something failed, 2 usage. */
int lar_command_plan(int argc, char **argv);

#endif
