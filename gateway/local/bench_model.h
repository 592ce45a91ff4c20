/* larder bench-model: how fast a model answers here, beside how fast memory can be read. */
#ifndef LARDER_LOCAL_BENCH_MODEL_H
#define LARDER_LOCAL_BENCH_MODEL_H

/* argv[0] is the command's name. 0 done, 1 failed, 2 usage; results to stdout, messages to stderr. */
int lar_command_bench_model(int argc, char **argv);

#endif
