/* SPDX-License-Identifier: MIT */
/* bench_fsdp from outside, on CPU ranks over Gloo: slices of gradients, of optimizer states and of parameters pass the check on 2
 * to 4 ranks, whatever the order and the dtypes, and planted errors in them make rows fail. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/ddp_rows.h"
#include "tests/support/ranks.h"

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
TEST_IN_RANKS_FOLDER(units)
{
    OWNED_CSV csv *c =
        ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                          "--ranks " RANKS_2_3 " --iters 2 --precision fp32,bf16 --grad-dtype policy", EXIT_CODE_OK);
    assert_int_equal(c->rows, 12 * TWO_COUNTS);
    for (size_t row = 0; row < c->rows; row++) {
        if (csv_is(c, row, "variant", "hsdp")) /* replicas_of_slices */
            continue;
        ddp_check_row(c, row);
        assert_true(csv_real(c, row, "err_pct") == 0 && csv_real(c, row, "err_measured_pct") < 3);
    }
    if (TWO_COUNTS == 2) {
        check_units(c, "2", "fp32");
        check_units(c, "2", "bf16");
    }
    check_units(c, "3", "fp32");
}

/* Two replicas of two ranks and the like: the sums are in another order than those of all ranks. */
TEST_IN_RANKS_FOLDER(replicas_of_slices)
{
    csv *c =
        ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                          "--ranks 4 --iters 1 --precision fp32,bf16 --grad-dtype policy --variant hsdp", EXIT_CODE_OK);
    assert_int_equal(c->rows, 2);
    for (size_t row = 0; row < c->rows; row++) {
        ddp_check_row(c, row);
        assert_true(csv_real(c, row, "err_pct") == 0 && csv_real(c, row, "err_measured_pct") < 3);
    }
    csv_free(c);
    c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                          "--ranks 2,3,4 --iters 0 --precision fp32 --grad-dtype policy --variant hsdp", EXIT_CODE_OK);
    assert_int_equal(c->rows, 3);
    assert_true(csv_is(c, 0, "status", "skip") && csv_is(c, 1, "status", "skip") && csv_is(c, 2, "status", "ok"));
    assert_non_null(strstr(csv_cell(c, 0, "reason"), "--ranks 2 is --replicas: nothing is sharded"));
    assert_non_null(strstr(csv_cell(c, 1, "reason"), "--replicas 2 does not divide --ranks 3"));
    csv_free(c);
    c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                          "--ranks 8 --replicas 2,4 --iters 0 --precision fp32 --grad-dtype policy --variant hsdp",
                          EXIT_CODE_OK);
    bench_all_ok(c, 2);
    for (size_t row = 0; row < c->rows; row++)
        ddp_check_errors(c, row);
    csv_free(c);
}

/* A norm over all gradients, of which each rank has slices: the check compares it on every rank. Slices are added up in another order
 * than the whole, so that on some processors the factor differs in its last bit. */
TEST_IN_RANKS_FOLDER(clipped)
{
    static const char *const more[] = {"--ranks " RANKS_2_3 " --variant ddp,zero1,zero2,fsdp",
                                       "--ranks 4 --variant hsdp"};
    for (size_t i = 0; i < 2; i++) {
        OWNED char *arguments =
            xasprintf("%s --iters 0 --precision fp32,bf16 --grad-dtype policy --update after --clip 0.01", more[i]);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        assert_int_equal(c->rows, i ? 2 : 8 * TWO_COUNTS);
        for (size_t row = 0; row < c->rows; row++)
            ddp_check_errors_of(c, row, csv_is(c, row, "variant", "ddp"));
    }
    csv_free(ddp_rows_of_model("bench_fsdp", THREE_BLOCKS, "--ranks 2 --precision fp32 --grad-dtype policy --clip 1",
                               EXIT_CODE_UNSUPPORTED)); /* bucket by bucket nobody knows the norm */
}

/* fp32 weights apart, of which a rank draws and keeps its slices, and a loss scale that needs the norm. */
TEST_IN_RANKS_FOLDER(fp16_in_slices)
{
    OWNED_CSV csv *c =
        ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                          "--ranks " RANKS_2_3 " --iters 1 --precision fp16 --grad-dtype policy,fp32 --update after "
                          "--variant zero2,fsdp",
                          EXIT_CODE_OK);
    assert_int_equal(c->rows, 4 * TWO_COUNTS);
    for (size_t row = 0; row < c->rows; row++) {
        const bool exact = csv_real(c, row, "ranks") == 2 && csv_is(c, row, "grad_dtype", "fp32");
        assert_string_equal(csv_cell(c, row, "status"), "ok");
        assert_true(csv_real(c, row, "err_grad") <= (exact ? 0 : 2e-3) && csv_real(c, row, "err_param") <= 1e-2);
    }
}

/* Made in one dtype, summed in another: fp32 sums of two ranks are exact, whatever the gradients are made in, and so are
 * those of three where the numbers have 16 bits. */
TEST_IN_RANKS_FOLDER(sums_of_another_dtype)
{
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
        OWNED char *arguments = xasprintf("--iters 1 %s", more[i]);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
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
    }
    csv_free(ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                               "--ranks 2 --precision bf16,fp16 --grad-dtype policy --reduce-dtype bf16 --update after",
                               EXIT_CODE_UNSUPPORTED)); /* the same, and a loss of digits */
}

/* A step without communication between its micro-batches: units come once, and whole gradients are reduced once. With one
 * micro-batch it has the bits of fsdp-keep. */
TEST_IN_RANKS_FOLDER(units_held_for_all_micro_batches)
{
    OWNED_CSV csv *c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS,
                                         "--ranks " RANKS_2_3
                                         " --iters 2 --micro-batches 1,3 --precision fp32,bf16 --grad-dtype policy "
                                         "--variant fsdp-keep,fsdp-no-sync",
                                         EXIT_CODE_OK);
    const size_t half = c->rows / 2;
    assert_int_equal(c->rows, 8 * TWO_COUNTS);
    for (size_t row = 0; row < half; row++) { /* the second half is fsdp-no-sync */
        const size_t held = half + row;
        const double micros = csv_real(c, row, "micro_batches");
        ddp_check_errors_of(c, held, false);
        assert_true(csv_is(c, held, "variant", "fsdp-no-sync") && csv_is(c, row, "variant", "fsdp-keep"));
        assert_true(csv_real(c, held, "micro_batches") == micros &&
                    csv_is(c, held, "ranks", csv_cell(c, row, "ranks")));
        assert_true(csv_real(c, held, "err_pct") == 0 && csv_real(c, held, "err_measured_pct") < 3);
        assert_true(csv_real(c, row, "gathered_bytes") == micros * csv_real(c, held, "gathered_bytes"));
        assert_true(csv_real(c, row, "wire_bytes") == micros * csv_real(c, held, "wire_bytes"));
        if (micros == 1)
            assert_string_equal(csv_cell(c, held, "checksum"), csv_cell(c, row, "checksum"));
    }
}

/* Gains of norms that every rank has: the same checks, a bucket more, and with two ranks the same loss. */
TEST_IN_RANKS_FOLDER(small_parameters_replicated)
{
    static const char *const more[] = {
        "--ranks 2 --variant zero2,fsdp,fsdp-keep",
        "--ranks 3 --variant zero2,fsdp",
        "--ranks 4 --variant hsdp",
        "--ranks 2 --variant zero2,fsdp --overlap gradients --micro-batches 3 --recompute block",
        "--ranks 2 --variant fsdp-no-sync --micro-batches 3 --overlap gradients",
        "--ranks 4 --variant fsdp,hsdp --micro-batches 2 --reduce-dtype bf16",
        ("--ranks " RANKS_2_3 " --variant zero2,fsdp --update after --clip 0.01 --micro-batches 2")};
    static const size_t rows[] = {6, 4, 2, 4, 2, 4, 4 * TWO_COUNTS};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        OWNED char *arguments =
            xasprintf("--iters 1 --precision fp32 --grad-dtype policy --small sharded,replicated %s", more[i]);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
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
    }
}

/* The second moment is rounded by a hash of an element's index in the whole model, so that slices have its bits. */
TEST_IN_RANKS_FOLDER(moments_in_slices)
{
    static const char *const more[][2] = {
        {"bench_fsdp", "--precision fp32,bf16 --variant ddp,zero1,zero2,fsdp --update after,buckets"},
        {"bench_fsdp", "--precision bf16 --variant zero2,fsdp --small replicated"},
        {"bench_zero1", "--precision bf16 --variant zero1,zero1-broadcast --update buckets"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        OWNED char *arguments =
            xasprintf("--ranks " RANKS_2_3 " --iters 0 --grad-dtype policy,fp32 --moments bf16 %s", more[i][1]);
        OWNED_CSV csv *c = ddp_rows_of_model(more[i][0], THREE_BLOCKS, arguments, EXIT_CODE_OK);
        for (size_t row = 0; row < c->rows; row++)
            if (!csv_is(c, row, "status", "skip"))
                ddp_check_errors(c, row);
    }
}

/* Gradients of three micro-batches; alone and in fp32 with the bits of one batch after another. */
TEST_IN_RANKS_FOLDER(accumulated)
{
    static const char *const more[] = {"--ranks 1,2,3 --variant ddp,zero1,zero2,fsdp", "--ranks 4 --variant hsdp",
                                       "--ranks 2 --variant ddp,fsdp --overlap gradients --clip 0.1 --update after"};
    for (size_t i = 0; i < 3; i++) {
        OWNED char *arguments =
            xasprintf("%s --iters 1 --precision fp32,bf16 --grad-dtype policy --micro-batches 3", more[i]);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
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
    }
}

/* What --dry-run says that a rank needs, by its strategy. */
TEST_IN_RANKS_FOLDER(memory_before_it_starts)
{
    static const char arguments[] =
        "--device cpu --machine test-x1 --size tiny --d-model 128 --layers 6 --vocab 1000 --seq 16 "
        "--batch 1 --ranks 4 --precision bf16 --grad-dtype policy --variant all "
        "--iters 1 --warmup 1 --check 0";
    needs_gloo();
    OWNED char *path = bench_path("bench_fsdp"), *dry = xasprintf("%s --dry-run", arguments),
               *real_run = xasprintf("%s --quiet --csv rows.csv", arguments);
    assert_int_equal(ranks_wait(ranks_start(path, "bench_fsdp", "", dry)), EXIT_CODE_OK);
    OWNED char *said = xstrdup(ranks_text("out.txt"));
    assert_int_equal(ranks_wait(ranks_start(path, "bench_fsdp", "", real_run)), EXIT_CODE_OK);
    OWNED_CSV csv *c = csv_read("rows.csv");
    assert_non_null(c);
    assert_int_equal(c->rows, 7);
    for (size_t row = 0; row < c->rows; row++) {
        OWNED char *line = xasprintf("variant=%s  (about ", csv_cell(c, row, "variant"));
        const char *at = strstr(said, line);
        const double estimate = at ? strtod(at + strlen(line), NULL) * 0x1p30 : NAN;
        if (!(fabs(estimate / csv_real(c, row, "peak_bytes") - 1) < 0.1))
            fail_msg("%s: about %g bytes, in fact %g", csv_cell(c, row, "variant"), estimate,
                     csv_real(c, row, "peak_bytes"));
    }

    OWNED char *ways =
        xstrdup("--device cpu --size tiny --ranks 2 --precision bf16 --variant fsdp --reduce nccl,copy --dry-run");
    assert_int_equal(ranks_wait(ranks_start(path, "bench_fsdp", "", ways)), EXIT_CODE_OK);
    double bytes[2] = {0};
    const char *at = ranks_text("out.txt");
    for (size_t i = 0; i < 2 && (at = strstr(at, "(about ")); i++)
        bytes[i] = strtod(at += strlen("(about "), NULL);
    assert_true(bytes[1] > bytes[0] && bytes[0] > 0); /* gradients of two units arrive in memory of their own */
}

/* However far ahead units are gathered, and whatever is computed again: the same sums, and the same bits. */
TEST_IN_RANKS_FOLDER(units_in_every_order)
{
    static const char *const more[] = {
        "--prefetch 0,1,2,3", "--overlap gradients --recompute none,attn,mlp,but-attention",
        "--recompute block --recompute-every 1,2 --prefetch 0,2", "--update after --free-every 2,3"};
    char first[20] = "";
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        OWNED char *arguments =
            xasprintf("--ranks 2 --iters 1 --precision fp32 --grad-dtype policy --variant fsdp %s", more[i]);
        OWNED_CSV csv *c = ddp_rows_of_model("bench_fsdp", THREE_BLOCKS, arguments, EXIT_CODE_OK);
        for (size_t row = 0; row < c->rows; row++) {
            ddp_check_row(c, row);
            if (!*first)
                snprintf(first, sizeof first, "%s", csv_cell(c, row, "checksum"));
            assert_string_equal(csv_cell(c, row, "checksum"), first);
        }
    }
}

TEST_IN_RANKS_FOLDER(planted_errors_in_slices_are_found)
{
    static const char *const plants[] = {"gradient", "parameter"};
    for (size_t i = 0; i < 2; i++) {
        OWNED char *arguments =
            xasprintf("--ranks 2 --precision fp32 --grad-dtype policy --variant zero2,fsdp,fsdp-keep "
                      "--plant-error %s",
                      plants[i]);
        OWNED_CSV csv *c = ddp_rows("bench_fsdp", arguments, EXIT_CODE_VERIFY);
        assert_int_equal(c->rows, 3);
        for (size_t row = 0; row < c->rows; row++)
            assert_string_equal(csv_cell(c, row, "status"), "fail");
    }
}
