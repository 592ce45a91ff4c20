/* larder drill: who answers when upstreams fail. */
#ifndef LARDER_GATEWAY_DRILL_COMMAND_H
#define LARDER_GATEWAY_DRILL_COMMAND_H

/* argv[0] is the command's own name. Returns a lar_exit; LAR_EXIT_DRILL: a scene did not hold. */
int lar_command_drill(int argc, char **argv);

#endif
