/* SPDX-License-Identifier: MIT */
/* bench_recompute from outside, on the CPU: its derived columns from the raw ones, budgets kept, refusals. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

static csv *run(const char *folder, const char *arguments, int code)
{
    OWNED char *all = xasprintf("--iters 3 --warmup 1 %s", arguments);
    return bench_rows(folder, "bench_recompute", "", all, code);
}

static size_t row_of(const csv *c, const char *variant)
{
    size_t r = 0;
    while (r < c->rows && !csv_is(c, r, "variant", variant))
        r++;
    assert_true(r < c->rows);
    return r;
}

/* `of`: what the numbers are of that `want` is a difference of. A cell has nine digits. */
static void same(double got, double want, double of)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want) + 1e-8 * fabs(of) + 1e-9))
        fail_msg("%.9g, want %.9g", got, want);
}

TEST_IN_FOLDER(derived_columns)
{
    OWNED_CSV csv *c = run(*state, "--size tiny --d-model 32 --layers 5 --seq 16 --batch 2 --group 2", EXIT_CODE_OK);
    const size_t none = row_of(c, "none"), group = row_of(c, "group"), nested = row_of(c, "nested");
    assert_int_equal(c->rows, 14);
    for (size_t r = 0; r < c->rows; r++) {
        if (!csv_is(c, r, "status", "ok"))
            continue;
        const double ms = csv_real(c, r, "step_ms"), base = csv_real(c, none, "step_ms");
        const double saved = csv_real(c, none, "peak_bytes") - csv_real(c, r, "peak_bytes");
        same(csv_real(c, r, "extra_pct"), 100 * (ms - base) / base, 100 * ms / base);
        same(csv_real(c, r, "saved_bytes"), saved, 0);
        same(csv_real(c, r, "err_step_pct"), 100 * fabs(csv_real(c, r, "predicted_step_ms") - ms) / ms, 100);
        same(csv_real(c, r, "tokens_per_s"), 2 * 16 / (ms * 1e-3), 0);
        if (saved > 0)
            same(csv_real(c, r, "ms_per_gib"), (ms - base) / (saved / 0x1p30), ms / (saved / 0x1p30));
        assert_true(isnan(csv_real(c, r, "driver_bytes"))); /* a host's free memory says nothing */
    }
    assert_string_equal(csv_cell(c, group, "group_used"), "2");
    assert_string_equal(csv_cell(c, group, "forwards_again"), "5");
    assert_true(csv_real(c, nested, "forwards_passed") > 0);
    assert_true(csv_real(c, none, "forwards_again") == 0);
}

TEST_IN_FOLDER(plans_keep_to_their_budget)
{
    /* Narrow blocks and many tokens: else AdamW's moments are most of it, and the budget does not matter. */
    OWNED_CSV csv *c =
        run(*state,
            "--check 0 --size tiny --d-model 32 --layers 6 --vocab 16 --seq 128 --batch 2 --precision fp32 "
            "--variant none,block,plan",
            EXIT_CODE_OK);
    const double most = csv_real(c, row_of(c, "none"), "peak_bytes"),
                 least = csv_real(c, row_of(c, "block"), "peak_bytes");
    const double budget = csv_real(c, row_of(c, "plan"), "budget_bytes");
    const double taken = csv_real(c, row_of(c, "plan"), "peak_bytes");
    assert_true(fabs(budget - (most + least) / 2) <= 65536); /* without the gaps in front of arenas */
    assert_true(taken <= budget + 65536 && taken >= least);  /* the least if by the clock it cost nothing */
}

TEST_IN_FOLDER(refusals)
{
    assert_null(run(*state, "--mode forward", EXIT_CODE_USAGE));
    assert_null(run(*state, "--budget -1", EXIT_CODE_USAGE));
    OWNED_CSV csv *c = run(*state, "--size tiny --layers 4 --seq 16 --precision fp32 --variant plan --budget 1000",
                           EXIT_CODE_UNSUPPORTED);
    assert_non_null(strstr(csv_cell(c, 0, "reason"), "no schedule fits"));
}

TEST_IN_FOLDER(groups_of_other_models)
{
    bench_says("bench_recompute", "--size tiny --layers 1 --seq 16 --iters 1 --variant group-smaller",
               EXIT_CODE_UNSUPPORTED, "no group is smaller than one block");
    bench_says("bench_recompute", "--size tiny --layers 1 --seq 16 --iters 1 --variant group --group 2",
               EXIT_CODE_UNSUPPORTED, "groups of 2 need more layers than 1");
}
