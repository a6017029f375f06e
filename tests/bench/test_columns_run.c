/* SPDX-License-Identifier: MIT */
/* Every numeric column of bench_run on CPU ranks: measured, or recomputed from the others of its row. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

FORMULA(micro, N("micro_batches"))
FORMULA(global, N("ranks") * N("batch") * micro(c, row))
FORMULA(tokens, N("steps") * global(c, row) * N("seq"))
FORMULA(counted, N("steps") - 3)
FORMULA(jitter, N("step_p99_ms") / N("step_ms"))
FORMULA(wall_ms, N("wall_s") * 1e3 / counted(c, row))
FORMULA(cost, N("fed_ms") - N("bare_ms"))
FORMULA(cost_pct, 100 * cost(c, row) / N("bare_ms"))
FORMULA(rest_pct, 100 * (N("wall_ms") - N("fed_ms")) / N("wall_ms"))
FORMULA(wait_pct, 100 * N("data_wait_ms") / N("wall_ms"))
FORMULA(speed, 1e3 * global(c, row) * N("seq") / N("wall_ms"))
FORMULA(weights, N("layers") * N("d_model") * (4 * N("d_model") + 3 * 96) + 2 * N("vocab") * N("d_model"))
FORMULA(params, weights(c, row) + (2 * N("layers") + 1) * N("d_model"))
FORMULA(flops, (6 * (weights(c, row) - N("vocab") * N("d_model")) + 6 * N("layers") * N("seq") * N("d_model")) *
                   N("batch") * micro(c, row) * N("seq"))
/* All products of blocks, both ways; in TFLOP, as the rates of an H200, whose name the CPU has. */
FORMULA(in_float8, IS("precision", "fp8-block")
                       ? 6 * (weights(c, row) - 2 * N("vocab") * N("d_model")) * N("batch") * micro(c, row) * N("seq")
                       : 0)
FORMULA(share, 100 * in_float8(c, row) / flops(c, row))
FORMULA(at_peaks_ms, (in_float8(c, row) / 1978.9 + (flops(c, row) - in_float8(c, row)) / 989.4) / 1e9)
FORMULA(mfu, 100 * (IS("precision", "fp32") ? flops(c, row) / 1e9 / 0.5 : at_peaks_ms(c, row)) / N("wall_ms"))
FORMULA(mfu_bf16, IS("precision", "fp32") ? NAN : 100 * flops(c, row) / N("wall_ms") / 1e9 / 989.4)
FORMULA(made, !IS("variant", "bare"))
FORMULA(floor_loss, made(c, row) ? (log(16) + (N("seq") - 1) * 1.2079736875922319) / N("seq") : NAN)
FORMULA(above, 100 * (N("loss_last") / floor_loss(c, row) - 1))
/* Against the same case in bf16. */
static double of_bf16(const csv *c, size_t row, const char *column)
{
    if (!IS("precision", "fp8-block"))
        return NAN;
    for (size_t i = 0; i < c->rows; i++)
        if (csv_is(c, i, "precision", "bf16"))
            return N(column) / csv_real(c, i, column);
    return NAN;
}
FORMULA(gap, 100 * (of_bf16(c, row, "loss_last") - 1))
FORMULA(gain, 1 / of_bf16(c, row, "step_ms"))
FORMULA(pair, made(c, row) ? 1.2079736875922319 : NAN)
FORMULA(updates, N("steps"))
FORMULA(clips, IS("variant", "clip") || IS("variant", "log") || IS("variant", "save") || IS("variant", "wait"))
FORMULA(moves, clips(c, row) || IS("variant", "schedule"))
/* Two steps of warm-up; the last of a cosine of `steps` steps. */
FORMULA(over, (N("steps") - 3) / (N("steps") - 2))
FORMULA(rate, moves(c, row) ? N("min_lr") + (N("lr") - N("min_lr")) * (1 + cos(acos(-1) * over(c, row))) / 2 : N("lr"))
FORMULA(one, 1)
FORMULA(none_before, 0)
FORMULA(save_every, IS("variant", "save") ? 10 : NAN)
FORMULA(saves, IS("variant", "save") ? ceil(N("steps") / 10) : NAN) /* the last one is after the last step */

static const column_rule rules[] = {
    {"global_batch", DERIVED, global, 0},
    {"n_steps", DERIVED, counted, 0},
    {"tokens", DERIVED, tokens, 0},
    {"jitter", DERIVED, jitter, 1e-6},
    {"wall_ms", DERIVED, wall_ms, 1e-6},
    {"cost_ms", DERIVED, cost, 1e-6},
    {"cost_pct", DERIVED, cost_pct, 1e-4},
    {"rest_pct", DERIVED, rest_pct, 1e-4},
    {"data_wait_pct", DERIVED, wait_pct, 1e-6},
    {"tokens_per_s", DERIVED, speed, 0},
    {"mfu_causal_pct", DERIVED, mfu, 0},
    {"fp8_share_pct", DERIVED, share, 0},
    {"mfu_bf16_pct", DERIVED, mfu_bf16, 0},
    {"floor_loss", DERIVED, floor_loss, 0},
    {"above_floor_pct", DERIVED, above, 1e-5},
    {"loss_gap_pct", DERIVED, gap, 1e-5},
    {"speedup_bf16", DERIVED, gain, 1e-6},
    {"entropy_pair", DERIVED, pair, 0},
    {"updates", DERIVED, updates, 0},
    {"rate_last", DERIVED, rate, 1e-9},
    {"first_step", DERIVED, none_before, 0},
    {"save_every", DERIVED, save_every, 0},
    {"saves", DERIVED, saves, 0},
    {"params", DERIVED, params, 0},
    {"hosts", MEASURED, one, 0},
    {"step_ms step_p95_ms step_p99_ms step_max_ms slowest_step long_steps drift_pct wall_s bare_ms "
     "fed_ms cost_lo_ms cost_hi_ms data_wait_ms log_ms loss_first loss_last entropy_token "
     "entropy_none excess excess_sigma norm_last outliers save_ms durable_ms save_wait_ms "
     "state_bytes peak_bytes err_grad err_param",
     MEASURED, NULL, 0},
    {0}};

TEST(columns)
{
    needs_gloo();
    columns_have_rules(*state, "bench_run", rules);
    columns_run(*state, "bench_run", "",
                "--size tiny --precision fp32 --seq 16 --layers 1 --d-model 32 --heads 2 --vocab 32 --d-ff "
                "96 --iters 4 --steps 24 --warmup 3 --lr-warmup 2 --variant all --ranks 1,2 "
                "--batch 2 --micro-batches 2 --peak-tflops 0.5 --save-every 10",
                rules);
    OWNED char *gpu = preload_build(*state, "gpu");
    csv *float8 =
        bench_rows(*state, "bench_run", gpu,
                   "--size tiny --precision bf16,fp8-block --seq 16 --layers 1 --d-model 32 --heads 2 --vocab 32 "
                   "--d-ff 96 --iters 0 --steps 24 --warmup 3 --lr-warmup 2 --variant log --batch 2 "
                   "--micro-batches 2 --peak-tflops 0",
                   EXIT_CODE_OK);
    assert_true(fabs(csv_real(float8, 1, "loss_gap_pct")) < 0.5); /* other draws of bf16 differ by more */
    columns_hold(float8, "bench_run", rules);
    columns_were_seen("bench_run", rules);
}

TEST(one_step_has_no_standard_error)
{
    needs_gloo();
    OWNED_CSV csv *c = bench_rows(*state, "bench_run", "",
                                  "--size tiny --seq 16 --steps 3 --warmup 1 --variant data --iters 0", EXIT_CODE_OK);
    assert_true(isfinite(csv_real(c, 0, "excess")) && isnan(csv_real(c, 0, "excess_sigma")));
}

TESTS_WITH(folder_create, folder_remove)
