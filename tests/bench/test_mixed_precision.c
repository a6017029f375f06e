/* SPDX-License-Identifier: MIT */
/* bench_mixed_precision from outside, on the CPU: sums bit for bit, dtypes under autocast, norms, speedups. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "tests/support/bench_run.h"

/* Runs it with rows to <folder>/rows.csv; gives them, or NULL after a usage error. */
static csv *rows_of(const char *folder, const char *arguments, int wanted_status)
{
    OWNED char *program = bench_path("bench_mixed_precision"), *bench = shell_path(program);
    OWNED char *path = folder_path(folder, "rows.csv");
    OWNED char *command =
        xasprintf("cd '%s' && '%s' --device cpu --machine test-x1 --quiet --csv rows.csv %s >out.txt 2>&1", folder,
                  bench, arguments);
    int state = system(command);
    int status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    if (status != wanted_status) {
        char *out = folder_path(folder, "out.txt"), *text = file_text(out);
        fail_msg("'%s' ended with %d: %s", arguments, status, text);
    }
    return csv_read(path);
}

static size_t row_with(const csv *c, const char *column, const char *value, const char *column2, const char *value2)
{
    size_t r = 0;
    while (r < c->rows && (!csv_is(c, r, column, value) || !csv_is(c, r, column2, value2)))
        r++;
    if (r == c->rows)
        fail_msg("no row with %s=%s and %s=%s", column, value, column2, value2);
    return r;
}

TEST_IN_FOLDER(sums_have_every_bit)
{
    static const struct {
        const char *sum, *pair, *bits;
        float value;
    } known[] = {{"1000x0.01", "fp32+fp32", "0x4120008c", 10.000133514404297f},
                 {"1000x0.01", "fp16+fp16", "0x48fa", 9.953125f},
                 {"1000x0.01", "fp32+fp16", "0x412008c0", 10.00213623046875f},
                 {"1000x0.01", "fp32+fp16-cast", "0x412008c0", 10.00213623046875f},
                 {"1000x0.01", "bf16+bf16", "0x4080", 4.0f},
                 {"1000x0.01", "fp32+bf16", "0x41202800", 10.009765625f},
                 {"10000x0.001", "fp32+fp32", "0x412001af", 10.000411033630371f},
                 {"10000x0.001", "fp16+fp16", "0x4400", 4.0f},
                 {"10000x0.001", "bf16+bf16", "0x3f00", 0.5f}};
    OWNED_CSV csv *c = rows_of(*state, "--variant accumulation --tensor loss --width 8", EXIT_CODE_OK);
    assert_int_equal(c->rows, 16);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t r = row_with(c, "sum", known[i].sum, "pair", known[i].pair);
        assert_string_equal(csv_cell(c, r, "bits"), known[i].bits);
        assert_true((float)csv_real(c, r, "value") == known[i].value);
        assert_true(fabs(csv_real(c, r, "err_abs") - fabs((double)known[i].value - 10)) < 1e-6);
    }
    /* 4 + 0.01 is 4 in bf16, whose step there is 1/32; a sum in fp32 goes on. */
    assert_true(csv_real(c, row_with(c, "sum", "1000x0.01", "pair", "bf16+bf16"), "stalls_after") < 400);
    assert_true(isnan(csv_real(c, row_with(c, "sum", "1000x0.01", "pair", "fp32+bf16"), "stalls_after")));
    assert_true(csv_real(c, row_with(c, "sum", "1000x0.01", "pair", "bf16-kahan"), "err_rel") < 4e-3);
}

TEST_IN_FOLDER(other_sums_are_free)
{
    OWNED_CSV csv *c =
        rows_of(*state, "--variant accumulation --tensor loss --width 8 --pair fp32+fp32 --sum 3x-0.5,1x7", 0);
    assert_true(csv_real(c, 0, "value") == -1.5 && csv_real(c, 1, "value") == 7);
    static const char *const wrong[] = {"1000", "0x1", "x0.1", "10x", "10x0.1y", "2000000x0.1", "10xnan"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED char *arguments = xasprintf("--variant accumulation --tensor loss --width 8 --sum %s", wrong[i]);
        csv_free(rows_of(*state, arguments, EXIT_CODE_USAGE));
    }
}

TEST_IN_FOLDER(autocast_has_the_dtypes_of_pytorch)
{
    OWNED_CSV csv *golden = csv_read("tests/golden/autocast.csv");
    OWNED_CSV csv *c = rows_of(*state, "--variant autocast --pair fp32+fp32 --width 8 --magnitude 1", EXIT_CODE_OK);
    assert_int_equal(c->rows, 39);
    assert_int_equal(golden->rows, c->rows);
    for (size_t r = 0; r < golden->rows; r++) {
        size_t ours = row_with(c, "tensor", csv_cell(golden, r, "tensor"), "dtype", csv_cell(golden, r, "low"));
        assert_string_equal(csv_cell(c, ours, "status"), "ok");
        assert_string_equal(csv_cell(c, ours, "tensor_dtype"), csv_cell(golden, r, "dtype"));
    }
}

static double norm_value(const csv *c, const char *norm, const char *dtype, const char *statistics,
                         const char *magnitude, const char *column)
{
    for (size_t r = 0; r < c->rows; r++)
        if (!strcmp(csv_cell(c, r, "norm"), norm) && !strcmp(csv_cell(c, r, "dtype"), dtype) &&
            !strcmp(csv_cell(c, r, "statistics"), statistics) && !strcmp(csv_cell(c, r, "magnitude"), magnitude))
            return csv_real(c, r, column);
    fail_msg("no row of %s %s %s %s", norm, dtype, statistics, magnitude);
    return NAN;
}

TEST_IN_FOLDER(norms_overflow_in_fp16_and_stall_in_bf16)
{
    OWNED_CSV csv *c = rows_of(
        *state, "--variant norm --pair fp32+fp32 --sum 1x1 --tensor loss --width 2560 --dtype fp16,bf16", EXIT_CODE_OK);
    for (int layer = 0; layer < 2; layer++) {
        const char *norm = layer ? "layer" : "rms";
        assert_true(norm_value(c, norm, "fp16", "own", "300", "rows_overflowed") == 63); /* all but the zero row */
        assert_true(norm_value(c, norm, "fp16", "own", "300", "err_rel") > 0.999);
        assert_true(norm_value(c, norm, "fp16", "own", "1", "rows_overflowed") == 0);
        assert_true(norm_value(c, norm, "fp16", "fp32", "300", "rows_overflowed") == 0);
        assert_true(norm_value(c, norm, "fp16", "fp32", "300", "err_rel") < 1e-3);
        assert_true(norm_value(c, norm, "bf16", "own", "300", "rows_overflowed") == 0);
        assert_true(norm_value(c, norm, "bf16", "own-sums", "300", "err_rel") > 0.1);
        assert_true(norm_value(c, norm, "bf16", "fp32", "1", "err_rel") < 4e-3);
    }
    assert_true(norm_value(c, "rms", "bf16", "fp32", "1", "err_fused") < 4e-3);
    assert_true(isnan(norm_value(c, "layer", "bf16", "fp32", "1", "err_fused")));
}

TEST_IN_FOLDER(eps_vanishes_in_fp16)
{
    OWNED_CSV csv *c =
        rows_of(*state,
                "--variant norm --pair fp32+fp32 --sum 1x1 --tensor loss --width 16 --dtype fp16,bf16 --norm rms "
                "--magnitude 1 --eps 1e-8 --statistics fp32,own",
                EXIT_CODE_OK);
    assert_true(norm_value(c, "rms", "fp16", "own", "1", "eps_stored") == 0);
    assert_true(norm_value(c, "rms", "fp16", "own", "1", "eps_smallest") == 1e-7);
    assert_true(norm_value(c, "rms", "fp16", "own", "1", "y_nonfinite") == 16); /* the row of zeros is 0/0 */
    assert_true(norm_value(c, "rms", "fp16", "fp32", "1", "y_nonfinite") == 0);
    assert_true(norm_value(c, "rms", "bf16", "own", "1", "eps_stored") > 0);
    assert_true(norm_value(c, "rms", "bf16", "own", "1", "y_nonfinite") == 0);
}

TEST_IN_FOLDER(overflows_are_no_errors)
{
    OWNED_CSV csv *c = rows_of(*state,
                               "--variant norm --pair fp32+fp32 --sum 1x1 --tensor loss --width 16 --dtype fp32,fp16 "
                               "--norm rms,layer --magnitude 1e30 --statistics fp32",
                               EXIT_CODE_OK);
    assert_int_equal(c->rows, 4);
    for (size_t row = 0; row < c->rows; row++)
        assert_true(csv_is(c, row, "status", "ok") && csv_real(c, row, "squares_overflowed") > 0);
    bench_says("bench_mixed_precision", "--variant norm --eps 0", EXIT_CODE_USAGE, "--eps: 0 is out of range");
}

TEST_IN_FOLDER(speed_ups_are_over_fp32)
{
    static const char tiny[] = "--variant timing --pair fp32+fp32 --tensor loss --width 8 --norm rms --iters 3 --seq 8";
    char *arguments = xasprintf("%s --precision fp32,bf16", tiny);
    setenv("STEPBENCH_RUN", "one", 1);
    csv *c = rows_of(*state, arguments, EXIT_CODE_OK);
    free(arguments);
    assert_int_equal(c->rows, 2);
    assert_true(csv_real(c, 0, "speedup_step") == 1 && csv_real(c, 0, "speedup_bwd") == 1);
    double fp32_ms = csv_real(c, 0, "step_ms");
    assert_true(fabs(csv_real(c, 1, "speedup_step") / (fp32_ms / csv_real(c, 1, "step_ms")) - 1) < 1e-6);
    csv_free(c);
    arguments = xasprintf("%s --precision tf32", tiny); /* fp32 is now a stored row of the same campaign */
    c = rows_of(*state, arguments, EXIT_CODE_OK);
    free(arguments);
    assert_int_equal(c->rows, 3);
    assert_true(fabs(csv_real(c, 2, "speedup_step") / (fp32_ms / csv_real(c, 2, "step_ms")) - 1) < 1e-6);
    csv_free(c);
    arguments = xasprintf("%s --precision tf32 --batch 1", tiny); /* of this shape there is none */
    c = rows_of(*state, arguments, EXIT_CODE_OK);
    free(arguments);
    assert_true(isnan(csv_real(c, 3, "speedup_step")));
    csv_free(c);
    unsetenv("STEPBENCH_RUN");
    arguments = xasprintf("%s --precision bf16", tiny); /* nor in this run */
    c = rows_of(*state, arguments, EXIT_CODE_OK);
    free(arguments);
    assert_true(isnan(csv_real(c, 4, "speedup_step")));
    csv_free(c);
}

static double of_row(const csv *c, const char *product, const char *values, const char *column)
{
    return csv_real(c, row_with(c, "product", product, "values", values), column);
}

/* What each scaling loses of such values, in percent, with steps of codes as far from each other as the formats have them. One
 * feature spoils what shares its scale, and so do rows of other sizes. */
static const char *const distributions[] = {"normal", "outlier", "rows", "heavy"};
static const struct {
    const char *product;
    double of[4];
} losses[] = {{"tensor-fast", {3.81, 7.78, 8.92, 3.87}}, {"tensor", {3.81, 7.78, 8.92, 3.87}},
              {"tensor-e5m2", {6.03, 6.02, 6.03, 6.12}}, {"row-fast", {3.81, 4.71, 3.81, 3.87}},
              {"row", {3.81, 4.71, 3.81, 3.87}},         {"block", {3.81, 3.93, 3.81, 3.87}},
              {"block-dw", {3.81, 3.93, 3.81, 3.87}},    {"mx", {3.81, 3.84, 3.81, 3.87}}};

static void expect_losses(const csv *c)
{
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        for (int v = 0; v < 4; v++) {
            const double want = losses[i].of[v] / 100, got = of_row(c, losses[i].product, distributions[v], "err_rel");
            if (!(fabs(got - want) <= 0.1 * want))
                fail_msg("%s loses %.2f %% of %s, not %.2f %%", losses[i].product, 100 * got, distributions[v],
                         100 * want);
        }
}

/* What casts and sums lose, as theory and an H100 have it. */
TEST_IN_FOLDER(float8_loses_what_it_must)
{
    OWNED_CSV csv *c = rows_of(*state, "--variant float8 --shape 32x64x1024 --values all --iters 3", EXIT_CODE_OK);
    assert_int_equal(c->rows, 5 * 9);
    expect_losses(c);
    static const char *const e4m3[] = {"tensor-fast", "tensor", "row-fast", "row", "block", "block-dw", "mx"};
    for (size_t i = 0; i < sizeof e4m3 / sizeof *e4m3; i++)
        assert_true(fabs(of_row(c, e4m3[i], "normal", "err_rel") - 0.038) < 0.002);
    assert_true(fabs(of_row(c, "tensor-e5m2", "normal", "err_rel") - 0.058) < 0.004);
    assert_true(fabs(of_row(c, "tensor-fast", "positive", "bias_pct") + 1.5) < 0.3);
    assert_true(fabs(of_row(c, "tensor", "positive", "bias_pct") + 0.06) < 0.06);
    /* One feature spoils what shares its scale: a matrix, a row, 128 of a row, 32 of a row. */
    assert_true(of_row(c, "tensor", "outlier", "err_rel") > 1.5 * of_row(c, "row", "outlier", "err_rel"));
    assert_true(of_row(c, "row", "outlier", "err_rel") > 1.05 * of_row(c, "block", "outlier", "err_rel"));
    assert_true(of_row(c, "block", "outlier", "err_rel") > of_row(c, "mx", "outlier", "err_rel"));
    assert_true(of_row(c, "tensor", "rows", "err_rel") > 2 * of_row(c, "row", "rows", "err_rel"));
    assert_true(of_row(c, "tensor", "rows", "underflow_pct") > 1 && of_row(c, "row", "rows", "underflow_pct") < 0.1);
    for (size_t r = 0; r < c->rows; r++)
        if (!csv_is(c, r, "product", "bf16"))
            assert_true(csv_real(c, r, "predicted_pct") == 100 && csv_real(c, r, "saturated") == 0);
    assert_true(isnan(of_row(c, "block", "normal", "cast_copy_pct"))); /* K is above N: D holds less than A */
    csv_free(rows_of(*state, "--variant float8 --shape 32x33x64", EXIT_CODE_USAGE));
}
