/* SPDX-License-Identifier: MIT */
/* The benchmarking_mixed_precision problem, part (a): which tensors of a small model have which dtype under autocast?
 * The model is the course's: fc1 (no bias), ReLU, LayerNorm, fc2 (no bias), here followed by cross-entropy, forward
 * and backward by the engine of common/model/autocast.h. Dtypes are read off the tensors that ran. Their values are
 * compared with the same model in double on the host. */
#include "bench/mixed/mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/model/autocast.h"
#include "common/model/dtypes.h"

enum { ROWS = 64, IN = 32, HIDDEN = 10, OUT = 16, LARGEST = ROWS * IN };
static const float eps = 1e-5f;

typedef enum part {
    FC1_WEIGHT,
    LN_WEIGHT,
    LN_BIAS,
    FC2_WEIGHT,
    FC1,
    RELU,
    LN,
    LOGITS,
    LOSS,
    PARTS,
    FIRST_GRAD = PARTS, /* the gradients of the four parameters follow */
    LINES = FIRST_GRAD + 4
} part;
static const int part_rows[PARTS] = {HIDDEN, 1, 1, OUT, ROWS, ROWS, ROWS, ROWS, 1};
static const int part_columns[PARTS] = {IN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, OUT, 1};

static size_t part_size(int line)
{
    int p = line < FIRST_GRAD ? line : line - FIRST_GRAD;
    return (size_t)part_rows[p] * (size_t)part_columns[p];
}

typedef struct toy { /* inputs of the model, and its parameters */
    float x[ROWS * IN];
    int32_t targets[ROWS];
    float param[4][OUT * IN];
} toy;

static toy *toy_create(uint64_t seed)
{
    toy *t = xcalloc(1, sizeof *t);
    rng_normal(t->x, ROWS * IN, seed, 0, 0, 1);
    rng_normal(t->param[FC1_WEIGHT], HIDDEN * IN, seed, 1, 0, 1 / sqrtf(IN));
    rng_normal(t->param[LN_WEIGHT], HIDDEN, seed, 2, 0, 0.2f);
    rng_normal(t->param[LN_BIAS], HIDDEN, seed, 3, 0, 0.2f);
    rng_normal(t->param[FC2_WEIGHT], OUT * HIDDEN, seed, 4, 0, 1 / sqrtf(HIDDEN));
    for (int j = 0; j < HIDDEN; j++)
        t->param[LN_WEIGHT][j] += 1;
    for (int i = 0; i < ROWS; i++)
        t->targets[i] = (int32_t)(rng_uniform(seed, 5, (uint64_t)i) * OUT);
    return t;
}

/* ---- the same in double ---- */

typedef struct reference {
    double value[LINES][LARGEST];
    double xhat[ROWS * HIDDEN], rstd[ROWS];
} reference;

static void reference_norm(reference *r, int i)
{
    const double *x = r->value[RELU] + i * HIDDEN;
    double mean = 0, variance = 0;
    for (int j = 0; j < HIDDEN; j++)
        mean += x[j] / HIDDEN;
    for (int j = 0; j < HIDDEN; j++)
        variance += (x[j] - mean) * (x[j] - mean) / HIDDEN;
    r->rstd[i] = 1 / sqrt(variance + (double)eps);
    for (int j = 0; j < HIDDEN; j++) {
        r->xhat[i * HIDDEN + j] = (x[j] - mean) * r->rstd[i];
        r->value[LN][i * HIDDEN + j] = r->xhat[i * HIDDEN + j] * r->value[LN_WEIGHT][j] + r->value[LN_BIAS][j];
    }
}

/* Y = X W^T */
static void reference_linear(const double *x, const double *w, int in, int out, double *y)
{
    for (int i = 0; i < ROWS; i++)
        for (int o = 0; o < out; o++) {
            double sum = 0;
            for (int k = 0; k < in; k++)
                sum += x[i * in + k] * w[o * in + k];
            y[i * out + o] = sum;
        }
}

/* The loss, and its gradient by the logits. */
static double reference_loss(const double *logits, const int32_t *targets, double *d_logits)
{
    double loss = 0;
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int o = 0; o < OUT; o++)
            sum += exp(logits[i * OUT + o]);
        loss += (log(sum) - logits[i * OUT + targets[i]]) / ROWS;
        for (int o = 0; o < OUT; o++)
            d_logits[i * OUT + o] = (exp(logits[i * OUT + o]) / sum - (o == targets[i])) / ROWS;
    }
    return loss;
}

/* `passed` is where the device's ReLU let values through: near zero, rounding decides that, and a gradient of the
 * other side would be no error of the arithmetic. */
static void reference_backward(reference *r, const toy *t, const double *x, const double *d_logits, const bool *passed)
{
    for (int i = 0; i < ROWS; i++) {
        double dy[HIDDEN] = {0}, mean = 0, mean_x = 0;
        const double *xhat = r->xhat + i * HIDDEN;
        for (int j = 0; j < HIDDEN; j++) {
            for (int o = 0; o < OUT; o++) {
                dy[j] += d_logits[i * OUT + o] * r->value[FC2_WEIGHT][o * HIDDEN + j];
                r->value[FIRST_GRAD + FC2_WEIGHT][o * HIDDEN + j] +=
                    d_logits[i * OUT + o] * r->value[LN][i * HIDDEN + j];
            }
            r->value[FIRST_GRAD + LN_WEIGHT][j] += dy[j] * xhat[j];
            r->value[FIRST_GRAD + LN_BIAS][j] += dy[j];
            mean += dy[j] * t->param[LN_WEIGHT][j] / HIDDEN;
            mean_x += dy[j] * t->param[LN_WEIGHT][j] * xhat[j] / HIDDEN;
        }
        for (int j = 0; j < HIDDEN; j++) {
            double dx = r->rstd[i] * (dy[j] * t->param[LN_WEIGHT][j] - mean - xhat[j] * mean_x);
            for (int k = 0; passed[i * HIDDEN + j] && k < IN; k++)
                r->value[FIRST_GRAD + FC1_WEIGHT][j * IN + k] += dx * x[i * IN + k];
        }
    }
}

/* relu: (ROWS, HIDDEN), as the device gave it. */
static reference *reference_create(const toy *t, const float *relu)
{
    reference *r = xcalloc(1, sizeof *r);
    double x[ROWS * IN], d_logits[ROWS * OUT];
    bool passed[ROWS * HIDDEN];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = t->x[i];
    for (int p = FC1_WEIGHT; p <= FC2_WEIGHT; p++)
        for (size_t i = 0; i < part_size(p); i++)
            r->value[p][i] = t->param[p][i];
    reference_linear(x, r->value[FC1_WEIGHT], IN, HIDDEN, r->value[FC1]);
    for (int i = 0; i < ROWS * HIDDEN; i++) {
        double z = r->value[FC1][i];
        r->value[RELU][i] = z > 0 ? z : 0;
        passed[i] = fabs(z) < 0.02 ? relu[i] > 0 : z > 0; /* |z| is 1 on average, and bf16 is good to 0.004 */
    }
    for (int i = 0; i < ROWS; i++)
        reference_norm(r, i);
    reference_linear(r->value[LN], r->value[FC2_WEIGHT], HIDDEN, OUT, r->value[LOGITS]);
    r->value[LOSS][0] = reference_loss(r->value[LOGITS], t->targets, d_logits);
    reference_backward(r, t, x, d_logits, passed);
    return r;
}

/* ---- on the device ---- */

/* What a run under one dtype of autocast gave: every line of the experiment. */
typedef struct outcome {
    bool known;
    sb_status status;
    sb_dtype dtype[LINES];
    double error[LINES]; /* relative L2 */
    bool right[LINES];
    char why[LINES][256];
} outcome;

static void outcome_note(outcome *o, int line, const double *want, const float *got, double bound)
{
    double values[LARGEST];
    size_t n = part_size(line);
    for (size_t i = 0; i < n; i++)
        values[i] = got[i];
    check_bound b = {.rel_l2 = bound, .rel_row = 1, .max_abs = 1};
    check_result result = check_compare(want, values, n, n, b);
    o->error[line] = result.rel_l2;
    o->right[line] = result.ok;
    check_describe(&result, b, o->why[line], sizeof o->why[line]);
}

/* Forward and backward; parts[] are the tensors by name. False when an op failed. */
static bool model_run(autocast *a, const toy *t, autocast_tensor **parts)
{
    static const char *const names[] = {"fc1.weight", "ln.weight", "ln.bias", "fc2.weight"};
    for (int p = FC1_WEIGHT; p <= FC2_WEIGHT; p++)
        parts[p] = autocast_parameter(a, names[p], part_rows[p], part_columns[p], t->param[p]);
    autocast_tensor *x = autocast_input(a, "x", ROWS, IN, t->x);
    parts[FC1] = autocast_linear(a, "fc1", x, parts[FC1_WEIGHT]);
    parts[RELU] = autocast_relu(a, "relu", parts[FC1]);
    parts[LN] = autocast_layer_norm(a, "ln", parts[RELU], parts[LN_WEIGHT], parts[LN_BIAS], eps);
    parts[LOGITS] = autocast_linear(a, "logits", parts[LN], parts[FC2_WEIGHT]);
    parts[LOSS] = autocast_cross_entropy(a, "loss", parts[LOGITS], t->targets);
    return autocast_backward(a, parts[LOSS], 1);
}

/* Errors of a few units of the dtype's rounding; fp32 sums of fp32 products behave like their square root. */
static double bound_of(sb_dtype low)
{
    return low == SB_BF16 ? 2e-2 : low == SB_FP16 ? 3e-3 : 1e-5;
}

static void outcome_fill(outcome *o, autocast *a, autocast_tensor *const *parts, const toy *t, sb_dtype low)
{
    float values[LARGEST];
    autocast_read(a, parts[RELU], values);
    reference *r = reference_create(t, values);
    for (int line = 0; line < LINES; line++) {
        const autocast_tensor *tensor = parts[line < FIRST_GRAD ? line : line - FIRST_GRAD];
        o->dtype[line] = tensor->dtype; /* a gradient has its tensor's */
        if (line < FIRST_GRAD)
            autocast_read(a, tensor, values);
        else
            autocast_read_grad(a, tensor, values);
        outcome_note(o, line, r->value[line], values, bound_of(low));
    }
    free(r);
}

static const outcome *outcome_of(mixed *m, sb_dtype low)
{
    static outcome outcomes[SB_FP32 + 1];
    outcome *o = &outcomes[low];
    if (o->known)
        return o;
    session *s = m->s;
    autocast_tensor *parts[PARTS];
    toy *t = toy_create(rng_hash((uint64_t)option_int(s->opt, "seed"), "autocast"));
    autocast *a = autocast_create(s->dev, s->mem, m->kernels, m->ctx, low);
    if (model_run(a, t, parts))
        outcome_fill(o, a, parts, t, low);
    o->status = autocast_status(a);
    o->known = o->status == SB_OK; /* a failure is tried again, so that each row has its message */
    autocast_free(a);
    free(t);
    return o;
}

/* What PyTorch's autocast gives: linear layers run in the low dtype, the norm and the loss in fp32, and parameters and
 * their gradients stay as they are. */
static sb_dtype expected_dtype(int line, sb_dtype low)
{
    return line == FC1 || line == RELU || line == LOGITS ? low : SB_FP32;
}

static int line_of(const char *name)
{
    static const char *const lines[LINES] = {
        "fc1.weight", "ln.weight", "ln.bias",         "fc2.weight",     "fc1",          "relu",           "ln",
        "logits",     "loss",      "fc1.weight.grad", "ln.weight.grad", "ln.bias.grad", "fc2.weight.grad"};
    int line = 0;
    while (strcmp(lines[line], name) != 0) /* the option allows no other */
        line++;
    return line;
}

void mixed_run_autocast(mixed *m)
{
    sb_dtype low;
    if (!dtype_find(case_text(m->c, "dtype"), &low))
        die(EXIT_CODE_FAILURE, "bug: there is no dtype %s", case_text(m->c, "dtype"));
    const outcome *o = outcome_of(m, low);
    if (!mixed_ok(m, o->status))
        return;
    int line = line_of(case_text(m->c, "tensor"));
    sb_dtype expected = expected_dtype(line, low);
    row_text(m->w, "tensor_dtype", dtype_name(o->dtype[line]));
    row_text(m->w, "expected_dtype", dtype_name(expected));
    row_real(m->w, "err_rel", o->error[line]);
    if (o->dtype[line] != expected)
        row_status_set(m->w, ROW_FAIL, "%s is %s under autocast to %s, not %s", case_text(m->c, "tensor"),
                       dtype_name(o->dtype[line]), dtype_name(low), dtype_name(expected));
    else if (option_flag(m->s->opt, "check") && !o->right[line])
        row_status_set(m->w, ROW_FAIL, "wrong values of %s: %s", case_text(m->c, "tensor"), o->why[line]);
}
