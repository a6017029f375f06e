/* SPDX-License-Identifier: MIT */
/* bench_run on the CPU: its losses are PyTorch's, do not depend on ranks or strategy, and approach the entropy of the tokens; every
 * planted error is found by name. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

#define SHAPE "--size tiny --precision fp32 --seq 16 --layers 1 --d-model 32 --heads 2 "
#define SMALL SHAPE "--vocab 32 --iters 0 "

static csv *rows_of(const char *folder, const char *arguments, int code)
{
    return bench_rows(folder, "bench_run", "", arguments, code);
}

static csv *log_of(const char *folder, const char *name)
{
    OWNED char *path = xasprintf("%s/results/test-x1/run/%s.csv", folder, name);
    csv *c = csv_read(path);
    if (!c)
        fail_msg("there is no %s", path);
    return c;
}

/* ---- the losses ---- */

/* tests/peers/run.py made run_curve.csv from the dump of this very run. */
TEST(losses_are_those_of_pytorch)
{
    csv_free(
        rows_of(*state,
                "--size tiny --precision fp32 --vocab 32 --seq 16 --batch 8 --steps 200 --variant log --log-every 1 "
                "--iters 0 --check 0",
                EXIT_CODE_OK));
    OWNED_CSV csv *got = log_of(*state, "log-ddp-1-tiny-16-fp32"), *want = csv_read("tests/golden/run_curve.csv");
    assert_non_null(want);
    assert_int_equal(got->rows, 200);
    assert_int_equal(want->rows, 200);
    assert_true(csv_is(got, 199, "power_w", "nan") && csv_is(got, 199, "sm_mhz", "nan")); /* a CPU has no sensors */
    for (size_t i = 0; i < 200; i++) {
        static const char *const columns[] = {"loss", "norm", "rate"};
        for (size_t k = 0; k < 3; k++) {
            const double ours = csv_real(got, i, columns[k]), theirs = csv_real(want, i, columns[k]);
            if (!(fabs(ours - theirs) <= (k == 1 ? 1e-3 : 1e-4) * theirs)) /* rounding moves a norm more than a loss */
                fail_msg("step %zu: %s %.9g, PyTorch has %.9g", i + 1, columns[k], ours, theirs);
        }
    }
}

/* The same global batch, cut in other ways. */
TEST(losses_do_not_depend_on_the_ranks)
{
    static const char *const runs[] = {"--ranks 1 --batch 4 --strategy ddp", "--ranks 1 --batch 2 --micro-batches 2",
                                       "--ranks 2 --batch 2 --strategy ddp,zero1,zero2,fsdp",
                                       "--ranks 4 --batch 1 --strategy fsdp,hsdp"};
    double loss = NAN;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        OWNED char *arguments = xasprintf(SMALL "--steps 30 --variant log --check 0 %s", runs[i]);
        OWNED_CSV csv *c = rows_of(*state, arguments, EXIT_CODE_OK);
        for (size_t row = 0; row < c->rows; row++) {
            loss = isnan(loss) ? N("loss_last") : loss;
            if (!(fabs(N("loss_last") - loss) <= 1e-5 * loss))
                fail_msg("%s: the loss is %.9g, with one rank it is %.9g", runs[i], N("loss_last"), loss);
            assert_true(N("global_batch") == 4 && N("tokens") == 30 * 4 * 16);
        }
    }
}

/* With 400 steps the model has learned to look at two tokens, and is not below who knows the source. */
TEST(made_tokens_are_learned)
{
    csv *c = rows_of(*state,
                     "--size tiny --precision fp32 --vocab 16 --seq 32 --layers 2 --d-model 64 --heads 4 --batch 16 "
                     "--steps 400 --variant schedule --lr 5e-3 --iters 0 --check 0",
                     EXIT_CODE_OK);
    const size_t row = 0;
    assert_true(N("loss_last") < 1.6);
    assert_true(fabs(N("entropy_pair") - 1.2079737) < 1e-6);
    assert_true(fabs(N("floor_loss") - (log(16) + 31 * N("entropy_pair")) / 32) < 1e-6);
    assert_true(N("excess") > -3 * N("excess_sigma"));
    assert_true(fabs(N("excess") - (N("loss_last") - N("floor_loss"))) < 0.1);
    csv_free(c);
    c = rows_of(*state, SMALL "--steps 200 --variant data --overfit --lr 1e-2 --check 0", EXIT_CODE_OK);
    assert_true(N("loss_last") < 0.05);
    csv_free(c);
}

/* Every fiftieth window of 400 counts down, and all others count up. */
TEST(outliers_are_said)
{
    enum { WINDOWS = 400, LENGTH = 16 };
    OWNED char *tokens = folder_path(*state, "odd.bin"), *path = folder_path(*state, "out.txt");
    FILE *f = fopen(tokens, "wb");
    assert_non_null(f);
    for (int i = 0; i <= WINDOWS * LENGTH; i++)
        fwrite(&(uint16_t){(uint16_t)(i / LENGTH % 50 ? i % 31 : 30 - i % 31)}, 2, 1, f);
    fclose(f);
    OWNED char *run = xasprintf(SMALL "--steps 190 --lr 1e-2 --variant log --check 0 --data %s", tokens);
    OWNED_CSV csv *c = rows_of(*state, run, EXIT_CODE_OK);
    OWNED char *text = file_text(path);
    if (!(csv_real(c, 0, "outliers") >= 1) || !strstr(text, "stands out: its loss of ") ||
        !strstr(text, "stands out: its gradient norm of "))
        fail_msg("%s outliers: %s", csv_cell(c, 0, "outliers"), text);
}

TEST(each_case_of_a_sweep_has_a_log)
{
    OWNED_CSV csv *c = rows_of(*state, SMALL "--steps 12 --variant log --lr 1e-3,1e-2 --draw 0,1", EXIT_CODE_OK);
    assert_int_equal(c->rows, 4);
    for (size_t i = 0; i < 4; i++) {
        OWNED char *name =
            xasprintf("log-ddp-1-tiny-16-fp32-lr-%s-draw-%s", csv_cell(c, i, "lr"), csv_cell(c, i, "draw"));
        assert_string_equal(csv_cell(c, i, "log"), name);
        OWNED_CSV csv *log = log_of(*state, name);
        assert_true(fabs(csv_real(log, log->rows - 1, "norm") - csv_real(c, i, "norm_last")) < 1e-6);
    }
}

/* ---- planted errors ---- */

static void expect_found(const char *folder, const char *arguments, const char *words)
{
    OWNED char *all =
        xasprintf(SMALL "--variant log %s %s", strstr(arguments, "--steps") ? "" : "--steps 12", arguments);
    OWNED_CSV csv *c = rows_of(folder, all, EXIT_CODE_VERIFY);
    const char *reason = csv_cell(c, c->rows - 1, "reason");
    if (!strstr(reason, words))
        fail_msg("%s: '%s' lacks '%s'", arguments, reason, words);
}

TEST(planted_errors_are_found_by_name)
{
    char *tokens = folder_path(*state, "tokens.bin"), *repeat;
    FILE *f = fopen(tokens, "wb");
    for (int i = 0; i < 1000; i++)
        fwrite(&(uint16_t){(uint16_t)(i % 31)}, 2, 1, f);
    fclose(f);
    repeat = xasprintf("--plant-error repeat --data %s", tokens);
    expect_found(*state, "--plant-error rate", "update 12 was made with the rate");
    expect_found(*state, "--plant-error position", "in step 12 rank 0 had the tokens of rank 0 in step 13");
    expect_found(*state, "--ranks 2 --plant-error rank", "in step 12 rank 1 had the tokens of rank 0 in step 12");
    expect_found(*state, repeat, "has a window twice");
    expect_found(*state, "--steps 12 --lr 0 --min-lr 0 --plant-error target", "the targets of rank 0");
    expect_found(*state, "--steps 150 --lr 1e-2 --plant-error leak", "below the entropy");
    expect_found(*state, "--ranks 2 --plant-error mean", "the mean over ranks is");
    expect_found(*state, "--ranks 2 --plant-error max", "the mean over ranks is");
    expect_found(*state, "--ranks 2 --plant-error tokens", "and all ranks had 768");
    expect_found(*state, "--plant-error crc", "record 1 has a wrong CRC");
    expect_found(*state, "--steps 200 --lr 0 --min-lr 0", "says that nothing was learned");
    expect_found(*state, "--steps 200 --lr 0 --min-lr 0 --overfit", "one batch again and again has a loss of");
    free(repeat);
    free(tokens);
}

TEST(bad_data_is_one_sentence)
{
    static const struct {
        const char *options, *words;
    } wrong[] = {{"--vocab 32 --data /no/such/file", "No such file"},
                 {"--vocab 8 --symbols 16", "--symbols 16 is too many for tokens that are made: the vocabulary has 8"},
                 {"--vocab 32 --steps 5 --warmup 5", "--steps must be more than --warmup"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED char *arguments = xasprintf(SHAPE "--iters 0 --variant data --check 0 %s", wrong[i].options);
        csv_free(rows_of(*state, arguments, EXIT_CODE_USAGE));
        OWNED char *path = folder_path(*state, "out.txt"), *text = file_text(path);
        if (!strstr(text, wrong[i].words))
            fail_msg("%s: '%s' lacks '%s'", wrong[i].options, text, wrong[i].words);
    }
}

TESTS_WITH(folder_create, folder_remove)
