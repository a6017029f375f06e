/* SPDX-License-Identifier: MIT */
/* The one place that computes FLOPs and bytes. Units in the names; docs/formulas.md explains every formula. */
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

/* These functions read an attention's shape and mask, never its tensors. If `packed`, they read the borders of documents, which
 * must then be in host memory. */
int64_t attention_head_dim_v(const sb_attention *s); /* never 0 */
/* Convention of the field (FlashAttention, cuDNN): forward 2 (D + Dv) B H Sq Sk, backward 2 (3 D + 2 Dv) B H Sq Sk, both halved
 * when causal: if Dv is D, 4 B H Sq Sk D and 2.5 times that. In a window the pairs that are not masked count in place of Sq Sk,
 * whatever the tiles compute. Of documents their sum. */
double attention_forward_flops(const sb_attention *s);
double attention_backward_flops(const sb_attention *s);
/* Exact count of unmasked (query, key) pairs of one head. */
double attention_pairs(const sb_attention *s);
/* Fewest bytes through memory: each input read once, each output written once. */
double attention_forward_bytes(const sb_attention *s, int elem_bytes);
double attention_backward_bytes(const sb_attention *s, int elem_bytes);
/* Bytes of one B x H x Sq x Sk matrix of elements. */
double attention_matrix_bytes(const sb_attention *s, int elem_bytes);
double gemm_flops(int64_t m, int64_t n, int64_t k); /* 2 m n k */
