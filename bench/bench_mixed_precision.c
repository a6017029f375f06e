/* SPDX-License-Identifier: MIT */
/* bench_mixed_precision: what does low precision cost in accuracy and gain in speed, and where does autocast stay in
 * fp32?
 *
 * The mixed-precision problems of Stanford's CS336, assignment 2, answered in numbers.
 * Each variant is an experiment with parameters of its own:
 * accumulation: n times x, each sum rounded to its dtype; `stalls_after` = additions after which the sum no longer
 * changes.
 * autocast: the dtype of every tensor of a small model, by the rules of PyTorch's autocast; nothing is computed.
 * norm: RMSNorm and LayerNorm with statistics in several dtypes; err_rel = |y - y_fp64| / |y_fp64|.
 * timing: a transformer's forward, backward and AdamW by precision policy; speedup_* = time of fp32 / time.
 * float8: one product in 8-bit floats or bf16; what casts and sums lose, and how long casts and product take.
 * Expect: 4.0 from a bf16 sum of 1000 x 0.01; statistics of fp16 overflow beyond 255; bf16 gains most in large models.
 * Limits: speedups are over fp32 with matrix products by fused multiply-adds, PyTorch's default; flash multiplies parts. */
#include <stdio.h>

#include "bench/mixed/mixed.h"
#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/verify.h"
#include "common/model/float8.h"
#include "common/core/text.h"

/* ---- what can be asked ---- */

/* y of the products of a layer of xl, 4 sequences of 1024; dw of the widest; a square. */
#define FLOAT8_SHAPES "4096x4800x1600,4096x1600x1600,4096x12800x1600,4096x1600x6400,12800x1600x4096,8192x8192x8192"

static option_spec option_table[] = {
    {"sum", OPTION_TEXT, OPTION_LIST, "1000x0.01,10000x0.001",
     .help = "accumulation: terms x term, at most 1000000 terms"},
    {"pair", OPTION_CHOICE, OPTION_LIST, "all",
     .help = "accumulation: dtype of the sum + that of the addend (-cast: converted first; -kahan: compensated)",
     .choices = MIXED_PAIRS},
    {"dtype", OPTION_CHOICE, OPTION_LIST, "fp32,fp16,bf16",
     .help = "autocast: dtype that it casts to (fp32: off); norm: dtype of x and y", .choices = "fp32|fp16|bf16"},
    {"tensor", OPTION_CHOICE, OPTION_LIST, "all", .help = "autocast: which tensor", .choices = MIXED_TENSORS},
    {"norm", OPTION_CHOICE, OPTION_LIST, "rms,layer", .help = "norm: which norm", .choices = "rms|layer"},
    {"statistics", OPTION_CHOICE, OPTION_LIST, "fp32,own,own-sums",
     .help = "norm: statistics stored in fp32, in the dtype of x (own), or also summed in it (own-sums)",
     .choices = "fp32|own|own-sums"},
    {"width", OPTION_INT, OPTION_LIST, "768,2560,12800", .help = "norm: elements of a row", .def_cpu = "768,2560",
     .min = 1, .max = 131072},
    {"magnitude", OPTION_REAL, OPTION_LIST, "0.001,1,300", .help = "norm: standard deviation of x", .max = 1e30},
    {"eps", OPTION_REAL, OPTION_LIST, "1e-5", .help = "norm: added to the mean of squares", .min = 1e-30, .max = 1},
    {"shape", OPTION_TEXT, OPTION_LIST, FLOAT8_SHAPES,
     .help = "float8: D = A B^T as MxNxK, A (M,K), B (N,K), multiples of 16", .def_cpu = "128x48x256,128x48x1024"},
    {"values", OPTION_CHOICE, OPTION_LIST, "normal",
     .help = "float8: N(0,1); in A a feature 2^14 times larger, rows over 2^16, or N(0,1) exp(2 N(0,1)); or |N(0,1)|",
     .choices = MIXED_VALUES},
    {"product", OPTION_CHOICE, OPTION_LIST, "all",
     .help = "float8: by scaling and sums (fast, else exact); mx only on the CPU", .choices = "bf16|" FLOAT8_PRODUCTS},
    MODEL_OPTIONS("small,medium,large,xl,2.7b", "tiny", "256", "32", "fp32,tf32,fp16,bf16-pure,bf16", "train-step"),
    {"iters", OPTION_INT, 0, "10", .help = "timing: measured steps", .def_cpu = "5", .min = 1, .max = 1000000,
     .unit = "steps"},
    {"warmup", OPTION_INT, 0, "3", .help = "timing: warm-up steps before them", .def_cpu = "1", .max = 1000000,
     .unit = "steps"},
    {"max-time", OPTION_REAL, 0, "5", .help = "timing: end a case early after this time, but not before 3 steps",
     .max = 86400, .unit = "s", .unset = "0: never"},
    {0}};

static const variant_spec variant_table[] = {
    {"accumulation", "the same number added n times, and what remains of it"},
    {"autocast", "dtypes of a small model's tensors under autocast, forward and backward"},
    {"norm", "RMSNorm and LayerNorm with statistics in fp32, fp16 and bf16"},
    {"timing", "forward, backward and AdamW of a transformer, against fp32"},
    {"float8", "products of 8-bit floats: error by values, scaling and sums; time of casts and products, against bf16"},
    {0}};

static const column_spec column_table[] = {
    MEDIAN_COLUMNS("fwd", false, "timing: forward with the loss"),
    MEDIAN_COLUMNS("bwd", false, "timing: backward, with --overlap also AdamW during it"),
    MEDIAN_COLUMNS("opt", false, "timing: AdamW"),
    {"step_ms", COLUMN_REAL, true, "timing: whole step, median"},
    {"step_j", COLUMN_REAL, false, "timing: energy of a step; nan where the measured steps take less than about 0.6 s"},
    {"tokens_per_j", COLUMN_REAL, false, "timing: batch seq / step_j"},
    {"step_p10_ms", COLUMN_REAL, false, "10th percentile"},
    {"step_p90_ms", COLUMN_REAL, false, "90th percentile"},
    {"n_samples", COLUMN_INT, false, "timing: measured steps"},
    {"speedup_fwd", COLUMN_REAL, true, "timing: forward of fp32 / forward"},
    {"speedup_bwd", COLUMN_REAL, true, "timing: the same for the backward"},
    {"speedup_step", COLUMN_REAL, true, "timing: the same for the step"},
    {"peak_bytes", COLUMN_INT, false, "timing: device memory of the step"},
    MODEL_ERROR_COLUMNS,
    {"value", COLUMN_REAL, true, "accumulation: the sum"},
    {"bits", COLUMN_TEXT, false, "accumulation: the sum as it lies in memory"},
    {"exact", COLUMN_REAL, false, "accumulation: terms x term in double"},
    {"err_abs", COLUMN_REAL, false, "accumulation: |value - exact|"},
    {"stalls_after", COLUMN_INT, true,
     "accumulation: additions after which the sum no longer changes; - if it always does"},
    {"tensor_dtype", COLUMN_TEXT, true, "autocast: dtype that the tensor has"},
    {"squares_overflowed", COLUMN_INT, false, "norm: squares that are not finite"},
    {"rows_overflowed", COLUMN_INT, true, "norm: rows, of 64, whose sum or mean of squares is not finite"},
    {"y_nonfinite", COLUMN_INT, false,
     "norm: elements of y that are not finite; row 0 of x is zero, so that eps matters there"},
    {"eps_stored", COLUMN_REAL, false, "norm: 0 + eps in the dtype of the statistics"},
    {"eps_smallest", COLUMN_REAL, false, "norm: the smallest power of ten (down to 1e-37) that is not 0 there"},
    {"err_rel", COLUMN_REAL, true,
     "error relative to double; L2 for tensors, where values that are not finite count as zero; float8: of the product "
     "of the "
     "operands in bf16, of each row, root mean square"},
    {"err_fused", COLUMN_REAL, false, "norm: the same for the fused RMSNorm, whose statistics are fp32"},
    {"err_exact", COLUMN_REAL, true, "float8: the same against its operands as the product reads them, codes or bf16"},
    {"bias_pct", COLUMN_REAL, false,
     "float8: by how much the product is too large along what err_exact refers to; below 0: too small"},
    {"predicted_pct", COLUMN_REAL, false,
     "float8: elements that have every bit which the CPU's model of Hopper's sums predicts"},
    {"underflow_pct", COLUMN_REAL, true, "float8: share of A's elements that are not 0 but whose code is 0"},
    {"saturated", COLUMN_INT, false, "float8: finite elements of A that were cut to the largest value"},
    MEDIAN_COLUMNS("amax", false, "float8: finding A's largest magnitudes, where scales are not of blocks"),
    MEDIAN_COLUMNS("cast", true, "float8: casting A in its own order and transposed"),
    {"cast_gb_s", COLUMN_REAL, false, "float8: 4 bytes an element (one read in 16 bits, two written) / cast_ms"},
    {"cast_copy_pct", COLUMN_REAL, false, "float8: its share of a copy of as many bytes, where K <= N"},
    MEASURED_COLUMNS("product", true, "float8: the product by the tuned algorithm"),
    {"product_tflops", COLUMN_REAL, true, "float8: 2 M N K / product_ms"},
    {"product_peak_pct", COLUMN_REAL, false, "float8: share of the data sheet's dense rate of this dtype"},
    {"speedup_bf16", COLUMN_REAL, true, "float8: product_ms of bf16 in this run, shape and values / product_ms"},
    {"speedup_with_cast", COLUMN_REAL, true,
     "float8: the same over product_ms + cast_ms + amax_ms: A is cast for this product only"},
    {"algorithm", COLUMN_TEXT, false, "float8: what the tuner chose"},
    {0}};

static bool applies(const char *option, const char *variant)
{
    if (text_is(option, "sum") || text_is(option, "pair"))
        return text_is(variant, "accumulation");
    if (text_is(option, "dtype"))
        return text_is(variant, "autocast") || text_is(variant, "norm");
    if (text_is(option, "tensor"))
        return text_is(variant, "autocast");
    if (text_is(option, "shape") || text_is(option, "values") || text_is(option, "product"))
        return text_is(variant, "float8");
    if (text_is(option, "norm") || text_is(option, "statistics") || text_is(option, "width") ||
        text_is(option, "magnitude") || text_is(option, "eps"))
        return text_is(variant, "norm");
    return text_is(variant, "timing");
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    int64_t terms;
    double term;
    for (size_t i = 0; i < option_count(o, "sum"); i++)
        if (!mixed_sum_parse(option_text_at(o, "sum", i), &terms, &term)) {
            snprintf(msg, msg_bytes, "--sum %s is not terms x term with 1 to 1000000 terms, such as 1000x0.01",
                     option_text_at(o, "sum", i));
            return false;
        }
    int m, n, k;
    for (size_t i = 0; i < option_count(o, "shape"); i++)
        if (!mixed_shape_parse(option_text_at(o, "shape", i), &m, &n, &k)) {
            snprintf(msg, msg_bytes,
                     "--shape %s is not MxNxK with multiples of 16 up to 1048576, such as 4096x4800x1600",
                     option_text_at(o, "shape", i));
            return false;
        }
    if (text_is(option_text(o, "l2"), "cold")) {
        snprintf(msg, msg_bytes, "--l2 cold says nothing about a whole step; only warm is allowed");
        return false;
    }
    return model_options_validate(o, msg, msg_bytes);
}

/* Every distribution, and long sums of which fast ones lose what they lose. */
#define FLOAT8_ERRORS "--variant float8 --values all --shape 512x512x1024,512x512x4096,512x512x16384"

/* Every experiment but float8. */
#define OTHERS "--variant accumulation,autocast,norm,timing"

static const bench_run run_table[] = {
    {RUN_QUICK, 1, 11, OTHERS " --size small"},
    {RUN_DEFAULT, 1, 43, OTHERS},
    {RUN_QUICK | RUN_DEFAULT, 1, 18,
     "--variant float8 --shape 4096x12800x1600,8192x8192x8192 --product "
     "bf16,tensor-fast,tensor,row-fast,row,block"},
    /* The twelve products of a layer of xl. */
    {RUN_FULL, 1, 25,
     "--variant float8 --shape 4096x4800x1600,4096x1600x1600,4096x12800x1600,4096x1600x6400 --product "
     "bf16,tensor-fast,block"},
    {RUN_FULL, 1, 68,
     "--variant float8 --shape 4096x1600x4800,4096x1600x1600,4096x1600x12800,4096x6400x1600,4800x1600x4096,"
     "1600x1600x4096,12800x1600x4096,1600x6400x4096 --product bf16,tensor-e5m2,block,block-dw"},
    {RUN_FULL, 1, 140, "--variant float8"},
    {RUN_FULL, 1, 50, FLOAT8_ERRORS " --settle 0"},
    {RUN_FULL, 1, 60, "--variant timing --size large --seq 128,512,1024"},
    {RUN_CPU, 0, 6, ""},
    {RUN_CPU, 0, 3, "--variant float8 --values all --shape 128x48x256"},
    {0}};

static const bench_info info = {
    .name = "bench_mixed_precision",
    .summary = "What does low precision cost in accuracy and gain in speed, and where does autocast stay in fp32?",
    .notes =
        "Each variant is an experiment. --help names the experiment that uses an option; in rows of the others it is\n"
        "empty. accumulation: every addition is an op of its own, and must agree with PyTorch in every bit.\n"
        "autocast: fc1, ReLU, LayerNorm, fc2, cross-entropy, forward and backward; a row is one tensor, and its\n"
        "dtype follows from autocast's rules.\n"
        "norm: 64 rows of N(0, magnitude^2) through the steps of the norm, each stored in the statistics' dtype.\n"
        "timing: --overlap is none by default, so that forward, backward and AdamW are separate. speedup_* are\n"
        "relative to the fp32 row of the same shape, GPU and run, or ./run_all.sh; without one they are nan.\n"
        "float8: D = A B^T with operands in bf16, cast to 8 bits. Casts must equal the CPU's in every bit before they\n"
        "are timed, and the product must match double-precision sums of the codes, and lose what rounding to them "
        "must.",
    .examples = "./bench_mixed_precision\n"
                "./bench_mixed_precision --variant accumulation --sum 1000000x0.1 --pair fp32+fp32,bf16-kahan\n"
                "./bench_mixed_precision --variant norm --dtype fp16 --magnitude 1:256:*2 --eps 1e-5,1e-8\n"
                "./bench_mixed_precision --variant timing --size large --seq 128:1024:*2\n"
                "./bench_mixed_precision --variant float8 --product bf16,tensor-fast,block --shape 8192x8192x8192\n"
                "./bench_mixed_precision " FLOAT8_ERRORS,
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 50,
    .small = "--size tiny --seq 32 --width 768 --shape 128x48x256 --iters 3 --warmup 1",
    .section = "mixed",
    .figures = (const char *const[]){"mixed_norm", "mixed_speedup", "mixed_float8", NULL},
};

static void mixed_run(session *s, const bench_case *c, row *w)
{
    static const struct {
        const char *variant;
        void (*run)(mixed *m);
    } experiments[] = {{"accumulation", mixed_run_accumulation},
                       {"autocast", mixed_run_autocast},
                       {"norm", mixed_run_norm},
                       {"timing", mixed_run_timing},
                       {"float8", mixed_run_float8}};
    const model_bench *b = s->user;
    mixed m = {.s = s, .kernels = b->kernels, .ctx = b->ctx, .c = c, .w = w};
    for (size_t i = 0; i < sizeof experiments / sizeof *experiments; i++)
        if (text_is(experiments[i].variant, case_variant(c)))
            experiments[i].run(&m);
}

static double estimate_bytes(const options *o, const bench_case *c)
{
    return text_is(case_variant(c), "timing")   ? model_case_estimate(o, c)
           : text_is(case_variant(c), "float8") ? mixed_float8_estimate(c)
                                                : 0;
}

static void start(session *s)
{
    model_start(s);
    const model_bench *b = s->user;
    mixed_float8_gate(s, b->kernels, b->ctx);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, mixed_run, model_finish, estimate_bytes};
    for (option_spec *o = option_table; o->name; o++)
        if (text_is(o->name, "overlap"))
            o->def = "none"; /* phases apart */
    return session_main(&info, &hooks, argc, argv);
}
