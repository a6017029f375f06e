/* SPDX-License-Identifier: MIT */
/* What the files of bench_roofline share: its state, timing into a row, matrix products and copies. */
#ifndef STEPBENCH_BENCH_ROOFLINE_ROOFLINE_H
#define STEPBENCH_BENCH_ROOFLINE_ROOFLINE_H

#include "common/session/measure.h"
#include "kernels/kernels.h"

enum { ROOFLINE_GPUS = 64 };

typedef struct roofline {
    session *s;
    const sb_kernels *kernels;
    sb_context *ctx;
    device *peers[ROOFLINE_GPUS]; /* opened when a pair wants them */
    const bench_case *c;          /* of the row being measured */
    row *w;
} roofline;

typedef struct roofline_amount { /* what one call does */
    double flops, bytes;
} roofline_amount;

/* True for SB_OK; else the row says why not. */
bool roofline_ok(roofline *r, sb_status status);
/* Times fn and fills the row. */
void roofline_time(roofline *r, const measure_how *how, bool (*fn)(void *arg), void *arg, roofline_amount amount);

void roofline_run_gemm(roofline *r);
void roofline_run_copy(roofline *r);
void roofline_run_p2p(roofline *r);
void roofline_peers_close(roofline *r);

double roofline_gemm_bytes(const bench_case *c);                /* held by a gemm case */
bool roofline_pair_parse(const char *text, int *from, int *to); /* "0-1"; from and to may be NULL */
char *roofline_every_pair(int gpus);                            /* "0-1,1-0,...", of two GPUs at least; caller frees */

#endif
