/* SPDX-License-Identifier: MIT */
/* bench_ddp_naive: what does data parallelism cost if each gradient is summed after the backward?
 *
 * The `naive_ddp_benchmarking` problem of Stanford's CS336, assignment 2: xl on one node with two GPUs, an
 * all-reduce for every parameter tensor after the backward; forward, backward, communication and optimizer separately.
 * naive-grouped makes the 435 calls in one launch.
 *
 * One row is one model, context, precision, dtype of sums and strategy; bench/ddp/row.h says what is measured,
 * against what.
 * Expect: nothing is hidden: tail_ms is near comm_alone_ms, contention_ms near 0; naive-grouped saves a few us per
 * tensor.
 * Limits: one communicator, ring or whatever NCCL chooses; see bench_allreduce for the collectives themselves. */
#include "bench/ddp/ddp.h"

static option_spec option_table[] = {DDP_OPTIONS("after"), {0}};

static variant_spec variant_table[DDP_VARIANTS];

static const column_spec column_table[] = {DDP_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 12, "--ranks {gpus} --size small --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 18, "--ranks {gpus} --variant naive --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1"},
    {RUN_FULL, 2, 18, "--ranks {gpus} --variant naive-grouped --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 23, "--ranks {gpus} --variant naive --seq 128 --precision fp32 --grad-dtype policy"},
    {RUN_FULL, 2, 60, "--ranks {gpus} --variant naive --seq 128,512,1024"},
    {RUN_FULL, 4, 15, "--ranks 2 --variant naive --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 40,
     "--ranks {gpus} --size xl-2026 --seq 2048 --batch 1 --precision bf16 --grad-dtype fp32 --variant naive"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_ddp_naive",
    .summary = "What does data parallelism cost if each gradient is summed after the backward?",
    .notes = DDP_NOTES "Gradients are sent after the backward, tensor by tensor: no communication is hidden.",
    .examples = "./bench_ddp_naive --size xl --seq 512\n"
                "./bench_ddp_naive --size small,medium,large,xl --seq 512 --precision bf16\n"
                "./bench_ddp_naive --device cpu --ranks 2,4",
    BENCH_TABLES,
    .validate = model_steps_validate,
    .order = 80,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "ddp",
    .figures = (const char *const[]){"ddp_steps", "ddp_scaling", "ddp_timeline", NULL},
};

static bool mine(const strategy *s)
{
    return s->grouping == GROUP_TENSOR && s->when == WHEN_AFTER;
}

int main(int argc, char **argv)
{
    ddp_add_variants(variant_table, mine);
    return ddp_main(&info, option_table, argc, argv);
}
