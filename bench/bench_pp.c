/* SPDX-License-Identifier: MIT */
/* bench_pp: for how much of a step is a pipeline idle, and does its schedule predict that?
 *
 * Pipeline parallelism: each rank has some of the layers, and micro-batches go through them. The variants are the schedules of
 * common/pipeline. One table plans a rank's memory, is simulated, and runs (common/replica/stages.h).
 * Before a case is timed, 3 updates of a slice, one block a stage, are compared with one rank, bit for bit.
 * Expect: (p - 1) / (m + p - 1) of the step for gpipe and 1f1b; half of it or less for zb-h1 and zb-v.
 * With --mesh, ranks of a stage share its layers or the batch, too; the check is then within bounds.
 * Limits: --update units is only for the axis pp; --transport copy has no form for CPUs; no fp16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/context.h"
#include "bench/model/timing.h"
#include "bench/pp/time.h"
#include "bench/pp/verify.h"
#include "common/core/text.h"
#include "common/session/profile.h"

static option_spec option_table[] = {
    LAUNCH_RANKS("2", "2"),
    MODEL_MESH_OPTIONS("pp", "pp2+tp2"),
    MODEL_OPTIONS("2.7b", "tiny", "1024", "32", "bf16-pure", "train-step"),
    {"micro-batches", OPTION_INT, OPTION_LIST, "8",
     .help = "micro-batches of a step, each of --batch sequences, before its update", .def_cpu = "4", .min = 1,
     .max = 4096},
    {"clip", OPTION_REAL, OPTION_LIST, "0",
     .help = "clip gradients: scale them down to this global L2 norm, for which all stages wait for each other "
             "at the end",
     .max = 1e9, .unset = "0: never"},
    {"update", OPTION_CHOICE, OPTION_LIST, "units",
     .help = "units: AdamW updates a unit of parameters (a block, the head, the embedding) as soon as its "
             "gradients are summed, while the step goes on; after: it updates all of them when a rank's last "
             "action is over. units does the same where that action yields a gradient that another rank "
             "waits for. With --clip, both wait for the norm of all stages",
     .choices = "units|after"},
    {"chunks", OPTION_INT, OPTION_LIST, "2", .help = "interleaved: parts of the model on each rank", .min = 2,
     .max = PIPELINE_CHUNKS_MOST, .unit = "chunks"},
    {"balance", OPTION_CHOICE, OPTION_LIST, "even",
     .help = "blocks per stage: the same number in each, or so that the busiest rank has as little to do as "
             "possible, by measured times of a block, the embedding and the head",
     .choices = "even|measured"},
    {"transport", OPTION_CHOICE, OPTION_LIST, "nccl",
     .help = "how tensors get from rank to rank: by NCCL (on the CPU, Gloo), whose receives hold "
             "multiprocessors while they wait, or by copy engines into the receiver's memory, for 2 to 8 "
             "stages on GPUs of one host",
     .choices = "nccl|copy"},
    {"max-ctas", OPTION_INT, OPTION_LIST, "2",
     .help = "limit on the thread blocks of an NCCL send or receive between stages", .def_cpu = "0", .max = 64,
     .unit = "thread blocks", .unset = "0: NCCL decides"},
    {"fusion", OPTION_CHOICE, OPTION_LIST, "kernels",
     .help = "fused kernels launched by the host, or the whole step with its hops as one CUDA graph",
     .choices = "kernels|graph"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "gpipe,1f1b,interleaved,zb-h1,zb-v", .help = "schedule",
     .choices = PIPELINE_SCHEDULE_NAMES},
    {"iters", OPTION_INT, 0, "20", .help = "timed steps; 0: only the check", .def_cpu = "3", .max = 100000,
     .unit = "steps"},
    {"warmup", OPTION_INT, 0, "3", .help = "warm-up steps", .def_cpu = "1", .max = 1000000, .unit = "steps"},
    {"max-time", OPTION_REAL, 0, "10", .help = "take fewer samples, at least 3, if they would take longer than this",
     .max = 86400, .unit = "s", .unset = "0: never"},
    MODEL_PEAK_OPTION("MFU"),
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",
     .help =
         "test the check: two micro-batches in each other's slots; a tensor that comes before its slot is open; a W "
         "missing, or twice; a loss that is divided by the micro-batches twice, or that is another stage's; a "
         "stage "
         "that begins a layer too late; gains counted by each rank in the norm; data parallelism between ranks that "
         "hold "
         "other parts, or whose order is not the mesh's",
     .choices = PP_PLANTS},
    {0}};

static const variant_spec variant_table[] = {{"gpipe", "all forwards, then all backwards"},
                                             {"1f1b", "a backward as soon as one is possible"},
                                             {"interleaved", "1f1b over several chunks of layers per rank"},
                                             {"zb-h1", "1f1b whose weight gradients come late, when a rank would wait"},
                                             {"zb-v", "two chunks, there and back; weight gradients fill the gaps"},
                                             {0}};

static const column_spec column_table[] = {
    {"step_ms", COLUMN_REAL, true, "a step on all ranks, median; a sample is that of the slowest rank"},
    {"step_p10_ms", COLUMN_REAL, false, "the same, 10th percentile"},
    {"step_p90_ms", COLUMN_REAL, false, "the same, 90th percentile"},
    {"n_steps", COLUMN_INT, false, "samples"},
    {"bubble_pct", COLUMN_REAL, true,
     "share of the longest rank's time, first action to last, in which a rank runs no F, B or W; mean of the ranks"},
    {"predicted_bubble_pct", COLUMN_REAL, true,
     "the same for the schedule, with F, B and W of each stage as measured; without those that run during an update"},
    {"err_points", COLUMN_REAL, true, "bubble_pct - predicted_bubble_pct"},
    {"stage_min_ms", COLUMN_REAL, false, "F, B and W of a micro-batch in the fastest stage"},
    {"stage_max_ms", COLUMN_REAL, true, "the same in the slowest stage"},
    {"hop_us", COLUMN_REAL, true, "a tensor from rank 0 to rank 1 with nothing else running"},
    {"send_wait_ms", COLUMN_REAL, true,
     "time per step that a rank waits until what it sent has been read; the longest of all ranks"},
    {"peak_bytes", COLUMN_INT, false, "what the rank that needs most takes from its device"},
    {"peak_bytes_first", COLUMN_INT, true, "what the rank of the first stage takes from its device"},
    {"peak_bytes_last", COLUMN_INT, true, "what the rank of the last stage takes"},
    {"in_flight", COLUMN_REAL, true, "most micro-batches that a rank holds, as parts of all its layers"},
    {"tokens_per_s", COLUMN_REAL, true, "tokens of a step (of all its micro-batches) / step_ms"},
    {"mfu_causal_pct", COLUMN_REAL, false,
     "FLOPs of the model (causal attention) / ranks / step_ms / peak of the GPU at the products' precision"},
    MODEL_FLOAT8_COLUMNS,
    {"one_rank_ms", COLUMN_REAL, false, "the same step on one rank, in the same run; nan where it does not fit"},
    {"speedup", COLUMN_REAL, true, "one_rank_ms / step_ms"},
    {"plan_chunks", COLUMN_INT, false, "chunks of each rank"},
    {"cut", COLUMN_TEXT, false, "blocks of each stage"},
    {"launched", COLUMN_TEXT, false, "graph: the step with its hops is one CUDA graph; eager: the host launches it"},
    {"timeline", COLUMN_TEXT, false,
     "file in pipeline/ next to the rows: the actions as predicted, and of the median step"},
    {"updated", COLUMN_TEXT, false,
     "when a rank's AdamW ran: units, each after its last gradients; after, after its last action; norm, after all "
     "ranks"},
    {"backend", COLUMN_TEXT, false, "the library that moves tensors, and its version"},
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},
    {"plan_pct", COLUMN_REAL, false,
     "checked slice: bytes of the plan over the most that the schedule's bound allows; worst rank"},
    {"err_loss", COLUMN_REAL, false, "checked slice, 3 updates: difference from one rank over the value; 0: same bits"},
    {"err_grad", COLUMN_REAL, false, "gradients of the first step: relative L2 difference, worst tensor"},
    {"err_norm", COLUMN_REAL, false, "with --clip: of the norm"},
    {"err_param", COLUMN_REAL, false, "parameters after the updates: relative L2 difference, worst tensor"},
    {0}};

static bool applies(const char *option, const char *variant)
{
    return strcmp(option, "chunks") != 0 || strcmp(variant, "interleaved") == 0;
}

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 7, "--ranks {gpus} --size small --seq 512 --variant 1f1b,zb-v --iters 5"},
    /* torch.distributed.pipelining runs the same (tests/peers/pp.py). */
    {RUN_DEFAULT, 2, 40, "--ranks {gpus} --transport copy --iters 10"},
    {RUN_DEFAULT, 2, 14, "--ranks {gpus} --variant 1f1b --iters 10"},
    {RUN_FULL, 2, 46, "--ranks {gpus} --variant gpipe,interleaved,zb-h1,zb-v"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --variant 1f1b,zb-v --balance measured"},
    {RUN_FULL, 2, 60, "--ranks {gpus} --variant zb-h1,zb-v --clip 0,1 --micro-batches 4,16"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --variant 1f1b --max-ctas 0,1,4"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --transport copy --update after --variant 1f1b,zb-h1,zb-v"},
    {RUN_FULL, 2, 40, "--ranks {gpus} --variant 1f1b,zb-h1 --fusion graph"},
    {RUN_FULL, 2, 40,
     "--ranks {gpus} --variant 1f1b --precision bf16-pure,fp8-tensorwise,fp8-block --transport copy --iters 10"},
    {RUN_CPU, 0, 3, "--ranks 4 --mesh pp2+tp2,pp2+dp_shard2 --variant 1f1b,zb-v --clip 1"},
    /* bench_mesh --variant measured predicts these. */
    {RUN_FULL, 2, 36, "--ranks 2 --seq 2048 --micro-batches 4 --transport copy --balance measured --iters 8"},
    {RUN_FULL, 2, 100,
     "--ranks 2 --size 8b --seq 4096 --micro-batches 4 --transport copy --recompute block --balance measured --iters 4 "
     "--warmup 1"},
    {RUN_FULL, 4, 36, "--ranks {gpus} --seq 2048 --micro-batches {gpus} --transport copy --balance measured --iters 8"},
    {RUN_FULL, 4, 28,
     "--ranks {gpus} --mesh pp2+tp2 --seq 2048 --micro-batches 4 --transport copy --variant 1f1b,zb-v --iters 8"},
    {RUN_FULL, 4, 50,
     "--ranks {gpus} --mesh pp2+dp_shard --strategy ddp,fsdp-keep,fsdp-no-sync --seq 2048 --micro-batches 2 "
     "--transport copy --variant 1f1b,zb-v --iters 8"},
    {RUN_FULL, 4, 45,
     "--ranks {gpus} --mesh pp2+tp2 --size 8b --seq 4096 --micro-batches 4 --transport copy --recompute block "
     "--variant 1f1b,zb-v --iters 4 --warmup 1"},
    {RUN_FULL, 4, 45,
     "--ranks {gpus} --mesh pp2+dp_shard --strategy fsdp-keep --size 8b --seq 4096 --micro-batches 2 --transport copy "
     "--recompute block --variant 1f1b,zb-v --iters 4 --warmup 1"},
    {RUN_FULL, 4, 62, "--ranks 4 --micro-batches 8,16 --transport copy --iters 8"},
    {RUN_CPU, 0, 10, "--ranks 2,4 --micro-batches 4 --layers 8"},
    {0}};

static const bench_info info = {
    .name = "bench_pp",
    .summary = "For how much of a step is a pipeline idle, and does its schedule predict that?",
    .notes =
        "One row is one model, number of ranks and micro-batches, and one schedule (the variant). Before it is timed, "
        "loss,\n"
        "gradients and parameters of 3 updates of a slice, one block a stage, are compared with one rank, bit for bit "
        "(with --clip\n"
        "within bounds after the first update). A sample starts after a barrier and is one step.",
    .examples = "./bench_pp --ranks 2 --size 2.7b --seq 1024 --micro-batches 8\n"
                "./bench_pp --ranks 2 --variant zb-v --balance even,measured --clip 0,1\n"
                "./bench_pp --device cpu --ranks 2,4 --layers 8",
    BENCH_TABLES,
    .validate = model_shared_steps_validate,
    .applies = applies,
    .order = 128,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1 --layers 4 --micro-batches 4",
    .section = "pp",
    .figures = (const char *const[]){"pp_recorded", NULL},
};

static void run(session *s, const bench_case *c, row *w)
{
    pp_case k;
    const bool check = option_flag(s->opt, "check") && !session_profiling(s);
    if (pp_case_of(s, c, w, &k) && (!check || pp_verify(&k)) && s->timing.iters > 0)
        pp_time(&k);
    pp_case_free(&k);
}

/* A rank's share of what one rank holds; activations of several micro-batches are left out. */
static double estimate_bytes(const options *o, const bench_case *c)
{
    return model_case_estimate(o, c) / (double)case_int(c, "ranks");
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {model_start_gated, run, model_finish, estimate_bytes};
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* as many streams wait for each other as a rank has edges */
    option_spec *batch = model_option(option_table, "batch");
    batch->def = batch->def_cpu = "1";
    batch->help = "batch size of a micro-batch";
    model_option(option_table, "layers")->def_cpu = "8";
    model_options_of_ranks(option_table);
    launch_default_ranks(option_table, "2,4,8");
    return launch_main(&info, &hooks, argc, argv);
}
