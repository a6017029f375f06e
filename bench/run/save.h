/* SPDX-License-Identifier: MIT */
/* The rung save: checkpoints between the steps of a run, what a signal makes of it, and how a run goes on from one. All ranks
 * of the job call these together. Beside the checkpoints lies losses.bin, which has what a checkpoint has not: loss, largest
 * loss, surprise and norm of every step so far, so that a run that goes on has its whole curve. */
#pragma once

#include "bench/run/run.h"

/* Before run_open. The folder, what is loaded from it (--resume-run), and the saver; false after setting the row's status, or a
 * job that ends with a sentence. Close it in any case. */
bool run_save_open(run *x);
void run_save_close(run *x);

void run_save_step(run *x);  /* after a step: a save each --save-every steps; and the end, if a signal asks for it */
bool run_save_last(run *x);  /* the state after the last step; false after making the row `fail` */
void run_save_begin(run *x); /* now */
void run_save_end(run *x);   /* waits until it is complete */
/* The ladder's saves go elsewhere, and are removed when it is over: those of the run stay. */
void run_save_apart(run *x, bool on);

/* save_resume.c: x->first and x->past; false after setting the row's status. */
bool run_resume(run *x, const char *folder);
bool run_state_is(run *x, const char *folder, int64_t step, const char *what); /* else the row is `fail` */
void run_state_note(const run *x, checkpoint_state *out);
void run_past_open(run *x); /* losses.bin of the folder */
void run_past_note(run *x); /* the steps so far are there */
