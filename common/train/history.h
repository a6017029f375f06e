/* SPDX-License-Identifier: MIT */
/* The memory of a trainer's step as a list of allocations and releases: what lies outside the arena, then the events
 * of the arena's plan. Also what is held after each event, and the files that show it. */
#pragma once

#include "common/train/trainer.h"

typedef struct timeline {
    arena_event *events;
    size_t count;
    int64_t arena_bytes;
} timeline;

typedef struct timeline_moment { /* what is held after an event */
    size_t event;
    int64_t held[MEMORY_KINDS], total;
} timeline_moment;

timeline timeline_of(const trainer *t);
void timeline_free(timeline *x);
timeline_moment timeline_peak(const timeline *x); /* the first of the worst */
/* Whether every tensor lies in the arena, apart from all that are held with it, and is released at most once. False
 * with a sentence: the planner has a bug. */
bool timeline_valid(const timeline *x, char *why, size_t why_bytes);
/* Activations of one block that are held when forward ends. */
int64_t timeline_saved_by(const timeline *x, int layer);

typedef struct allocation { /* equal ones of several blocks count as one */
    const arena_event *first;
    int times, lowest_layer, highest_layer;
} allocation;
/* The n largest of the step's own, by size; returns how many there are. */
size_t timeline_largest(const timeline *x, allocation *out, size_t n);
/* "100 MiB  d_w13 (gradient)  backward, blocks 0 to 31, 32 times" */
void allocation_describe(const allocation *a, char *out, size_t out_bytes);

/* One line an event, with the running total and that of each kind; the largest allocations as comments. False with
 * errno. */
bool timeline_write(const timeline *x, const char *path, const char *title);
