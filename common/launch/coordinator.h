/* SPDX-License-Identifier: MIT */
/* The coordinator of a job: the one place that knows all ranks. It lets them join, exchanges small data between them, watches
 * that they live and make progress, and ends all of them when one can't. It runs in the launcher, which is no rank, or on a
 * thread of rank 0 where somebody else (mpirun, srun, torchrun) started the ranks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/launch/status.h"

typedef struct coordinator coordinator;

typedef struct coordinator_options {
    int ranks;
    double timeout_s;   /* --timeout: of a rank that makes no progress, and of one that does not join; 0: never */
    status_slot *board; /* [ranks] where ranks were started here; NULL: they send their status */
    uint64_t run_id;
    const char *secret; /* of the job, for ranks that come by TCP; NULL or "": none is asked for */
    const char *where;  /* of the listener, for messages: "127.0.0.1 port 21234"; NULL: none */
} coordinator_options;

coordinator *coordinator_create(const coordinator_options *o);
void coordinator_free(coordinator *h);
enum { COORDINATOR_LISTENERS = 8 };
/* Takes over a listening socket, one of several. Whoever connects must prove that it knows the secret, where there is one, and say hello,
 * all within seconds; until then little is read of it. */
void coordinator_listen(coordinator *h, int fd);
void coordinator_attach(coordinator *h,
                        int fd); /* takes over the coordinator's end of a socket pair: its rank is trusted */

/* Waits up to `wait_s` for news and acts on it; any number of times until coordinator_over. */
void coordinator_step(coordinator *h, double wait_s);
/* The launcher's news: rank r's process is gone, with a status of waitpid. */
void coordinator_exited(coordinator *h, int rank, int wait_status);
/* Ends the job: all ranks are told, the sentence goes to stderr. The first call counts. */
void coordinator_end(coordinator *h, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* "while: <phase>; last collective: ..." of a rank; valid until this thread's next call. */
const char *coordinator_doing(coordinator *h, int rank);

bool coordinator_ending(const coordinator *h); /* coordinator_end was called, by whomever */
bool coordinator_over(const coordinator *h);   /* every rank has left, or its channel is closed */
int coordinator_code(const coordinator *h);    /* exit code of the job: coordinator_end's, else 0 */

/* Who holds the others up? What is known of each rank at one moment; a pure function of it, for tests. */
typedef struct rank_view {
    rank_status s;
    bool left;
    double beat_age_s, move_age_s; /* since its counters last changed, as the coordinator saw it */
} rank_view;
/* False when the job does not stand still; else the sentence that names the one to blame, and one line per rank. */
bool coordinator_stuck(const rank_view *ranks, int n, double timeout_s, char *out, size_t out_bytes);
