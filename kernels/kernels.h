/* SPDX-License-Identifier: MIT */
/* The C API of the kernels: one table of ops, filled once for CUDA and once for the CPU.
 *
 * Plain C, no CUDA header needed. Every op takes a context and a stream, returns a status, never exits and never
 * allocates: workspaces are the caller's. Ops are asynchronous on CUDA unless said otherwise.
 * Shapes: batch B, query heads H, key/value heads Hkv (H a multiple of Hkv; query head h reads head h / (H/Hkv)),
 * seq_q Sq, seq_k Sk, head_dim D, head_dim_v Dv. */
#ifndef STEPBENCH_KERNELS_KERNELS_H
#define STEPBENCH_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/train.h"
#include "kernels/types.h"

SB_C_BEGIN

/* Scaled dot-product attention, O = softmax(scale Q K^T + mask) V (Vaswani et al. 2017).
 * Causal masks are aligned at the bottom right: query i sees keys j <= i + (Sk - Sq). A query that sees no key gives
 * O = 0, lse = -inf, and no gradient. A sliding window (Beltagy et al., 2020) leaves of those keys the ones from
 * i + (Sk - Sq) - window_left to i + (Sk - Sq) + window_right. head_dim and head_dim_v are multiples of 8 from 16 to 256; an op may
 * take fewer, or have no backward: `supported` says. */
typedef struct sb_attention {
    int batch, heads, heads_kv, seq_q, seq_k, head_dim;
    int head_dim_v; /* columns of v, o, d_o and dv; 0: as many as q and k have, head_dim */
    sb_dtype dtype;
    bool causal;
    bool deterministic;   /* backward: bitwise the same on every run */
    bool forward_only;    /* `supported` asks for forward alone; the calls themselves do not look at it */
    float scale;          /* positive; 0: 1/sqrt(head_dim) */
    sb_tensor q, k, v, o; /* (B,H,Sq,D) (B,Hkv,Sk,D) (B,Hkv,Sk,Dv) (B,H,Sq,Dv) */
    float *lse;           /* (B,H,Sq) natural log of the sum of exponentials; written forward, read backward */
    sb_tensor d_o, dq, dk, dv;
    void *saved;     /* what forward keeps for backward, saved_bytes of it (the S x S matrix of unfused) */
    void *workspace; /* scratch of one call, 256-byte aligned */
    size_t workspace_bytes;
    /* Only if `windowed`: keys before and after its own position that a query sees; -1: all. A causal mask's right side is 0,
     * so window_right is then 0 or -1. The unfused and fused ops of CUDA take no window. */
    bool windowed;
    int window_left, window_right;
    /* Only if `packed`: documents of different lengths lie behind each other, without padding, as flash-attn's cu_seqlens
     * interface has them. batch is 1, and seq_q and seq_k are the tokens of all documents together; lse is (H,Sq). Document i
     * has the queries cu_seqlens_q[i] to before cu_seqlens_q[i + 1] and the keys cu_seqlens_k[i] to before cu_seqlens_k[i + 1],
     * either of which may be none. A query sees keys of its own document alone, and masks are aligned at the bottom right of
     * each. The arrays (documents + 1) are in the device's memory. The caller guarantees that they begin with 0, never fall, and
     * end with seq_q and seq_k: CUDA cannot look at them, the CPU's ops do. On the GPU what is not finite in a key may spread to
     * queries near it that do not see it, also of other documents. The unfused and fused ops of CUDA take no documents. */
    bool packed;
    int documents;
    const int *cu_seqlens_q, *cu_seqlens_k;
} sb_attention;

typedef struct sb_attention_op {
    const char *name; /* "unfused", "fused", "flash", "flash_portable" */
    const char *summary;
    /* SB_OK or why not (sb_last_message): for forward and backward, or only for forward when a->forward_only. No pointer is
     * looked at. */
    sb_status (*supported)(sb_context *ctx, const sb_attention *a);
    size_t (*saved_bytes)(sb_context *ctx, const sb_attention *a);
    size_t (*forward_workspace)(sb_context *ctx, const sb_attention *a);
    size_t (*backward_workspace)(sb_context *ctx, const sb_attention *a);
    sb_status (*forward)(sb_context *ctx, const sb_attention *a, void *stream);
    sb_status (*backward)(sb_context *ctx, const sb_attention *a, void *stream);
} sb_attention_op;

/* fp64 attention of chosen rows from the same inputs (q, k, v, d_o as stored): the oracle of the checks.
 * Sample i is query row (bh[i], q_row[i]) for o, lse, dq and key row (bh_kv[i], k_row[i]) for dk, dv, where
 * bh = b*H + h and bh_kv = b*Hkv + h. Host pointers; any of o, lse, dq, dk, dv may be NULL. Synchronous; needs
 * reference_workspace bytes of workspace. No o, lse of `a` is read.
 * dq_terms says how large the terms of dq = scale sum_j p_j (dO . V_j - delta) K_j are: the root of the sum of the squares of
 * scale p_j dO_c V_jc K_jd over j, c and d. Rounding errors scale with it. Where a query sees few keys, or one takes nearly
 * all the weight, the terms cancel, and dq is much smaller. dk_terms says the same about dk. Each needs its gradient. */
typedef struct sb_attention_rows {
    int n;
    const int *bh, *q_row, *bh_kv, *k_row;
    double *o, *dq, *dk, *dv;    /* (n, Dv) (n, D) (n, D) (n, Dv) */
    double *lse;                 /* (n) */
    double *dq_terms, *dk_terms; /* (n) root of the sum of squares of the terms of dq, of dk */
} sb_attention_rows;

typedef struct sb_kernels {
    const char *name; /* "cuda" or "cpu" */
    sb_status (*create)(int ordinal, sb_context **out);
    void (*destroy)(sb_context *ctx);
    const sb_attention_op *attention; /* ends with name == NULL */
    size_t (*reference_workspace)(sb_context *ctx, const sb_attention *a, bool backward);
    sb_status (*reference)(sb_context *ctx, const sb_attention *a, const sb_attention_rows *rows, void *stream);
    /* C = A B^T, row-major A (m,k), B (n,k), C (m,n), all of `dtype` in memory; bench_roofline's ceiling. */
    sb_status (*gemm)(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                      void *stream);
    /* out[i] = N(0,1)*scale of draw i of (seed, stream_id) rounded to dtype (see common/core/rng.h). */
    sb_status (*fill_normal)(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed, uint32_t stream_id,
                             float scale, void *stream);
    /* Like fill_normal, starting at draw `first`, a multiple of 4. */
    sb_status (*fill_normal_from)(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed,
                                  uint32_t stream_id, uint64_t first, float scale, void *stream);
    sb_status (*copy)(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream); /* a copy kernel */
    sb_status (*nothing)(sb_context *ctx, void *stream);                                        /* an empty kernel */
    const sb_train_ops *train;
} sb_kernels;

const sb_kernels *sb_kernels_cpu(void);
const sb_kernels *sb_kernels_cuda(void);                                         /* NULL when built without CUDA */
const sb_attention_op *sb_attention_find(const sb_kernels *k, const char *name); /* NULL when absent */

SB_C_END
#endif
