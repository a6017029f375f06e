/* SPDX-License-Identifier: MIT */
/* What the files of measure.h share: sampling.c takes samples of a call, columns.c fills a row, measure.c times calls and
 * steps.c steps. */
#pragma once

#include "common/session/measure.h"

enum { SAMPLES_MIN = 3 }; /* however long they take */

typedef bool enqueue(void *arg);

typedef struct measurement {
    device *d;
    const timing *t;
    enqueue *fn;
    void *arg;
    samples *out;
    bool sensed;     /* the session reads clocks and power of d meanwhile */
    bool counts;     /* as part of the case's conditions */
    bool settling;   /* these calls only bring the device to the state in which it is measured */
    double since_s;  /* when these calls began */
    double warm_s;   /* how long the warm-up took */
    double total_ms; /* of the samples so far, as the device spent it */
    device_window window;
} measurement;

/* After the warm-up. False on failure; *used says which timer it was. */
bool sampling_run(measurement *m, const char **used);

void columns_real(row *w, const char *name, const char *suffix, double value);
void columns_times(row *w, const char *name, const stats *ms, int calls);
void columns_count(row *w, const char *name, size_t n);
void columns_timer(row *w, const char *name, const char *used);
double columns_joules(const device_window *window, double mean_ms);
void columns_energy(row *w, const char *name, const measure_how *how, double joules); /* of one call */
void columns_sustained(row *w, const char *name, const samples *x, int calls, const device_window *window);

/* Names the phase and begins a scope. w NULL: for no row. */
void measure_begin(const row *w, const char *name);
