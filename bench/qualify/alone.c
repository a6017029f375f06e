/* SPDX-License-Identifier: MIT */
/* What a GPU is measured at while the others do nothing; see qualify.h. */
#include "bench/attention/case.h"
#include "bench/qualify/qualify.h"

#include <math.h>
#include <string.h>

/* The same on all GPUs. */
static uint64_t seed_of(const qualify *q)
{
    return (uint64_t)option_int(q->s->opt, "seed");
}

static bool gemm(qualify *q, const bench_case *c, double *value)
{
    const double n = (double)case_int(c, "gemm-size");
    double ms;
    if (!roofline_gemm_time(&q->r, case_text(c, "dtype"), (int)n, seed_of(q), &ms))
        return false;
    *value = 2 * n * n * n / (ms * 1e9);
    return true;
}

static bool copy(qualify *q, const bench_case *c, double *value)
{
    double ms;
    if (!roofline_copy_time(&q->r, false, (size_t)case_int(c, "bytes"), seed_of(q), &ms))
        return false;
    *value = 2 * (double)case_int(c, "bytes") / (ms * 1e6);
    return true;
}

static bool host_copy(qualify *q, const bench_case *c, bool to_device, double *value)
{
    double ms;
    if (!roofline_host_copy_time(&q->r, to_device, (size_t)case_int(c, "bytes"), seed_of(q), &ms))
        return false;
    *value = (double)case_int(c, "bytes") / (ms * 1e6);
    return true;
}

static bool h2d(qualify *q, const bench_case *c, double *value)
{
    return host_copy(q, c, true, value);
}

static bool d2h(qualify *q, const bench_case *c, double *value)
{
    return host_copy(q, c, false, value);
}

static bool launch_kernels(qualify *q, const bench_case *c, double *value)
{
    double ms;
    (void)c;
    if (!roofline_launch_time(&q->r, LAUNCH_QUEUED, &ms))
        return false;
    *value = ms * 1e3;
    return true;
}

/* Causal, one head of 128, in bf16; in fp32 on the CPU. */
static bool flash(qualify *q, const bench_case *c, double *value)
{
    const bool cpu = device_kind_of(q->s->dev) == DEVICE_CPU;
    const sb_attention s = {.batch = 1,
                            .heads = 1,
                            .heads_kv = 1,
                            .seq_q = (int)case_int(c, "seq"),
                            .seq_k = (int)case_int(c, "seq"),
                            .head_dim = 128,
                            .dtype = cpu ? SB_FP32 : SB_BF16,
                            .causal = true};
    const attention_problem p = {.shape = s};
    attention_case ac;
    double ms;
    if (!attention_prepare(&ac, q->s, c, q->r.w, &p) || !attention_time(&ac, ATTENTION_BOTH, &ms) || !isfinite(ms))
        return false;
    *value = (attention_forward_flops(&s) + attention_backward_flops(&s)) / (ms * 1e9);
    return attention_check(&ac);
}

/* A suspect of those measured together. */
static bool gemm_sustained(qualify *q, const bench_case *c, double *value)
{
    const double n = 2 * (double)case_int(c, "gemm-size");
    double ms;
    if (!roofline_gemm_time(&q->r, option_text_at(q->s->opt, "dtype", 0), (int)n, seed_of(q), &ms))
        return false;
    *value = 2 * n * n * n / (ms * 1e9);
    return true;
}

qualify_alone *qualify_alone_of(const char *variant)
{
    static const struct {
        const char *variant;
        qualify_alone *fn;
    } of[] = {{"gemm", gemm},
              {"copy", copy},
              {"h2d", h2d},
              {"d2h", d2h},
              {"flash", flash},
              {"launch", launch_kernels},
              {"gemm-together", gemm_sustained}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strcmp(of[i].variant, variant) == 0)
            return of[i].fn;
    return NULL;
}
