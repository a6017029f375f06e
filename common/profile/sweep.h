/* SPDX-License-Identifier: MIT */
/* What ran beside what, by a sweep over starts and ends: the time of a window is divided among the eight sets of
 * {compute, communication, copy}, so the sums add up to the window. */
#pragma once

#include "common/record/record.h"

enum { SWEEP_SETS = 8 }; /* bit 1 << lane: something ran on it; 0: nothing ran */
typedef struct sweep_sums {
    double us[SWEEP_SETS];
} sweep_sums;

typedef struct sweep_edge {
    double us;
    int lane, step; /* +1: a span starts; -1: it ends */
} sweep_edge;
/* Two edges of each span that is not empty within the window, by time. Caller frees. */
sweep_edge *sweep_edges(const record_span *s, size_t n, double from_us, double to_us, size_t *count);

/* Spans in any order; what lies outside the window does not count. */
sweep_sums sweep(const record_span *s, size_t n, double from_us, double to_us);
double sweep_window_us(const sweep_sums *s);                 /* all eight */
double sweep_lane_us(const sweep_sums *s, record_lane lane); /* in which something ran on it */
double sweep_exposed_us(const sweep_sums *s);                /* communication without compute */
double sweep_copy_alone_us(const sweep_sums *s);             /* copies without anything else */

/* beside_us[i]: how long another span ran while span i did. */
void sweep_beside(const record_span *s, size_t n, double *beside_us);

/* A step of a recording: from its first span to that of the next one; on the CPU from and to the start of its range. */
typedef struct record_window {
    double from_us, to_us;
} record_window;
/* Steps 0 to most - 1, as far as they and the next one are there; returns how many. */
int record_windows(const recording *r, record_window *out, int most);
/* What ran from this time on: from its first start to its last end; false when nothing did. */
bool record_rest(const recording *r, double from_us, record_window *out);
/* The spans that lie in the window, cut to it, by start. Caller frees. */
record_span *record_cut(const recording *r, record_window w, size_t *n);
/* A kernel that starts while the one before it in its stream runs (programmatic launch) waits for that: it begins where that ends. */
void sweep_charge(record_span *s, size_t n);
