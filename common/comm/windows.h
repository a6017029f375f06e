/* SPDX-License-Identifier: MIT */
/* Rows that ranks of one host put into each other's memory by copy engines, while multiprocessors compute. Each rank has a
 * block of windows that the others write: for gathers, where all ranks' rows come together, and for sums, where the other
 * ranks' parts of a rank's rows lie side by side.
 *
 * Behind rows a flag is raised, one for each exchange of a step and sender; it gets the number of the step, which the device
 * counts, so that a captured step can be replayed. On CPUs the block is shared memory, and a thread is the copy engine.
 *
 * All members make the same calls in the same order. Nothing is overwritten unread, without a message that says so. A step
 * begins when all ranks have ended the one before. In it, windows are used in turn, and a rank writes exchange k when it has
 * waited on main for exchange k - 1 of all ranks: what those had enqueued on main ahead of it is over there. Who reads on
 * another stream than main is waited for by the copy engine, some gathers later. windows.c counts that this suffices, and
 * dies of a bug where it does not. */
#pragma once

#include "common/comm/comm.h"
#include "common/device/device.h"
#include "kernels/shared/direct_rows.h"

enum { WINDOWS_GATHERS = 6 };

typedef struct windows windows;

/* For rows of row_bytes of each rank, a multiple of 16. Members are as in peer.h, and every rank of the job calls it. NULL
 * on all of them, with a sentence, where ranks don't reach each other's memory. */
windows *windows_open(launch *l, device *d, const int *members, int ranks, size_t row_bytes, char *why,
                      size_t why_bytes);
/* With blocks that are there already: at[r] is rank r's, windows_bytes of zeros as reached here. `leave`: a word that the device
 * reads; once it is not 0, waiting ends. */
windows *windows_create(device *d, int rank, int ranks, size_t row_bytes, void *const *at, const uint32_t *leave);
size_t windows_bytes(int ranks, size_t row_bytes);
/* Every rank of the job together, of windows_open: waits for the device. NULL is fine. */
void windows_free(windows *w);

/* From here on nothing is sent or awaited, and sums add what happens to lie there: the compute of a step. */
void windows_quiet(windows *w, bool quiet);
void windows_begin(windows *w, void *main); /* a step: behind the ends of the last one of all ranks */

/* This rank's rows, enqueued on main, go to window number `at` of all others: 0, 1, ... of a step, modulo WINDOWS_GATHERS.
 * whole: its own come there, too. They may change behind windows_read. */
void windows_spread(windows *w, int at, const void *mine, bool whole);
void *windows_rows(const windows *w, int at); /* (ranks, row_bytes) */
/* What follows on the stream sees the rows of a rank, or of all (-1). Another stream than main must have followed main. `aside`:
 * main does not wait for that stream before the next exchange. */
void windows_await(windows *w, int at, int rank, void *stream, bool aside);
/* All that reads the window is enqueued, on main or `side`; so main goes on when the rows have left. */
void windows_read(windows *w, int at, void *side);

/* A sum: each other rank gets the part of its rows, enqueued on the stream, which is main or has followed it; then this rank's sum
 * comes into out. part NULL: it lies there, since what made it on main wrote it to windows_part. */
void *windows_part(const windows *w, int rank); /* where the part of the next sum goes, over there */
void windows_give(windows *w, int rank, const void *part, void *stream);
/* own: the part of this rank; residual: see sb_direct_sum. n elements of row_bytes in all. Parts may change behind it. */
void windows_sum(windows *w, const void *own, const void *residual, void *out, size_t n, sb_dtype t);
void windows_settle(windows *w); /* a sum that nobody adds up: waits as windows_sum does */

/* The sum alone, on any stream of either device. False with sb_last_message. */
bool windows_add(device *d, const sb_direct_sum *p, void *stream);

/* For checks: the rows of each step's first gather come behind their flags, with the first gather behind the next sum. */
void windows_plant_late(windows *w);
