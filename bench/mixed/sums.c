/* SPDX-License-Identifier: MIT */
/* The mixed_precision_accumulation problem: the same number added n times, with the sum and the addend in several
 * dtypes. Every addition is an op of its own on one-element tensors, as `s += x` is in an eager framework, so that the
 * sum is rounded to its dtype each time. Step i reads element i of a trace and writes element i + 1, and the whole
 * trace is read back.
 *
 * Every sum of the trace must have every bit of the host's, and the last one those of PyTorch's where it is known. */
#include "bench/mixed/mixed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/model/dtypes.h"

enum { STEP_BYTES = 16, TERMS_MAX = 1000000 }; /* elements of the trace lie aligned, as the ops want them */

typedef struct pair {
    const char *name;
    sb_dtype sum, addend;
    bool convert; /* the addend goes through a conversion of its own before each addition */
    bool kahan;   /* what an addition lost is taken off the next addend */
} pair;

static const pair *pair_of(const bench_case *c)
{
    static const pair pairs[] = {{.name = "fp32+fp32", .sum = SB_FP32, .addend = SB_FP32},
                                 {.name = "fp16+fp16", .sum = SB_FP16, .addend = SB_FP16},
                                 {.name = "fp32+fp16", .sum = SB_FP32, .addend = SB_FP16},
                                 {.name = "fp32+fp16-cast", .sum = SB_FP32, .addend = SB_FP16, .convert = true},
                                 {.name = "bf16+bf16", .sum = SB_BF16, .addend = SB_BF16},
                                 {.name = "fp32+bf16", .sum = SB_FP32, .addend = SB_BF16},
                                 {.name = "fp16-kahan", .sum = SB_FP16, .addend = SB_FP16, .kahan = true},
                                 {.name = "bf16-kahan", .sum = SB_BF16, .addend = SB_BF16, .kahan = true},
                                 {0}};
    const pair *p = pairs;
    while (strcmp(p->name, case_text(c, "pair")) != 0) /* the option allows no other */
        p++;
    return p;
}

/* What PyTorch gives, as the write-ups of the course print it (results/published/accumulation.csv). */
static const struct published {
    const char *pair;
    int64_t terms;
    double term, sum;
} published[] = {
    {"fp32+fp32", 1000, 0.01, 10.000133514404297},
    {"fp16+fp16", 1000, 0.01, 9.953125},
    {"fp32+fp16", 1000, 0.01, 10.00213623046875},
    {"fp32+fp16-cast", 1000, 0.01, 10.00213623046875},
    {"bf16+bf16", 1000, 0.01, 4.0},
    {"fp32+bf16", 1000, 0.01, 10.009765625},
    {"fp32+fp32", 10000, 0.001, 10.000411033630371},
    {"fp16+fp16", 10000, 0.001, 4.0},
    {"bf16+bf16", 10000, 0.001, 0.5},
};

bool mixed_sum_parse(const char *text, int64_t *terms, double *term)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end != 'x' || n < 1 || n > TERMS_MAX)
        return false;
    const char *number = end + 1;
    double x = strtod(number, &end);
    if (end == number || *end || !isfinite(x))
        return false;
    *terms = n;
    *term = x;
    return true;
}

/* ---- on the device ---- */

typedef struct summation {
    mixed *m;
    const pair *p;
    int64_t terms;
    mixed_tensor trace;                     /* (terms + 1) elements STEP_BYTES apart: the sum after each addition */
    mixed_tensor addend, wide;              /* one element each: as stored, and converted to the sum's dtype */
    mixed_tensor corrected, lost, received; /* Kahan's: y = x - c, and c = (t - s) - y in two steps */
} summation;

static mixed_tensor step_of(const summation *u, int64_t i)
{
    return (mixed_tensor){(char *)u->trace.p + i * STEP_BYTES, u->trace.dtype};
}

static bool one(summation *u, sb_point op, mixed_tensor a, mixed_tensor b, mixed_tensor out)
{
    return mixed_point(u->m, op, 1, 1, a, b, SB_SPREAD_FULL, 0, out);
}

static const mixed_tensor none = {0};

static bool add_once(summation *u, int64_t i)
{
    mixed_tensor s = step_of(u, i), t = step_of(u, i + 1);
    if (u->p->kahan)
        return one(u, SB_POINT_SUB, u->addend, u->lost, u->corrected) && one(u, SB_POINT_ADD, s, u->corrected, t) &&
               one(u, SB_POINT_SUB, t, s, u->received) && one(u, SB_POINT_SUB, u->received, u->corrected, u->lost);
    if (u->p->convert)
        return one(u, SB_POINT_COPY, u->addend, none, u->wide) && one(u, SB_POINT_ADD, s, u->wide, t);
    return one(u, SB_POINT_ADD, s, u->addend, t);
}

static bool allocate(summation *u)
{
    sb_dtype sum = u->p->sum;
    size_t one_step = STEP_BYTES / (size_t)sb_dtype_bytes(sum);
    u->trace = mixed_new(u->m, sum, (size_t)(u->terms + 1) * one_step, "trace");
    u->addend = mixed_new(u->m, u->p->addend, 1, "addend");
    u->wide = mixed_new(u->m, sum, 1, "addend");
    u->corrected = mixed_new(u->m, sum, 1, "addend");
    u->lost = mixed_new(u->m, sum, 1, "addend");
    u->received = mixed_new(u->m, sum, 1, "addend");
    return u->trace.p && u->addend.p && u->wide.p && u->corrected.p && u->lost.p && u->received.p;
}

/* Runs all additions; out has terms + 1 sums. The addend is rounded to its dtype by the device. */
static bool sum_on_device(summation *u, float term, float *out)
{
    device *d = u->m->s->dev;
    if (!allocate(u))
        return false;
    size_t bytes = (size_t)(u->terms + 1) * STEP_BYTES;
    device_memset(d, u->trace.p, 0, STEP_BYTES);
    device_memset(d, u->lost.p, 0, (size_t)sb_dtype_bytes(u->p->sum));
    mixed_tensor exact = mixed_new(u->m, SB_FP32, 1, "addend");
    if (!exact.p)
        return false;
    device_upload(d, exact.p, &term, sizeof term);
    bool ok = one(u, SB_POINT_COPY, exact, none, u->addend);
    for (int64_t i = 0; ok && i < u->terms; i++)
        ok = add_once(u, i);
    if (!ok)
        return false;
    OWNED char *raw = xmalloc(bytes);
    device_download(d, raw, u->trace.p, bytes);
    for (int64_t i = 0; i <= u->terms; i++)
        dtype_load(u->p->sum, out + i, raw + i * STEP_BYTES, 1);
    return true;
}

/* ---- on the host ---- */

/* out has terms + 1 sums. */
static void sum_on_host(const pair *p, int64_t terms, float term, float *out)
{
    float x = dtype_round(p->addend, term), lost = 0;
    out[0] = 0;
    for (int64_t i = 0; i < terms; i++) {
        float s = out[i], corrected = p->kahan ? dtype_round(p->sum, x - lost) : x;
        out[i + 1] = dtype_round(p->sum, s + corrected);
        lost = p->kahan ? dtype_round(p->sum, dtype_round(p->sum, out[i + 1] - s) - corrected) : 0;
    }
}

static void bits_of(sb_dtype dtype, float x, char *out, size_t out_bytes)
{
    uint32_t wide = 0;
    dtype_store(dtype, &wide, &x, 1); /* little-endian: a 16-bit number fills the lower half */
    snprintf(out, out_bytes, "0x%0*" PRIx32, 2 * sb_dtype_bytes(dtype), wide);
}

static void verify(const summation *u, double term, const float *got)
{
    row *w = u->m->w;
    float *want = xmalloc((size_t)(u->terms + 1) * sizeof *want);
    sum_on_host(u->p, u->terms, (float)term, want);
    int64_t i = 0;
    while (i <= u->terms && memcmp(&got[i], &want[i], sizeof *got) == 0)
        i++;
    if (i <= u->terms)
        row_status_set(w, ROW_FAIL, "after %" PRId64 " additions the device's sum is %.9g, the host's %.9g", i, got[i],
                       want[i]);
    free(want);
    for (size_t k = 0; k < sizeof published / sizeof *published; k++) {
        const struct published *known = &published[k];
        if (strcmp(known->pair, u->p->name) == 0 && known->terms == u->terms && known->term == term &&
            got[u->terms] != known->sum)
            row_status_set(w, ROW_FAIL, "the sum is %.9g, PyTorch's %.17g", got[u->terms], known->sum);
    }
}

void mixed_run_accumulation(mixed *m)
{
    double term;
    summation u = {.m = m, .p = pair_of(m->c)};
    if (!mixed_sum_parse(case_text(m->c, "sum"), &u.terms, &term))
        die(EXIT_CODE_FAILURE, "bug: --sum %s was not refused", case_text(m->c, "sum"));
    OWNED float *sums = xmalloc((size_t)(u.terms + 1) * sizeof *sums);
    if (sum_on_device(&u, (float)term, sums)) {
        char bits[16];
        float sum = sums[u.terms];
        double exact = (double)u.terms * term, error = fabs(sum - exact);
        bits_of(u.p->sum, sum, bits, sizeof bits);
        row_real(m->w, "value", sum);
        row_text(m->w, "bits", bits);
        row_real(m->w, "exact", exact);
        row_real(m->w, "err_abs", error);
        row_real(m->w, "err_rel", error / fabs(exact));
        int64_t i = 0;
        while (i < u.terms && sums[i + 1] != sums[i])
            i++;
        if (i < u.terms && !u.p->kahan) /* a sum that stood still once does so for ever */
            row_int(m->w, "stalls_after", i);
        if (option_flag(m->s->opt, "check"))
            verify(&u, term, sums);
    }
}
