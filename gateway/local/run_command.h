/* larder run: a model on this machine, by token ids. */
#ifndef LARDER_LOCAL_RUN_COMMAND_H
#define LARDER_LOCAL_RUN_COMMAND_H

/* argv[0] is "run". Exit code: 0 done, 1 failed, 2 usage. */
int lar_command_run(int argc, char **argv);

#endif
