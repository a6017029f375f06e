/* SPDX-License-Identifier: MIT */
/* bench_attention: what does attention cost if it is written naively, and how much of that does fusion save?
 *
 * The `pytorch_attention` problem of Stanford's CS336, assignment 2: batch 8, one head, 100 forward and 100 backward
 * passes over a grid of sequence lengths and head dimensions, and the memory held before the backward.
 *
 * One row is one (dtype, head_dim, seq, variant): times are medians, peak_bytes and mem_before_bwd_bytes are for one
 * forward and backward. mem_over_s2 = saved bytes / (B H S^2): bytes kept per score, 0 when no S x S matrix is kept.
 * fwd_tflops = 4 B H S^2 D (halved when causal) / time; backward counts 2.5 times that.
 * Expect: memory and time of unfused grow with S^2; fused saves memory traffic, not memory; flash keeps memory linear
 * in S. Limits: one head, no dropout, no mask but the causal one. */
#include <math.h>

#include "bench/attention/case.h"
#include "common/model/dtypes.h"

static const option_spec option_table[] = {
    {"batch", OPTION_INT, OPTION_LIST, "8", .help = "batch size", .def_cpu = "2", .min = 1, .max = 4096,
     .unit = "sequences"},
    {"causal", OPTION_FLAG, OPTION_LIST, "1", .help = "mask keys after the query"},
    {"dtype", OPTION_CHOICE, OPTION_LIST, "fp32",
     .help = "precision; the course uses fp32; bf16x3: fp32 with products of bf16 parts, only for flash",
     .choices = "bf16|fp16|tf32|fp32|bf16x3"},
    {"head-dim", OPTION_INT, OPTION_LIST, "16,32,64,128", .help = "columns of q, k and v", .def_cpu = "16,64", .min = 1,
     .max = 1024},
    {"seq", OPTION_INT, OPTION_LIST, "256,1024,4096,8192,16384", .help = "sequence length", .def_cpu = "128,256,512",
     .min = 1, .max = 1048576, .unit = "tokens"},
    {"iters", OPTION_INT, 0, "100", .help = "timed passes of each kind", .def_cpu = "5", .min = 1, .max = 1000000,
     .unit = "samples"},
    {"warmup", OPTION_INT, 0, "5", .help = "warm-up passes before them", .def_cpu = "1", .max = 1000000,
     .unit = "calls"},
    {"max-time", OPTION_REAL, 0, "0", .help = "end a measurement early after this time", .max = 86400, .unit = "s",
     .unset = "0: never"},
    {0}};

static const variant_spec variant_table[] = {
    {"unfused", "GEMM, scale, mask, softmax, GEMM as separate kernels: what an eager framework does"},
    {"fused", "scale, mask and softmax in one kernel between the GEMMs: what a compiler makes of it"},
    {"flash", "FlashAttention-2: one kernel, no S x S matrix in memory"},
    {0}};

static const column_spec column_table[] = {
    ATTENTION_TIME_COLUMNS("fwd", "forward"),
    ATTENTION_TIME_COLUMNS("bwd", "backward"),
    {"mem_before_bwd_bytes", COLUMN_INT, true, "held after forward: inputs, o, lse and what is saved"},
    {"peak_bytes", COLUMN_INT, true, "most held at once during one forward and backward"},
    {"mem_over_s2", COLUMN_REAL, true, "saved bytes / (B H S^2): bytes kept per attention score"},
    {"fwd_tflops", COLUMN_REAL, true, "4 B H S^2 D, halved when causal, over the median time"},
    {"bwd_tflops", COLUMN_REAL, true, "2.5 times the forward's operations over the median time"},
    {"err_fwd", COLUMN_REAL, true, "relative L2 error of o on the checked rows against fp64"},
    {"err_bwd", COLUMN_REAL, false, "largest relative L2 error of dq, dk, dv on the checked rows against fp64"},
    {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 1, 8, "--head-dim 64 --seq 1024,8192"},
    {RUN_DEFAULT, 1, 100, ""},
    {RUN_DEFAULT, 1, 8, "--variant unfused --dtype bf16 --head-dim 64 --seq 1024,4096 --profile"},
    {RUN_FULL, 1, 60, "--dtype bf16"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_attention",
    .summary = "What does attention cost in time and memory: unfused, with a fused softmax, and as FlashAttention?",
    .notes = "One row is one (batch, causal, dtype, head_dim, seq, variant). Inputs are N(0,1) from --seed; outputs\n"
             "are compared with an fp64 oracle before anything is timed. The grid is the pytorch_attention problem of\n"
             "CS336 assignment 2: batch 8, one head, 100 forward and 100 backward passes. mem_over_s2 says what is\n"
             "kept per score: 4 is one fp32 matrix, 2 one bf16 matrix, 0 none. Above head_dim 128, flash on CUDA takes "
             "bf16\n"
             "and fp16.",
    .examples = "./bench_attention\n"
                "./bench_attention --dtype bf16,fp32 --seq 1024:16384:*2 --head-dim 64,128\n"
                "./bench_attention --variant flash --seq 65536 --batch 1 --iters 10",
    BENCH_TABLES,
    .order = 20,
    .small = "--batch 1 --head-dim 16 --seq 128,256 --iters 3 --warmup 1",
    .section = "attention",
    .figures = (const char *const[]){"attention_latency", "attention_memory", NULL},
};

static attention_problem problem_of(const bench_case *c)
{
    const int seq = (int)case_int(c, "seq");
    return (attention_problem){.shape = {.batch = (int)case_int(c, "batch"),
                                         .heads = 1,
                                         .heads_kv = 1,
                                         .seq_q = seq,
                                         .seq_k = seq,
                                         .head_dim = (int)case_int(c, "head-dim"),
                                         .dtype = dtype_named(case_text(c, "dtype")),
                                         .causal = case_int(c, "causal") != 0}};
}

static double estimate_bytes(const options *o, const bench_case *c)
{
    (void)o;
    attention_problem p = problem_of(c);
    return attention_estimate_bytes(&p, case_variant(c));
}

static void attention_run(session *s, const bench_case *c, row *w)
{
    attention_problem p = problem_of(c);
    attention_case ac;
    double fwd_ms, bwd_ms;
    bool right = attention_prepare(&ac, s, c, w, &p);
    row_real(w, "err_fwd", ac.err_o);
    bool known = !isnan(ac.err_dq + ac.err_dk + ac.err_dv);
    row_real(w, "err_bwd", known ? fmax(ac.err_dq, fmax(ac.err_dk, ac.err_dv)) : NAN);
    if (!right || !attention_time(&ac, ATTENTION_FORWARD, &fwd_ms) ||
        !attention_time(&ac, ATTENTION_BACKWARD, &bwd_ms) || !attention_check(&ac))
        return;
    row_int(w, "mem_before_bwd_bytes", (int64_t)ac.before_backward_bytes);
    row_int(w, "peak_bytes", (int64_t)ac.peak_bytes);
    row_real(w, "mem_over_s2", (double)ac.saved_bytes / attention_matrix_bytes(&p.shape, 1));
    row_real(w, "fwd_tflops", attention_forward_flops(&p.shape) / (fwd_ms * 1e9));
    row_real(w, "bwd_tflops", attention_backward_flops(&p.shape) / (bwd_ms * 1e9));
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {attention_start, attention_run, attention_finish, estimate_bytes};
    return session_main(&info, &hooks, argc, argv);
}
