/* SPDX-License-Identifier: MIT */
/* bench_checkpoint on CPU ranks: every numeric column is measured, or recomputed from the others of its row; each planted
 * error fails the check, by name, and a slow copy does not. */
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

#define MS(bytes, rate) (N(bytes) / N(rate) / 1e6)
FORMULA(stall_steps, N("stall_ms") / N("step_ms"))
FORMULA(law, IS("variant", "sync")    ? fmax(MS("rank_bytes", "down_gb_s"), MS("state_bytes", "write_gb_s"))
             : IS("variant", "async") ? MS("rank_bytes", "down_gb_s")
             : IS("variant", "lazy")  ? fmax(0, MS("rank_bytes", "down_gb_s") - N("fwd_bwd_ms"))
                                      : MS("rank_bytes", "within_gb_s"))
FORMULA(excess, N("stall_ms") - N("law_ms"))
FORMULA(beside, 100 * (N("beside_ms") / N("step_ms") - 1))
FORMULA(lost_s, fmax(N("stall_ms"), 0) / 1e3)
FORMULA(interval, sqrt(2 * lost_s(c, row) * 3.1 * 3600))
FORMULA(cost, lost_s(c, row) > 0 ? 100 * lost_s(c, row) / interval(c, row) : 0)
FORMULA(copied_rate, N("rank_bytes") / N("copied_ms") / 1e6)
FORMULA(durable_rate, N("state_bytes") / N("durable_ms") / 1e6)
FORMULA(durable_share, 100 * N("durable_gb_s") / N("write_gb_s"))
FORMULA(load_share, 100 * N("load_gb_s") / fmin(N("read_gb_s"), N("up_gb_s")))
FORMULA(pin_rate, N("host_bytes") / N("pin_s") / 1e9)
FORMULA(two, 2)
FORMULA(within_device, IS("variant", "device") ? N("device_bytes") : 0)
static const column_rule rules[] = {{"step_ms", MEASURED, NULL, 0},
                                    {"fwd_bwd_ms", MEASURED, NULL, 0},
                                    {"state_bytes", MEASURED, NULL, 0},
                                    {"rank_bytes", MEASURED, NULL, 0},
                                    {"stall_ms", MEASURED, NULL, 0},
                                    {"stall_max_ms", MEASURED, NULL, 0},
                                    {"stall_first_ms", MEASURED, NULL, 0},
                                    {"stall_steps", DERIVED, stall_steps, 1e-6},
                                    {"call_ms", MEASURED, NULL, 0},
                                    {"law_ms", DERIVED, law, 1e-5},
                                    {"excess_ms", DERIVED, excess, 1e-5},
                                    {"beside_ms", MEASURED, NULL, 0},
                                    {"beside_pct", SOMETIMES, beside, 1e-4},
                                    {"n_beside", MEASURED, NULL, 0},
                                    {"n_saves", DERIVED, two, 0},
                                    {"best_interval_s", DERIVED, interval, 1e-5},
                                    {"best_cost_pct", DERIVED, cost, 1e-6},
                                    {"copied_ms", MEASURED, NULL, 0},
                                    {"written_ms", MEASURED, NULL, 0},
                                    {"synced_ms", MEASURED, NULL, 0},
                                    {"durable_ms", MEASURED, NULL, 0},
                                    {"durable_first_ms", MEASURED, NULL, 0},
                                    {"copied_gb_s", DERIVED, copied_rate, 1e-6},
                                    {"durable_gb_s", DERIVED, durable_rate, 1e-6},
                                    {"durable_pct", DERIVED, durable_share, 1e-4},
                                    {"down_gb_s", MEASURED, NULL, 0},
                                    {"up_gb_s", MEASURED, NULL, 0},
                                    {"within_gb_s", MEASURED, NULL, 0},
                                    {"write_gb_s", MEASURED, NULL, 0},
                                    {"read_gb_s", MEASURED, NULL, 0},
                                    {"hash_gb_s", MEASURED, NULL, 0},
                                    {"load_ms", MEASURED, NULL, 0},
                                    {"load_gb_s", MEASURED, NULL, 0},
                                    {"load_pct", DERIVED, load_share, 1e-4},
                                    {"pin_s", MEASURED, NULL, 0},
                                    {"pin_gb_s", DERIVED, pin_rate, 1e-6},
                                    {"host_bytes", MEASURED, NULL, 0},
                                    {"device_bytes", DERIVED, within_device, 0},
                                    {0}};

static void columns(void **state)
{
#ifndef HAVE_GLOO
    skip();
#endif
    char *arguments =
        xasprintf("--ranks 2 --seq 16 --strategy ddp --iters 3 --warmup 1 --saves 2 --folder %s", (char *)*state);
    columns_have_rules(*state, "bench_checkpoint", rules);
    columns_hold(bench_rows(*state, "bench_checkpoint", "", arguments, EXIT_CODE_OK), "bench_checkpoint", rules);
    columns_were_seen("bench_checkpoint", rules);
    free(arguments);
}

static void expect_verdict(const char *folder, const char *plant, const char *strategy, const char *sentence)
{
    char *arguments =
        xasprintf("--ranks 2 --seq 16 --iters 0 --variant lazy --folder %s --plant-error %s --strategy %s", folder,
                  plant, strategy);
    csv *c = bench_rows(folder, "bench_checkpoint", "", arguments, sentence ? EXIT_CODE_VERIFY : EXIT_CODE_OK);
    const size_t last = c->rows - 1;
    if (!csv_is(c, last, "status", sentence ? "fail" : "ok") ||
        (sentence && !strstr(csv_cell(c, last, "reason"), sentence)))
        fail_msg("%s with %s: %s, '%s'", strategy, plant, csv_cell(c, last, "status"), csv_cell(c, last, "reason"));
    if (!sentence)
        assert_string_equal(csv_cell(c, last, "resume"), "bit for bit");
    csv_free(c);
    free(arguments);
}

static void planted_errors_are_found(void **state)
{
#ifndef HAVE_GLOO
    skip();
#endif
    expect_verdict(*state, "slow", "fsdp", NULL);
    expect_verdict(*state, "bit", "zero1", "is damaged: its hash is another");
    expect_verdict(*state, "torn", "fsdp", "what was loaded is not what was saved");
    expect_verdict(*state, "low", "fsdp", "from lm_head.weight.master_low on");
    expect_verdict(*state, "step", "zero2", "after a resume: rank 0 has other bytes");
}

static void bad_folders_are_a_sentence(void **state)
{
#ifndef HAVE_GLOO
    skip();
#endif
    csv *c = bench_rows(*state, "bench_checkpoint", "",
                        "--ranks 1 --strategy ddp --iters 0 --variant sync --folder /proc/none", EXIT_CODE_UNSUPPORTED);
    assert_true(csv_is(c, c->rows - 1, "status", "skip"));
    assert_non_null(strstr(csv_cell(c, c->rows - 1, "reason"), "can't make the folder of checkpoints /proc/none"));
    csv_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {in_folder(columns), in_folder(planted_errors_are_found),
                                       in_folder(bad_folders_are_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
