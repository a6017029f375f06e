/* SPDX-License-Identifier: MIT */
/* The parts of bench_checkpoint: a case's place to save to, its ceilings, its check and its times. All ranks of the job call
 * these together; ranks that are not members only join in exchanges. */
#pragma once

#include "bench/ddp/case.h"
#include "common/checkpoint/folder.h"
#include "common/replica/state.h"

typedef struct saving {
    ddp_case *k;
    replica *r;
    replica_state *x;                     /* of a member, as is saver */
    char folder[CHECKPOINT_FOLDER_BYTES]; /* below --folder, of this run alone; removed at the end */
    int lock;                             /* rank 0's */
    checkpoint_way way;                   /* as it can be had */
    int writers, readers;                 /* files that a rank writes at once; threads that load */
    bool direct;
    checkpoint_saver *saver;
} saving;

/* Makes the folder and the saver; false after setting the row's status. Free it in any case. */
bool saving_create(saving *s, ddp_case *k, replica *r);
void saving_free(saving *s);
/* The row of the first rank that says no, with its sentence, and `status`. */
bool saving_agree(saving *s, const char *name, bool ok, const char *why, row_status status);
/* Saves what the ranks have, waits until it is durable; false after setting the row. The step that follows a save is the
 * caller's. */
bool saving_finish(saving *s, checkpoint_saved *out);
void saving_begin(saving *s);
void saving_forget(const char *path); /* a file's pages, where its file system lets go of them */

/* Checks what a load of the newest save does not hash: padding, index, strange files; false after setting the row. */
bool saving_frame_is_whole(saving *s);

/* Saves, goes on, loads, goes on again: bytes, losses and parameters must be the same; the files must be whole. */
bool saving_check(saving *s);

/* Rates in GB/s (1e9) on these ranks, all at once; NAN on ranks that are no members. */
typedef struct saving_ceilings {
    double down, up, within; /* to pinned memory, from it, within the device; of a rank, the slowest */
    double write, hash;      /* to the folder with fsync, all ranks together; of one thread */
    double read;             /* from the folder, of a rank, the slowest; all at once */
} saving_ceilings;
bool saving_measure_ceilings(saving *s, saving_ceilings *out);

void saving_measure(saving *s, const saving_ceilings *top); /* saves between steps, and the row */
