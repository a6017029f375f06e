/* SPDX-License-Identifier: MIT */
/* The log of a run: one record for every few steps, to a CSV file, to JSON lines and to an event file of TensorBoard. A record is
 * a table of numbers (journal.c has its names), so that the three say the same. */
#pragma once

#include "common/run/events.h"

typedef struct journal_record { /* what is not known is NAN */
    int64_t step;               /* the last one that it is about, from 1 */
    int64_t tokens;             /* of all ranks, since the first step */
    double loss, loss_max;      /* mean over the ranks and the record's steps; the largest of a rank and step */
    double entropy;             /* what the source's tokens of these steps cost who knows it, mean */
    double norm, rate;          /* of the last step */
    double tokens_per_s;        /* of all ranks */
    double mfu_pct;
    double step_ms, step_max_ms; /* median and longest of the slowest rank's */
    double data_wait_pct;        /* of the time since the last record */
    double free_bytes;           /* of the device, smallest of all ranks */
    double peak_bytes;           /* that a rank has allocated there, largest of all */
    double power_w, sm_mhz;      /* since the last record: mean of the devices, and the slowest one's mean */
    int outliers;                /* steps whose loss or norm stood out, since the first */
} journal_record;

typedef struct journal journal;
/* Files folder/name.csv, folder/name.jsonl and folder/name/events.out.tfevents.<...>; makes the folders. `about` is one line.
 * For a run that goes on behind `step` (0: a new one) earlier records stay as they are, later ones go. *last is the step of the
 * last one that stayed; 0: none. NULL: a sentence in `why`. */
journal *journal_open(const char *folder, const char *name, const char *about, int64_t step, int64_t *last, char *why,
                      size_t why_bytes);
void journal_write(journal *j, const journal_record *r);
bool journal_close(journal *j, char *why, size_t why_bytes); /* also reads the event file again; NULL is fine */
events *journal_events(journal *j);
