/* SPDX-License-Identifier: MIT */
/* What the files of the CPU backend share: conversion between tensors and fp32 rows, one GEMM, and the ops in the table. */
#pragma once

#include "kernels/shared/internal.h"

/* n elements of dtype `t` to fp32 and back; tf32 is fp32 in memory, rounded on load because loads feed products. */
void cpu_load(sb_dtype t, float *out, const void *in, size_t n);
void cpu_store(sb_dtype t, void *out, const float *in, size_t n);
/* Rounds computed operands of a product (P, dS) the way the dtype's products do: tf32 only. */
void cpu_round_operand(sb_dtype t, float *x, size_t n);

/* Elements [first, first+n) of the array x to fp32 and back, as they are: tf32 is rounded in no way. */
static inline void cpu_read(sb_dtype t, float *out, const void *x, size_t first, size_t n)
{
    cpu_load(t == SB_TF32 ? SB_FP32 : t, out, (const char *)x + first * sb_dtype_bytes(t), n);
}

static inline void cpu_write(sb_dtype t, void *x, size_t first, const float *in, size_t n)
{
    cpu_store(t, (char *)x + first * sb_dtype_bytes(t), in, n);
}

/* Rows of any length pass through fp32 buffers of CPU_BLOCK elements on the stack; how long is the block at `first`? */
enum { CPU_BLOCK = 256 };
static inline int cpu_block(size_t first, size_t end)
{
    return end - first < CPU_BLOCK ? (int)(end - first) : CPU_BLOCK;
}

/* Rows [first, first+n) of head h, batch entry b as contiguous fp32 (n, columns). */
void cpu_load_rows(const sb_attention *a, const sb_tensor *x, int b, int h, int first, int n, int columns, float *out);
void cpu_store_rows(const sb_attention *a, const sb_tensor *x, int b, int h, int first, int n, int columns,
                    const float *in);

/* Row-major C (m,n) = alpha op(A) op(B) + beta C, op transposing where asked; with beta 0 C is not read. */
void cpu_gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
              const float *b, int ldb, float beta, float *c, int ldc);

/* Cuts n floats off a workspace. */
static inline float *cpu_take(float **workspace, size_t n)
{
    float *p = *workspace;
    *workspace += n;
    return p;
}

/* attention_matrix.c: unfused and fused keep the whole P (B, H, Sq, Sk) for backward. */
size_t cpu_matrix_saved_bytes(sb_context *ctx, const sb_attention *a);
size_t cpu_matrix_forward_workspace(sb_context *ctx, const sb_attention *a);
size_t cpu_matrix_backward_workspace(sb_context *ctx, const sb_attention *a);
sb_status cpu_unfused_forward(sb_context *ctx, const sb_attention *a, void *stream);
sb_status cpu_unfused_backward(sb_context *ctx, const sb_attention *a, void *stream);
sb_status cpu_fused_forward(sb_context *ctx, const sb_attention *a, void *stream);
sb_status cpu_fused_backward(sb_context *ctx, const sb_attention *a, void *stream);

/* attention_flash.c */
size_t cpu_flash_saved_bytes(sb_context *ctx, const sb_attention *a);
size_t cpu_flash_forward_workspace(sb_context *ctx, const sb_attention *a);
size_t cpu_flash_backward_workspace(sb_context *ctx, const sb_attention *a);
sb_status cpu_flash_forward(sb_context *ctx, const sb_attention *a, void *stream);
sb_status cpu_flash_backward(sb_context *ctx, const sb_attention *a, void *stream);

/* attention_reference.c */
size_t cpu_reference_workspace(sb_context *ctx, const sb_attention *a, bool backward);
sb_status cpu_reference(sb_context *ctx, const sb_attention *a, const sb_attention_rows *rows, void *stream);
