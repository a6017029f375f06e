/* SPDX-License-Identifier: MIT */
/* What the files of bench_mixed_precision share: a row being measured, and small ops on tensors of any dtype. */
#pragma once

#include "common/session/session.h"
#include "kernels/kernels.h"

typedef struct mixed {
    session *s;
    const sb_kernels *kernels;
    sb_context *ctx;
    const bench_case *c; /* of the row being measured */
    row *w;
} mixed;

/* A tensor, or a part of one, in device memory; its rows lie one behind the other. */
typedef struct mixed_tensor {
    void *p;
    sb_dtype dtype;
} mixed_tensor;

/* True for SB_OK; else the row says why not. */
bool mixed_ok(mixed *m, sb_status status);
/* Memory for n elements; p is NULL when there is none, which is left to the session. */
mixed_tensor mixed_new(mixed *m, sb_dtype dtype, size_t n, const char *tag);
/* n elements from and to floats of the host. */
void mixed_upload(mixed *m, mixed_tensor to, const float *from, size_t n);
void mixed_download(mixed *m, float *to, mixed_tensor from, size_t n);
/* out = op(a, b) on (rows, columns); b is {0} where the op has none, a row of numbers with SB_SPREAD_COLUMN. */
bool mixed_point(mixed *m, sb_point op, int rows, int columns, mixed_tensor a, mixed_tensor b, sb_spread spread,
                 float scalar, mixed_tensor out);

/* One experiment each: fills the row of a case. */
void mixed_run_accumulation(mixed *m);
void mixed_run_autocast(mixed *m);
void mixed_run_norm(mixed *m);
void mixed_run_timing(mixed *m);
void mixed_run_float8(mixed *m);

bool mixed_shape_parse(const char *text, int *m, int *n, int *k); /* "4096x4800x1600", multiples of 16 */
/* Ends the program where only float8 was asked for by name, and the device can run none of it. */
void mixed_float8_gate(session *s, const sb_kernels *kernels, sb_context *ctx);
double mixed_float8_estimate(const bench_case *c); /* bytes of device memory */
#define MIXED_VALUES "normal|outlier|rows|heavy|positive"

#define MIXED_PAIRS "fp32+fp32|fp16+fp16|fp32+fp16|fp32+fp16-cast|bf16+bf16|fp32+bf16|fp16-kahan|bf16-kahan"
bool mixed_sum_parse(const char *text, int64_t *terms, double *term); /* "1000x0.01" */

#define MIXED_TENSORS                                                                                                  \
    "fc1.weight|ln.weight|ln.bias|fc2.weight|fc1|relu|ln|logits|loss|fc1.weight.grad|ln.weight.grad|ln.bias.grad|"     \
    "fc2.weight.grad"
