/* SPDX-License-Identifier: MIT */
/* Cases of the training ops, each a call on named arrays ("slots"): what lies in them before, how much of it the op may
 * write, and what it must leave there, which the CPU backend says. A file for each family of ops lists its cases, fills
 * their slots and makes the call; train_run.c does with all of them the same. */
#pragma once

#include "tests/gpu/program/dtypes.h"
#include "tests/gpu/program/program.h"

enum { MAX_SLOTS = 9, STATE_BYTES = 64 /* from one sb_optimizer_state to the next: 16-byte aligned */ };

typedef enum slot_role { SLOT_IN, SLOT_OUT, SLOT_INOUT } slot_role;
typedef enum slot_content {
    SLOT_FLOATS,
    SLOT_INTEGERS,  /* int32, only read */
    SLOT_STATES,    /* sb_optimizer_state, STATE_BYTES each */
    SLOT_BYTES,     /* of anything, compared as they are */
    SLOT_REMAINDERS /* int16; with the slot ahead of it, bf16, they are fp32 numbers */
} slot_content;

/* An element may differ from the expected value x by `units` in the last place of its dtype, plus relative |x|, plus
 * absolute times `scale`; the relative L2 error is bounded by rel_l2 plus what such roundings make. */
typedef struct slot_bound {
    double units, relative, absolute, scale; /* scale 0: the root mean square of the expected values */
    double rel_l2;                           /* 0: by the others */
} slot_bound;

typedef struct slot {
    const char *name;
    slot_role role;
    slot_content content;
    sb_dtype dtype;
    size_t n, lead; /* elements; of them, how many lie before the one that the op is given */
    slot_bound bound;
    unsigned char *before; /* all of it; what is not filled is 0xff: NaN in every dtype */
    unsigned char *want;   /* of what may be written: how the reference leaves it */
} slot;

typedef struct train_case {
    char name[96];
    const struct train_op *op;
    const char *dtype;       /* for the table and --dtype: "bf16", ..., "fp16x3" */
    bool small;              /* part of --small */
    bool may_be_unsupported; /* SB_UNSUPPORTED is a skip, not a failure */
    size_t elements;         /* of all slots, roughly: what preparing it costs */
    union {
        sb_matmul matmul;
        sb_amax amax;
        sb_quantize quantize;
        sb_codes codes;
        sb_float8_history history;
        sb_rmsnorm rmsnorm;
        sb_rope rope;
        sb_swiglu swiglu;
        sb_swiglu_matmul swiglu_matmul;
        sb_embedding embedding;
        sb_cross_entropy cross_entropy;
        sb_vocab_loss vocab_loss;
        sb_grad_stats grad_stats;
        sb_optimizer_begin begin;
        sb_adamw adamw;
        sb_pointwise pointwise;
        sb_reduce reduce;
        sb_attention_merge attention_merge;
    } p;            /* without pointers */
    int variant[4]; /* what the op's file makes of them */

    slot slots[MAX_SLOTS];
    int slot_count;
} train_case;

/* Where a call finds what it needs; every slot at its element `lead`. */
typedef struct train_call {
    const sb_kernels *kernels;
    sb_context *ctx;
    void *at[MAX_SLOTS];
    void *workspace;
    size_t workspace_bytes;
    void *stream;
} train_call;

typedef struct case_list {
    train_case *items;
    int n;
} case_list;

typedef struct train_bed train_bed;
typedef struct train_op {
    const char *name;
    void (*list)(case_list *l, const struct train_op *op);
    void (*fill)(train_case *c);                                                    /* makes the slots */
    size_t (*workspace)(const train_case *c, const sb_kernels *k, sb_context *ctx); /* NULL: none */
    sb_status (*run)(const train_case *c, const train_call *x);
    bool (*more)(train_bed *bed, const train_case *c); /* checks of this op alone, or NULL */
} train_op;

/* A new case at the end of the list, with its name; the pointer is good until the next. */
train_case *case_add(case_list *l, const train_op *op, const char *dtype, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fills the slots and asks the CPU backend for what is expected. May run in any thread; dies when the CPU refuses. */
void case_prepare(train_case *c);
void case_release(train_case *c); /* what case_prepare made */
/* One of n, by chance that depends on the text alone. */
int case_pick(const char *text, int n);

size_t slot_element_bytes(const slot *s);
/* A slot at the end of the case's list, without values. */
slot *slot_add(train_case *c, const char *name, slot_role role, sb_dtype dtype, size_t n);
slot *slot_add_content(train_case *c, const char *name, slot_role role, slot_content content, size_t n);
/* N(0, scale^2) into a window of rows, from element `first` on. */
void slot_fill(train_case *c, slot *s, size_t first, size_t rows, size_t columns, size_t ld, double scale);
/* The common pair: dense inputs of N(0, scale^2), and outputs with a bound. */
slot *slot_input(train_case *c, const char *name, sb_dtype dtype, size_t n, double scale);
slot *slot_output(train_case *c, const char *name, sb_dtype dtype, size_t n, slot_bound bound);
float slot_get(const slot *s, size_t i);
void slot_set(slot *s, size_t i, float x);

/* Compares what an op left in the slots that it may write (got[i] for slot i) with the expected values. Prints a line
 * for each slot that is wrong, named with `mode`; the largest rel_l2 of all goes to *worst where that is larger. */
bool case_judge(const runner *r, const train_case *c, unsigned char *const got[], const char *mode, double *worst);
bool case_fail(const runner *r, const train_case *c, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
