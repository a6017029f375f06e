/* SPDX-License-Identifier: MIT */
/* What the files of launch.h share; beside them only tests include it. */
#pragma once

#include <pthread.h>

#include "common/launch/coordinator.h"
#include "common/launch/launch.h"
#include "common/launch/env.h"
#include "common/launch/control.h"

enum { LAUNCH_CALLBACKS = 32 };

typedef struct launch_callback {
    void (*fn)(void *user);
    void *user;
} launch_callback;

struct launch {
    int rank, size, local_rank, local_size, hosts;
    int host, first_of_host; /* this rank's host, counted by first ranks, and the first rank there */
    double (*now)(void);     /* this host's clock: host_seconds */
    char address[64];
    double timeout_s;

    pthread_mutex_t lock; /* of all below but the coordinator */
    pthread_cond_t changed;
    channel c;
    pthread_t watcher;
    bool leaving;
    double heard; /* when the coordinator last said something */
    void *answer; /* where an exchange's result goes; NULL: none is awaited */
    size_t answer_bytes;
    bool answered;
    uint64_t pings; /* that were sent */
    bool ponged;    /* the last of them is answered: by `pong`, at `pong_at` */
    control_ping pong;
    double pong_at;
    rank_status status;
    uint32_t communicators; /* made so far, by all ranks together */
    status_slot *slot;      /* NULL: the status is sent */
    unsigned long session_beats;
    launch_callback on_end[LAUNCH_CALLBACKS], on_watch[LAUNCH_CALLBACKS];
    int inside_watch; /* callbacks of on_watch that run now */

    coordinator *coordinator; /* of rank 0 of a job that somebody else started */
    pthread_t coordinator_thread;
};

/* This process as a rank of the place, which is somebody's: joins the job, or dies. */
launch *launch_join(const launch_place *place, const options *o);
void launch_leave(launch *l); /* the end of a rank that went well; frees */
/* The launcher: starts n ranks of this very program, waits for them, returns the exit code. */
int launch_spawn(const options *o, int n, char **argv);

/* To rank 0, by TCP; dies when that takes longer than --timeout from `since`. */
int launch_connect(launch *l, const launch_place *place, double since);
int launch_listen(const launch_place *place, int *fds); /* rank 0's sockets; returns their number */
void launch_watch(launch *l);   /* starts the watcher; from here on the coordinator may end this process */
void launch_publish(launch *l); /* under the lock: the rank made progress */
void launch_join_within(pthread_t thread, double seconds);
