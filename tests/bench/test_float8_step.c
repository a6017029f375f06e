/* SPDX-License-Identifier: MIT */
/* The check of a float8 step from outside, on the CPU: every policy passes it, every planted fault is found and named, and a row
 * says what float8 gained. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

#define POLICIES "fp8-tensorwise,fp8-rowwise,fp8-rowwise-dw16,fp8-block,fp8-block-dw2d,fp8-mx,fp8-delayed"

static csv *rows_of(const char *folder, int code, size_t rows, const char *options)
{
    OWNED char *all = xasprintf("--size tiny --seq 16 --batch 2 --iters 3 --warmup 0 %s", options);
    csv *c = bench_rows(folder, "bench_transformer", "", all, code);
    assert_non_null(c);
    assert_int_equal(c->rows, rows);
    return c;
}

TEST(every_policy_passes)
{
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_OK, 18,
                "--variant kernels --layers 2 --recompute none,block --micro-batches 2 --clip 1 --mode train-step "
                "--precision bf16," POLICIES ",bf16-pure");
    for (size_t row = 0; row < c->rows; row++) {
        const bool float8 = strncmp(csv_cell(c, row, "precision"), "fp8", 3) == 0;
        if (!csv_is(c, row, "status", "ok"))
            fail_msg("row %zu: %s", row, csv_cell(c, row, "reason"));
        const double off = csv_real(c, row, "err_grad");
        assert_true(float8 ? off > 0.05 && off < 0.3 : off < 0.03);
    }
}

TEST(offloaded_inputs_pass)
{
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_OK, 6,
                "--variant kernels --layers 3 --offload attn,mlp,block --precision fp8-rowwise,fp8-delayed");
    for (size_t row = 0; row < c->rows; row++)
        assert_true(csv_is(c, row, "status", "ok") && csv_real(c, row, "offloaded_bytes") > 0);
}

/* What a model cannot have is no wrong result. */
TEST(no_float8_without_attention)
{
    OWNED_CSV csv *c = bench_rows(*state, "bench_transformer", "",
                                  "--size mlp-1024 --d-model 64 --vocab 96 --layers 1 --seq 16 --batch 2 --iters 1 "
                                  "--precision bf16,fp8-rowwise",
                                  EXIT_CODE_OK);
    assert_true(c->rows == 2 && csv_is(c, 0, "status", "ok") && csv_is(c, 1, "status", "skip"));
    text_has(csv_cell(c, 1, "reason"), "blocks without attention have neither products in float8");
}

TEST(faults_are_named)
{
    static const struct {
        const char *fault, *says;
        size_t skipped; /* policies that have nothing of the kind */
    } of[] = {{"stale", "was cast before the last update, and is stale", 0},
              {"transposed", "of the transposed copy of a", 0},
              {"unscaled", "of the product of its codes and scales", 0},
              {"amax", "its largest magnitude asks for", 3},
              {"saturated", "its largest magnitude asks for", 3},
              {"format", "of the product of its codes and scales", 0},
              {"within", "copy of a (", 1}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        OWNED char *options =
            xasprintf("--variant kernels --layers 1 --precision " POLICIES " --plant-error %s", of[i].fault);
        size_t skipped = 0;
        OWNED_CSV csv *c = rows_of(*state, EXIT_CODE_VERIFY, 7, options);
        for (size_t row = 0; row < c->rows; row++) {
            const char *reason = csv_cell(c, row, "reason");
            if (csv_is(c, row, "status", "skip") && strstr(reason, "nothing that --plant-error"))
                skipped++;
            else if (!strstr(reason, of[i].says))
                fail_msg("%s, %s: %s", of[i].fault, csv_cell(c, row, "precision"), reason);
        }
        assert_int_equal(skipped, of[i].skipped);
    }
}

static bool is(const csv *c, size_t row, const char *column, const char *value)
{
    return csv_is(c, row, column, value);
}

static csv *sharded(void **state, size_t rows, const char *options)
{
    OWNED char *all = xasprintf(
        "--layers 1 --batch 1 --seq 16 --grad-dtype fp32 --warmup 1 --small replicated --variant fsdp %s", options);
    csv *c = bench_rows(*state, "bench_fsdp", "", all, EXIT_CODE_OK);
    assert_non_null(c);
    assert_int_equal(c->rows, rows);
    for (size_t row = 0; row < rows; row++) /* bf16 has no codes */
        if (!is(c, row, "status",
                is(c, row, "precision", "bf16") && is(c, row, "gather_dtype", "float8") ? "skip" : "ok"))
            fail_msg("row %zu: %s", row, csv_cell(c, row, "reason"));
    return c;
}

/* Two ranks have every bit of one rank that does everything. Weights are gathered and cast whole, or gathered as codes: that
 * halves the bytes, and keeps what one rank's own casts have. Either way a step is compared with that of bf16. Codes serve all
 * micro-batches and the second forward, too; the squares of a clip's norm are added up in another order. */
TEST(shards_agree_with_one_rank)
{
#define SQUARES "--ranks 2 --d-model 128 --d-ff 256 --heads 2 --gather-dtype param,float8 "
    needs_gloo();
    double whole = 0;
    OWNED_CSV csv *c = sharded(state, 6, SQUARES "--iters 3 --precision bf16,fp8-tensorwise,fp8-block");
    for (size_t row = 2; row < c->rows; row++) {
        const double gain = csv_real(c, 0, "step_ms") / csv_real(c, row, "step_ms");
        assert_true(fabs(csv_real(c, row, "speedup_bf16") / gain - 1) < 1e-6 &&
                    is(c, row, "fp8_pays", gain > 1 ? "yes" : "no"));
        const bool codes = is(c, row, "gather_dtype", "float8");
        const double bytes = csv_real(c, row, "gathered_bytes");
        assert_true(csv_real(c, row, "err_grad") == 0 && csv_real(c, row, "err_param") == 0);
        assert_string_equal(csv_cell(c, row, "gathered_dtype"), codes ? "e4m3" : "bf16");
        whole = codes ? whole : bytes;
        if (codes)
            assert_true(bytes < 0.7 * whole);
    }
    OWNED_CSV csv *clipped = sharded(state, 4,
                                     SQUARES "--iters 0 --precision fp8-tensorwise,fp8-block --clip 1 --update after "
                                             "--micro-batches 2 --recompute block");
    for (size_t row = 0; row < clipped->rows; row++)
        assert_true(csv_real(clipped, row, "err_grad") < 1e-6 && csv_real(clipped, row, "err_param") == 0);
}

/* So says a row of every other bench of steps. */
TEST(every_step_says_what_float8_gained)
{
    needs_gloo();
    static const char *const of[][2] = {
        {"bench_ddp_flat", ""}, {"bench_zero1", "--variant zero1"}, {"bench_pp", "--variant gpipe --micro-batches 2"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        OWNED char *options = xasprintf(
            "--ranks 2 --size tiny --seq 16 --batch 2 --iters 3 --warmup 1 --precision bf16,fp8-tensorwise %s",
            of[i][1]);
        OWNED_CSV csv *c = bench_rows(*state, of[i][0], "", options, EXIT_CODE_OK);
        assert_true(c->rows >= 2);
        for (size_t row = 0; row < c->rows / 2; row++) { /* bf16 comes first */
            const size_t of_8 = c->rows / 2 + row;
            const double gain = csv_real(c, row, "step_ms") / csv_real(c, of_8, "step_ms");
            if (!(fabs(csv_real(c, of_8, "speedup_bf16") / gain - 1) < 1e-6))
                fail_msg("%s: speedup_bf16 %s, not %g", of[i][0], csv_cell(c, of_8, "speedup_bf16"), gain);
        }
    }
}

/* The check's first step of the ranks updates nothing, but the scales of the next one remember it. */
TEST(delayed_scales_of_ranks_are_right)
{
    needs_gloo();
    static const char *const of[][2] = {{"bench_ddp_flat", "--variant flat"},
                                        {"bench_fsdp", "--variant fsdp --micro-batches 2"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        OWNED char *options =
            xasprintf("--ranks 2 --size tiny --iters 0 --precision fp8-delayed --grad-dtype fp32 %s", of[i][1]);
        OWNED_CSV csv *c = bench_rows(*state, of[i][0], "", options, EXIT_CODE_OK);
        bench_all_ok(c, 1);
    }
}

/* The best product that bench_roofline knows is of 16 bits, and a float8 step may be faster than it. */
TEST(no_share_of_a_wider_product)
{
    csv_free(bench_rows(*state, "bench_roofline", "STEPBENCH_RUN=one",
                        "--variant gemm --dtype bf16 --size 64 --iters 3", 0));
    OWNED_CSV csv *c = bench_rows(*state, "bench_transformer", "STEPBENCH_RUN=one",
                                  "--size tiny --seq 16 --batch 2 --iters 3 --precision bf16,fp8-block", EXIT_CODE_OK);
    bench_all_ok(c, 2);
    assert_true(csv_real(c, 0, "ceiling_pct") > 0 && isnan(csv_real(c, 1, "ceiling_pct")));
}

/* Its step in bf16 is a row by then. */
TEST(a_resumed_run_compares_with_bf16)
{
#define STEP "--csv results/test-x1/kept.csv --size tiny --seq 16 --batch 2 --iters 3 --precision "
    bench_rows(*state, "bench_transformer", "STEPBENCH_RUN=two", STEP "bf16", EXIT_CODE_OK);
    bench_rows(*state, "bench_transformer", "STEPBENCH_RUN=two", STEP "bf16,fp8-block --resume", EXIT_CODE_OK);
    OWNED char *path = folder_path(*state, "results/test-x1/kept.csv");
    OWNED_CSV csv *c = csv_read(path);
    bench_all_ok(c, 2);
    const double gain = csv_real(c, 0, "step_ms") / csv_real(c, 1, "step_ms");
    assert_true(fabs(csv_real(c, 1, "speedup_bf16") / gain - 1) < 1e-6);
}

/* Scales by row serve one order alone, delayed ones are no slice's, and slices of `tiny` end within squares. Ranks agree on
 * histories: two steps have the bits of one rank. */
TEST(other_recipes_gather_parameters)
{
    needs_gloo();
    OWNED_CSV csv *c = sharded(state, 4,
                               "--ranks 4 --size tiny --iters 3 --gather-dtype float8 "
                               "--precision fp8-tensorwise,fp8-rowwise,fp8-block,fp8-delayed");
    for (size_t row = 0; row < c->rows; row++) {
        assert_string_equal(csv_cell(c, row, "gathered_dtype"), row == 0 ? "e4m3" : "bf16");
        assert_true(csv_real(c, row, "err_grad") < 1e-6 && csv_real(c, row, "err_param") == 0);
    }
}

TESTS_WITH(folder_create, folder_remove)
