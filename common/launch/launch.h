/* SPDX-License-Identifier: MIT */
/* Several processes as the ranks of one job. The same binary starts them itself, one for each GPU (./bench_x --ranks 4),
 * or is started by mpirun, srun, torchrun or by hand, on one host or several; env.h says how it knows. Every rank
 * runs the same cases in the same order; rank 0 writes the rows.
 *
 * Ranks are joined to a coordinator (coordinator.h) by a control channel, which is for small things: agreement, addresses, samples, the
 * news that the job ends. It is as fast as a socket, some 50 us an exchange. Tensors go through comm/comm.h.
 *
 * When a rank dies, its process, host or connection, all others end within seconds, with exit code 5 and a sentence that
 * names it, its phase and its last collective. When none makes progress for --timeout, the same names the rank that holds the
 * others up. A rank that ends itself with a message takes the others with it, at its own exit code. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#else
#include "common/record/host_clock.h"
#include "common/session/session.h"

/* main of such a bench; its options have LAUNCH_RANKS. Starts the ranks, or is one of them. */
int launch_main(const bench_info *info, const session_hooks *hooks, int argc, char **argv);

/* --ranks, a list that is swept: a case with fewer ranks than the largest leaves the last ones idle. */
#define LAUNCH_RANKS(def, cpu)                                                                                         \
    {                                                                                                                  \
        "ranks", OPTION_INT, OPTION_LIST, def, .help = "number of ranks, one per GPU; several values are a sweep",     \
                                               .def_cpu = cpu, .min = 1, .max = 1024, .unit = "processes"              \
    }
/* Sets the defaults of --ranks in a bench's table, before launch_main: those of `wanted` ("2,4,8") that the visible GPUs
 * can hold, or all ranks of a job that somebody else started. */
void launch_default_ranks(option_spec *table, const char *wanted);

struct launch *launch_of(const session *s); /* of a session inside launch_main */

/* How the clock of this rank's host stands against that of rank 0's, now: the best of 200 round trips over the control
 * channel, by the first rank of each host, one after another. Every rank of the job must enter. On one host there is
 * nothing to ask. Take one before and one after a recording, for host_clock_of. */
clock_reading launch_clock(struct launch *l);
#endif

typedef struct launch launch;

int launch_rank(const launch *l);
int launch_size(const launch *l);            /* ranks of the job */
int launch_local_size(const launch *l);      /* ranks on this host */
int launch_hosts(const launch *l);           /* hosts of the job */
const char *launch_address(const launch *l); /* of this host, by which the other ranks reach it: "127.0.0.1" on one */
double launch_timeout_s(const launch *l);    /* --timeout */

/* Exchanges, which every rank of the job must enter in the same order. `name` (at most 31 bytes) is compared, too. */
void launch_gather(launch *l, const char *name, const void *mine, size_t bytes, void *all); /* all: size x bytes */
void *launch_gathered(launch *l, const char *name, const void *mine, size_t bytes);         /* the same; caller frees */
void launch_share(launch *l, const char *name, void *data, size_t bytes, int root);         /* root's, to everyone */
void launch_barrier(launch *l, const char *name);
bool launch_all(launch *l, const char *name, bool mine); /* true on every rank when it is on every rank */
/* The largest of what the first `ranks` ranks give, none of which is negative; NaN if one of them is. */
double launch_most(launch *l, const char *name, double mine, int ranks);
/* For each of n numbers, the largest of what the first `ranks` ranks have, at least 0; NaNs are ignored. Caller frees. */
double *launch_most_each(launch *l, const char *name, const double *mine, int n, int ranks);
double launch_sum(launch *l, const char *name, double mine, int ranks); /* in the order of ranks */

/* A job that must finish something before SIGINT or SIGTERM ends it: all ranks turn this on and off together, and while it is on
 * look at launch_asked, which is the signal, or 0. Ranks may see it at different times. A second signal ends the job at once. */
void launch_defer(launch *l, bool on);
int launch_asked(const launch *l);

/* This rank can't go on: ends the job, with a better reason if the coordinator knows one (a peer's death, for example). */
void launch_fail(launch *l, int code, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));
/* The same from a thread that must go on: returns at once. */
void launch_report(launch *l, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Communicators, for messages and the coordinator. Every rank of the job calls it together, each with its own group: the rank of
 * the job that is its first member, its place among `size`; -1: no member. Returns what `on` is below; -1: not followed, as 16
 * are. */
int launch_communicator(launch *l, const char *name, int first, int place, int size);
void launch_communicator_end(launch *l, int on);
/* A new op on a communicator gets the next numbers; that it is over, and how many are, is said by them. */
typedef struct launch_op {
    int on;
    const char *name, *op, *dtype; /* "grads", "all_reduce", "fp32" */
    size_t count;
    int peer; /* of a send or receive: the place of the other member; -1: all members enter */
} launch_op;
typedef struct launch_number {
    unsigned long number; /* among all ops of this rank */
    unsigned here;        /* among those on its communicator */
} launch_number;
launch_number launch_collective(launch *l, const launch_op *op);
void launch_collective_done(launch *l, int on, launch_number up_to);

/* fn(user) is called, on a thread of its own, before this process is ended by another's failure: to make a device let go
 * of it. It has one second. */
void launch_on_end(launch *l, void (*fn)(void *user), void *user);
void launch_off_end(launch *l, void (*fn)(void *user), void *user);
/* poll(user) is called every 50 ms on the thread that watches. */
void launch_on_watch(launch *l, void (*fn)(void *user), void *user);
void launch_off_watch(launch *l, void (*fn)(void *user), void *user);

#ifdef __cplusplus
}
#endif
