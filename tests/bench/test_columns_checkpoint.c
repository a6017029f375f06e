/* SPDX-License-Identifier: MIT */
/* bench_checkpoint on CPU ranks: every numeric column is measured, or recomputed from the others of its row; each planted
 * error fails the check, by name, and a slow copy does not. */
#include "tests/support/test.h"

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
FORMULA(into_ratio, N("load_gb_s") / N("into_gb_s"))
FORMULA(pin_rate, N("host_bytes") / N("pin_s") / 1e9)
FORMULA(two, 2)
FORMULA(within_device, IS("variant", "device") ? N("device_bytes") : 0)
static const column_rule rules[] = {
    {"stall_steps", DERIVED, stall_steps, 1e-6},
    {"law_ms", DERIVED, law, 1e-5},
    {"excess_ms", DERIVED, excess, 1e-5},
    {"beside_pct", SOMETIMES, beside, 1e-4},
    {"n_saves", DERIVED, two, 0},
    {"n_loads", DERIVED, two, 0},
    {"best_interval_s", DERIVED, interval, 1e-5},
    {"best_cost_pct", DERIVED, cost, 1e-6},
    {"copied_gb_s", DERIVED, copied_rate, 1e-6},
    {"durable_gb_s", DERIVED, durable_rate, 1e-6},
    {"durable_pct", DERIVED, durable_share, 1e-4},
    {"load_pct", DERIVED, load_share, 1e-4},
    {"into_ratio", DERIVED, into_ratio, 1e-6},
    {"pin_gb_s", DERIVED, pin_rate, 1e-6},
    {"device_bytes", DERIVED, within_device, 0},
    {"step_ms fwd_bwd_ms state_bytes rank_bytes stall_ms stall_min_ms stall_max_ms stall_first_ms call_ms "
     "beside_ms n_beside copied_ms written_ms synced_ms durable_ms durable_first_ms down_gb_s "
     "up_gb_s within_gb_s write_gb_s read_gb_s hash_gb_s load_ms load_gb_s verify_gb_s into_ms into_gb_s pin_s "
     "host_bytes",
     MEASURED, NULL, 0},
    {0}};

TEST_IN_FOLDER(columns)
{
    needs_gloo();
    OWNED char *arguments = xasprintf(
        "--ranks 2 --seq 16 --strategy ddp --iters 3 --warmup 1 --saves 2 --loads 2 --folder %s", (char *)*state);
    columns_have_rules(*state, "bench_checkpoint", rules);
    columns_run(*state, "bench_checkpoint", "", arguments, rules);
    OWNED char *into = xasprintf("%s --variant sync --load-into fsdp --load-ranks 1", arguments);
    columns_run(*state, "bench_checkpoint", "", into, rules);
    columns_were_seen("bench_checkpoint", rules);
}

/* Weights, moments, what a policy keeps beside them, and the loss scale. */
TEST_IN_FOLDER(resumes_are_bit_for_bit)
{
    static const char *const runs[] = {
        "--strategy ddp,zero1,zero2,fsdp,fsdp-keep,hsdp --precision bf16 --moments bf16 --variant async",
        "--strategy ddp,fsdp-keep,hsdp --precision fp16 --update after --variant lazy"};
    static const size_t cases[] = {6, 3};
    needs_gloo();
    for (size_t i = 0; i < 2; i++) {
        OWNED char *arguments = xasprintf("--ranks 4 --seq 16 --iters 0 --folder %s %s", (char *)*state, runs[i]);
        OWNED_CSV csv *c = bench_rows(*state, "bench_checkpoint", "", arguments, EXIT_CODE_OK);
        assert_true(c->rows >= cases[i]);
        for (size_t row = c->rows - cases[i]; row < c->rows; row++)
            assert_string_equal(csv_cell(c, row, "resume"), "bit for bit");
    }
}

/* They may lie in memory, as they do by default. */
TEST_IN_FOLDER(a_signal_leaves_no_checkpoints)
{
    needs_gloo();
    const char *where = getenv("STEPBENCH_BIN");
    OWNED char *programs = realpath(where ? where : ".", NULL);
    OWNED char *command = xasprintf(
        "cd '%s' && '%s/bench_checkpoint' --device cpu --csv none --quiet --ranks 2 --seq 16 --strategy ddp --iters 1 "
        "--variant sync --check 0 --saves 1000 --folder . 2>said & pid=$!; cd '%s'; "
        "until ls -d stepbench-*/step-* >/dev/null 2>&1 || ! kill -0 $pid; do sleep 0.02; done; "
        "kill -TERM $pid; wait $pid; echo $?; ls -d stepbench-* 2>/dev/null; cat said",
        (char *)*state, programs, (char *)*state);
    int code;
    OWNED char *said = command_text(command, &code);
    text_has(said, "143\n");
    text_has(said, "stopped by SIGTERM");
    text_lacks(said, "stepbench-");
}

static void expect_verdict(const char *folder, const char *plant, const char *strategy, const char *sentence)
{
    OWNED char *arguments =
        xasprintf("--ranks 2 --seq 16 --iters 0 --variant lazy --folder %s --plant-error %s --strategy %s", folder,
                  plant, strategy);
    OWNED_CSV csv *c =
        bench_rows(folder, "bench_checkpoint", "", arguments, sentence ? EXIT_CODE_VERIFY : EXIT_CODE_OK);
    const size_t last = c->rows - 1;
    if (!csv_is(c, last, "status", sentence ? "fail" : "ok") ||
        (sentence && !strstr(csv_cell(c, last, "reason"), sentence)))
        fail_msg("%s with %s: %s, '%s'", strategy, plant, csv_cell(c, last, "status"), csv_cell(c, last, "reason"));
    if (!sentence)
        assert_string_equal(csv_cell(c, last, "resume"), "bit for bit");
}

TEST_IN_FOLDER(planted_errors_are_found)
{
    needs_gloo();
    expect_verdict(*state, "slow", "fsdp", NULL);
    expect_verdict(*state, "bit", "zero1", "is damaged: its hash is another");
    expect_verdict(*state, "torn", "fsdp", "what was loaded is not what was saved");
    expect_verdict(*state, "low", "fsdp", "from lm_head.weight.master_low on");
    expect_verdict(*state, "step", "zero2", "after a resume: rank 0 has other bytes");
}
