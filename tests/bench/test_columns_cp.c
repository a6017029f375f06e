/* SPDX-License-Identifier: MIT */
/* bench_cp from outside, on CPU ranks: every way, order and transport gives what one rank gives, each planted error is
 * found, bad input is refused, and every numeric column is measured or recomputed from the others of its row. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

static csv *rows_of(const char *folder, int code, const char *arguments)
{
    needs_gloo();
    OWNED char *all = xasprintf("--warmup 1 %s", arguments);
    csv *c = bench_rows(folder, "bench_cp", "", all, code);
    return c;
}

/* Chunks of whole tiles of the CPU's op (64 queries) have the bits of the whole sequence, which the bench requires. */
TEST_IN_FOLDER(no_way_differs_from_one_rank)
{
    csv *c =
        rows_of(*state, EXIT_CODE_OK,
                "--iters 0 --ranks 2,3,4 --heads 12 --head-dim 16 --seq 48 --order head-tail,contiguous --causal 0,1 "
                "--transport nccl,copy");
    bench_all_ok(c, 3 * 2 * 2 * 3 * 2);
    csv_free(c);
    c = rows_of(*state, EXIT_CODE_OK,
                "--iters 0 --ranks 2 --heads 8 --heads-kv 4 --batch 2 --seq 256 --groups 1,2 --head-dim 64,128 "
                "--dtype fp32,bf16");
    bench_all_ok(c, 2 * 2 * 5);
    for (size_t r = 0; r < c->rows; r++)
        if (!csv_is(c, r, "variant", "ring"))
            assert_true(csv_real(c, r, "whole_bits") == 1 && csv_real(c, r, "err_o") == 0 &&
                        csv_real(c, r, "err_dq") == 0);
        else
            assert_true(csv_real(c, r, "err_o") > 0);
    csv_free(c);
}

/* Fewer heads of keys than ranks or groups, and numbers that neither divides: each way takes them or says why not. */
TEST_IN_FOLDER(odd_heads)
{
    csv *c = rows_of(*state, EXIT_CODE_OK,
                     "--iters 0 --ranks 2,3,4 --heads 12 --heads-kv 12,6,3,1 --seq 48 "
                     "--head-dim 16 --variant gather,all-to-all");
    assert_int_equal(c->rows, 24);
    for (size_t r = 0; r < c->rows; r++) {
        const int kv = (int)csv_real(c, r, "heads_kv"), ranks = (int)csv_real(c, r, "ranks");
        const bool gather = csv_is(c, r, "variant", "gather");
        assert_string_equal(csv_cell(c, r, "status"), gather || kv % ranks == 0 ? "ok" : "skip");
        if (gather)
            assert_int_equal((int)csv_real(c, r, "n_groups"), kv == 12 ? 4 : kv);
    }
    csv_free(c);
    c = rows_of(*state, EXIT_CODE_OK, "--iters 0 --ranks 2 --heads 10 --heads-kv 5,2 --seq 36 --groups 0,4");
    for (size_t r = 0; r < c->rows; r++)
        if (csv_is(c, r, "variant", "gather") && csv_real(c, r, "groups") == 4)
            assert_non_null(strstr(csv_cell(c, r, "reason"), "key and value heads make no 4 equal groups"));
    csv_free(c);
}

/* What each error makes wrong first; NULL: the way can't have it. */
static const struct {
    const char *name, *gather, *all_to_all, *ring;
} planted[] = {{"order", "wrong o", "wrong o", "wrong o"},
               {"position", "wrong o", NULL, "wrong o"},
               {"merge", NULL, NULL, "wrong o"},
               {"tail", "wrong dk", NULL, "wrong dk"},
               {"own", "wrong o", NULL, "wrong o"}};

TEST_IN_FOLDER(planted_errors_are_found)
{
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        OWNED char *arguments =
            xasprintf("--iters 0 --ranks 2 --heads 2 --seq 64 --transport nccl,copy --plant-error %s", planted[i].name);
        OWNED_CSV csv *c = rows_of(*state, EXIT_CODE_VERIFY, arguments);
        const char *const wanted[] = {planted[i].gather, planted[i].all_to_all, planted[i].ring};
        assert_int_equal(c->rows, 6);
        for (size_t r = 0; r < 6; r++) {
            const char *status = csv_cell(c, r, "status"), *reason = csv_cell(c, r, "reason"), *want = wanted[r / 2];
            if (strcmp(status, want ? "fail" : "skip") != 0 || (want && strncmp(reason, want, strlen(want)) != 0))
                fail_msg("%s, %s: %s, %s", planted[i].name, csv_cell(c, r, "variant"), status, reason);
        }
    }
}

/* ---- within a training step ---- */

static csv *steps_of(const char *folder, int code, const char *arguments)
{
    needs_gloo();
    OWNED char *all = xasprintf("--heads 6 --d-model 96 --precision fp32 --grad-dtype policy --iters 0 %s", arguments);
    csv *c = bench_rows(folder, "bench_fsdp", "", all, code);
    return c;
}

/* Beside data parallelism, slices, micro-batches and recomputation; fewer heads of keys than ranks; more ranks than share. */
TEST_IN_FOLDER(steps_give_what_one_rank_gives)
{
    csv *c = steps_of(*state, EXIT_CODE_OK,
                      "--ranks 2,3,4 --cp 2,3,4 --cp-way gather,ring --heads-kv 3 --seq 48 --variant ddp,fsdp");
    size_t ok = 0;
    for (size_t r = 0; r < c->rows; r++) {
        const bool fits = (int)csv_real(c, r, "ranks") % (int)csv_real(c, r, "cp") == 0;
        assert_string_equal(csv_cell(c, r, "status"), fits ? "ok" : "skip");
        ok += fits;
        if (fits)
            assert_true(csv_real(c, r, "err_grad") < 1e-5);
    }
    assert_int_equal(ok, 4 * 2 * 2);
    csv_free(c);
    c = steps_of(*state, EXIT_CODE_OK,
                 "--ranks 2 --cp 2 --cp-way all-to-all,gather --seq 16 --variant fsdp "
                 "--micro-batches 2 --recompute block --clip 1 --update after");
    bench_all_ok(c, 2);
    csv_free(c);
}

/* Alone they are refused; beside others they are rows, as above. */
TEST(sequences_that_cannot_be_shared)
{
    bench_says("bench_fsdp", "--ranks 2 --cp 3 --seq 96", EXIT_CODE_USAGE, "the mesh cp3 needs more than 2 ranks");
    bench_says("bench_fsdp", "--ranks 3 --cp 2", EXIT_CODE_USAGE,
               "3 ranks are not a multiple of the 2 of the mesh cp2");
    bench_says("bench_fsdp", "--ranks 4 --cp 2 --seq 30", EXIT_CODE_USAGE,
               "seq 30 is not a multiple of 4: each rank of cp 2");
}

/* What is off first; the last layer's gradients of k_proj are the first that need dk. */
static const struct {
    const char *name, *way, *reason;
} planted_steps[] = {{"position", "gather", "the sum of gradients of lm_head"},
                     {"order", "all-to-all", "the sum of gradients of lm_head"},
                     {"own", "gather", "the sum of gradients of lm_head"},
                     {"tail", "gather", "the sum of gradients of layers.1.attn.k_proj"},
                     {"merge", "ring", "the sum of gradients of lm_head"},
                     {"group", "gather", "after step 1 of the checked slice the parameters of rank 1"}};

TEST_IN_FOLDER(planted_errors_of_steps_are_found)
{
    for (size_t i = 0; i < sizeof planted_steps / sizeof *planted_steps; i++) {
        OWNED char *arguments = xasprintf("--ranks 2 --cp 2 --seq 16 --variant ddp --plant-error %s --cp-way %s",
                                          planted_steps[i].name, planted_steps[i].way);
        OWNED_CSV csv *c = steps_of(*state, EXIT_CODE_VERIFY, arguments);
        assert_non_null(strstr(csv_cell(c, 0, "reason"), planted_steps[i].reason));
    }
}

/* As many tokens a second, in sequences that are shared; what a rank computes is that of the whole ones. */
TEST_IN_FOLDER(columns_of_steps)
{
    OWNED_CSV csv *c =
        bench_rows(*state, "bench_fsdp", "",
                   "--ranks 2 --cp 1,2 --seq 16 --variant ddp --precision fp32 --grad-dtype policy --iters 2 "
                   "--warmup 1 --peak-tflops 1",
                   EXIT_CODE_OK);
    assert_int_equal(c->rows, 2);
    for (size_t r = 0; r < 2; r++) {
        const double cp = csv_real(c, r, "cp"), batch = csv_real(c, r, "batch") * 2 / cp;
        assert_true(csv_real(c, r, "global_batch") == batch);
        assert_true(fabs(csv_real(c, r, "tokens_per_s") * csv_real(c, r, "step_ms") * 1e-3 / (batch * 16) - 1) < 1e-6);
    }
    const double flops0 = csv_real(c, 0, "tflops") * csv_real(c, 0, "step_ms");
    assert_true(fabs(csv_real(c, 1, "tflops") * csv_real(c, 1, "step_ms") / flops0 - 0.5) < 1e-6);
}

TEST_IN_FOLDER(bad_input_is_refused)
{
    assert_null(rows_of(*state, EXIT_CODE_USAGE, "--ranks 2,3 --seq 16"));
    assert_null(rows_of(*state, EXIT_CODE_USAGE, "--ranks 2 --seq 16 --heads 4 --heads-kv 3"));
    bench_says("bench_cp", "--ranks 1,2 --seq 12", EXIT_CODE_USAGE,
               "--seq 12 has fewer than 4 tokens for each of 4 chunks");
    bench_says("bench_cp", "--ranks 2 --seq 16 --max-ctas 3", EXIT_CODE_UNSUPPORTED, "--max-ctas is for NCCL");
    bench_says("bench_cp", "--ranks 2 --seq 16 --l2 cold", EXIT_CODE_USAGE, "--l2 cold has no effect here");
    csv_free(rows_of(*state, EXIT_CODE_OK, "--iters 0 --ranks 2 --heads 6 --batch 2 --seq 16 --dtype fp32,bf16"));
}

/* A rank that leaves keys out is too fast to be right. */
TEST_IN_FOLDER(faster_than_the_device_is_wrong)
{
    OWNED_CSV csv *c =
        rows_of(*state, EXIT_CODE_VERIFY, "--iters 1 --ranks 2 --heads 2 --seq 64 --variant gather --peak-tflops 1e-9");
    assert_non_null(strstr(csv_cell(c, 0, "reason"), "more than the 1e-09 that it can reach"));
#ifdef HAVE_GLOO
    /* A CPU's product may have been slowed down by another program: it bounds nothing. */
    folder_write(*state, "results/test-x1/bench_roofline.csv",
                 "variant,status,dtype,tflops,campaign,gpu_uuid,device\ngemm,ok,fp32,1e-9,c-1,,cpu\n");
    OWNED_CSV csv *slow =
        bench_rows(*state, "bench_cp", "STEPBENCH_RUN=c-1",
                   "--warmup 1 --iters 1 --ranks 2 --heads 2 --seq 64 --variant gather", EXIT_CODE_OK);
    bench_all_ok(slow, 1);
#endif
}

/* ---- columns ---- */

FORMULA(causal, N("causal"))
FORMULA(heads_kv, N("heads_kv") > 0 ? N("heads_kv") : N("heads"))
FORMULA(chunk, N("seq") / 2 / N("ranks"))
FORMULA(both, N("fwd_ms") + N("bwd_ms"))
FORMULA(speedup, (N("one_fwd_ms") + N("one_bwd_ms")) / both(c, row))
FORMULA(efficiency, 100 * speedup(c, row) / N("ranks"))
FORMULA(exposed, both(c, row) - N("compute_ms"))
FORMULA(hidden, N("ranks") > 1 ? 100 * (1 - N("exposed_ms") / N("moves_ms")) : NAN)
FORMULA(error, 100 * (N("predicted_ms") / both(c, row) - 1))
FORMULA(flops, 4 * N("batch") * N("heads") * N("head_dim") * N("seq") * N("seq") / (causal(c, row) ? 2 : 1))
FORMULA(fwd_tflops, flops(c, row) / N("ranks") / N("fwd_ms") / 1e9)
FORMULA(bwd_tflops, 2.5 * flops(c, row) / N("ranks") / N("bwd_ms") / 1e9)
FORMULA(given_peak, 1000)
FORMULA(one, 1)

/* Two ranks. In head-tail the second one's queries are in the middle, with chunk 3 unseen; the first one's see all. */
static double moved(const csv *c, size_t row)
{
    const double element = IS("dtype", "fp32") ? 4 : 2, row_bytes = N("batch") * N("head_dim") * element;
    const double kv = chunk(c, row) * 2 * heads_kv(c, row) * row_bytes, qo = chunk(c, row) * 2 * N("heads") * row_bytes;
    const bool contiguous = IS("order", "contiguous");
    if (IS("variant", "all-to-all"))
        return 2 * (qo + kv);
    if (IS("variant", "ring"))
        return 2 * 2 * kv + 2 * 2 * kv * 4 / element;
    if (!causal(c, row))
        return 6 * kv;
    return contiguous ? 4 * kv : 5 * kv; /* two chunks in each pass, and one share of dk and dv, or none */
}

static double balance(const csv *c, size_t row)
{
    if (!causal(c, row) || IS("order", "head-tail") || IS("variant", "all-to-all"))
        return 100;
    const double n = N("seq"), half = n / 2, most = half * half + half * (half + 1) / 2;
    return 100 * n * (n + 1) / 2 / 2 / most;
}

FORMULA(groups, IS("variant", "ring") ? 1 : N("groups"))

static const column_rule rules[] = {
    {"n_samples", MEASURED, one, 0},
    {"speedup", DERIVED, speedup, 0},
    {"efficiency_pct", DERIVED, efficiency, 0},
    {"exposed_ms", DERIVED, exposed, 1e-4},
    {"hidden_pct", DERIVED, hidden, 1e-3},
    {"moved_bytes", DERIVED, moved, 0},
    {"balance_pct", DERIVED, balance, 0},
    {"err_pct", DERIVED, error, 1e-4},
    {"rank_fwd_tflops", DERIVED, fwd_tflops, 0},
    {"rank_bwd_tflops", DERIVED, bwd_tflops, 0},
    {"most_tflops", DERIVED, given_peak, 0},
    {"n_groups", DERIVED, groups, 0},
    {"hosts", MEASURED, one, 0},
    {"fwd_ms fwd_p10_ms fwd_p90_ms bwd_ms bwd_p10_ms bwd_p90_ms one_fwd_ms one_bwd_ms compute_ms "
     "moves_ms predicted_ms peak_bytes whole_bits err_o err_lse err_dq err_dk err_dv",
     MEASURED, NULL, 0},
    {0}};

TEST_IN_FOLDER(columns)
{
    columns_have_rules(*state, "bench_cp", rules);
    columns_hold(
        rows_of(
            *state, EXIT_CODE_OK,
            "--iters 1 --ranks 2 --heads 8 --heads-kv 4 --seq 64 --causal 0,1 --order head-tail,contiguous --groups 2 "
            "--peak-tflops 1000 --dtype fp32,bf16"),
        "bench_cp", rules);
    OWNED_CSV csv *alone = rows_of(*state, EXIT_CODE_OK, "--iters 1 --ranks 1 --heads 8 --seq 64 --dtype fp32");
    for (size_t row = 0; row < alone->rows; row++)
        assert_true(isnan(csv_real(alone, row, "hidden_pct")));
    columns_were_seen("bench_cp", rules);
}
