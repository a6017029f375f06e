/* SPDX-License-Identifier: MIT */
/* The benches of data parallelism from outside, on CPU ranks over Gloo: every strategy is checked on 2, 3 and 4
 * ranks and ends with the same parameters, planted errors make rows fail, and columns agree with each other. */
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "tests/support/ranks.h"

#define WHERE "--device cpu --machine test-x1 --quiet --csv rows.csv --warmup 1 "
#define TINY "--layers 1 --d-model 32 --vocab 64 --seq 8 "

static char here[4096]; /* folder of this program */

/* The bench, beside the folder of the tests or where the Makefile puts programs. Skips the test when it is not built. */
static char *bench_path(const char *name)
{
    char folder[sizeof here];
    snprintf(folder, sizeof folder, "%s", here);
    for (int up = 0; up < 4; up++) {
        char *path = xasprintf("%s/%s", folder, name);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
        *strrchr(folder, '/') = 0;
    }
    skip();
    return NULL;
}

/* Under ASan, where each of these takes several times as long, uneven slices stand for all: their ends are where memory would
 * be overrun. Numbers are compared for each count by the plain build. */
#ifdef __SANITIZE_ADDRESS__
#define RANKS_2_3 "3"
#define RANKS_2_3_4 "3"
enum { TWO_COUNTS = 1, THREE_COUNTS = 1 }; /* of ranks */
#else
#define RANKS_2_3 "2,3"
#define RANKS_2_3_4 "2,3,4"
enum { TWO_COUNTS = 2, THREE_COUNTS = 3 };
#endif

/* Runs it; its rows, or NULL when there are none. */
static csv *rows_of_model(const char *bench, const char *model, const char *arguments, int code)
{
    char *path = bench_path(bench), *all = xasprintf(WHERE "%s%s", model, arguments);
#ifndef HAVE_GLOO
    skip();
#endif
    remove("rows.csv");
    const int got = ranks_wait(ranks_start(path, bench, "", all));
    if (got != code)
        fail_msg("%s %s: exit code %d, not %d: %s%s", bench, all, got, code, ranks_text("err.txt"),
                 ranks_text("out.txt"));
    free(path);
    free(all);
    return access("rows.csv", R_OK) == 0 ? csv_read("rows.csv") : NULL;
}

static csv *rows_of(const char *bench, const char *arguments, int code)
{
    return rows_of_model(bench, TINY, arguments, code);
}

/* ---- every strategy ---- */

/* fp32 parameters after the first timed block, which has the same steps in every bench. */
static char checksum[20];

/* Exact: two ranks in fp32 give the bits of one. */
static void check_errors_of(const csv *c, size_t row, bool exact)
{
    const int ranks = (int)csv_real(c, row, "ranks");
    const bool fp32 = csv_is(c, row, "precision", "fp32") || csv_is(c, row, "grad_dtype", "fp32");
    if (!csv_is(c, row, "status", "ok"))
        fail_msg("%s on %d ranks: %s", csv_cell(c, row, "variant"), ranks, csv_cell(c, row, "reason"));
    assert_true(csv_real(c, row, "err_grad") <= (ranks == 2 && fp32 ? 0 : fp32 ? 1e-6 : 2e-2));
    assert_true(csv_real(c, row, "err_param") <= (ranks == 2 && fp32 && exact ? 0 : fp32 ? 1e-4 : 0.1));
}

static void check_errors(const csv *c, size_t row)
{
    check_errors_of(c, row, true);
}

static void check_row(const csv *c, size_t row)
{
    check_errors(c, row);
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

/* Checked on 2, 3 and 4 ranks. Timed on 2, where the sum of two numbers does not depend on who makes it: all
 * strategies come to the same bits. */
static void every_strategy(const char *bench, const char *more, int variants, int buckets)
{
    char *arguments = xasprintf("--ranks " RANKS_2_3_4 " --iters 0 --precision fp32 --grad-dtype policy %s", more);
    csv *c = rows_of(bench, arguments, EXIT_CODE_OK);
    assert_int_equal(c->rows, THREE_COUNTS * variants);
    for (size_t row = 0; row < c->rows; row++)
        check_errors(c, row);
    csv_free(c);
    free(arguments);
    arguments = xasprintf("--ranks 2 --iters 2 --precision fp32 --grad-dtype policy %s", more);
    c = rows_of(bench, arguments, EXIT_CODE_OK);
    assert_int_equal(c->rows, variants);
    for (size_t row = 0; row < c->rows; row++) {
        check_row(c, row);
        assert_true(csv_real(c, row, "buckets") == buckets && csv_real(c, row, "n_steps") == 2);
        if (!*checksum)
            snprintf(checksum, sizeof checksum, "%s", csv_cell(c, row, "checksum"));
        assert_string_equal(csv_cell(c, row, "checksum"), checksum);
    }
    csv_free(c);
    free(arguments);
}

static void naive(void **state)
{
    (void)state;
    every_strategy("bench_ddp_naive", "", 2, 12);
}

static void flat(void **state)
{
    (void)state;
    every_strategy("bench_ddp_flat", "", 2, 1);
}

static void overlapped(void **state)
{
    (void)state;
    every_strategy("bench_ddp_overlap", "--overlap gradients", 1, 12);
}

static void bucketed(void **state)
{
    (void)state;
    every_strategy("bench_ddp_bucketed", "--bucket-mb 0.02", 1, 4);
}

static void sharded(void **state)
{
    (void)state;
    every_strategy("bench_zero1", "--bucket-mb 0.02 --variant all", 4, 4);
}

/* ---- units ---- */

#define THREE_BLOCKS "--layers 3 --d-model 32 --vocab 64 --seq 8 "

/* The one row of a variant in a case. */
static size_t row_of(const csv *c, const char *variant, const char *ranks, const char *precision)
{
    for (size_t row = 0; row < c->rows; row++)
        if (csv_is(c, row, "variant", variant) && csv_is(c, row, "ranks", ranks) &&
            csv_is(c, row, "precision", precision))
            return row;
    fail_msg("no row of %s on %s ranks in %s", variant, ranks, precision);
    return 0;
}

static void check_units(const csv *c, const char *ranks, const char *precision)
{
    const size_t ddp = row_of(c, "ddp", ranks, precision), zero2 = row_of(c, "zero2", ranks, precision),
                 fsdp = row_of(c, "fsdp", ranks, precision), keep = row_of(c, "fsdp-keep", ranks, precision);
    const double params = csv_real(c, ddp, "param_bytes"), grads = csv_real(c, ddp, "grad_bytes"), n = atoi(ranks);
    const size_t both[] = {fsdp, keep};
    for (size_t i = 0; i < 2; i++) {
        const size_t row = both[i];
        assert_string_equal(csv_cell(c, row, "checksum"), csv_cell(c, zero2, "checksum"));
        assert_true(csv_real(c, row, "param_bytes") < 1.05 * params / n &&
                    csv_real(c, row, "grad_bytes") < 1.05 * grads / n);
        assert_true(csv_real(c, row, "gathered_bytes") >= params &&
                    csv_real(c, row, "gathered_peak_bytes") < 1.05 * params);
    }
    assert_true(csv_real(c, zero2, "grad_bytes") < 1.05 * grads / n && csv_real(c, zero2, "param_bytes") >= params);
    assert_true(csv_real(c, fsdp, "gathered_bytes") > 1.5 * csv_real(c, keep, "gathered_bytes"));
    assert_true(csv_real(c, fsdp, "gathered_peak_bytes") < csv_real(c, keep, "gathered_peak_bytes"));
    assert_true(csv_real(c, zero2, "gathered_bytes") == 0);
}

/* On 2 and 3 ranks. Those that work on units come to the same bits, since they have the same sums. */
static void units(void **state)
{
    (void)state;
    csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS,
                           "--ranks " RANKS_2_3 " --iters 2 --precision fp32,bf16 --grad-dtype policy", EXIT_CODE_OK);
    assert_int_equal(c->rows, 12 * TWO_COUNTS);
    for (size_t row = 0; row < c->rows; row++) {
        if (csv_is(c, row, "variant", "hsdp")) /* replicas_of_slices */
            continue;
        check_row(c, row);
        assert_true(csv_real(c, row, "err_pct") == 0 && csv_real(c, row, "err_measured_pct") < 3);
    }
    if (TWO_COUNTS == 2) {
        check_units(c, "2", "fp32");
        check_units(c, "2", "bf16");
    }
    check_units(c, "3", "fp32");
    csv_free(c);
}

/* Two replicas of two ranks and the like: the sums are in another order than those of all ranks. */
static void replicas_of_slices(void **state)
{
    (void)state;
    csv *c =
        rows_of_model("bench_fsdp", THREE_BLOCKS,
                      "--ranks 4 --iters 1 --precision fp32,bf16 --grad-dtype policy --variant hsdp", EXIT_CODE_OK);
    assert_int_equal(c->rows, 2);
    for (size_t row = 0; row < c->rows; row++) {
        check_row(c, row);
        assert_true(csv_real(c, row, "err_pct") == 0 && csv_real(c, row, "err_measured_pct") < 3);
    }
    csv_free(c);
    c = rows_of_model("bench_fsdp", THREE_BLOCKS,
                      "--ranks " RANKS_2_3 " --precision fp32 --grad-dtype policy --variant hsdp",
                      EXIT_CODE_UNSUPPORTED);
    assert_int_equal(c->rows, TWO_COUNTS);
    csv_free(c);
}

/* A norm over all gradients, of which each rank has slices: the check compares it on every rank. Slices are added up in another order
 * than the whole, so that on some processors the factor differs in its last bit. */
static void clipped(void **state)
{
    (void)state;
    static const char *const more[] = {"--ranks " RANKS_2_3 " --variant ddp,zero1,zero2,fsdp",
                                       "--ranks 4 --variant hsdp"};
    for (size_t i = 0; i < 2; i++) {
        char *arguments =
            xasprintf("%s --iters 0 --precision fp32,bf16 --grad-dtype policy --update after --clip 0.01", more[i]);
        csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, i ? 2 : 8 * TWO_COUNTS);
        for (size_t row = 0; row < c->rows; row++)
            check_errors_of(c, row, csv_is(c, row, "variant", "ddp"));
        csv_free(c);
        free(arguments);
    }
    csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS, "--ranks 2 --precision fp32 --grad-dtype policy --clip 1",
                           EXIT_CODE_UNSUPPORTED); /* bucket by bucket nobody knows the norm */
    csv_free(c);
}

/* fp32 weights apart, of which a rank draws and keeps its slices, and a loss scale that needs the norm. */
static void fp16_in_slices(void **state)
{
    (void)state;
    csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS,
                           "--ranks " RANKS_2_3 " --iters 1 --precision fp16 --grad-dtype policy,fp32 --update after "
                           "--variant zero2,fsdp",
                           EXIT_CODE_OK);
    assert_int_equal(c->rows, 4 * TWO_COUNTS);
    for (size_t row = 0; row < c->rows; row++) {
        const bool exact = csv_real(c, row, "ranks") == 2 && csv_is(c, row, "grad_dtype", "fp32");
        assert_string_equal(csv_cell(c, row, "status"), "ok");
        assert_true(csv_real(c, row, "err_grad") <= (exact ? 0 : 2e-3) && csv_real(c, row, "err_param") <= 1e-2);
    }
    csv_free(c);
}

/* Made in one dtype, summed in another: fp32 sums of two ranks are exact, whatever the gradients are made in, and so are
 * those of three where the numbers have 16 bits. */
static void sums_of_another_dtype(void **state)
{
    (void)state;
    static const char *const more[] = {
        "--ranks " RANKS_2_3 " --precision bf16 --grad-dtype policy --reduce-dtype fp32 --variant ddp,zero1,zero2,fsdp",
        "--ranks " RANKS_2_3 " --precision bf16 --grad-dtype fp32 --reduce-dtype bf16 --variant ddp,zero1,zero2,fsdp",
        "--ranks " RANKS_2_3 " --precision fp32 --grad-dtype policy --reduce-dtype bf16 --variant ddp,zero1,zero2,fsdp",
        "--ranks " RANKS_2_3
        " --precision fp16 --grad-dtype policy --reduce-dtype fp32 --update after --variant ddp,zero2,fsdp",
        ("--ranks 2 --precision bf16 --grad-dtype policy --reduce-dtype fp32 --update after --micro-batches 2 "
         "--clip 0.1 --overlap gradients --variant ddp,zero1,zero2,fsdp"),
        "--ranks 4 --precision bf16 --grad-dtype policy --reduce-dtype fp32 --micro-batches 2 --variant hsdp"};
    static const size_t rows[] = {4 * TWO_COUNTS, 4 * TWO_COUNTS, 4 * TWO_COUNTS, 3 * TWO_COUNTS, 4, 1};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char *arguments = xasprintf("--iters 1 %s", more[i]);
        csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, rows[i]);
        for (size_t row = 0; row < c->rows; row++) {
            const bool fp32 = csv_is(c, row, "reduce_dtype", "fp32");
            if (!csv_is(c, row, "status", "ok"))
                fail_msg("%s, %s: %s", arguments, csv_cell(c, row, "variant"), csv_cell(c, row, "reason"));
            assert_string_equal(csv_cell(c, row, "wire_dtype"), csv_cell(c, row, "reduce_dtype"));
            assert_true(csv_real(c, row, "err_grad") <= (fp32 ? 1e-6 : 2e-2) && csv_real(c, row, "err_param") <= 0.1);
            assert_true(!fp32 || i > 0 || csv_real(c, row, "err_grad") == 0);
            assert_true(fp32 || csv_real(c, row, "err_grad") > 0);
            assert_true(csv_real(c, row, "err_pct") == 0 && csv_real(c, row, "err_measured_pct") < 3);
        }
        csv_free(c);
        free(arguments);
    }
    csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS,
                           "--ranks 2 --precision bf16,fp16 --grad-dtype policy --reduce-dtype bf16 --update after",
                           EXIT_CODE_UNSUPPORTED); /* the same, and a loss of digits */
    csv_free(c);
}

/* Gains of norms that every rank has: the same checks, a bucket more, and with two ranks the same loss. */
static void small_parameters_replicated(void **state)
{
    (void)state;
    static const char *const more[] = {
        "--ranks 2 --variant zero2,fsdp,fsdp-keep",
        "--ranks 3 --variant zero2,fsdp",
        "--ranks 4 --variant hsdp",
        "--ranks 2 --variant zero2,fsdp --overlap gradients --micro-batches 3 --recompute block",
        "--ranks 4 --variant fsdp,hsdp --micro-batches 2 --reduce-dtype bf16",
        ("--ranks " RANKS_2_3 " --variant zero2,fsdp --update after --clip 0.01 --micro-batches 2")};
    static const size_t rows[] = {6, 4, 2, 4, 4, 4 * TWO_COUNTS};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char *arguments =
            xasprintf("--iters 1 --precision fp32 --grad-dtype policy --small sharded,replicated %s", more[i]);
        csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, rows[i]);
        for (size_t row = 0; row < c->rows; row += 2) { /* sharded, replicated */
            for (size_t r = row; r < row + 2; r++) {
                if (!csv_is(c, r, "status", "ok"))
                    fail_msg("%s, %s: %s", arguments, csv_cell(c, r, "variant"), csv_cell(c, r, "reason"));
                assert_true(csv_real(c, r, "err_pct") == 0 && csv_real(c, r, "err_measured_pct") < 3);
            }
            assert_string_equal(csv_cell(c, row + 1, "small"), "replicated");
            assert_true(csv_real(c, row + 1, "buckets") == csv_real(c, row, "buckets") + 1);
            if (i == 0) /* sums of two are exact */
                assert_true(csv_real(c, row + 1, "loss_last") == csv_real(c, row, "loss_last"));
        }
        csv_free(c);
        free(arguments);
    }
}

/* The second moment is rounded by a hash of an element's index in the whole model, so that slices have its bits. */
static void moments_in_slices(void **state)
{
    (void)state;
    static const char *const more[][2] = {
        {"bench_fsdp", "--precision fp32,bf16 --variant ddp,zero1,zero2,fsdp --update after,buckets"},
        {"bench_fsdp", "--precision bf16 --variant zero2,fsdp --small replicated"},
        {"bench_zero1", "--precision bf16 --variant zero1,zero1-broadcast --update buckets"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char *arguments =
            xasprintf("--ranks " RANKS_2_3 " --iters 0 --grad-dtype policy,fp32 --moments bf16 %s", more[i][1]);
        csv *c = rows_of_model(more[i][0], THREE_BLOCKS, arguments, EXIT_CODE_OK);
        for (size_t row = 0; row < c->rows; row++)
            if (!csv_is(c, row, "status", "skip"))
                check_errors(c, row);
        csv_free(c);
        free(arguments);
    }
}

/* Gradients of three micro-batches; alone and in fp32 with the bits of one batch after another. */
static void accumulated(void **state)
{
    (void)state;
    static const char *const more[] = {"--ranks 1,2,3 --variant ddp,zero1,zero2,fsdp", "--ranks 4 --variant hsdp",
                                       "--ranks 2 --variant ddp,fsdp --overlap gradients --clip 0.1 --update after"};
    for (size_t i = 0; i < 3; i++) {
        char *arguments =
            xasprintf("%s --iters 1 --precision fp32,bf16 --grad-dtype policy --micro-batches 3", more[i]);
        csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, i == 0 ? 24 : i == 1 ? 2 : 4);
        for (size_t row = 0; row < c->rows; row++) {
            const bool alone = csv_real(c, row, "ranks") == 1 && csv_is(c, row, "precision", "fp32");
            assert_string_equal(csv_cell(c, row, "status"), "ok");
            assert_true(csv_real(c, row, "err_grad") <= (alone                                 ? 0
                                                         : csv_is(c, row, "precision", "fp32") ? 1e-6
                                                                                               : 2e-2));
            assert_true(csv_real(c, row, "global_batch") == 3 * csv_real(c, row, "ranks") * csv_real(c, row, "batch"));
            assert_true(isnan(csv_real(c, row, "fwd_ms")) && isnan(csv_real(c, row, "bwd_ms")));
        }
        csv_free(c);
        free(arguments);
    }
}

/* Each case has a check of its own: with the loss in chunks, gradients are rounded in another order. */
static void loss_in_chunks(void **state)
{
    (void)state;
    static const char arguments[] =
        "--ranks 3 --iters 1 --precision bf16 --grad-dtype policy --update after --variant zero1",
                      model[] = "--size tiny --layers 2 --seq 16 --batch 2 ";
    char *both = xasprintf("%s --loss-chunk 0,4", arguments), *alone = xasprintf("%s --loss-chunk 4", arguments);
    csv *c = rows_of_model("bench_zero1", model, both, EXIT_CODE_OK);
    assert_int_equal(c->rows, 2);
    const double whole = csv_real(c, 0, "err_param"), chunks = csv_real(c, 1, "err_param");
    csv_free(c);
    c = rows_of_model("bench_zero1", model, alone, EXIT_CODE_OK);
    assert_true(chunks != whole && chunks == csv_real(c, 0, "err_param"));
    csv_free(c);
    free(both);
    free(alone);
}

/* What --dry-run says that a rank needs, by its strategy. */
static void memory_before_it_starts(void **state)
{
    (void)state;
    static const char arguments[] = "--device cpu --machine test-x1 --size tiny --d-model 256 --layers 6 --seq 16 "
                                    "--batch 1 --ranks 4 --precision bf16 --grad-dtype policy --variant all "
                                    "--iters 1 --warmup 1 --check 0";
#ifndef HAVE_GLOO
    skip();
#endif
    char *path = bench_path("bench_fsdp"), *dry = xasprintf("%s --dry-run", arguments),
         *real_run = xasprintf("%s --quiet --csv rows.csv", arguments);
    assert_int_equal(ranks_wait(ranks_start(path, "bench_fsdp", "", dry)), EXIT_CODE_OK);
    char *said = xstrdup(ranks_text("out.txt"));
    assert_int_equal(ranks_wait(ranks_start(path, "bench_fsdp", "", real_run)), EXIT_CODE_OK);
    csv *c = csv_read("rows.csv");
    assert_non_null(c);
    assert_int_equal(c->rows, 6);
    for (size_t row = 0; row < c->rows; row++) {
        char *line = xasprintf("variant=%s  (about ", csv_cell(c, row, "variant"));
        const char *at = strstr(said, line);
        const double estimate = at ? strtod(at + strlen(line), NULL) * 0x1p30 : NAN;
        if (!(fabs(estimate / csv_real(c, row, "peak_bytes") - 1) < 0.1))
            fail_msg("%s: about %g bytes, in fact %g", csv_cell(c, row, "variant"), estimate,
                     csv_real(c, row, "peak_bytes"));
        free(line);
    }
    csv_free(c);
    free(said);
    free(dry);
    free(real_run);
    free(path);
}

/* However far ahead units are gathered, and whatever is computed again: the same sums, and the same bits. */
static void units_in_every_order(void **state)
{
    (void)state;
    static const char *const more[] = {"--prefetch 0,1,2,3", "--overlap gradients --recompute none,attn,mlp",
                                       "--recompute block --recompute-every 1,2 --prefetch 0,2",
                                       "--update after --free-every 2,3"};
    char first[20] = "";
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char *arguments =
            xasprintf("--ranks 2 --iters 1 --precision fp32 --grad-dtype policy --variant fsdp %s", more[i]);
        csv *c = rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        for (size_t row = 0; row < c->rows; row++) {
            check_row(c, row);
            if (!*first)
                snprintf(first, sizeof first, "%s", csv_cell(c, row, "checksum"));
            assert_string_equal(csv_cell(c, row, "checksum"), first);
        }
        csv_free(c);
        free(arguments);
    }
}

static void planted_errors_in_slices_are_found(void **state)
{
    static const char *const plants[] = {"gradient", "parameter"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char *arguments = xasprintf("--ranks 2 --precision fp32 --grad-dtype policy --variant zero2,fsdp,fsdp-keep "
                                    "--plant-error %s",
                                    plants[i]);
        csv *c = rows_of("bench_fsdp", arguments, EXIT_CODE_VERIFY);
        assert_int_equal(c->rows, 3);
        for (size_t row = 0; row < c->rows; row++)
            assert_string_equal(csv_cell(c, row, "status"), "fail");
        csv_free(c);
        free(arguments);
    }
}

/* ---- other precisions, memory ---- */

static void parts_of_the_state(void **state)
{
    (void)state;
    csv *c = rows_of("bench_zero1", "--ranks 2 --iters 1 --precision bf16,bf16-pure,fp16 --variant all", EXIT_CODE_OK);
    assert_int_equal(c->rows, 24);
    for (size_t row = 0; row < c->rows; row += 4) { /* unsharded, zero1, zero1-broadcast, fused */
        if (csv_is(c, row, "precision", "fp16")) {
            for (size_t i = row; i < row + 4; i++)
                assert_true(csv_is(c, i, "status", "skip") && strstr(csv_cell(c, i, "reason"), "fp16"));
            continue;
        }
        for (size_t i = row; i < row + 4; i++) {
            check_row(c, i);
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
    csv_free(c);
}

static void policies_with_a_loss_scale(void **state)
{
    (void)state;
    csv *c = rows_of("bench_ddp_flat", "--ranks 2 --iters 1 --precision fp16,tf32 --grad-dtype policy", EXIT_CODE_OK);
    for (size_t row = 0; row < c->rows; row++)
        check_row(c, row);
    csv_free(c);
}

#define SOME_SIZE "--d-model 256 --heads 8 --d-ff 512 --vocab 4000 --seq 64 "
#define FP32_SUMS "--iters 0 --precision bf16 --grad-dtype fp32 --bucket-mb 1 "

/* On three ranks an fp32 sum depends on its order, and a model of some size has weights that its last bit moves to
 * another 16-bit number: the next gradients then differ by far more than that bit. With which seeds, depends on the
 * processor; the check must pass with all. */
static void orders_of_a_sum(void **state)
{
    (void)state;
    for (int seed = 2; seed <= 6; seed += 4) {
        char *arguments = xasprintf("--ranks 3 --seed %d " FP32_SUMS, seed);
        csv *c = rows_of_model("bench_ddp_bucketed", SOME_SIZE, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "ok");
        assert_true(csv_real(c, 0, "err_grad") <= 1e-6);
        assert_true(csv_real(c, 0, "err_param") < 4 * 0x1p-8);
        csv_free(c);
        free(arguments);
    }
}

static void overheads_are_those_of_the_model(void **state)
{
    (void)state;
    csv *c = rows_of("bench_ddp_bucketed",
                     "--ranks 2 --iters 1 --precision fp32 --grad-dtype policy --bucket-mb 0.02,1", EXIT_CODE_OK);
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
    csv_free(c);
}

/* ---- what must go wrong ---- */

static void planted_errors_are_found(void **state)
{
    static const char *const benches[] = {"bench_ddp_naive", "bench_zero1"};
    (void)state;
    for (size_t b = 0; b < 2; b++) {
        csv *c = rows_of(benches[b], "--ranks 2 --precision fp32,bf16 --grad-dtype policy --plant-error gradient",
                         EXIT_CODE_VERIFY);
        for (size_t row = 0; row < c->rows; row++) {
            assert_string_equal(csv_cell(c, row, "status"), "fail");
            assert_non_null(strstr(csv_cell(c, row, "reason"), "lm_head.weight"));
            assert_true(isnan(csv_real(c, row, "step_ms")) && csv_real(c, row, "err_grad") > 0.05);
        }
        csv_free(c);
    }
    csv *c = rows_of("bench_zero1", "--ranks 2 --precision bf16 --grad-dtype policy --plant-error parameter",
                     EXIT_CODE_VERIFY);
    for (size_t row = 0; row < c->rows; row++) {
        assert_string_equal(csv_cell(c, row, "status"), "fail");
        assert_non_null(strstr(csv_cell(c, row, "reason"), "parameters of rank 1 are not those of rank 0"));
    }
    csv_free(c);
}

/* Wrong from the second update on only, on one rank of three: where two right results may differ most. */
static void late_errors_are_found(void **state)
{
    static const char *const plants[] = {"half", "stale"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char *arguments = xasprintf("--ranks 3 " FP32_SUMS "--plant-error %s", plants[i]);
        csv *c = rows_of_model("bench_ddp_bucketed", SOME_SIZE, arguments, EXIT_CODE_VERIFY);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "fail");
        assert_non_null(strstr(csv_cell(c, 0, "reason"), "lm_head.weight after 3 updates"));
        assert_true(csv_real(c, 0, "err_grad") <= 1e-6 && csv_real(c, 0, "err_param") > 0.03);
        csv_free(c);
        free(arguments);
    }
}

/* Where sum, update and sharing are one, an error in a gradient is one of the sum and of the update. */
static void planted_errors_in_a_pass_are_found(void **state)
{
    static const char *const plants[] = {"gradient", "parameter", "half", "stale"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char *arguments = xasprintf("--ranks 2 --iters 0 --precision fp32 --grad-dtype policy --variant fused "
                                    "--plant-error %s",
                                    plants[i]);
        csv *c = rows_of("bench_zero1", arguments, EXIT_CODE_VERIFY);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "status"), "fail");
        csv_free(c);
        free(arguments);
    }
}

static void bad_input(void **state)
{
    (void)state;
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
        assert_null(rows_of(wrong[i][0], wrong[i][1], EXIT_CODE_USAGE));
        assert_int_equal(ranks_lines("err.txt"), 1);
    }
}

/* A case that would be another one under a wrong name gets no row with numbers. */
static void cases_that_are_others(void **state)
{
    (void)state;
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
        csv *c = rows_of(same[i][0], same[i][1], EXIT_CODE_UNSUPPORTED);
        for (size_t row = 0; row < c->rows; row++)
            assert_true(csv_is(c, row, "status", "skip") && *csv_cell(c, row, "reason"));
        csv_free(c);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, ranks_enter_folder, ranks_leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(naive),
        IN_FOLDER(flat),
        IN_FOLDER(overlapped),
        IN_FOLDER(bucketed),
        IN_FOLDER(sharded),
        IN_FOLDER(units),
        IN_FOLDER(replicas_of_slices),
        IN_FOLDER(clipped),
        IN_FOLDER(loss_in_chunks),
        IN_FOLDER(memory_before_it_starts),
        IN_FOLDER(fp16_in_slices),
        IN_FOLDER(moments_in_slices),
        IN_FOLDER(accumulated),
        IN_FOLDER(sums_of_another_dtype),
        IN_FOLDER(small_parameters_replicated),
        IN_FOLDER(units_in_every_order),
        IN_FOLDER(planted_errors_in_slices_are_found),
        IN_FOLDER(parts_of_the_state),
        IN_FOLDER(policies_with_a_loss_scale),
        IN_FOLDER(orders_of_a_sum),
        IN_FOLDER(overheads_are_those_of_the_model),
        IN_FOLDER(planted_errors_are_found),
        IN_FOLDER(late_errors_are_found),
        IN_FOLDER(planted_errors_in_a_pass_are_found),
        IN_FOLDER(bad_input),
        IN_FOLDER(cases_that_are_others),
    };
    if (readlink("/proc/self/exe", here, sizeof here - 1) < 0)
        return 1;
    *strrchr(here, '/') = 0;
    return cmocka_run_group_tests_name("ddp", tests, NULL, NULL);
}
