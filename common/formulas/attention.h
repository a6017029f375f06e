/* SPDX-License-Identifier: MIT */
/* The one place that computes FLOPs and bytes. Units in the names; docs/formulas.md explains every formula. */
#ifndef STEPBENCH_FORMULAS_ATTENTION_H
#define STEPBENCH_FORMULAS_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct attention_shape {
    int64_t batch, heads, heads_kv, seq_q, seq_k, head_dim;
    int64_t head_dim_v; /* columns of v, o, dO and dV; 0: head_dim, as q and k have */
    bool causal;        /* bottom-right aligned: query i sees keys j <= i + seq_k - seq_q */
    /* Only if `windowed`: keys before and after its own position that a query sees; -1: all */
    bool windowed;
    int64_t window_left, window_right;
    /* Packed documents, if not 0: batch is 1, seq_q and seq_k are totals, and document i has the queries cu_seqlens_q[i] to
     * before cu_seqlens_q[i + 1] and the keys alike (host memory). */
    int64_t documents;
    const int *cu_seqlens_q, *cu_seqlens_k;
} attention_shape;

int64_t attention_head_dim_v(const attention_shape *s); /* never 0 */
/* Convention of the field (FlashAttention, cuDNN): forward 2 (D + Dv) B H Sq Sk, backward 2 (3 D + 2 Dv) B H Sq Sk, both halved
 * when causal: if Dv is D, 4 B H Sq Sk D and 2.5 times that. In a window the pairs that are not masked count in place of Sq Sk,
 * whatever the tiles compute. Of documents their sum. */
double attention_forward_flops(const attention_shape *s);
double attention_backward_flops(const attention_shape *s);
/* Exact count of unmasked (query, key) pairs of one head. */
double attention_pairs(const attention_shape *s);
/* Fewest bytes through memory: each input read once, each output written once. */
double attention_forward_bytes(const attention_shape *s, int elem_bytes);
double attention_backward_bytes(const attention_shape *s, int elem_bytes);
/* Bytes of one B x H x Sq x Sk matrix of elements. */
double attention_matrix_bytes(const attention_shape *s, int elem_bytes);
double gemm_flops(int64_t m, int64_t n, int64_t k); /* 2 m n k */

#endif
