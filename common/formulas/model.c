/* SPDX-License-Identifier: MIT */
/* FLOPs of a transformer's step and the peaks they are compared with; see model.h. */
#include "common/formulas/model.h"

#include <math.h>
#include <string.h>

double transformer_tokens(const transformer_shape *s)
{
    return (double)s->batch * (double)s->seq;
}

/* Weights of one block by product. */
static double square_parameters(const transformer_shape *s) /* q, or o */
{
    return (double)s->d_model * (double)s->d_model;
}

static double kv_parameters(const transformer_shape *s) /* k and v */
{
    return 2.0 * (double)s->d_model * (double)(s->d_model / s->heads * s->heads_kv);
}

static double mlp_parameters(const transformer_shape *s) /* gate, or up, or w2 */
{
    return (double)s->d_model * (double)s->d_ff;
}

double transformer_matmul_parameters(const transformer_shape *s)
{
    double block = 2 * square_parameters(s) + kv_parameters(s) + 3 * mlp_parameters(s);
    return (double)s->layers * block + (double)s->vocab * (double)s->d_model;
}

/* Q K^T of one block: 2 S d for each token, or half of it. P V costs the same. */
static double score_flops(const transformer_shape *s, flops_convention c)
{
    double full = 2.0 * (double)s->seq * (double)s->d_model * transformer_tokens(s);
    return c == FLOPS_CAUSAL ? full / 2 : full;
}

double transformer_forward_flops(const transformer_shape *s, flops_convention c)
{
    return 2 * transformer_matmul_parameters(s) * transformer_tokens(s) + 2 * (double)s->layers * score_flops(s, c);
}

double transformer_step_flops(const transformer_shape *s, flops_convention c)
{
    return 3 * transformer_forward_flops(s, c);
}

double transformer_repeated_flops(const transformer_shape *s, transformer_repeats r, flops_convention c)
{
    double weights = (double)r.qkv * (square_parameters(s) + kv_parameters(s)) + (double)r.o * square_parameters(s) +
                     (double)(2 * r.gate_up + r.w2) * mlp_parameters(s);
    return 2 * weights * transformer_tokens(s) + (double)(2 * r.attention + r.scores) * score_flops(s, c);
}

/* Names begin so. The first match counts, so the PCIe card stands before the SXM module of the same family. */
static const struct peak {
    const char *gpu;
    double fp8, half, tf32, fp32; /* half: bf16 and fp16 */
    double gb_s;                  /* of the memory */
} peaks[] = {
    /* NVIDIA H100 Tensor Core GPU Architecture, white paper, table of peak rates without sparsity. */
    {"NVIDIA H100 PCIe", 1513, 756, 378, 51.2, 2000},
    {"NVIDIA H100 80GB HBM3", 1978.9, 989.4, 494.7, 66.9, 3350},
    /* NVIDIA H200 data sheet: the rates of the H100 SXM, whose chip it has. Those of the NVL card are others. */
    {"NVIDIA H200 NVL", NAN, NAN, NAN, NAN, 4800},
    {"NVIDIA H200", 1978.9, 989.4, 494.7, 66.9, 4800},
    /* NVIDIA A100 Tensor Core GPU data sheet: the same for SXM and PCIe, but for the memory. */
    {"NVIDIA A100", NAN, 312, 156, 19.5, NAN},
};

static const struct peak *peak_of(const char *gpu)
{
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
        if (strncmp(gpu, peaks[i].gpu, strlen(peaks[i].gpu)) == 0)
            return &peaks[i];
    return NULL;
}

double peak_tflops(const char *gpu, const char *dtype)
{
    const struct peak *p = peak_of(gpu);
    if (!p)
        return NAN;
    if (strcmp(dtype, "fp8") == 0)
        return p->fp8;
    if (strcmp(dtype, "bf16") == 0 || strcmp(dtype, "fp16") == 0)
        return p->half;
    if (strcmp(dtype, "fp16x3") == 0 || strcmp(dtype, "bf16x3") == 0)
        return p->half / 3;
    if (strcmp(dtype, "bf16x6") == 0)
        return p->half / 6;
    return strcmp(dtype, "tf32") == 0 ? p->tf32 : strcmp(dtype, "fp32") == 0 ? p->fp32 : NAN;
}

double peak_gb_s(const char *gpu)
{
    const struct peak *p = peak_of(gpu);
    return p ? p->gb_s : NAN;
}

double transformer_peak_tflops(const transformer_shape *s, double products, double attention)
{
    const double all = transformer_forward_flops(s, FLOPS_CAUSAL);
    const double share = 2 * (double)s->layers * score_flops(s, FLOPS_CAUSAL) / all;
    return 1 / ((1 - share) / products + share / attention);
}
