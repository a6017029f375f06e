/* SPDX-License-Identifier: MIT */
/* A run of bench_run: a case of data parallelism (bench/ddp), what feeds its steps, and what they left. All ranks of the job
 * call the functions of this folder together; ranks that are not members of the case only join in exchanges. */
#pragma once

#include "bench/ddp/case.h"
#include "common/checkpoint/folder.h"
#include "common/core/stats.h"
#include "common/data/loader.h"
#include "common/replica/state.h"
#include "common/run/journal.h"
#include "common/run/outliers.h"
#include "common/run/schedule.h"

/* The ladder: each rung has what those before it have, but for wait, which does not save. */
typedef enum rung { RUNG_BARE, RUNG_DATA, RUNG_SCHEDULE, RUNG_CLIP, RUNG_LOG, RUNG_SAVE, RUNG_WAIT } rung;

/* --plant-error: what a check must find. */
typedef enum run_fault {
    FAULT_NONE,
    FAULT_RATE,
    FAULT_POSITION,
    FAULT_RANK,
    FAULT_REPEAT,
    FAULT_TARGET,
    FAULT_LEAK,
    FAULT_MEAN,
    FAULT_MAX,
    FAULT_TOKENS,
    FAULT_CRC,
    FAULT_LOST_POSITION,
    FAULT_LOST_SCHEDULE,
    FAULT_LOST_MOMENTS
} run_fault;
#define RUN_FAULT_CHOICES                                                                                              \
    "none|rate|position|rank|repeat|target|leak|mean|max|tokens|crc|lost-position|lost-schedule|lost-moments"

enum { RUN_AHEAD = 4 /* steps that the host is ahead of the device; the loader has filled batches beyond them */ };
enum { RUN_MARKS = 64 /* steps whose begin is not read yet, at most */ };

/* A step's numbers, which ranks exchange. */
enum { PER_STEP_LOSS, PER_STEP_MS, PER_STEP_SURPRISE, PER_STEP };

typedef struct run_past {            /* a step on all ranks */
    double loss, loss_max, surprise; /* mean, largest, mean */
    double norm;
} run_past;

typedef struct run_save { /* see save.h */
    char folder[CHECKPOINT_FOLDER_BYTES];
    bool kept;            /* the user named it; else it is removed */
    int lock, past;       /* of rank 0: the folder's, and the descriptor of losses.bin; -1 */
    int64_t every, noted; /* steps between saves; that losses.bin has */
    replica_state *state; /* of a member, as saver */
    checkpoint_saver *saver;
    checkpoint_way way; /* as it can be had */
    bool apart;         /* of the ladder */
    int64_t step;       /* the save that is under way; 0: none, or what became of it is known */
    int64_t last;       /* of rank 0: the newest one that is complete; 0: none of this process */
    int saved, failed, in_a_row;
    double waited_s;             /* for the save before */
    samples durable_ms, cost_ms; /* until a save was complete; what one adds to the steps of a block */
    int64_t look, looked;        /* steps at which ranks ask for a signal next, and did last */
    double looked_s;
} run_save;

typedef struct run_log { /* see log.c */
    journal *files;      /* of rank 0; NULL: nobody asked, or rows go nowhere */
    outliers loss, norm;
    int outliers;
    int64_t fetched, written; /* steps whose history is under way to the host; that have a record */
    device_event *arrived;    /* the fetch */
    double waited_s,
        last_wait_s; /* of the host within the log, since the first step that counts; for data, at the last record */
    journal_record last;
    int64_t last_first; /* the first step that it is about */
} run_log;

typedef struct run {
    ddp_case k;
    replica *r;
    rung rung;
    run_fault fault;
    bool overfit;
    int64_t steps, room;  /* of the run; and how many there is memory for, the ladder's included */
    int64_t first;        /* steps that a checkpoint had; 0: none */
    int64_t warmup;       /* steps after it before those that count */
    int64_t batch, ranks; /* sequences of a rank in a step */
    schedule schedule;

    data *data;
    loader *loader;
    loader_options load;
    device_event *done[RUN_AHEAD];
    device_event *begin[RUN_MARKS];
    int64_t at, timed; /* steps enqueued; whose time is known */
    double waited_s;   /* for data */

    float *losses, *norms; /* pinned: (room, micro-batches), (room) */
    double *per_step;      /* (room, PER_STEP) of this rank; a loss is there once it was fetched */
    double *all;           /* (ranks of the job, steps, PER_STEP), after run_gather */
    run_past *past;        /* [first] */
    run_log log;
    run_save save;

    double start_s, wall_s, waited_before_s; /* of the steps that count */
    samples bare, fed;                       /* milliseconds of a step, of the slowest rank */
} run;

/* feed.c. Before run_save_open, which compares the data with those of a checkpoint; data_close them in any case. */
void run_data_open(run *x);
/* False after setting the row's status, or a job that ends with a sentence. */
bool run_open(run *x);
void run_close(run *x);
void run_step(run *x);                 /* enqueues the next step with what its rung gives it */
void run_times(run *x, int64_t until); /* per_step of the steps before `until` has their milliseconds */

/* loop.c */
int64_t run_counted(const run *x); /* the first step whose time counts */
bool run_all_steps(run *x);
void run_blocks(run *x); /* the ladder: blocks of bare steps and of the rung's, in turn */

/* log.c */
bool run_log_open(run *x);
void run_log_step(run *x);  /* after a step: a record each --log-every steps, one interval late */
void run_log_rest(run *x);  /* after the last step */
void run_log_pause(run *x); /* what there is of the log is written; the run ends here for now */
/* What steps first to until - 1 were on all ranks, which exchange that; waits for the device. */
void run_steps_so_far(run *x, int64_t first, int64_t until, run_past *out);
double run_mfu_pct(const run *x, double step_ms);
