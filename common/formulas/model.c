/* SPDX-License-Identifier: MIT */
/* FLOPs of a transformer's step and the peaks they are compared with; see model.h. */
#include "common/formulas/model.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

double transformer_tokens(const transformer_shape *s)
{
    return (double)s->batch * (double)s->seq;
}

/* Weights of one block by product. */
static double square_parameters(const transformer_shape *s) /* q, or o */
{
    return s->heads ? (double)s->d_model * (double)s->d_model : 0;
}

static double kv_parameters(const transformer_shape *s) /* k and v */
{
    return s->heads ? 2.0 * (double)s->d_model * (double)(s->d_model / s->heads * s->heads_kv) : 0;
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
    double full = s->heads ? 2.0 * (double)s->seq * (double)s->d_model * transformer_tokens(s) : 0;
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

/* Names begin so, and go on with no letter or digit. The first match counts, so what is special stands before its family: the PCIe
 * card before the SXM module, the laptop's chip before the desktop's. All rates are dense. GeForce rates are those with fp32
 * sums. A V100 is missing because no program here runs on it: it has neither bf16 nor tf32. */
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
    /* NVIDIA GH200 Grace Hopper Superchip data sheet: the H100's rates, with 96 GB of HBM3 or 144 GB of HBM3e. */
    {"NVIDIA GH200 144G HBM3e", 1978.9, 989.4, 494.7, 66.9, 4900},
    {"NVIDIA GH200 480GB", 1978.9, 989.4, 494.7, 66.9, 4000},
    /* NVIDIA H800 data sheet: an H100 with slower links and little fp64. */
    {"NVIDIA H800 PCIe", 1513, 756, 378, 51.2, 2000},
    {"NVIDIA H800", 1978.9, 989.4, 494.7, 66.9, 3350},
    /* NVIDIA H20 data sheet; the 141 GB version has the H200's memory. */
    {"NVIDIA H20-3e", 296, 148, 74, 44, 4800},
    {"NVIDIA H20", 296, 148, 74, 44, 4000},
    /* NVIDIA HGX B200 data sheet: an eighth of eight GPUs, whose rates with sparsity are twice these. */
    {"NVIDIA B200", 4500, 2250, 1125, 75, 8000},
    /* NVIDIA GB200 NVL72 data sheet: a seventy-second of the rack, the same. */
    {"NVIDIA GB200", 5000, 2500, 1250, 80, 8000},
    /* NVIDIA L40S data sheet. */
    {"NVIDIA L40S", 733, 362, 183, 91.6, 864},
    /* NVIDIA Ada GPU Architecture, white paper, appendix on AD102. The chips of these two others are smaller. */
    {"NVIDIA GeForce RTX 4090 D", NAN, NAN, NAN, NAN, NAN},
    {"NVIDIA GeForce RTX 4090 Laptop GPU", NAN, NAN, NAN, NAN, NAN},
    {"NVIDIA GeForce RTX 4090", 330.3, 165.2, 82.6, 82.6, 1008},
    /* NVIDIA RTX Blackwell GPU Architecture, white paper, appendix on GB202. */
    {"NVIDIA GeForce RTX 5090 D", NAN, NAN, NAN, NAN, NAN},
    {"NVIDIA GeForce RTX 5090 Laptop GPU", NAN, NAN, NAN, NAN, NAN},
    {"NVIDIA GeForce RTX 5090", 419, 209.5, 104.8, 104.8, 1792},
    /* NVIDIA Ampere GA102 GPU Architecture, white paper, appendix on the RTX A6000, which has no fp8. */
    {"NVIDIA RTX A6000", NAN, 154.8, 77.4, 38.7, 768},
    /* NVIDIA A100 Tensor Core GPU data sheet: the same for SXM and PCIe, but for the memory. */
    {"NVIDIA A100", NAN, 312, 156, 19.5, NAN},
};

static const struct peak *peak_of(const char *gpu)
{
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        const size_t length = strlen(peaks[i].gpu);
        if (strncmp(gpu, peaks[i].gpu, length) == 0 && !isalnum((unsigned char)gpu[length]))
            return &peaks[i];
    }
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
