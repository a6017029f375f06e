/* SPDX-License-Identifier: MIT */
/* bench_pp from outside, on CPU ranks over Gloo: every schedule has the bits of one rank, each planted error is found by name,
 * bad input is refused, and every numeric column is measured or recomputed from the others of its row. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

static csv *rows_with(const char *environment, const char *folder, int code, const char *arguments)
{
    needs_gloo();
    OWNED char *all = xasprintf("--warmup 1 --seq 16 --d-model 32 --heads 2 --d-ff 64 %s %s",
                                strstr(arguments, "--vocab") ? "" : "--vocab 64", arguments);
    csv *c = bench_rows(folder, "bench_pp", environment, all, code);
    return c;
}

static csv *rows_of(const char *folder, int code, const char *arguments)
{
    return rows_with("", folder, code, arguments);
}

static void same_bits(const csv *c, size_t r)
{
    if (csv_real(c, r, "err_loss") != 0 || csv_real(c, r, "err_grad") != 0 || csv_real(c, r, "err_param") != 0)
        fail_msg("%s on %s ranks differs from one rank", csv_cell(c, r, "variant"), csv_cell(c, r, "ranks"));
}

TEST_IN_FOLDER(schedules_have_the_bits_of_one_rank)
{
    static const char *const jobs[] = {"--ranks 2,3 --micro-batches 6",
                                       "--ranks 4 --micro-batches 4 --layers 9 --batch 2"};
    csv *c;
    for (int i = 0; i < 2; i++) {
        OWNED char *arguments = xasprintf("--iters 0 --precision bf16 --grad-dtype fp32 --loss-chunk 6 %s", jobs[i]);
        c = rows_of(*state, EXIT_CODE_OK, arguments);
        bench_all_ok(c, i == 0 ? 2 * 5 : 5);
        for (size_t r = 0; r < c->rows; r++)
            same_bits(c, r);
        csv_free(c);
    }
    c = rows_of(*state, EXIT_CODE_OK,
                "--iters 0 --ranks 3 --micro-batches 5 --layers 10 --precision fp32 --recompute block");
    assert_int_equal(c->rows, 5);
    for (size_t r = 0; r < c->rows; r++) /* 5 is no multiple of 3 */
        assert_string_equal(csv_cell(c, r, "status"), csv_is(c, r, "variant", "interleaved") ? "skip" : "ok");
    csv_free(c);
}

/* The norm is that of all stages, added up in another order than on one rank. */
TEST_IN_FOLDER(clipping_sees_all_stages)
{
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_OK, "--iters 0 --ranks 3 --micro-batches 3 --precision fp32 --clip 0.01");
    bench_all_ok(c, 5);
    for (size_t r = 0; r < c->rows; r++)
        assert_true(csv_real(c, r, "err_grad") == 0 && csv_real(c, r, "err_norm") < 1e-5 &&
                    csv_real(c, r, "err_param") < 1e-4);
}

/* Stages beside ranks that share layers, or the batch, and all three: within the check's bounds, with the norm of all. */
TEST_IN_FOLDER(stages_go_with_the_other_axes)
{
    static const char *const jobs[] = {
        "--ranks 4 --mesh pp2+tp2,pp2+dp_shard2 --variant 1f1b,zb-v",
        "--ranks 8 --mesh pp2+dp_shard2+tp2 --variant 1f1b --strategy fsdp-keep,fsdp-no-sync --vocab 4000",
        "--ranks 4 --mesh pp2+tp2 --variant 1f1b,zb-v --recompute block"};
    for (int i = 0; i < 3; i++) {
        OWNED char *arguments = xasprintf("--iters 0 --micro-batches 3 --precision fp32 --clip 0.01 %s", jobs[i]);
        OWNED_CSV csv *c = rows_of(*state, EXIT_CODE_OK, arguments);
        bench_all_ok(c, i == 0 ? 4 : 2);
        for (size_t r = 0; r < c->rows; r++)
            assert_true(csv_real(c, r, "err_norm") < 2e-5 && csv_real(c, r, "err_grad") > 0);
    }
}

/* Stages whose ranks have slices of parameters and add up whole gradients: the sums of ddp, in every bit, with any schedule. */
TEST_IN_FOLDER(slices_of_stages_have_the_bits_of_whole_ones)
{
    OWNED_CSV csv *c = rows_of(*state, EXIT_CODE_OK,
                               "--iters 0 --ranks 4 --mesh pp2+dp_shard2 --micro-batches 4 --precision fp32 --strategy "
                               "ddp,fsdp-no-sync --variant 1f1b,interleaved,zb-h1,zb-v");
    bench_all_ok(c, 2 * 4);
    for (size_t r = 0; r < c->rows; r++)
        for (size_t of = 0; of < r; of++)
            if (csv_is(c, of, "variant", csv_cell(c, r, "variant")))
                assert_true(csv_real(c, r, "err_loss") == csv_real(c, of, "err_loss") &&
                            csv_real(c, r, "err_grad") == csv_real(c, of, "err_grad") &&
                            csv_real(c, r, "err_param") == csv_real(c, of, "err_param") &&
                            csv_real(c, r, "err_grad") > 0);
}

TEST(meshes_that_cannot_be_had)
{
    static const char *const asked[][2] = {
        {"--ranks 4 --mesh pp3", "4 ranks are not a multiple of the 3 of the mesh pp3"},
        {"--ranks 2 --mesh pp2+tp2", "the mesh pp2+tp2 needs more than 2 ranks"},
        {"--ranks 4 --mesh pp2+tp2 --heads 3 --d-model 96", "heads 3 are not a multiple of tp 2"},
        {"--ranks 4 --mesh pp2,tp2",
         "--mesh lists pp2, which has 2 of 4 ranks: axes of one mesh are joined by +, as in "
         "pp2+tp2, and meshes of a list name dp_shard, too"},
        {"--ranks 8 --mesh dp_shard2,pp2,tp2", "--mesh lists pp2, which has 2 of 8 ranks"},
        {"--ranks 2,3 --layers 1", "the 2 chunks of pp 2 need more layers than 1"}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        bench_says("bench_pp", asked[i][0], EXIT_CODE_USAGE, asked[i][1]);
    bench_says("bench_pp", "--ranks 1 --layers 1 --variant interleaved --seq 16", EXIT_CODE_UNSUPPORTED,
               "2 stages need more layers than 1");
}

/* Beside meshes that can be had they are rows. */
TEST_IN_FOLDER(an_impossible_mesh_is_skipped)
{
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_OK, "--iters 0 --ranks 2 --mesh pp2+tp2,pp2 --variant 1f1b --precision fp32");
    assert_int_equal(c->rows, 2);
    assert_string_equal(csv_cell(c, 0, "reason"), "the mesh pp2+tp2 needs more than 2 ranks");
    assert_string_equal(csv_cell(c, 1, "status"), "ok");
}

TEST_IN_FOLDER(wrong_meshes_are_found)
{
    static const char *const errors[][2] = {
        {"norm", "wrong norm"}, {"groups", "which holds other parts"}, {"order", "which holds other parts"}};
    static const char *const meshes[] = {"4 --mesh pp2+tp2 --clip 0.01", "4 --mesh pp2+dp_shard2",
                                         "8 --mesh pp2+dp_shard2+tp2 --vocab 4000"};
    for (int i = 0; i < 3; i++) {
        OWNED char *arguments =
            xasprintf("--iters 0 --ranks %s --variant 1f1b --precision fp32 --plant-error %s", meshes[i], errors[i][0]);
        OWNED_CSV csv *c = rows_of(*state, EXIT_CODE_VERIFY, arguments);
        assert_string_equal(csv_cell(c, 0, "status"), "fail");
        if (!strstr(csv_cell(c, 0, "reason"), errors[i][1]))
            fail_msg("%s: %s", errors[i][0], csv_cell(c, 0, "reason"));
    }
}

/* What each error makes wrong first; only W can be missing where there are any. */
static const struct {
    const char *name, *wrong;
    bool split_alone;
} planted[] = {{"swap", "wrong loss", false},
               {"early", "wrong loss", false},
               {"no-w", "a table lacks an F, a B or a W", true},
               {"w-twice", "comes twice, so that another is missing", true},
               {"scale", "wrong gradient", false},
               {"loss", "wrong loss", false},
               {"boundary", "wrong parts: the ranks have", false}};

TEST_IN_FOLDER(planted_errors_are_found)
{
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        OWNED char *arguments =
            xasprintf("--iters 0 --ranks 2 --variant 1f1b,zb-v --precision fp32 --plant-error %s", planted[i].name);
        OWNED_CSV csv *c = rows_of(*state, EXIT_CODE_VERIFY, arguments);
        assert_int_equal(c->rows, 2);
        for (size_t r = 0; r < 2; r++) {
            const char *status = csv_cell(c, r, "status"), *reason = csv_cell(c, r, "reason");
            const bool has = !planted[i].split_alone || strncmp(csv_cell(c, r, "variant"), "zb-", 3) == 0;
            if (strcmp(status, has ? "fail" : "skip") != 0 || (has && !strstr(reason, planted[i].wrong)))
                fail_msg("%s, %s: %s, %s", planted[i].name, csv_cell(c, r, "variant"), status, reason);
        }
    }
}

TEST_IN_FOLDER(bad_input_is_refused)
{
    assert_null(rows_of(*state, EXIT_CODE_USAGE, "--ranks 2 --micro-batches 0"));
    assert_null(rows_of(*state, EXIT_CODE_USAGE, "--ranks 2 --variant dualpipe"));
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_OK, "--iters 0 --ranks 2 --variant zb-v --layers 3,4 --precision fp32,fp16");
    assert_int_equal(c->rows, 4);
    for (size_t r = 0; r < c->rows; r++)
        assert_string_equal(csv_cell(c, r, "status"),
                            csv_is(c, r, "layers", "4") && csv_is(c, r, "precision", "fp32") ? "ok" : "skip");
}

/* ---- columns ---- */

FORMULA(error, N("bubble_pct") - N("predicted_bubble_pct"))
FORMULA(rate, 1e3 * N("micro_batches") * N("batch") * N("seq") / N("step_ms"))
FORMULA(speedup, N("one_rank_ms") / N("step_ms"))
FORMULA(chunks, IS("variant", "zb-v") ? 2 : IS("variant", "interleaved") ? N("chunks") : 1)
FORMULA(tokens, N("micro_batches") * N("batch") * N("seq"))
FORMULA(blocks, 6 * N("layers") * N("d_model") * (4 * N("d_model") + 3 * N("d_ff")) * tokens(c, row))
FORMULA(others, 6 * N("d_model") * (N("vocab") + N("layers") * N("seq")) * tokens(c, row))
/* The CPU has the name of an H200: TFLOP/s of float8 and of bf16. */
FORMULA(in_float8, IS("precision", "fp8-block") ? blocks(c, row) : 0)
FORMULA(in_bf16, blocks(c, row) + others(c, row) - in_float8(c, row))
FORMULA(share, 100 * in_float8(c, row) / (in_float8(c, row) + in_bf16(c, row)))
FORMULA(per_rank, IS("precision", "fp32") ? NAN : 100 / N("ranks") / N("step_ms") / 1e9)
FORMULA(mfu, per_rank(c, row) * (in_float8(c, row) / 1978.9 + in_bf16(c, row) / 989.4))
FORMULA(mfu_bf16, per_rank(c, row) * (in_float8(c, row) + in_bf16(c, row)) / 989.4)
/* A case in bf16 comes half of the rows earlier. */
FORMULA(gain, IS("precision", "fp8-block") ? csv_real(c, row - c->rows / 2, "step_ms") / N("step_ms") : NAN)
FORMULA(one, 1)
FORMULA(three, 3)
FORMULA(none, 0)

/* Two ranks. Interleaved begins with 2 + p (v - 1) + 1 chunks, others with what they are known for. */
static double in_flight(const csv *c, size_t row)
{
    const double m = N("micro_batches");
    return IS("variant", "gpipe")         ? m
           : IS("variant", "interleaved") ? fmin(2 + 2 * (N("chunks") - 1) + 1, m * N("chunks")) / N("chunks")
                                          : 2;
}

static const column_rule rules[] = {
    {"n_steps", MEASURED, three, 0},
    {"err_points", DERIVED, error, 1e-4},
    {"in_flight", DERIVED, in_flight, 0},
    {"tokens_per_s", DERIVED, rate, 0},
    {"speedup", DERIVED, speedup, 0},
    {"mfu_causal_pct", DERIVED, mfu, 0},
    {"fp8_share_pct", DERIVED, share, 0},
    {"mfu_bf16_pct", DERIVED, mfu_bf16, 0},
    {"speedup_bf16", DERIVED, gain, 1e-6},
    {"plan_chunks", DERIVED, chunks, 0},
    {"hosts", MEASURED, one, 0},
    {"err_loss", MEASURED, none, 0},
    {"err_grad", MEASURED, none, 0},
    {"err_norm", MEASURED, none, 0},
    {"err_param", MEASURED, none, 0},
    {"step_ms step_p10_ms step_p90_ms bubble_pct predicted_bubble_pct stage_min_ms stage_max_ms hop_us "
     "send_wait_ms peak_bytes peak_bytes_first peak_bytes_last one_rank_ms plan_pct",
     MEASURED, NULL, 0},
    {0}};

/* Whatever the other work of the machine: a rank waits, but not always; memory follows what is in flight. */
static void plausible(const csv *c)
{
    for (size_t r = 0; r < c->rows; r++) {
        assert_true(csv_real(c, r, "bubble_pct") > 0 && csv_real(c, r, "bubble_pct") < 100);
        assert_true(csv_real(c, r, "predicted_bubble_pct") > 0 && csv_real(c, r, "predicted_bubble_pct") < 100);
        assert_true(csv_real(c, r, "stage_max_ms") >= csv_real(c, r, "stage_min_ms") &&
                    csv_real(c, r, "stage_max_ms") < csv_real(c, r, "step_ms"));
        assert_true(csv_real(c, r, "plan_pct") <= 100);
        assert_string_equal(csv_cell(c, r, "launched"), "eager");
    }
}

TEST_IN_FOLDER(columns)
{
    columns_have_rules(*state, "bench_pp", rules);
    csv *c =
        rows_of(*state, EXIT_CODE_OK, "--iters 3 --ranks 2 --micro-batches 4 --balance even,measured --precision fp32");
    bench_all_ok(c, 2 * 5);
    plausible(c);
    columns_hold(c, "bench_pp", rules);
    OWNED char *gpu = preload_build(*state, "gpu");
    c = rows_with(gpu, *state, EXIT_CODE_OK,
                  "--iters 3 --ranks 2 --micro-batches 4 --variant gpipe --precision bf16,fp8-block");
    columns_hold(c, "bench_pp", rules);
    columns_were_seen("bench_pp", rules);
}

/* What the lines of a strip say: 1 - the ranks' mean of their spans over the longest time of any, in percent. */
typedef struct strip {
    int actions;
    double busy, first[2], last[2];
} strip;

static void add_line(strip *s, int rank, double start, double end)
{
    s->first[rank] = s->actions && s->last[rank] > 0 ? fmin(s->first[rank], start) : start;
    s->last[rank] = fmax(s->last[rank], end);
    s->busy += end - start;
    s->actions++;
}

static double bubble_of(const strip *s)
{
    return 100 * (1 - s->busy / 2 / fmax(s->last[0] - s->first[0], s->last[1] - s->first[1]));
}

/* Both strips have the same actions, and the bubbles of the row. */
TEST_IN_FOLDER(a_timeline_has_both_strips)
{
    strip strips[2] = {{0}};
    char line[256], name[16], kind;
    int rank, action, micro, chunk, stage;
    double start, end;
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_OK, "--iters 1 --ranks 2 --micro-batches 4 --variant 1f1b --precision fp32");
    OWNED char *path = xasprintf("%s/results/test-x1/pipeline/%s", (const char *)*state, csv_cell(c, 0, "timeline"));
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("there is no %s", path);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%15[a-z],%d,%d,%c,%d,%d,%d,%lf,%lf", name, &rank, &action, &kind, &micro, &chunk, &stage,
                   &start, &end) == 9)
            add_line(&strips[strcmp(name, "recorded") == 0], rank, start, end);
    fclose(f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(strips[i].actions, 2 * 2 * 4);
    assert_true(fabs(bubble_of(&strips[0]) - csv_real(c, 0, "predicted_bubble_pct")) < 1e-2);
    assert_true(fabs(bubble_of(&strips[1]) - csv_real(c, 0, "bubble_pct")) < 1e-2);
}
