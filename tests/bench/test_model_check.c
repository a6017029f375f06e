/* SPDX-License-Identifier: MIT */
/* The check of a model from outside, on the CPU: every policy, mode and way of overlap passes it, with an error of every
 * kind that the mode has; and what the row says of them. */
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "tests/support/bench_run.h"

static bool is(const csv *c, size_t row, const char *column, const char *value)
{
    return strcmp(csv_cell(c, row, column), value) == 0;
}

static void each_mode_has_its_errors(void **state)
{
    csv *c = bench_rows(*state, "bench_transformer", "",
                        "--size tiny --iters 1 --warmup 0 --seq 1,16 --precision all --overlap auto,gradients,none "
                        "--variant none,kernels --mode forward,forward-backward,train-step",
                        EXIT_CODE_OK);
    assert_non_null(c);
    assert_int_equal(c->rows, 2 * 5 * 3 * 2 * 3);
    for (size_t row = 0; row < c->rows; row++) {
        if (!is(c, row, "status", "ok"))
            fail_msg("row %zu: %s", row, csv_cell(c, row, "reason"));
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
    csv_free(c);
}

static void moments_in_16_bits(void **state)
{
    csv *c = bench_rows(*state, "bench_transformer", "",
                        "--size tiny --iters 1 --warmup 0 --seq 1,16 --precision all --moments fp32,bf16 "
                        "--overlap gradients,none --variant none,kernels --grad-dtype policy,fp32",
                        EXIT_CODE_OK);
    assert_non_null(c);
    assert_int_equal(c->rows, 2 * 5 * 2 * 2 * 2 * 2);
    for (size_t row = 0; row < c->rows; row++) {
        if (!is(c, row, "status", "ok"))
            fail_msg("row %zu: %s", row, csv_cell(c, row, "reason"));
        assert_true(csv_real(c, row, "err_param") < 1e-2);
    }
    csv_free(c);
    c = bench_rows(
        *state, "bench_transformer", "",
        "--size tiny --iters 1 --seq 16 --moments fp32,bf16 --mode forward,forward-backward --variant kernels",
        EXIT_CODE_UNSUPPORTED);
    assert_non_null(c);
    for (size_t row = 0; row < c->rows; row++)
        assert_non_null(strstr(csv_cell(c, row, "reason"), "is for --mode train-step"));
    csv_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_mode_has_its_errors),
                                       cmocka_unit_test(moments_in_16_bits)};
    return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
