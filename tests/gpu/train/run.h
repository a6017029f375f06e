/* SPDX-License-Identifier: MIT */
/* Runs prepared cases on a device: eagerly, again and again, on two streams at once, in a graph, with too small a
 * workspace; with guards around every buffer. */
#pragma once

#include "tests/gpu/train/case.h"

struct train_bed {
    runner *r;
    void *streams[2];
    device_event *done;
};

train_bed bed_open(runner *r);
void bed_close(train_bed *bed);

/* The slots of a case on the device, and a workspace of exactly the size that the op asks for. */
typedef struct instance {
    const train_case *c;
    train_call call;
    guarded slots[MAX_SLOTS], workspace;
} instance;
instance instance_create(const train_bed *bed, const train_case *c);
void instance_free(const train_bed *bed, instance *x);
/* Slots that may be written get back what lay in them before; waits. */
void instance_reset(const train_bed *bed, instance *x);

/* On the host: all that a call may write. */
typedef struct left_behind {
    unsigned char *slots[MAX_SLOTS];
} left_behind;
/* Waits for the device first. */
left_behind left_of(const train_bed *bed, const instance *x);
void left_free(left_behind *l);

/* One call on fresh slots, waited for. False, with a line, when it is refused. */
bool instance_run(const train_bed *bed, instance *x, const char *mode);
/* False, with a line, unless the instance now holds the same bits as `first`. */
bool instance_same(const train_bed *bed, const instance *x, const left_behind *first, const char *mode);
/* False, with a line, unless what the instance holds is right. */
bool instance_right(const train_bed *bed, const instance *x, const char *mode);

/* False, with a line, unless a slot holds the same bits as another buffer of its size. */
bool instance_slot_equals(const train_bed *bed, const instance *x, int slot_index, const guarded *other,
                          const char *what);

/* What the tuner would have written to a file, had it chosen an algorithm of our own: see matmul_own. */
sb_matmul_choice own_choice(const char kernel[8], int value);

/* All of that for one case, which is prepared; counts it. */
void run_train_case(train_bed *bed, train_case *c);
