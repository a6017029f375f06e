/* SPDX-License-Identifier: MIT */
/* The benches of data parallelism from outside, on CPU ranks over Gloo: every strategy is checked on 2, 3 and 4
 * ranks and ends with the same parameters, planted errors make rows fail, and columns agree with each other. bench_fsdp has
 * test_fsdp. */
#include "tests/support/test.h"

#include "tests/support/ddp_rows.h"
#include "tests/support/ranks.h"

/* ---- every strategy ---- */

/* fp32 parameters after the first timed block, which has the same steps in every bench. */
static char checksum[20];

/* Checked on 2, 3 and 4 ranks. Timed on 2, where the sum of two numbers does not depend on who makes it: all
 * strategies come to the same bits. */
static void every_strategy(const char *bench, const char *more, int variants, int buckets)
{
    char *arguments = xasprintf("--ranks " RANKS_2_3_4 " --iters 0 --precision fp32 --grad-dtype policy %s", more);
    csv *c = ddp_rows(bench, arguments, EXIT_CODE_OK);
    assert_int_equal(c->rows, THREE_COUNTS * variants);
    for (size_t row = 0; row < c->rows; row++)
        ddp_check_errors(c, row);
    csv_free(c);
    free(arguments);
    arguments = xasprintf("--ranks 2 --iters 2 --precision fp32 --grad-dtype policy %s", more);
    c = ddp_rows(bench, arguments, EXIT_CODE_OK);
    assert_int_equal(c->rows, variants);
    for (size_t row = 0; row < c->rows; row++) {
        ddp_check_row(c, row);
        assert_true(csv_real(c, row, "buckets") == buckets && csv_real(c, row, "n_steps") == 2);
        if (!*checksum)
            snprintf(checksum, sizeof checksum, "%s", csv_cell(c, row, "checksum"));
        assert_string_equal(csv_cell(c, row, "checksum"), checksum);
    }
    csv_free(c);
    free(arguments);
}

#define EVERY_STRATEGY(name, bench, more, variants, buckets)                                                           \
    TEST_IN_RANKS_FOLDER(name)                                                                                         \
    {                                                                                                                  \
        every_strategy(bench, more, variants, buckets);                                                                \
    }

EVERY_STRATEGY(naive, "bench_ddp_naive", "", 2, 12)
EVERY_STRATEGY(flat, "bench_ddp_flat", "", 2, 1)
EVERY_STRATEGY(overlapped, "bench_ddp_overlap", "--overlap gradients", 1, 12)
EVERY_STRATEGY(bucketed, "bench_ddp_bucketed", "--bucket-mb 0.02", 1, 4)
EVERY_STRATEGY(sharded, "bench_zero1", "--bucket-mb 0.02 --variant all", 4, 4)

/* Each case has a check of its own: with the loss in chunks, gradients are rounded in another order. */
TEST_IN_RANKS_FOLDER(loss_in_chunks)
{
    static const char arguments[] =
        "--ranks 3 --iters 1 --precision bf16 --grad-dtype policy --update after --variant zero1",
                      model[] = "--size tiny --layers 2 --seq 16 --batch 2 ";
    OWNED char *both = xasprintf("%s --loss-chunk 0,4", arguments), *alone = xasprintf("%s --loss-chunk 4", arguments);
    csv *c = ddp_rows_of_model("bench_zero1", model, both, EXIT_CODE_OK);
    assert_int_equal(c->rows, 2);
    const double whole = csv_real(c, 0, "err_param"), chunks = csv_real(c, 1, "err_param");
    csv_free(c);
    c = ddp_rows_of_model("bench_zero1", model, alone, EXIT_CODE_OK);
    assert_true(chunks != whole && chunks == csv_real(c, 0, "err_param"));
    csv_free(c);
}

/* ---- other precisions, memory ---- */

TEST_IN_RANKS_FOLDER(parts_of_the_state)
{
    OWNED_CSV csv *c =
        ddp_rows("bench_zero1", "--ranks 2 --iters 1 --precision bf16,bf16-pure,fp16 --variant all", EXIT_CODE_OK);
    assert_int_equal(c->rows, 24);
    for (size_t row = 0; row < c->rows; row += 4) { /* unsharded, zero1, zero1-broadcast, fused */
        if (csv_is(c, row, "precision", "fp16")) {
            for (size_t i = row; i < row + 4; i++)
                assert_true(csv_is(c, i, "status", "skip") && strstr(csv_cell(c, i, "reason"), "fp16"));
            continue;
        }
        for (size_t i = row; i < row + 4; i++) {
            ddp_check_row(c, i);
            assert_true(csv_real(c, i, "measured_after_step_bytes") > csv_real(c, i, "state_bytes"));
            assert_true(csv_real(c, i, "err_measured_pct") < 3);
        }
        assert_true(csv_real(c, row, "err_pct") == 0 && csv_real(c, row + 1, "err_pct") == 0);
        assert_true(csv_real(c, row + 1, "state_bytes") == csv_real(c, row, "state_bytes") / 2);
        assert_true(csv_real(c, row + 1, "grad_bytes") == csv_real(c, row, "grad_bytes"));
        assert_true(csv_real(c, row + 1, "after_step_bytes") ==
                    csv_real(c, row, "after_step_bytes") - csv_real(c, row, "state_bytes") / 2);
        assert_true(csv_real(c, row + 2, "wire_bytes") > csv_real(c, row, "wire_bytes"));
        static const char *const as_zero1[] = {"state_bytes", "after_step_bytes", "wire_bytes", "err_pct"};
        for (int i = 0; i < 4; i++)
            assert_true(csv_real(c, row + 3, as_zero1[i]) == csv_real(c, row + 1, as_zero1[i]));
    }
}

TEST_IN_RANKS_FOLDER(policies_with_a_loss_scale)
{
    OWNED_CSV csv *c =
        ddp_rows("bench_ddp_flat", "--ranks 2 --iters 1 --precision fp16,tf32 --grad-dtype policy", EXIT_CODE_OK);
    for (size_t row = 0; row < c->rows; row++)
        ddp_check_row(c, row);
}

#define SOME_SIZE "--d-model 256 --heads 8 --d-ff 512 --vocab 4000 --seq 8 "
#define FP32_SUMS "--iters 0 --precision bf16 --grad-dtype fp32 --bucket-mb 1 "

/* On three ranks an fp32 sum depends on its order, and a model of some size has weights that its last bit moves to
 * another 16-bit number: the next gradients then differ by far more than that bit. With which seeds, depends on the
 * processor; the check must pass with all. */
TEST_IN_RANKS_FOLDER(orders_of_a_sum)
{
    for (int seed = 2; seed <= 6; seed += 4) {
        OWNED char *arguments = xasprintf("--ranks 3 --seed %d " FP32_SUMS, seed);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_ddp_bucketed", SOME_SIZE, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "ok");
        assert_true(csv_real(c, 0, "err_grad") <= 1e-6);
        assert_true(csv_real(c, 0, "err_param") < 4 * 0x1p-8);
    }
}

/* A token that sees itself alone gives q and k gradients of roundings; in 96 gains, one moment of bf16 may fall on the other
 * side. */
TEST_IN_RANKS_FOLDER(chances_of_a_sum)
{
    static const char *const models[] = {
        "--size tiny --layers 2 --seq 1 --batch 3 ",
        "--size tiny --d-model 96 --d-ff 24 --heads 6 --heads-kv 2 --layers 3 --vocab 2 "
        "--seq 40 --batch 2 --moments bf16 "};
    for (int i = 0; i < 2; i++) {
        OWNED_CSV csv *c = ddp_rows_of_model(
            "bench_ddp_bucketed", models[i],
            "--ranks 3 --iters 0 --precision fp32 --grad-dtype policy --bucket-mb 0.1,1", EXIT_CODE_OK);
        assert_true(c->rows == 2 && csv_is(c, 0, "status", "ok") && csv_is(c, 1, "status", "ok"));
    }
}

TEST_IN_RANKS_FOLDER(overheads_are_those_of_the_model)
{
    OWNED_CSV csv *c =
        ddp_rows("bench_ddp_bucketed", "--ranks 2 --iters 1 --precision fp32 --grad-dtype policy --bucket-mb 0.02,1",
                 EXIT_CODE_OK);
    assert_int_equal(c->rows, 2);
    for (size_t row = 0; row < 2; row++) {
        const double n = csv_real(c, row, "buckets"),
                     bytes = csv_real(c, row, "wire_bytes"); /* all of it: of 2 ranks */
        const double ms = n * csv_real(c, row, "o_us") * 1e-3 + bytes / n / csv_real(c, row, "w_gb_s") * 1e-6;
        assert_true(fabs(csv_real(c, row, "predicted_ms") - ms) < 1e-5 * fabs(ms));
    }
    assert_true(isnan(csv_real(c, 0, "predicted_contention_ms")) && !isnan(csv_real(c, 1, "predicted_contention_ms")));
    assert_true(csv_real(c, 0, "predicted_alone_ms") > 0 && isnan(csv_real(c, 0, "predicted_exposed_ms")));
    const double predicted = csv_real(c, 1, "predicted_exposed_ms"),
                 off = 100 * (predicted / csv_real(c, 1, "exposed_ms") - 1);
    assert_true(isnan(predicted) || fabs(csv_real(c, 1, "err_exposed_pct") - off) <= 1e-4 * fabs(off) + 1e-6);
}

/* ---- what must go wrong ---- */

TEST_IN_RANKS_FOLDER(planted_errors_are_found)
{
    static const char *const benches[] = {"bench_ddp_naive", "bench_zero1"};
    for (size_t b = 0; b < 2; b++) {
        OWNED_CSV csv *c = ddp_rows(
            benches[b], "--ranks 2 --precision fp32,bf16 --grad-dtype policy --plant-error gradient", EXIT_CODE_VERIFY);
        for (size_t row = 0; row < c->rows; row++) {
            assert_string_equal(csv_cell(c, row, "status"), "fail");
            assert_non_null(strstr(csv_cell(c, row, "reason"), "lm_head.weight"));
            assert_true(isnan(csv_real(c, row, "step_ms")) && csv_real(c, row, "err_grad") > 0.05);
        }
    }
    OWNED_CSV csv *c = ddp_rows("bench_zero1", "--ranks 2 --precision bf16 --grad-dtype policy --plant-error parameter",
                                EXIT_CODE_VERIFY);
    for (size_t row = 0; row < c->rows; row++) {
        assert_string_equal(csv_cell(c, row, "status"), "fail");
        assert_non_null(strstr(csv_cell(c, row, "reason"), "parameters of rank 1 are not those of rank 0"));
    }
}

/* Wrong from the second update on only, on one rank of three: where two right results may differ most. */
TEST_IN_RANKS_FOLDER(late_errors_are_found)
{
    static const char *const plants[] = {"half", "stale"};
    for (size_t i = 0; i < 2; i++) {
        OWNED char *arguments = xasprintf("--ranks 3 " FP32_SUMS "--plant-error %s", plants[i]);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_ddp_bucketed", SOME_SIZE, arguments, EXIT_CODE_VERIFY);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "fail");
        assert_non_null(strstr(csv_cell(c, 0, "reason"), "lm_head.weight after 3 updates"));
        assert_true(csv_real(c, 0, "err_grad") <= 1e-6 && csv_real(c, 0, "err_param") > 0.03);
    }
}

/* An error that a check can't find, or that nobody makes, is not planted. */
TEST_IN_RANKS_FOLDER(errors_without_effect_are_not_planted)
{
    static const char *const plants[][2] = {{"half", "roundings of 16 bits"},
                                            {"stale", "roundings of 16 bits"},
                                            {"order", "with --cp"},
                                            {"position", "with --cp"},
                                            {"own", "with --cp"},
                                            {"tail", "with --cp"},
                                            {"merge", "with --cp"}};
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        OWNED char *arguments = xasprintf("--ranks 2 --iters 0 --precision bf16 --grad-dtype policy --variant fsdp "
                                          "--plant-error %s",
                                          plants[i][0]);
        OWNED_CSV csv *c = ddp_rows("bench_fsdp", arguments, EXIT_CODE_UNSUPPORTED);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "skip");
        assert_non_null(strstr(csv_cell(c, 0, "reason"), plants[i][1]));
    }
}

/* Where sum, update and sharing are one, an error in a gradient is one of the sum and of the update. */
TEST_IN_RANKS_FOLDER(planted_errors_in_a_pass_are_found)
{
    static const char *const plants[] = {"gradient", "parameter", "half", "stale"};
    for (size_t i = 0; i < 4; i++) {
        OWNED char *arguments = xasprintf("--ranks 2 --iters 0 --precision fp32 --grad-dtype policy --variant fused "
                                          "--plant-error %s",
                                          plants[i]);
        OWNED_CSV csv *c = ddp_rows("bench_zero1", arguments, EXIT_CODE_VERIFY);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "fail");
    }
}

TEST_IN_RANKS_FOLDER(bad_input)
{
    static const char *const wrong[][2] = {{"bench_ddp_bucketed", "--bucket-mb 0"},
                                           {"bench_ddp_naive", "--bucket-mb 25"},
                                           {"bench_ddp_naive", "--mode forward"},
                                           {"bench_ddp_naive", "--overlap auto"},
                                           {"bench_ddp_flat", "--l2 cold"},
                                           {"bench_ddp_flat", "--timer host"},
                                           {"bench_ddp_overlap", "--update sometimes"},
                                           {"bench_ddp_overlap", "--ranks 0"},
                                           {"bench_zero1", "--check 0 --plant-error gradient"},
                                           {"bench_zero1", "--check 0 --iters 0"},
                                           {"bench_zero1", "--peak-tflops 100 --precision fp32,bf16"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(ddp_rows(wrong[i][0], wrong[i][1], EXIT_CODE_USAGE));
        assert_int_equal(ranks_lines("err.txt"), 1);
    }
}

/* A case that would be another one under a wrong name gets no row with numbers. */
TEST_IN_RANKS_FOLDER(cases_that_are_others)
{
    static const char *const same[][2] = {
        {"bench_ddp_naive", "--ranks 1 --precision fp32 --grad-dtype fp32"},
        {"bench_ddp_naive", "--ranks 1 --precision fp32 --grad-dtype policy --update backward"},
        {"bench_ddp_flat", "--ranks 1 --precision fp32 --grad-dtype policy --update buckets"},
        {"bench_ddp_overlap", "--ranks 1 --precision fp32 --grad-dtype policy --update backward"},
        {"bench_ddp_overlap", "--ranks 1 --precision fp32 --grad-dtype policy --max-ctas 4"},
        {"bench_ddp_overlap", "--ranks 1 --precision fp32 --grad-dtype policy --fusion graph"},
        {"bench_zero1", "--ranks 1 --precision fp32 --grad-dtype policy --variant fused --update after"},
        {"bench_zero1", "--ranks 1 --precision fp32 --grad-dtype policy --variant fused --max-ctas 4"},
        {"bench_zero1", "--ranks 1 --precision fp32 --grad-dtype policy --variant fused --moments bf16"},
        {"bench_zero1", "--ranks 1 --precision bf16-pure --grad-dtype policy --variant fused --moments fp32"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        OWNED_CSV csv *c = ddp_rows(same[i][0], same[i][1], EXIT_CODE_UNSUPPORTED);
        for (size_t row = 0; row < c->rows; row++)
            assert_true(csv_is(c, row, "status", "skip") && *csv_cell(c, row, "reason"));
    }
}
