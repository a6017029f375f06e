/* SPDX-License-Identifier: MIT */
/* bench_allreduce from outside, on CPU ranks over Gloo: what its check expects after several calls back to back, whose
 * sums grow in place, and that a sample is divided by its calls. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

static csv *rows_of(const char *folder, const char *arguments)
{
    needs_gloo();
    OWNED char *all = xasprintf("--warmup 1 --iters 3 %s", arguments);
    csv *c = bench_rows(folder, "bench_allreduce", "", all, EXIT_CODE_OK);
    assert_non_null(c);
    return c;
}

TEST_IN_FOLDER(several_calls_are_checked)
{
    OWNED_CSV csv *c = rows_of(*state, "--ranks 2,3 --bytes 30K --dtype fp32,bf16 --in-place 0,1 --calls 9 "
                                       "--variant all-reduce,all-gather,reduce-scatter,broadcast,reduce,all-to-all,"
                                       "send-recv");
    assert_int_equal(c->rows, 2 * 2 * 2 * 7);
    for (size_t r = 0; r < c->rows; r++) {
        const char *op = csv_cell(c, r, "variant");
        if ((strcmp(op, "all-to-all") == 0 || strcmp(op, "send-recv") == 0) && csv_is(c, r, "in_place", "1")) {
            assert_string_equal(csv_cell(c, r, "status"), "skip");
            continue;
        }
        if (!csv_is(c, r, "status", "ok"))
            fail_msg("row %zu: %s", r, csv_cell(c, r, "reason"));
        assert_true(csv_real(c, r, "err_elements") == 0);
        assert_true(csv_real(c, r, "n_calls") == 9);
    }
}

/* On all numbers of ranks up to eight GPUs that are measured; send-recv has no in place. */
TEST_IN_FOLDER(many_ranks_are_checked)
{
    OWNED_CSV csv *c = rows_of(*state, "--ranks 3,4,6,8 --bytes 30K --in-place 0 --variant all-reduce,all-gather,"
                                       "reduce-scatter,broadcast,reduce,all-to-all,send-recv");
    bench_all_ok(c, 4 * 7);
    for (size_t r = 0; r < c->rows; r++)
        assert_true(csv_real(c, r, "err_elements") == 0);
}

/* Calls back to back take no longer each than calls apart; a sample that is not divided would be 30 calls long. */
TEST_IN_FOLDER(a_sample_is_divided_by_its_calls)
{
    OWNED_CSV csv *one = rows_of(*state, "--ranks 2 --bytes 4M --variant all-reduce --calls 1");
    OWNED_CSV csv *many = rows_of(*state, "--ranks 2 --bytes 4M --variant all-reduce --calls 30");
    const double ratio = csv_real(many, 0, "min_ms") / csv_real(one, 0, "min_ms");
    if (!(ratio > 0.1 && ratio < 6))
        fail_msg("a call takes %g ms alone and %g ms among 30", csv_real(one, 0, "min_ms"),
                 csv_real(many, 0, "min_ms"));
}
