/* Loopback sockets, numbers and process figures for the load programs. */
#ifndef LARDER_TESTS_BENCH_NET_H
#define LARDER_TESTS_BENCH_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "127.0.0.1:8080" into `out`; false when it is not an IPv4 address with a port. */
bool bench_address_parse(const char *text, struct sockaddr_in *out);
/* A listening, non-blocking socket, or -1; the port that was taken is written into `at`. */
int bench_listen(struct sockaddr_in *at);
/* A non-blocking socket whose connect has begun, or -1. */
int bench_connect(const struct sockaddr_in *to);
/* Like sigaction's SIG_IGN for SIGPIPE, and as many descriptors as the system allows. Returns how many. */
size_t bench_process_setup(void);
/* The value of `--name value` in argv, or `otherwise`. */
const char *bench_option(int argc, char **argv, const char *name, const char *otherwise);
/* The same as a number from 0 to `max`; anything else ends the program with a message. */
uint64_t bench_option_number(int argc, char **argv, const char *name, uint64_t otherwise, uint64_t max);
uint64_t bench_now_ns(void);     /* CLOCK_MONOTONIC, the same in all processes of the machine */
uint64_t bench_rss_kb(long pid); /* resident memory, 0 when there is no such process */
uint64_t bench_cpu_ns(long pid); /* user + system time of all its threads so far, 0 when there is no such process */

#endif
