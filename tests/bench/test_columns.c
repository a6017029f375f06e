/* SPDX-License-Identifier: MIT */
/* Every numeric column of the benches of one process: recomputed from the others of its row by a formula that is stated
 * here anew, or read off a clock that only kernels advance (tests/preload/clock.c), so that it is known. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

static char *clocked; /* the environment with that clock, in one campaign */
static bool known;    /* the rows at hand are by that clock */
static double ceiling = NAN;

#define TIMES(...) (known ? (__VA_ARGS__) : NAN)

/* The row of another variant or policy with the same `case_column`. */
static size_t row_with(const csv *c, size_t row, const char *column, const char *value, const char *case_column)
{
    for (size_t i = 0; i < c->rows; i++)
        if (csv_is(c, i, column, value) && strcmp(csv_cell(c, i, case_column), csv_cell(c, row, case_column)) == 0)
            return i;
    fail_msg("no row with %s %s", column, value);
    return 0;
}

/* ---- bench_roofline ---- */

FORMULA(roofline_us, TIMES(IS("variant", "copy") ? NAN : 3000))
FORMULA(roofline_p10, TIMES(IS("variant", "copy") ? NAN : 1000))
FORMULA(roofline_p90, TIMES(IS("variant", "copy") ? NAN : 5000))

/* 2 m n k; NAN where nothing is multiplied. */
static double product_flops(const csv *c, size_t row)
{
    double m, n, k;
    if (IS("variant", "gemm"))
        return 2 * pow(N("size"), 3);
    return IS("variant", "gemm_best") && sscanf(T("mnk"), "%lfx%lfx%lf", &m, &n, &k) == 3 ? 2 * m * n * k : NAN;
}

FORMULA(roofline_tflops, product_flops(c, row) / N("time_us") / 1e6)
FORMULA(sustained_tflops, product_flops(c, row) / N("sustained_us") / 1e6)
FORMULA(roofline_gb_s, isfinite(product_flops(c, row)) ? NAN : 2 * N("bytes") / N("time_us") / 1e3)
FORMULA(ten, known ? 10 : NAN)
FORMULA(sustain_s, known ? 1 : 0)
FORMULA(no_drift, TIMES(0))
FORMULA(gemm_tflop_per_j, product_flops(c, row) / N("energy_j") / 1e12)
FORMULA(sustained_gb_s, isfinite(product_flops(c, row)) ? NAN : 2 * N("bytes") / N("sustained_us") / 1e3)
FORMULA(sustained_tflop_per_j, product_flops(c, row) / N("sustained_j") / 1e12)

static const column_rule roofline_rules[] = {
    {"time_us sustained_us", MEASURED, roofline_us, 0},
    {"time_p10_us", MEASURED, roofline_p10, 0},
    {"time_p90_us", MEASURED, roofline_p90, 0},
    {"tflops", DERIVED, roofline_tflops, 0},
    {"sustained_tflops", DERIVED, sustained_tflops, 0},
    {"gb_s", DERIVED, roofline_gb_s, 0},
    {"n_samples", MEASURED, ten, 0},
    {"energy_j", MEASURED, NULL, 0}, /* no CPU has the sensors */
    {"tflop_per_j", MEASURED, gemm_tflop_per_j, 0},
    {"sustain_s", DERIVED, sustain_s, 0},
    {"sustained_gb_s", DERIVED, sustained_gb_s, 0},
    {"sustained_drift_pct", MEASURED, no_drift, 1e-6},
    {"sustained_tflop_per_j", MEASURED, sustained_tflop_per_j, 0},
    {"burst_tflops sustained_sm_mhz sustained_power_w sustained_j peer_access err_rel", MEASURED, NULL, 0},
    {0}};

TEST(roofline)
{
    columns_have_rules(*state, "bench_roofline", roofline_rules);
    known = false;
    columns_run(*state, "bench_roofline", "",
                "--variant copy,gemm_best --dtype fp32 --mnk 32x64x48 --bytes 1M --iters 10", roofline_rules);
    known = true;
    columns_run(*state, "bench_roofline", clocked,
                "--variant gemm,copy_kernel --dtype fp32 --size 64,128 --bytes 4K,1M --iters 10 "
                "--sustain 1",
                roofline_rules);
    columns_were_seen("bench_roofline", roofline_rules);
    ceiling = 2 * pow(128, 3) / 3e-3 / 1e12; /* from here on, in this campaign */
}

/* ---- bench_flash, bench_attention ---- */

FORMULA(is_unfused, IS("variant", "unfused"))
FORMULA(fwd_ms, TIMES(is_unfused(c, row) ? 6 : 3))
FORMULA(fwd_p10_ms, fwd_ms(c, row) / 3)
FORMULA(fwd_p90_ms, fwd_ms(c, row) / 3 * 5)
FORMULA(bwd_ms, TIMES(is_unfused(c, row) ? 9 : 3))
FORMULA(bwd_p10_ms, bwd_ms(c, row) / 3)
FORMULA(bwd_p90_ms, bwd_ms(c, row) / 3 * 5)

static double attention_heads(const csv *c, size_t row)
{
    return csv_column(c, "heads") < 0 ? 1 : N("heads");
}

static double keys_of(const csv *c, size_t row)
{
    return csv_column(c, "seq_k") < 0 || N("seq_k") == 0 ? N("seq") : N("seq_k");
}

/* Pairs of a head that count, in a sequence: half of them for a causal mask, and in a window those that are there. */
static double pairs_in(const csv *c, size_t row, double queries, double keys)
{
    const bool windows = csv_column(c, "window") >= 0, causal = N("causal") == 1;
    const double left = windows ? N("window") : -1, right = windows ? N("window_right") : -1;
    double pairs = 0;
    if (left < 0 && right < 0)
        return queries * keys / (causal ? 2 : 1);
    for (double i = keys - queries; i < keys; i++) /* positions of queries */
        for (double j = 0; j < keys; j++)
            pairs += (left < 0 || j >= i - left) && (right < 0 || j <= i + right) && (!causal || j <= i);
    return pairs;
}

/* ... in the batch, or in equal documents of its tokens. */
static double pairs_of(const csv *c, size_t row)
{
    const int n = csv_column(c, "documents") < 0 ? 0 : (int)N("documents");
    const int queries = (int)(N("batch") * N("seq")), keys = (int)(N("batch") * keys_of(c, row));
    double pairs = 0;
    for (int i = 0; i < n; i++)
        pairs += pairs_in(c, row, queries * (i + 1) / n - queries * i / n, keys * (i + 1) / n - keys * i / n);
    return n > 0 ? pairs : N("batch") * pairs_in(c, row, N("seq"), keys_of(c, row));
}

static double columns_of_v(const csv *c, size_t row)
{
    return csv_column(c, "head_dim_v") < 0 || N("head_dim_v") == 0 ? N("head_dim") : N("head_dim_v");
}

/* The operations of a product with one column. */
FORMULA(operations, 2 * attention_heads(c, row) * pairs_of(c, row))
FORMULA(forward, operations(c, row) * N("head_dim") + operations(c, row) * columns_of_v(c, row))
FORMULA(backward, forward(c, row) + operations(c, row) * (2 * N("head_dim") + columns_of_v(c, row)))
FORMULA(fwd_tflops, forward(c, row) / N("fwd_ms") / 1e9)
FORMULA(bwd_tflops, backward(c, row) / N("bwd_ms") / 1e9)
FORMULA(fwd_tflop_per_j, forward(c, row) / N("fwd_j") / 1e12)
FORMULA(bwd_tflop_per_j, backward(c, row) / N("bwd_j") / 1e12)
FORMULA(flash_ceiling, known &&IS("dtype", "fp32") ? ceiling : NAN)
FORMULA(fwd_ceiling_pct, 100 * fwd_tflops(c, row) / flash_ceiling(c, row))
FORMULA(bwd_ceiling_pct, 100 * bwd_tflops(c, row) / flash_ceiling(c, row))

static double unfused_over(const csv *c, size_t row, const char *column)
{
    for (size_t i = 0; i < c->rows; i++)
        if (is_unfused(c, i) == 1 && strcmp(csv_cell(c, i, "seq"), T("seq")) == 0 &&
            strcmp(csv_cell(c, i, "causal"), T("causal")) == 0 &&
            (csv_column(c, "documents") < 0 || strcmp(csv_cell(c, i, "documents"), T("documents")) == 0) &&
            (csv_column(c, "window") < 0 || strcmp(csv_cell(c, i, "window"), T("window")) == 0) &&
            (csv_column(c, "head_dim_v") < 0 || strcmp(csv_cell(c, i, "head_dim_v"), T("head_dim_v")) == 0) &&
            strcmp(csv_cell(c, i, "dtype"), T("dtype")) == 0)
            return csv_real(c, i, column) / N(column);
    return NAN;
}

FORMULA(speedup_fwd, unfused_over(c, row, "fwd_ms"))
FORMULA(speedup_bwd, unfused_over(c, row, "bwd_ms"))
FORMULA(speedup_fwd_bwd, unfused_over(c, row, "fwd_bwd_ms"))
FORMULA(err_ratio, 1 / unfused_over(c, row, "err_fwd"))

/* What both benches have. */
#define PASS_RULES                                                                                                     \
    {"fwd_p10_ms", MEASURED, fwd_p10_ms, 0}, {"fwd_p90_ms", MEASURED, fwd_p90_ms, 0},                                  \
        {"bwd_p10_ms", MEASURED, bwd_p10_ms, 0}, {"bwd_p90_ms", MEASURED, bwd_p90_ms, 0},                              \
        {"fwd_tflops", DERIVED, fwd_tflops, 0}, {"bwd_tflops", DERIVED, bwd_tflops, 0},                                \
        {"fwd_tflop_per_j", MEASURED, fwd_tflop_per_j, 0},                                                             \
    {                                                                                                                  \
        "bwd_tflop_per_j", MEASURED, bwd_tflop_per_j, 0                                                                \
    }

static const column_rule flash_rules[] = {
    PASS_RULES,
    {"fwd_ms sustained_fwd_ms", MEASURED, fwd_ms, 0},
    {"bwd_ms sustained_bwd_ms", MEASURED, bwd_ms, 0},
    {"n_fwd n_bwd n_fwd_bwd", MEASURED, ten, 0},
    {"ceiling_tflops", DERIVED, flash_ceiling, 0},
    {"fwd_ceiling_pct", DERIVED, fwd_ceiling_pct, 0},
    {"bwd_ceiling_pct", DERIVED, bwd_ceiling_pct, 0},
    {"speedup_fwd", DERIVED, speedup_fwd, 0},
    {"speedup_bwd", DERIVED, speedup_bwd, 0},
    {"speedup_fwd_bwd", DERIVED, speedup_fwd_bwd, 0},
    {"sustain_s", DERIVED, sustain_s, 0},
    {"sustained_fwd_drift_pct sustained_bwd_drift_pct", MEASURED, no_drift, 1e-6},
    {"err_ratio", DERIVED, err_ratio, 0},
    {"fwd_bwd_ms fwd_bwd_p10_ms fwd_bwd_p90_ms fwd_j bwd_j fwd_bwd_j fwd_bwd_tflop_per_j "
     "sustained_fwd_sm_mhz sustained_fwd_power_w sustained_bwd_sm_mhz sustained_bwd_power_w "
     "peak_bytes err_fwd err_dq err_dk err_dv",
     MEASURED, NULL, 0},
    {0}};

TEST(flash)
{
    columns_have_rules(*state, "bench_flash", flash_rules);
    known = true;
    static const char *const runs[] = {
        "--batch 2 --heads 4 --heads-kv 2 --seq 16,48 --seq-k 64 --head-dim 16 --dtype fp32,bf16 --causal 0,1",
        "--heads 2 --seq 40 --seq-k 64 --head-dim 16 --dtype fp32 --causal 0 --window -1,9 --window-right 3",
        "--batch 3 --heads 2 --seq 30 --seq-k 40 --head-dim 16 --dtype fp32 --causal 0,1 --window -1,9 --documents 4,7",
        "--heads 2 --seq 40 --head-dim 24 --head-dim-v 0,16,32 --dtype fp32 --causal 0,1"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        OWNED char *arguments = xasprintf("%s --variant unfused,flash --iters 10 --sustain 1", runs[i]);
        columns_run(*state, "bench_flash", clocked, arguments, flash_rules);
    }
    columns_were_seen("bench_flash", flash_rules);
}

FORMULA(qkvo_bytes, 4 * N("batch") * N("seq") * N("head_dim") * (IS("dtype", "fp32") ? 4 : 2))
FORMULA(lse_bytes, 4 * N("batch") * N("seq"))
FORMULA(mem_over_s2,
        (N("mem_before_bwd_bytes") - qkvo_bytes(c, row) - lse_bytes(c, row)) / N("batch") / pow(N("seq"), 2))

static const column_rule attention_rules[] = {
    PASS_RULES,
    {"fwd_ms", MEASURED, fwd_ms, 0},
    {"bwd_ms", MEASURED, bwd_ms, 0},
    {"n_fwd n_bwd", MEASURED, ten, 0},
    {"mem_over_s2", DERIVED, mem_over_s2, 1e-6},
    {"mem_before_bwd_bytes peak_bytes fwd_j bwd_j err_fwd err_bwd", MEASURED, NULL, 0},
    {0}};

TEST(attention)
{
    columns_have_rules(*state, "bench_attention", attention_rules);
    known = true;
    columns_run(*state, "bench_attention", clocked,
                "--batch 3 --seq 64,128 --head-dim 16 --dtype fp32,bf16 --causal 0,1 --variant unfused,flash "
                "--iters 10",
                attention_rules);
    columns_were_seen("bench_attention", attention_rules);
}

/* ---- the model ---- */

#define MODEL                                                                                                          \
    "--size tiny --vocab 96 --d-model 64 --d-ff 128 --layers 3 --heads 4 --heads-kv 2 --batch 2 --seq 16 --overlap "   \
    "none --peak-tflops 2.5 "

static bool attends(const csv *c, size_t row)
{
    return N("heads") > 0;
}

FORMULA(kv, attends(c, row) ? N("d_model") / N("heads") * N("heads_kv") : 0)
FORMULA(micro, csv_column(c, "micro_batches") < 0 ? 1 : N("micro_batches"))
FORMULA(tokens, N("batch") * micro(c, row) * N("seq"))
FORMULA(qkv_weights, attends(c, row) ? N("d_model") * (N("d_model") + 2 * kv(c, row)) : 0)
FORMULA(o_weights, attends(c, row) ? N("d_model") * N("d_model") : 0)
FORMULA(mlp_weights, N("d_model") * N("d_ff"))
FORMULA(block_weights, qkv_weights(c, row) + o_weights(c, row) + 3 * mlp_weights(c, row))
FORMULA(multiplying, N("layers") * block_weights(c, row) + N("vocab") * N("d_model"))
FORMULA(params,
        multiplying(c, row) + N("vocab") * N("d_model") + ((attends(c, row) ? 2 : 1) * N("layers") + 1) * N("d_model"))
FORMULA(passes, IS("mode", "forward") ? 1 : 3)
FORMULA(attention_full, attends(c, row) ? 4 * N("layers") * N("seq") * N("d_model") * tokens(c, row) : 0)
FORMULA(causal_flops, passes(c, row) * (2 * multiplying(c, row) * tokens(c, row) + attention_full(c, row) / 2))
FORMULA(full_flops, passes(c, row) * (2 * multiplying(c, row) * tokens(c, row) + attention_full(c, row)))
FORMULA(step_tflops, causal_flops(c, row) / N("step_ms") / 1e9)
static double model_peak = 2.5; /* NAN in runs without --peak-tflops */
FORMULA(mfu_causal, 100 * step_tflops(c, row) / model_peak)
FORMULA(mfu_full, 100 * full_flops(c, row) / N("step_ms") / 1e9 / model_peak)
FORMULA(tokens_per_s, 1e3 * tokens(c, row) / N("step_ms"))
FORMULA(tokens_per_j, tokens(c, row) / N("step_j"))

/* What the backward computes again: products of weights, and attention (flash makes its scores again). */
static double repeated_flops(const csv *c, size_t row)
{
    const bool block = IS("recompute", "block"), attn = block || IS("recompute", "attn"),
               mlp = block || IS("recompute", "mlp");
    const double weights =
        (attn ? qkv_weights(c, row) : 0) + (block ? o_weights(c, row) : 0) + (mlp ? 2 * mlp_weights(c, row) : 0);
    const double scores = attention_full(c, row) / 4;
    if (IS("mode", "forward"))
        return 0;
    return 2 * N("layers") * weights * tokens(c, row) + (attn ? 2 : 0) * scores +
           (IS("attention", "flash") ? scores : 0);
}

FORMULA(hfu, 100 * (causal_flops(c, row) + repeated_flops(c, row)) / N("step_ms") / 1e9 / model_peak)

static bool by_tensor_cores(const csv *c, size_t row)
{
    return !IS("precision", "fp32");
}

FORMULA(step_ceiling_pct, known && !by_tensor_cores(c, row) ? 100 * step_tflops(c, row) / ceiling : NAN)

static double both_moments(const csv *c, size_t row)
{
    return IS("moments", "bf16") || (IS("moments", "policy") && IS("precision", "bf16-pure")) ? 2 + 2 : 4 + 4;
}

/* Read: gradient, weight (16-bit ones beside an fp32 master are only written), master part, moments; written: all but the
 * gradient. */
static double adamw_bytes(const csv *c, size_t row)
{
    const double moments = both_moments(c, row);
    if (IS("precision", "bf16") || strncmp(T("precision"), "fp8", 3) == 0)
        return (2 + 2 + 2 + moments) + (2 + 2 + moments);
    if (IS("precision", "bf16-pure"))
        return (2 + 2 + moments) + (2 + moments);
    if (IS("precision", "fp16"))
        return (2 + 4 + moments) + (2 + 4 + moments);
    return (4 + 4 + moments) + (4 + moments);
}

FORMULA(trains, IS("mode", "train-step"))

/* Weights, what is left of an fp32 master, and two moments where there is an update. */
static double init_bytes(const csv *c, size_t row)
{
    const bool half = by_tensor_cores(c, row), pure = IS("precision", "bf16-pure");
    const double weights = half ? 2 : 4, master = !half || pure ? 0 : IS("precision", "fp16") ? 4 : 2;
    return (weights + (trains(c, row) ? master + both_moments(c, row) : 0)) * N("params");
}

FORMULA(has_backward, !IS("mode", "forward"))
FORMULA(opt_tb_s, trains(c, row) ? adamw_bytes(c, row) * N("params") / N("opt_alone_ms") / 1e9 : NAN)
FORMULA(model_fwd, TIMES(3))
FORMULA(model_deviation, TIMES(sqrt(2.5)))
FORMULA(model_bwd, TIMES(has_backward(c, row) ? 20 : NAN))
FORMULA(model_opt, TIMES(trains(c, row) ? 4 : NAN))
FORMULA(model_step, TIMES(3 + 20 * has_backward(c, row) + 4 * trains(c, row)))
FORMULA(model_step_p10, model_step(c, row) - 2)
FORMULA(model_step_p90, model_step(c, row) + 2)
FORMULA(five, TIMES(5))

/* Bytes of MODEL in fp32: 2 of 3 blocks, of which SwiGLU's products and gate and up leave, with the norm before them. */
FORMULA(offloaded_by_option, IS("offload", "mlp") ? 2 * tokens(c, row) * 4 * (N("d_model") + 3 * N("d_ff")) : 0)

/* Products of the blocks, but not of the head, nor attention; of a forward alone likewise. */
FORMULA(float8_share, !IS("precision", "fp8-block") && !IS("precision", "fp8-rowwise-dw16")
                          ? 0
                          : (IS("precision", "fp8-block") ? 100 : 200.0 / 3) * 6 * N("batch") * N("seq") * N("layers") *
                                N("d_model") * (2 * N("d_model") + 2 * kv(c, row) + 3 * N("d_ff")) /
                                causal_flops(c, row))
static double float8_speedup(const csv *c, size_t row)
{
    if (!IS("precision", "fp8-block") && !IS("precision", "fp8-rowwise-dw16"))
        return NAN;
    for (size_t i = 0; i < c->rows; i++)
        if (csv_is(c, i, "precision", "bf16"))
            return csv_real(c, i, "step_ms") / N("step_ms");
    return NAN;
}

static const column_rule transformer_rules[] = {
    {"fwd_ms fwd_mean_ms", MEASURED, model_fwd, 0},
    {"bwd_ms bwd_mean_ms", MEASURED, model_bwd, 0},
    {"opt_ms opt_mean_ms opt_alone_ms opt_alone_p10_ms opt_alone_p90_ms", MEASURED, model_opt, 0},
    {"step_ms step_mean_ms host_step_ms host_step_mean_ms sustained_step_ms", MEASURED, model_step, 0},
    {"fwd_std_ms step_std_ms host_step_std_ms", MEASURED, model_deviation, 0},
    {"step_p10_ms", MEASURED, model_step_p10, 0},
    {"step_p90_ms", MEASURED, model_step_p90, 0},
    {"n_steps", MEASURED, five, 0},
    {"opt_tb_s", DERIVED, opt_tb_s, 0},
    {"tokens_per_s", DERIVED, tokens_per_s, 0},
    {"tflops", DERIVED, step_tflops, 0},
    {"mfu_causal_pct", DERIVED, mfu_causal, 0},
    {"mfu_full_pct", DERIVED, mfu_full, 0},
    {"hfu_pct", DERIVED, hfu, 0},
    {"ceiling_pct", DERIVED, step_ceiling_pct, 0},
    {"fp8_share_pct", DERIVED, float8_share, 1e-6},
    {"speedup_bf16", DERIVED, float8_speedup, 1e-6},
    {"tokens_per_j", MEASURED, tokens_per_j, 0},
    {"sustain_s", DERIVED, sustain_s, 0},
    {"sustained_step_drift_pct", MEASURED, no_drift, 1e-6},
    {"init_bytes", DERIVED, init_bytes, 0},
    {"offloaded_bytes", DERIVED, offloaded_by_option, 0},
    {"params", DERIVED, params, 0},
    {"bwd_std_ms opt_std_ms first_step_ms mfu_bf16_pct step_j sustained_step_sm_mhz "
     "sustained_step_power_w peak_bytes offload_exposed_ms loss_first loss_third loss_last "
     "err_loss err_logits err_grad err_param",
     MEASURED, NULL, 0},
    {0}};

TEST(transformer)
{
    static const char *const precisions[] = {"fp32", "bf16", "bf16-pure", "fp16"};
    columns_have_rules(*state, "bench_transformer", transformer_rules);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        OWNED char *by_clock =
            xasprintf(MODEL "--precision %s --mode forward,forward-backward,train-step --attention fused "
                            "--iters 5 --warmup 1 --sustain 1",
                      precisions[i]);
        known = true;
        columns_run(*state, "bench_transformer", clocked, by_clock, transformer_rules);
        OWNED char *moments = xasprintf(MODEL "--precision %s --moments fp32,bf16 --iters 1", precisions[i]);
        known = false;
        columns_run(*state, "bench_transformer", "", moments, transformer_rules);
    }
    known = false;
    columns_run(*state, "bench_transformer", "",
                MODEL "--precision fp32 --mode train-step --recompute none,selective,attn,mlp,block "
                      "--attention flash,unfused --iters 1",
                transformer_rules);
    columns_run(*state, "bench_transformer", "",
                MODEL "--precision fp32 --offload mlp --offload-every 1 --micro-batches 1,3 "
                      "--clip 0,0.1 --iters 1",
                transformer_rules);
    /* Dimensions that were not asked for: the row has them as well, or its operations could not be counted from it. */
    columns_run(*state, "bench_transformer", "",
                "--size tiny --d-model 0,128 --heads-kv 0,2 --batch 2 --seq 16 --precision fp32 --overlap none "
                "--peak-tflops 2.5 --iters 1",
                transformer_rules);
    columns_run(*state, "bench_transformer", "",
                "--size mlp-1024 --vocab 96 --d-model 64 --batch 2 --seq 16 --precision bf16 --overlap none "
                "--recompute none,mlp,block --peak-tflops 2.5 --iters 1",
                transformer_rules);
    model_peak = NAN;
    columns_run(*state, "bench_transformer", "",
                "--size tiny --layers 3 --heads-kv 2 --batch 2 --seq 16 --overlap none --iters 1 "
                "--precision bf16,fp8-block,fp8-rowwise-dw16",
                transformer_rules);
    model_peak = 2.5;
    columns_were_seen("bench_transformer", transformer_rules);
}

/* ---- bench_recompute ---- */

static double of_none(const csv *c, const char *column)
{
    return csv_real(c, row_with(c, 0, "variant", "none", "size"), column);
}

FORMULA(saved_bytes, of_none(c, "peak_bytes") - N("peak_bytes"))
/* Bytes of the case below: 256 tokens, 3 of 4 blocks, fp32; residual stream and norms 4 d, attention's output d, q, k, v 2 d, and
 * 3 F: everything in whole 256 bytes. */
FORMULA(offloaded_bytes, IS("variant", "offload") ? 3 * 256 * 4.0 * (5 * 64 + 2 * 64 + 3 * 128) : 0)
FORMULA(err_step, 100 * fabs(N("predicted_step_ms") / N("step_ms") - 1))
FORMULA(extra, N("step_ms") - of_none(c, "step_ms"))
FORMULA(extra_pct, 100 * extra(c, row) / of_none(c, "step_ms"))
FORMULA(ms_per_gib, N("saved_bytes") > 0 ? extra(c, row) / N("saved_bytes") * 0x1p30 : NAN)
/* What a variant computes again that repeats nothing but the scores. */
FORMULA(scores_again, attention_full(c, row) / 4)
FORMULA(hfu_of_none, IS("variant", "none") || IS("variant", "selective")
                         ? 100 * (causal_flops(c, row) + scores_again(c, row)) / N("step_ms") / 1e9 / 2.5
                         : NAN)

static const column_rule recompute_rules[] = {
    {"tokens_per_s", DERIVED, tokens_per_s, 0},
    {"tflops", DERIVED, step_tflops, 0},
    {"mfu_causal_pct", DERIVED, mfu_causal, 0},
    {"mfu_full_pct", DERIVED, mfu_full, 0},
    {"hfu_pct", MEASURED, hfu_of_none, 0},
    {"tokens_per_j", MEASURED, tokens_per_j, 0},
    {"offloaded_bytes", DERIVED, offloaded_bytes, 0},
    {"saved_bytes", DERIVED, saved_bytes, 0},
    {"err_step_pct", DERIVED, err_step, 1e-4},
    {"extra_pct", DERIVED, extra_pct, 1e-4},
    {"ms_per_gib", DERIVED, ms_per_gib, 1e-4}, /* of times that are nearly equal few digits are left */
    {"fwd_ms fwd_mean_ms fwd_std_ms bwd_ms bwd_mean_ms bwd_std_ms opt_ms opt_mean_ms opt_std_ms "
     "step_ms step_mean_ms step_std_ms step_p10_ms step_p90_ms host_step_ms host_step_mean_ms "
     "host_step_std_ms n_steps ceiling_pct group_used forwards_again forwards_passed budget_bytes "
     "step_j peak_bytes driver_bytes err_bytes_pct offload_exposed_ms predicted_exposed_ms "
     "link_out_gb_s link_in_gb_s predicted_step_ms err_loss err_logits err_grad err_param",
     MEASURED, NULL, 0},
    {0}};

TEST(recomputation)
{
    known = false;
    columns_have_rules(*state, "bench_recompute", recompute_rules);
    columns_run(*state, "bench_recompute", "",
                "--size tiny --vocab 96 --d-model 64 --d-ff 128 --layers 4 --heads 4 --heads-kv 2 --batch 8 "
                "--seq 32 --overlap none --peak-tflops 2.5 --precision fp32 --variant "
                "none,selective,attn,mlp,block,group,nested,offload --group 2 --iters 1",
                recompute_rules);
    columns_were_seen("bench_recompute", recompute_rules);
}

/* ---- bench_mixed_precision ---- */

FORMULA(timing, IS("variant", "timing"))

static double fp32_over(const csv *c, size_t row, const char *column)
{
    return timing(c, row) == 1 ? csv_real(c, row_with(c, row, "precision", "fp32", "mode"), column) / N(column) : NAN;
}

FORMULA(mixed_fwd, timing(c, row) == 1 ? model_fwd(c, row) : NAN)
FORMULA(mixed_bwd, timing(c, row) == 1 ? model_bwd(c, row) : NAN)
FORMULA(mixed_opt, timing(c, row) == 1 ? model_opt(c, row) : NAN)
FORMULA(mixed_step, timing(c, row) == 1 ? model_step(c, row) : NAN)
FORMULA(mixed_five, timing(c, row) == 1 ? five(c, row) : NAN)
FORMULA(mixed_speedup_fwd, fp32_over(c, row, "fwd_ms"))
FORMULA(mixed_speedup_bwd, fp32_over(c, row, "bwd_ms"))
FORMULA(mixed_speedup_step, fp32_over(c, row, "step_ms"))
FORMULA(float8, IS("variant", "float8"))

/* product_ms of bf16 in the same shape and values. */
static double bf16_of(const csv *c, size_t row)
{
    for (size_t r = 0; r < c->rows; r++)
        if (csv_is(c, r, "variant", "float8") && csv_is(c, r, "product", "bf16") && csv_is(c, r, "shape", T("shape")) &&
            csv_is(c, r, "values", T("values")))
            return csv_real(c, r, "product_ms");
    return NAN;
}

static double shape_size(const csv *c, size_t row, int which)
{
    double size[3];
    return sscanf(T("shape"), "%lfx%lfx%lf", &size[0], &size[1], &size[2]) == 3 ? size[which] : NAN;
}

static double or_zero(double x)
{
    return isnan(x) ? 0 : x;
}

FORMULA(mixed_cast_gb_s, 4 * shape_size(c, row, 0) * shape_size(c, row, 2) / N("cast_ms") / 1e6)
FORMULA(mixed_product_tflops,
        2 * shape_size(c, row, 0) * shape_size(c, row, 1) * shape_size(c, row, 2) / N("product_ms") / 1e9)
FORMULA(mixed_speedup_bf16, float8(c, row) == 1 ? bf16_of(c, row) / N("product_ms") : NAN)
FORMULA(mixed_speedup_with_cast,
        float8(c, row) == 1 ? bf16_of(c, row) / (N("product_ms") + or_zero(N("cast_ms")) + or_zero(N("amax_ms"))) : NAN)
FORMULA(accumulates, IS("variant", "accumulation"))
FORMULA(exact, accumulates(c, row) == 1 ? atof(T("sum")) * atof(strchr(T("sum"), 'x') + 1) : NAN)
FORMULA(err_abs, fabs(N("value") - exact(c, row)))
FORMULA(err_rel, accumulates(c, row) == 1 ? fabs(N("value") - N("exact")) / N("exact") : NAN)

static const column_rule mixed_rules[] = {
    {"fwd_ms", MEASURED, mixed_fwd, 0},
    {"bwd_ms", MEASURED, mixed_bwd, 0},
    {"opt_ms", MEASURED, mixed_opt, 0},
    {"step_ms", MEASURED, mixed_step, 0},
    {"n_samples", MEASURED, mixed_five, 0},
    {"speedup_fwd", DERIVED, mixed_speedup_fwd, 0},
    {"speedup_bwd", DERIVED, mixed_speedup_bwd, 0},
    {"speedup_step", DERIVED, mixed_speedup_step, 0},
    {"exact", DERIVED, exact, 0},
    {"err_abs", DERIVED, err_abs, 1e-7},
    {"err_rel", MEASURED, err_rel, 1e-8},
    {"cast_gb_s", DERIVED, mixed_cast_gb_s, 0},
    {"product_tflops", DERIVED, mixed_product_tflops, 0},
    {"speedup_bf16", DERIVED, mixed_speedup_bf16, 0},
    {"speedup_with_cast", DERIVED, mixed_speedup_with_cast, 0},
    {"fwd_p10_ms fwd_p90_ms bwd_p10_ms bwd_p90_ms opt_p10_ms opt_p90_ms step_p10_ms step_p90_ms "
     "step_j tokens_per_j peak_bytes err_loss err_logits err_grad err_param value stalls_after "
     "squares_overflowed rows_overflowed y_nonfinite eps_stored eps_smallest err_fused err_exact "
     "bias_pct predicted_pct underflow_pct saturated amax_ms amax_p10_ms amax_p90_ms cast_ms "
     "cast_p10_ms cast_p90_ms cast_copy_pct product_ms product_p10_ms product_p90_ms n_product "
     "product_peak_pct",
     MEASURED, NULL, 0},
    {0}};

TEST(mixed_precision)
{
    columns_have_rules(*state, "bench_mixed_precision", mixed_rules);
    known = true;
    columns_run(*state, "bench_mixed_precision", clocked,
                "--variant timing --size tiny --seq 16 --precision fp32,bf16 --overlap none "
                "--mode forward,train-step --attention fused --iters 5",
                mixed_rules);
    columns_run(*state, "bench_mixed_precision", "", "--variant accumulation --sum 1000x0.01,3x0.5", mixed_rules);
    columns_run(*state, "bench_mixed_precision", "",
                "--variant float8 --shape 48x32x128,16x16x64 --product bf16,tensor-fast,block --iters 3", mixed_rules);
    columns_were_seen("bench_mixed_precision", mixed_rules);
}

/* ---- bench_memory ---- */

#define KINDS                                                                                                          \
    (N("param_bytes") + N("master_bytes") + N("moment1_bytes") + N("moment2_bytes") + N("grad_bytes") +                \
     N("activation_bytes") + N("temporary_bytes") + N("workspace_bytes") + N("other_bytes"))

static double off_pct(const csv *c, size_t row, const char *phase)
{
    OWNED char *held = xasprintf("%s_peak_bytes", phase), *predicted = xasprintf("predicted_%s", held);
    return isnan(N(held)) ? 0 : 100 * fabs(N(predicted) - N(held)) / N(held);
}

FORMULA(element, IS("precision", "fp32") ? 4 : 2)
FORMULA(memory_peak, fmax(N("forward_peak_bytes"), fmax(N("backward_peak_bytes"), N("optimizer_peak_bytes"))))
FORMULA(memory_predicted, fmax(N("predicted_forward_peak_bytes"),
                               fmax(N("predicted_backward_peak_bytes"), N("predicted_optimizer_peak_bytes"))))
FORMULA(memory_err, fmax(off_pct(c, row, "forward"), fmax(off_pct(c, row, "backward"), off_pct(c, row, "optimizer"))))
FORMULA(other_bytes, N("peak_bytes") - (KINDS - N("other_bytes")))
FORMULA(residual, tokens(c, row) * N("d_model") * element(c, row))
FORMULA(saved_elements, (attends(c, row) ? 6 : 2) * N("d_model") + 2 * kv(c, row) + 3 * N("d_ff"))
FORMULA(saved_per_block, IS("mode", "forward") ? NAN
                                               : tokens(c, row) * (saved_elements(c, row) * element(c, row) +
                                                                   4 * (attends(c, row) ? 2 + N("heads") : 1)))
FORMULA(saved_per_token, N("saved_per_block_bytes") / tokens(c, row))
FORMULA(param_bytes, params(c, row) * element(c, row))
FORMULA(moment_bytes, IS("mode", "train-step") ? (IS("moments", "bf16") ? 2 : 4) * params(c, row) : NAN)
FORMULA(over_counted, N("driver_bytes") - N("allocated_bytes"))

static const column_rule memory_rules[] = {
    {"peak_bytes", DERIVED, memory_peak, 0},
    {"offloaded_bytes", DERIVED, offloaded_by_option, 0},
    {"predicted_bytes", DERIVED, memory_predicted, 0},
    {"err_pct", DERIVED, memory_err, 1e-7},
    {"param_bytes", MEASURED, param_bytes, 0},
    {"moment1_bytes moment2_bytes", MEASURED, moment_bytes, 0},
    {"other_bytes", DERIVED, other_bytes, 0},
    {"driver_over_counted_bytes", MEASURED, over_counted, 0},
    {"residual_bytes", DERIVED, residual, 0},
    {"saved_per_block_bytes", MEASURED, saved_per_block, 0},
    {"saved_per_token_bytes", DERIVED, saved_per_token, 0},
    {"err_kinds_pct forward_peak_bytes backward_peak_bytes optimizer_peak_bytes "
     "predicted_forward_peak_bytes predicted_backward_peak_bytes predicted_optimizer_peak_bytes "
     "master_bytes grad_bytes activation_bytes temporary_bytes workspace_bytes peak_op "
     "allocated_bytes driver_bytes largest_bytes largest_block largest_count loss",
     MEASURED, NULL, 0},
    {0}};

TEST(memory_of_a_step)
{
    static const char *const more[] = {"--mode forward,train-step", "--mode train-step --moments bf16"};
    columns_have_rules(*state, "bench_memory", memory_rules);
    for (int i = 0; i < 2; i++) {
        OWNED char *arguments =
            xasprintf("--size tiny --vocab 96 --d-model 64 --d-ff 128 --layers 3 --heads 4 --heads-kv 2 --batch 2 "
                      "--seq 16 --precision fp32,bf16 %s",
                      more[i]);
        columns_run(*state, "bench_memory", "", arguments, memory_rules);
    }
    columns_run(*state, "bench_memory", "", "--size mlp-1024 --vocab 96 --d-model 64 --batch 2 --seq 16", memory_rules);
    columns_were_seen("bench_memory", memory_rules);
}

static int build(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    OWNED char *preload = preload_build(*state, "clock");
    clocked = xasprintf("STEPBENCH_RUN=known %s", preload);
    return 0;
}

static int clean(void **state)
{
    free(clocked);
    return folder_remove(state);
}

TESTS_WITH(build, clean)

#ifdef __SANITIZE_ADDRESS__
TESTS_NEED(false) /* of numbers alone: the plain build is enough */
#endif
