/* SPDX-License-Identifier: MIT */
/* Kernels that give wrong results, from the first call on or from the second: each bench that checks them must say so, by
 * its check before timing or by the one after it. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

static char *preload;

/* Runs it with a result that is wrong; every row must be `fail`, say the sentence, and have no speed. */
static void found(const char *folder, const char *wrong, const char *bench, const char *arguments, const char *time,
                  const char *sentence)
{
    OWNED char *environment = xasprintf("%s WRONG='%s'", preload, wrong);
    OWNED_CSV csv *c = bench_rows(folder, bench, environment, arguments, EXIT_CODE_VERIFY);
    assert_non_null(c);
    assert_true(c->rows > 0);
    for (size_t r = 0; r < c->rows; r++) {
        assert_string_equal(csv_cell(c, r, "status"), "fail");
        if (!strstr(csv_cell(c, r, "reason"), sentence))
            fail_msg("%s, %s: the reason is '%s', without '%s'", bench, wrong, csv_cell(c, r, "reason"), sentence);
        assert_true(isnan(csv_real(c, r, time)));
    }
}

static void right_ones_pass(const char *folder, const char *bench, const char *arguments)
{
    OWNED_CSV csv *c = bench_rows(folder, bench, preload, arguments, EXIT_CODE_OK);
    assert_non_null(c);
    for (size_t r = 0; r < c->rows; r++)
        assert_string_equal(csv_cell(c, r, "status"), "ok");
}

TEST(attention)
{
    static const struct {
        const char *bench, *arguments;
    } of[] = {
        {"bench_flash", "--seq 16 --head-dim 16 --dtype fp32 --variant flash --iters 1 --warmup 0"},
        {"bench_attention", "--batch 1 --seq 16 --head-dim 16 --dtype fp32 --variant flash --iters 1 --warmup 0"}};
    static const char *const results[] = {"o", "lse", "dq", "dk", "dv"};
    for (size_t b = 0; b < sizeof of / sizeof *of; b++) {
        right_ones_pass(*state, of[b].bench, of[b].arguments);
        for (size_t i = 0; i < sizeof results / sizeof *results; i++)
            for (int call = 1; call <= 2; call++) {
                OWNED char *wrong = xasprintf("%s %d", results[i], call),
                           *sentence = xasprintf("wrong %s at", results[i]);
                found(*state, wrong, of[b].bench, of[b].arguments, "fwd_ms", sentence);
            }
    }
}

/* Few keys, where right results pass, too, although lse is near 0 and gradients cancel: with a query that sees one key dq
 * is 0. A mask that is missing shows from two queries on. */
TEST(short_attention)
{
    static const struct {
        const char *wrong, *in;
        int shortest;
    } of[] = {{"o", "o", 1},   {"lse", "lse", 1}, {"dq", "dq", 1}, {"dk", "dk", 1},
              {"dv", "dv", 1}, {"scale", "", 1},  {"mask", "", 2}, {"grad-scale", "d", 2}};
    static const int lengths[] = {1, 2, 3, 4, 37};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        OWNED char *arguments = xasprintf(
            "--seq %d --head-dim 16,128 --dtype fp32,tf32 --variant flash --iters 1 --warmup 0 --settle 0", lengths[l]);
        right_ones_pass(*state, "bench_flash", arguments);
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            OWNED char *wrong = xasprintf("%s 1", of[i].wrong), *sentence = xasprintf("wrong %s", of[i].in);
            if (lengths[l] >= of[i].shortest)
                found(*state, wrong, "bench_flash", arguments, "fwd_ms", sentence);
        }
    }
}

/* Right results at few keys: of three in a thousand the gradients cancel. */
TEST(short_attention_passes)
{
    static const char grid[] =
        "--seq 1,2,3,4 --head-dim 16,24,128 --dtype bf16,fp16,tf32,fp32 --causal 0,1 --batch 3 --heads 1,2 "
        "--variant unfused,fused,flash --iters 1 --warmup 0 --settle 0 --seed ";
    for (int seed = 1; seed <= 2; seed++) {
        OWNED char *arguments = xasprintf("%s%d", grid, seed);
        right_ones_pass(*state, "bench_flash", arguments);
    }
}

TEST(roofline)
{
    static const char product[] = "--variant gemm --dtype fp32 --size 64 --iters 1 --warmup 0",
                      copy[] = "--variant copy_kernel --bytes 4K --iters 1 --warmup 0";
    right_ones_pass(*state, "bench_roofline", product);
    right_ones_pass(*state, "bench_roofline", copy);
    found(*state, "c 1", "bench_roofline", product, "time_us", "");
    found(*state, "copy 1", "bench_roofline", copy, "time_us", "");
}

/* The first call is the reference's. */
TEST(steps)
{
    static const char step[] = "--size tiny --seq 8 --precision fp32 --iters 1 --mode forward-backward";
    found(*state, "table 2", "bench_transformer", step, "step_ms", "gradient of token_embeddings.weight");
    found(*state, "loss 2", "bench_transformer", step, "step_ms", "loss of the checked slice");
}

/* Its statistics are fp32, whatever overflows in the pieces' fp16. */
TEST(fused_norm)
{
    static const char norm[] =
        "--variant norm --pair fp32+fp32 --sum 1x1 --tensor loss --width 16 --dtype fp16 --norm rms "
        "--magnitude 300 --statistics own";
    right_ones_pass(*state, "bench_mixed_precision", norm);
    found(*state, "rms 1", "bench_mixed_precision", norm, "fwd_ms", "the fused kernel with fp32 statistics");
}

/* Gradients are right, and clipping leaves no bits to compare. */
TEST(loss_of_ranks)
{
    static const char step[] =
        "--ranks 2 --variant nccl --d-model 96 --heads 6 --layers 2 --vocab 256 --seq 8 --batch 2 "
        "--precision fp32 --clip 1 --iters 0";
    needs_gloo();
    right_ones_pass(*state, "bench_tp", step);
    found(*state, "lost 1", "bench_tp", step, "step_ms", "the loss is off by nan");
}

/* Gradients in e5m2 lose more than those in e4m3, whatever the recipe's name. */
TEST(gradients_of_float8)
{
    static const char *const of[][2] = {{"fp8-tensorwise,fp8-delayed", "4.0e-01 is allowed"},
                                        {"fp8-rowwise,fp8-rowwise-dw16,fp8-block,fp8-mx", "3.0e-01 is allowed"}};
    for (int i = 0; i < 2; i++) {
        OWNED char *step =
            xasprintf("--size tiny --seq 16 --grad-dtype fp32 --variant kernels --iters 1 --precision %s", of[i][0]);
        found(*state, "table 2", "bench_transformer", step, "step_ms", of[i][1]);
    }
}

TEST(updates)
{
    static const char step[] = "--size tiny --seq 8 --precision fp32,bf16 --iters 1",
                      timing[] = "--variant timing --size tiny --seq 8 --precision fp32,bf16 --iters 1";
    right_ones_pass(*state, "bench_transformer", step);
    found(*state, "none 1", "bench_transformer", step, "step_ms", "AdamW");
    found(*state, "twice 1", "bench_transformer", step, "step_ms", "AdamW");
    found(*state, "twice 1", "bench_mixed_precision", timing, "step_ms", "AdamW");
    static const char brief[] = "--size tiny --seq 8 --precision bf16 --moments bf16 --variant kernels --iters 1";
    right_ones_pass(*state, "bench_transformer", brief);
    found(*state, "chance 1", "bench_transformer", brief, "step_ms", "moments of");
}

static int build(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    preload = preload_build(*state, "wrong");
    return 0;
}

static int clean(void **state)
{
    free(preload);
    return folder_remove(state);
}

TESTS_WITH(build, clean)
