/* SPDX-License-Identifier: MIT */
/* The check of a model from outside, on the CPU: every policy, mode and way of overlap passes it, with an error of every
 * kind that the mode has; and what the row says of them. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

static bool is(const csv *c, size_t row, const char *column, const char *value)
{
    return csv_is(c, row, column, value);
}

/* Under ASan, which looks for overruns, the shortest sequence stands for both lengths; the plain build compares numbers of both. */
#ifdef __SANITIZE_ADDRESS__
#define SEQS "1"
enum { SEQ_COUNT = 1 };
#else
#define SEQS "1,16"
enum { SEQ_COUNT = 2 };
#endif

/* So many rows of a tiny model, each of which passes its check. */
static csv *passing(const char *folder, size_t rows, const char *options)
{
    OWNED char *all = xasprintf(
        "--size tiny --iters 1 --warmup 0 --precision fp32,tf32,bf16,bf16-pure,fp16 --variant none,kernels %s",
        options);
    csv *c = bench_rows(folder, "bench_transformer", "", all, EXIT_CODE_OK);
    assert_non_null(c);
    assert_int_equal(c->rows, rows);
    for (size_t row = 0; row < c->rows; row++)
        if (!is(c, row, "status", "ok"))
            fail_msg("row %zu: %s", row, csv_cell(c, row, "reason"));
    return c;
}

/* A case that is skipped, for this reason. */
static void skipped(const char *folder, const char *reason, const char *options)
{
    OWNED char *all = xasprintf("--size tiny --iters 1 --seq 16 --variant kernels %s", options);
    OWNED_CSV csv *c = bench_rows(folder, "bench_transformer", "", all, EXIT_CODE_UNSUPPORTED);
    assert_non_null(c);
    for (size_t row = 0; row < c->rows; row++)
        assert_non_null(strstr(csv_cell(c, row, "reason"), reason));
}

TEST(each_mode_has_its_errors)
{
    OWNED_CSV csv *c =
        passing(*state, SEQ_COUNT * 5 * 3 * 2 * 3,
                "--seq " SEQS " --overlap auto,gradients,none --mode forward,forward-backward,train-step");
    for (size_t row = 0; row < c->rows; row++) {
        const bool forward = is(c, row, "mode", "forward"), train = is(c, row, "mode", "train-step");
        assert_true(csv_real(c, row, "err_loss") >= 0);
        assert_true(isnan(csv_real(c, row, "err_grad")) == forward);
        assert_true(isnan(csv_real(c, row, "err_logits")) == !forward);
        assert_true(isnan(csv_real(c, row, "err_param")) == !train);
        /* As large as roundings, and not 0, as where nothing was compared. */
        const double grad = csv_real(c, row, "err_grad"), param = csv_real(c, row, "err_param");
        assert_true(forward || (grad > 0 && grad < (is(c, row, "precision", "fp32") ? 1e-5 : 0.03)));
        assert_true(!train || (param >= 0 && param < 1e-3));
        assert_true(!train || param > 0 || is(c, row, "precision", "bf16-pure"));
    }
}

TEST(moments_in_16_bits)
{
    OWNED_CSV csv *c = passing(*state, SEQ_COUNT * 5 * 2 * 2 * 2 * 2,
                               "--seq " SEQS " --moments fp32,bf16 --overlap gradients,none --grad-dtype policy,fp32");
    for (size_t row = 0; row < c->rows; row++)
        assert_true(csv_real(c, row, "err_param") < 1e-2);
    skipped(*state, "is for --mode train-step", "--moments fp32,bf16 --mode forward,forward-backward");
}

/* Several micro-batches and clipped gradients, in every policy; and where they mean nothing. */
TEST(micro_batches_and_clipping)
{
    OWNED_CSV csv *c = passing(*state, 5 * 2 * 2 * 2 * 2 * 2,
                               "--seq 16 --micro-batches 1,4 --clip 0,0.01 --overlap all,none --recompute none,block");
    for (size_t row = 0; row < c->rows; row++) {
        assert_true(csv_real(c, row, "err_grad") > 0 && csv_real(c, row, "err_param") < 1e-3);
        assert_true(isnan(csv_real(c, row, "fwd_ms")) == is(c, row, "micro_batches", "4"));
        assert_true(csv_real(c, row, "step_ms") > 0);
        const bool waits =
            !is(c, row, "micro_batches", "1") || !is(c, row, "clip", "0") || is(c, row, "precision", "fp16");
        const char *used = is(c, row, "variant", "none") || is(c, row, "overlap", "none") ? "none"
                           : waits                                                        ? "gradients"
                                                                                          : "all";
        assert_string_equal(csv_cell(c, row, "overlap_used"), used);
    }
    skipped(*state, "no gradients that --micro-batches could add up", "--micro-batches 2 --mode forward");
    skipped(*state, "--clip is for --mode train-step", "--clip 1 --mode forward-backward");
}

TESTS_WITH(folder_create, folder_remove)
