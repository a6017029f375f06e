/* SPDX-License-Identifier: MIT */
/* bench_tp on CPU ranks: every numeric column is measured, or recomputed from the others of its row; sound runs pass their
 * check in every way; each planted error is found by it, and named. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

/* ---- columns ---- */

FORMULA(exposed, N("step_ms") - N("compute_ms"))
FORMULA(hidden, 100 * (1 - N("exposed_ms") / N("alone_ms")))
FORMULA(speedup, N("one_ms") / N("step_ms"))
FORMULA(efficiency, 100 * speedup(c, row) / N("ranks"))
FORMULA(predicted, N("one_ms") / N("ranks") + N("alone_ms"))
FORMULA(err, 100 * (predicted(c, row) / N("step_ms") - 1))
FORMULA(saved, 100 * (1 - N("peak_bytes") / N("one_bytes")))
FORMULA(unknown, NAN)
FORMULA(one, 1)
/* Sums of four ranks by a library come in an order of its own. */
FORMULA(copy, IS("variant", "copy") || IS("variant", "push"))
FORMULA(bits_off, N("ranks") == 2 || copy(c, row) ? 0 : NAN)
FORMULA(steps, 4)
FORMULA(tokens, N("batch") * N("seq") * N("micro_batches"))
FORMULA(speed, 1e3 * tokens(c, row) / N("step_ms"))
FORMULA(weights, N("layers") * N("d_model") * (4 * N("d_model") + 3 * N("d_ff")) + 2 * N("vocab") * N("d_model"))
FORMULA(gains, (2 * N("layers") + 1) * N("d_model"))
FORMULA(params, weights(c, row) + gains(c, row))
/* 256 ids divide by 2 and 4 without padding. */
FORMULA(rank_params, weights(c, row) / N("ranks") + gains(c, row))
FORMULA(flops, (6 * (weights(c, row) - N("vocab") * N("d_model")) + 6 * N("layers") * N("seq") * N("d_model")) *
                   tokens(c, row) / N("ranks"))
FORMULA(tflops, flops(c, row) / N("step_ms") / 1e9)
FORMULA(mfu, 100 * tflops(c, row) / 0.5)
FORMULA(apart, IS("variant", "nccl") || copy(c, row))
FORMULA(again, copy(c, row) || N("regather"))
/* In a micro-batch each block has two sums forward and two backward, as have the embedding and the head one; with rows
 * apart also two gathers forward and four backward, or two where norms keep their rows, the head two, or one, the embedding's gradient one. The loss has a gather. */
FORMULA(gathers, apart(c, row) ? (again(c, row) ? 6 : 4) * N("layers") + (again(c, row) ? 3 : 2) : 0)
FORMULA(sums, 4 * N("layers") + 2)
FORMULA(collectives, N("micro_batches") * (gathers(c, row) + sums(c, row) + 1) + apart(c, row))
FORMULA(element, IS("precision", "fp32") ? 4 : 2)
FORMULA(share, (N("ranks") - 1) / N("ranks"))
FORMULA(rows_bytes, N("batch") * N("seq") * N("d_model") * element(c, row) * share(c, row))
/* Copies gather all ranks' gradients of gains and add them up in order. */
FORMULA(gain_bytes,
        apart(c, row) ? (copy(c, row) ? N("ranks") - 1 : 2 * share(c, row)) * gains(c, row) * element(c, row) : 0)
FORMULA(loss_bytes,
        (N("ranks") - 1) * tokens(c, row) * (IS("loss", "parallel") ? 12 : element(c, row) * N("vocab") / N("ranks")))
FORMULA(wire, N("micro_batches") * rows_bytes(c, row) * (gathers(c, row) + (apart(c, row) ? 1 : 2) * sums(c, row)) +
                  loss_bytes(c, row) + gain_bytes(c, row))
FORMULA(rate, N("wire_bytes") / N("alone_ms") / 1e6)

static const column_rule rules[] = {
    {"n_steps", MEASURED, steps, 0},
    {"exposed_ms", DERIVED, exposed, 1e-4},
    {"hidden_pct", DERIVED, hidden, 1e-2},
    {"speedup", DERIVED, speedup, 0},
    {"efficiency_pct", DERIVED, efficiency, 0},
    {"predicted_ms", DERIVED, predicted, 0},
    {"err_pct", DERIVED, err, 1e-3},
    {"saved_pct", DERIVED, saved, 1e-4},
    {"device_used_bytes", MEASURED, unknown, 0},
    {"collectives", DERIVED, collectives, 0},
    {"wire_bytes", DERIVED, wire, 0},
    {"wire_gb_s", DERIVED, rate, 0},
    {"tokens_per_s", DERIVED, speed, 0},
    {"tflops", DERIVED, tflops, 0},
    {"mfu_causal_pct", DERIVED, mfu, 0},
    {"params", DERIVED, params, 0},
    {"rank_params", DERIVED, rank_params, 0},
    {"hosts", MEASURED, one, 0},
    {"err_norm", MEASURED, unknown, 0}, /* without --clip */
    {"bits_off", MEASURED, bits_off, 0},
    {"step_ms step_p10_ms step_p90_ms compute_ms exposed_lo_ms exposed_hi_ms alone_ms one_ms "
     "peak_bytes predicted_bytes one_bytes loss_first loss_last err_loss err_grad err_param",
     MEASURED, NULL, 0},
    {0}};

TEST(columns)
{
    needs_gloo();
    csv *c = bench_rows(*state, "bench_tp", "",
                        "--ranks 2,4 --precision bf16 --micro-batches 2 --iters 4 --warmup 1 --seq 16 "
                        "--loss parallel,gathered --regather 1,0 --peak-tflops 0.5 --grad-dtype policy",
                        EXIT_CODE_OK);
    columns_have_rules(*state, "bench_tp", rules);
    for (size_t i = 0; i < c->rows; i++) { /* planned memory is what is taken, but for gaps */
        const double gap = csv_real(c, i, "peak_bytes") - csv_real(c, i, "predicted_bytes");
        assert_true(gap >= 0 && gap <= 65536);
    }
    columns_hold(c, "bench_tp", rules);
    columns_were_seen("bench_tp", rules);
}

/* Three ways to the same tokens. */
TEST_IN_FOLDER(losses_are_those_of_all_ranks)
{
    static const char *const meshes[] = {"--ranks 2 --mesh tp2 --batch 2", "--ranks 4 --mesh cp2+tp2 --batch 2",
                                         "--ranks 4 --mesh tp2+dp_shard2 --batch 1"};
    double want = 0;
    for (int i = 0; i < 3; i++) {
        OWNED char *arguments = xasprintf("%s --seq 16 --iters 1 --precision fp32 --variant nccl", meshes[i]);
        OWNED_CSV csv *c = bench_rows(*state, "bench_tp", "", arguments, EXIT_CODE_OK);
        want = i ? want : csv_real(c, 0, "loss_first");
        assert_true(fabs(csv_real(c, 0, "loss_first") / want - 1) < 1e-5);
    }
}

/* ---- the check ---- */

/* Three ranks have one key and value head among them, and of 200 ids the last one none, the one before it padding. */
#define SHAPE "--seq 24 --d-model 96 --heads 6 --vocab 200 --iters 0 "
#define FP32 "--precision fp32 "
#define SHARED "--ranks 3 --heads-kv 1 "
#define MESH "--ranks 4 --mesh tp2+dp_shard2 " FP32
#define SEQUENCES "--ranks 4 --mesh cp2+tp2 " FP32
#define ALL_AXES "--ranks 8 --mesh dp_shard2+cp2+tp2 " FP32

static char *output_with(const char *shape, const char *arguments, int *code)
{
    const char *bin = getenv("STEPBENCH_BIN") ? getenv("STEPBENCH_BIN") : ".";
    OWNED char *command = xasprintf("'%s/bench_tp' --device cpu --csv none %s%s 2>&1", bin, shape, arguments);
    char *text = command_text(command, code);
    return text;
}

static char *output_of(const char *arguments, int *code)
{
    return output_with(SHAPE, arguments, code);
}

/* Without communication, rows that lack the embedding of others would make gradients grow from block to block. */
TEST(numbers_stay_finite)
{
    int code;
    needs_gloo();
    (void)state;
    OWNED char *text =
        output_with("--layers 40 --seq 16 --batch 2 --check 0 --iters 1 --warmup 1 --precision bf16-pure ",
                    "--variant all-reduce", &code);
    if (code != EXIT_CODE_OK || strstr(text, "not finite"))
        fail_msg("%s", text);
}

TEST(sound)
{
    int code;
    needs_gloo();
    OWNED char *text =
        output_of(SHARED FP32 "--recompute none,block,but-attention,selective --loss-chunk 0,10 --regather 1,0", &code);
    if (code != EXIT_CODE_OK || strstr(text, "skip"))
        fail_msg("%s", text);
}

/* Data and context parallelism beside it: the strategies that cut the model in each way, clipped by the norm of all; and
 * two ranks that share each of two key and value heads. */
TEST(sound_with_other_axes)
{
    static const char *const jobs[] = {
        SHAPE MESH "--variant copy,push --strategy ddp,zero1,fsdp --heads-kv 1 --micro-batches 2 --clip 0.01",
        SHAPE SEQUENCES "--variant nccl,push --strategy fsdp --heads-kv 1 --micro-batches 2 --clip 0.01",
        SHAPE MESH "--variant nccl --strategy fsdp --recompute block", SHAPE ALL_AXES "--variant nccl --clip 1",
        FP32 "--seq 24 --d-model 128 --heads 8 --heads-kv 2 --iters 0 --ranks 4 --variant nccl,push"};
    needs_gloo();
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        int code;
        OWNED char *text = output_with("", jobs[i], &code);
        if (code != EXIT_CODE_OK || strstr(text, "skip"))
            fail_msg("%s: %s", jobs[i], text);
    }
}

TEST(meshes_that_cannot_be_had)
{
    static const char *const asked[][2] = {
        {"--ranks 4 --mesh tp3", "4 ranks are not a multiple of the 3 of the mesh tp3"},
        {"--ranks 4 --mesh tp8,tp5", "the mesh tp8 needs more than 4 ranks"},
        {"--ranks 4 --mesh tp", "heads 6 are not a multiple of tp 4"},
        {"--ranks 2 --strategy fsdp", "no two ranks of this mesh hold the same"}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        OWNED char *arguments = xasprintf(SHAPE "%s", asked[i][0]);
        bench_says("bench_tp", arguments, EXIT_CODE_USAGE, asked[i][1]);
    }
    needs_gloo();
    bench_says("bench_tp", "--ranks 2 --mesh pp2", EXIT_CODE_UNSUPPORTED, "bench_pp has the meshes with stages");
    bench_says("bench_tp", "--ranks 2 --seq 1", EXIT_CODE_UNSUPPORTED, "a token that sees itself alone");
}

TEST(faults)
{
    static const char *const plants[][4] = {{"chunk", "nccl", "gradient of", SHARED FP32},
                                            {"partial", "nccl", "gradient of", SHARED FP32},
                                            {"partial", "all-reduce", "gradient of", SHARED FP32},
                                            {"gain", "nccl", "gradient of layers.0.ln", SHARED FP32},
                                            {"key", "nccl", "attn.v_proj", SHARED FP32},
                                            {"vocab", "nccl", "gradient of", SHARED FP32},
                                            {"padding", "all-reduce", "ln_final", SHARED FP32},
                                            {"chunk", "copy", "gradient of", SHARED FP32},
                                            {"partial", "copy", "gradient of", SHARED FP32},
                                            {"flag", "copy", "gradient of", SHARED FP32},
                                            {"number", "copy", "other bits than", SHARED "--precision bf16"},
                                            {"chunk", "push", "gradient of", SHARED FP32},
                                            {"partial", "push", "gradient of", SHARED FP32},
                                            {"flag", "push", "gradient of", SHARED FP32},
                                            {"number", "push", "other bits than", SHARED "--precision bf16"},
                                            {"norm", "nccl", "the norm of all gradients", MESH "--clip 0.01"},
                                            {"groups", "nccl", "which holds other parts", MESH},
                                            {"order", "nccl", "which holds other parts", MESH},
                                            {"own", "nccl", "gradient of", SEQUENCES}};
    needs_gloo();
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        OWNED char *arguments =
            xasprintf(SHAPE "%s --plant-error %s --variant %s", plants[i][3], plants[i][0], plants[i][1]);
        bench_says("bench_tp", arguments, EXIT_CODE_VERIFY, plants[i][2]);
    }
}

TESTS_WITH(folder_create, folder_remove)
