/* SPDX-License-Identifier: MIT */
/* See ddp_rows.h. */
#include "tests/support/test.h"

#include "tests/support/ddp_rows.h"

#include "tests/support/bench_run.h"
#include "tests/support/ranks.h"

#define WHERE "--device cpu --machine test-x1 --quiet --csv rows.csv --warmup 1 "
#define TINY "--layers 1 --d-model 32 --vocab 64 --seq 8 "

csv *ddp_rows_of_model(const char *bench, const char *model, const char *arguments, int code)
{
    OWNED char *path = bench_path(bench), *all = xasprintf(WHERE "%s%s", model, arguments);
    needs_gloo();
    remove("rows.csv");
    const int got = ranks_wait(ranks_start(path, bench, "", all));
    if (got != code)
        fail_msg("%s %s: exit code %d, not %d: %s%s", bench, all, got, code, ranks_text("err.txt"),
                 ranks_text("out.txt"));
    return access("rows.csv", R_OK) == 0 ? csv_read("rows.csv") : NULL;
}

csv *ddp_rows(const char *bench, const char *arguments, int code)
{
    return ddp_rows_of_model(bench, TINY, arguments, code);
}

void ddp_check_errors_of(const csv *c, size_t row, bool exact)
{
    const int ranks = (int)csv_real(c, row, "ranks");
    const bool fp32 = csv_is(c, row, "precision", "fp32") || csv_is(c, row, "grad_dtype", "fp32");
    if (!csv_is(c, row, "status", "ok"))
        fail_msg("%s on %d ranks: %s", csv_cell(c, row, "variant"), ranks, csv_cell(c, row, "reason"));
    assert_true(csv_real(c, row, "err_grad") <= (ranks == 2 && fp32 ? 0 : fp32 ? 1e-6 : 2e-2));
    assert_true(csv_real(c, row, "err_param") <= (ranks == 2 && fp32 && exact ? 0 : fp32 ? 1e-4 : 0.1));
}

void ddp_check_errors(const csv *c, size_t row)
{
    ddp_check_errors_of(c, row, true);
}

void ddp_check_row(const csv *c, size_t row)
{
    ddp_check_errors(c, row);
    assert_true(csv_real(c, row, "global_batch") == csv_real(c, row, "ranks") * csv_real(c, row, "batch"));
    assert_true(strlen(csv_cell(c, row, "checksum")) == 16);
    assert_true(csv_real(c, row, "step_ms") > 0 && csv_real(c, row, "compute_ms") > 0 &&
                csv_real(c, row, "comm_alone_ms") > 0);
    assert_true(fabs(csv_real(c, row, "step_ms") - csv_real(c, row, "compute_ms") - csv_real(c, row, "exposed_ms")) <
                1e-6);
    assert_true(csv_real(c, row, "exposed_lo_ms") <= csv_real(c, row, "exposed_hi_ms"));
    assert_true(csv_real(c, row, "after_ms") >= csv_real(c, row, "tail_ms") && csv_real(c, row, "tail_ms") >= 0);
    assert_true(csv_real(c, row, "loss_first") > 3 &&
                csv_real(c, row, "loss_last") < csv_real(c, row, "loss_first") + 0.5);
}
