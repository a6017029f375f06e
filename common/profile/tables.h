/* SPDX-License-Identifier: MIT */
/* What a profile says of one window: kernels with their place on the roofline, the share of matrix products, softmax
 * beside the products of attention. Everything is a sum over the same cut spans, so all tables agree. */
#pragma once

#include "common/profile/sweep.h"

typedef struct profile_ceilings { /* measured on this machine; NAN: unknown */
    double copy_gb_s;
    double (*tflops)(void *user, const char *dtype);
    void *user;
} profile_ceilings;

typedef struct kernel_row { /* alike: range, kernel, op, grid and block */
    const char *range, *kernel, *name, *op;
    int grid[3], block[3];
    record_lane lane;
    size_t calls;
    double total_us, beside_us;
    double flops, bytes; /* 0: unknown, or none. A kernel that is one of several of its op has its share by time */
    double ideal_us;     /* the longer of FLOPs at the rate of GEMM and bytes at that of a copy; NAN: unknown */
    double flop_us, byte_us;
    const char *dtype;
} kernel_row;
/* "compute", "memory", "latency" (ideal below 2 us a call and less than half attained), "" for unknown. */
const char *kernel_bound(const kernel_row *k);
double kernel_attained_pct(const kernel_row *k); /* ideal over real; more than 100: from the L2 cache. NAN: unknown */
double kernel_lost_us(const kernel_row *k);      /* real - ideal; NAN: unknown */

typedef struct products_row {
    const char *mode;                       /* forward, forward-backward, train-step */
    double gemm_us, attention_us, other_us; /* attention: in one kernel, of which the products are a part */
    double span_us, idle_us;                /* from its first start to its last end; in which nothing ran */
} products_row;
enum { PRODUCTS_ROWS = 3 };

enum { PART_SCORES, PART_MASK, PART_SOFTMAX, PART_VALUE, PART_WHOLE, PARTS_OF_ATTENTION };
typedef struct softmax_row {
    const char *pass;                                                                    /* forward, backward */
    double us[PARTS_OF_ATTENTION], flops[PARTS_OF_ATTENTION], bytes[PARTS_OF_ATTENTION]; /* whole: without parts */
} softmax_row;

typedef struct profile_tables {
    kernel_row *kernels; /* by lost time, then by time */
    size_t kernel_count;
    products_row products[PRODUCTS_ROWS];
    int product_count;
    softmax_row softmax[2];
    int softmax_count;
    double kernel_us;     /* sum over kernels, copies and memsets */
    double attributed_us; /* of it, what belongs to a range */
    sweep_sums sums;
} profile_tables;

profile_tables *profile_tables_of(const recording *r, record_window w, const profile_ceilings *ceilings);
void profile_tables_free(profile_tables *t);
