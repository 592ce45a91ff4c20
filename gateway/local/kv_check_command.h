/* larder kv-check: whether a format of latents is good enough for a model. */
#ifndef LARDER_LOCAL_KV_CHECK_COMMAND_H
#define LARDER_LOCAL_KV_CHECK_COMMAND_H

/* argv[0] is the command's name. 0 done, 1 failed, 2 usage; results to stdout, messages to stderr. */
int lar_command_kv_check(int argc, char **argv);

#endif
