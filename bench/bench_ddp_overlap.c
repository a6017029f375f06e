/* SPDX-License-Identifier: MIT */
/* bench_ddp_overlap: how much communication is hidden if each gradient is sent as soon as it is ready?
 *
 * The `ddp_overlap_individual_parameters_benchmarking` problem of Stanford's CS336, assignment 2: an all-reduce for
 * each parameter tensor, beside the rest of the backward.
 *
 * One row is one model, context, precision, dtype of sums and strategy; bench/ddp/row.h says what is measured,
 * against what.
 * Expect: all but the tail is hidden if the backward takes longer than communication; with few tokens and fp32 sums
 * it does not. The rest is contention: collectives and the backward share the GPU.
 * Limits: on the CPU, communication has no processor of its own unless there are more cores than ranks. */
#include "bench/ddp/ddp.h"

static option_spec option_table[] = {DDP_OPTIONS("buckets"), {0}};

static variant_spec variant_table[DDP_VARIANTS];

static const column_spec column_table[] = {DDP_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 12, "--ranks {gpus} --size small --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 18, "--ranks {gpus} --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1"},
    {RUN_DEFAULT, 2, 32,
     "--ranks {gpus} --seq 512 --precision bf16 --grad-dtype policy --update after,buckets,backward"},
    {RUN_DEFAULT, 2, 22, "--ranks {gpus} --seq 128 --precision fp32 --grad-dtype policy"},
    {RUN_FULL, 4, 15, "--ranks 2 --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 30, "--ranks {gpus} --size small,xl --seq 512 --precision bf16 --grad-dtype fp32 --profile"},
    {RUN_FULL, 2, 60, "--ranks {gpus} --seq 128,512,1024"},
    {RUN_FULL, 2, 40, "--ranks {gpus} --size xl-2026 --seq 2048 --batch 1 --precision bf16 --grad-dtype fp32"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_ddp_overlap",
    .summary = "How much communication is hidden if each gradient is sent as soon as it is ready?",
    .notes = DDP_NOTES "Gradients are sent tensor by tensor during the backward. AdamW follows the sums (--update).",
    .examples = "./bench_ddp_overlap --size xl --seq 512\n"
                "./bench_ddp_overlap --size xl --seq 512 --update after,buckets,backward\n"
                "./bench_ddp_overlap --size xl --max-ctas 0,4,8,16 --precision bf16\n"
                "./bench_ddp_overlap --device cpu --ranks 2,4",
    BENCH_TABLES,
    .validate = model_steps_validate,
    .order = 100,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "ddp",
    .figures = (const char *const[]){"ddp_steps", "ddp_scaling", "ddp_timeline", NULL},
};

static bool mine(const strategy *s)
{
    return s->grouping == GROUP_TENSOR && s->when == WHEN_READY;
}

int main(int argc, char **argv)
{
    ddp_add_variants(variant_table, mine);
    return ddp_main(&info, option_table, argc, argv);
}
