/* SPDX-License-Identifier: MIT */
/* What bench_roofline measures, for it and for bench_qualify: matrix products, copies, launches. Everything is verified
 * before it is timed, unless --check 0. A function that gives a time is false when there is none: the row then says why,
 * or memory remembers it. Columns that the bench does not declare are left out. */
#pragma once

#include "common/session/measure.h"
#include "kernels/kernels.h"

enum { ROOFLINE_GPUS = 64 };

typedef struct roofline {
    session *s;
    const sb_kernels *kernels;
    sb_context *ctx;
    device *peers[ROOFLINE_GPUS]; /* opened when a pair wants them */
    row *w;                       /* being measured */
} roofline;

typedef struct roofline_amount { /* what one call does */
    double flops, bytes;
} roofline_amount;

/* True for SB_OK; else the row says why not. */
bool roofline_ok(roofline *r, sb_status status);
void roofline_start(roofline *r, session *s); /* its library context */
void roofline_finish(roofline *r);
/* Times fn and fills the row. */
bool roofline_time(roofline *r, const measure_how *how, bool (*fn)(void *arg), void *arg, roofline_amount amount,
                   double *ms);

/* C = A B^T of A (m, k) and B (n, k), normal random numbers. */
typedef struct roofline_shape {
    int m, n, k;
} roofline_shape;
typedef struct roofline_gemm {
    roofline *r;
    const struct roofline_precision *p;
    roofline_shape shape;
    void *a, *b, *c;
    sb_matmul tuned; /* dtype etc. of roofline_gemm_best; m == 0: the library chooses */
} roofline_gemm;
bool roofline_shape_parse(const char *text, roofline_shape *out); /* "2048x4096x8192"; multiples of 16 */
/* Fills and verifies a square one; then `roofline_gemm_run` enqueues one product of the gemm that is its argument. */
bool roofline_gemm_make(roofline *r, const char *dtype, int n, uint64_t seed, roofline_gemm *g);
bool roofline_gemm_run(void *gemm);
bool roofline_gemm_time(roofline *r, const char *dtype, int n, uint64_t seed, double *ms);
/* A product of any shape by the fastest algorithm that the library proposes, also on a GPU that has rested. */
bool roofline_gemm_best_time(roofline *r, const char *dtype, roofline_shape shape, uint64_t seed, double *ms);
double roofline_gemm_bytes(const char *dtype, roofline_shape shape); /* that it holds */

/* How many copies are one sample. */
int roofline_copy_calls(size_t bytes, bool cold_l2);
bool roofline_copy_time(roofline *r, bool by_kernel, size_t bytes, uint64_t seed, double *ms);
/* Between pinned memory of the host and the device. */
bool roofline_host_copy_time(roofline *r, bool to_device, size_t bytes, uint64_t seed, double *ms);
/* *direct: without the host between them. */
bool roofline_p2p_time(roofline *r, int from, int to, bool both_ways, size_t bytes, uint64_t seed, double *ms,
                       bool *direct);
void roofline_peers_close(roofline *r);

typedef enum roofline_launch { LAUNCH_QUEUED, LAUNCH_WAITED_FOR, LAUNCH_IN_GRAPH } roofline_launch;
bool roofline_launch_time(roofline *r, roofline_launch kind, double *ms); /* of one empty kernel */

bool roofline_pair_parse(const char *text, int *from, int *to); /* "0-1"; from and to may be NULL */
char *roofline_every_pair(int gpus);                            /* "0-1,1-0,...", of two GPUs at least; caller frees */
