/* SPDX-License-Identifier: MIT */
/* FLOPs and bytes of a transformer's training step: what MFU and HFU are computed from. The model is that of
 * common/model/config.h: four attention matrices, a SwiGLU of three, an untied head, no biases; d is d_model, kv is
 * heads_kv times head_dim, F d_ff, L layers, V vocab, S seq and T = batch S tokens.
 *
 * Two conventions are in use for attention. `full` counts every pair of tokens, as PaLM (Chowdhery et al., 2022,
 * appendix B) and torchtitan do; `causal` counts the half that the mask leaves, as Megatron-LM and llm.c do. Neither
 * counts norms, RoPE, SwiGLU's pointwise part, softmax, the embedding's look-up or the optimizer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct transformer_shape {
    int64_t vocab, d_model, d_ff, layers, heads, heads_kv, batch, seq; /* no heads: no attention */
} transformer_shape;

typedef enum flops_convention { FLOPS_CAUSAL, FLOPS_FULL } flops_convention;

/* What backward computes a second time, for the hardware's FLOPs: in how many blocks each product is made again. Norms,
 * RoPE and pointwise parts cost none. */
typedef struct transformer_repeats {
    int64_t qkv, attention, o, gate_up, w2;
    int64_t scores; /* Q K^T alone, which backward of FlashAttention makes again instead of keeping the matrix */
} transformer_repeats;

double transformer_tokens(const transformer_shape *s); /* T */
/* N = L (2 d^2 + 2 d kv + 3 d F) + V d: those that multiply each token; no norms, no embedding. */
double transformer_matmul_parameters(const transformer_shape *s);
/* Forward and backward: 6 N T + 12 L S d T full, 6 N T + 6 L S d T causal; forward alone is a third. */
double transformer_step_flops(const transformer_shape *s, flops_convention c);
double transformer_forward_flops(const transformer_shape *s, flops_convention c);
/* To be added for HFU: 2 T for each weight of a product that is made again; for attention 4 S d T a block (half of it
 * when causal), for Q K^T alone half of that. */
double transformer_repeated_flops(const transformer_shape *s, transformer_repeats r, flops_convention c);

/* Dense peak of a GPU by the data sheet, in TFLOP/s. `gpu` is the name that the driver gives; `dtype` is that of the
 * products: "fp8", "bf16", "fp16", "tf32", "fp32" (without tensor cores), or a third or sixth of 16 bits for fp32 products that are three
 * ("fp16x3", "bf16x3") or six ("bf16x6") of 16-bit parts. NAN where it is not known: never a guess. */
double peak_tflops(const char *gpu, const char *dtype);
/* Bandwidth of its memory by the data sheet, in GB/s, reads and writes together; NAN where it is not known. */
double peak_gb_s(const char *gpu);
/* The peak of a step whose matrix products and whose attention have different ones: its operations over the time they take at
 * these, the mask's half of attention left out. */
double transformer_peak_tflops(const transformer_shape *s, double products, double attention);
