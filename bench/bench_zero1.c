/* SPDX-License-Identifier: MIT */
/* bench_zero1: what happens to memory and to the step if each rank holds a slice of the optimizer state?
 *
 * The `optimizer_state_sharding_accounting` problem of Stanford's CS336, assignment 2: (a) memory after
 * initialisation, before and after the optimizer's step, with and without sharding; (b) the time of a step; (c)
 * ZeRO-1's traffic. zero1-broadcast is the handout's way: sums for everyone, whole tensors updated by their owner
 * and broadcast. zero1 is the paper's (Rajbhandari et al., 2020): a reduce-scatter for each bucket and an
 * all-gather under the next forward. unsharded is bucketed data parallelism with all of AdamW on every rank.
 *
 * One row is one model, context, precision, dtype of sums and way of synchronising; bench/ddp/row.h says what is
 * measured. fused is zero1 in one pass: a kernel adds up the gradients of a slice as they lie on all ranks, updates
 * it and stores it to all of them.
 * Expect: state_bytes divided by the ranks; zero1 at least as fast as unsharded, since AdamW is divided as well and
 * the gathers are hidden; zero1-broadcast slower, since it sends half as much again and waits for it.
 * Limits: policies with separate fp32 weights (fp16) are not sharded. peak_bytes is what a step needs at its worst
 * moment. */
#include <stdlib.h>

#include "bench/ddp/ddp.h"

static option_spec option_table[] = {
    {"variant", OPTION_CHOICE, OPTION_LIST, "unsharded,zero1,zero1-broadcast", .help = "which variants to measure"},
    DDP_OPTIONS("buckets"),
    DDP_BUCKET_MB("25", "0.1"),
    {0}};

static variant_spec variant_table[DDP_VARIANTS] = {
    {"unsharded", "bucketed data parallelism, the whole state on every rank"}};

static const column_spec column_table[] = {DDP_COLUMNS, DDP_MEMORY_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 20, "--ranks {gpus} --size small --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 38,
     "--ranks {gpus} --variant unsharded,zero1-broadcast,fused --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 36,
     "--ranks {gpus} --variant zero1,fused --bucket-mb 100 --update backward --seq 512 --precision bf16"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --seq 512 --precision bf16 --grad-dtype policy"},
    {RUN_DEFAULT, 2, 21, "--ranks {gpus} --variant zero1 --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1"},
    {RUN_FULL, 2, 48, "--ranks {gpus} --seq 128 --precision fp32 --grad-dtype policy"},
    {RUN_FULL, 4, 20, "--ranks 2 --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 60,
     "--ranks {gpus} --size xl-2026 --seq 2048 --batch 1 --precision bf16 --grad-dtype fp32 --variant "
     "unsharded,zero1,fused"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_zero1",
    .summary = "What happens to memory and to the step if each rank holds a slice of the optimizer state?",
    .notes = DDP_NOTES
    "The handout's --sync broadcast is --variant zero1-broadcast; the all-gather of ZeRO-1 is --variant\n"
    "zero1. fused is zero1 in one pass over the memory of all ranks: up to 8 GPUs of one host that map each other's\n"
    "memory; on CPUs three collective steps, bucket by bucket. Its sums run with the updates, after the backward or,\n"
    "with --update backward, during it, then in --update-blocks thread blocks (0: 128).\n"
    "P is the index space: all parameters and the padding between tensors. p, g and k are bytes of a\n"
    "parameter, of its gradient and of its state (master weight and both moments).\n"
    "after_*_bytes count what a framework would hold; measured_*_bytes are the driver's, less comm_bytes\n"
    "(the communicators'), and err_measured_pct compares them with peak_bytes, which is all taken at once.",
    .examples = "./bench_zero1 --size xl --seq 512\n"
                "./bench_zero1 --size 2.7b --seq 512 --precision bf16 --variant unsharded,zero1\n"
                "./bench_zero1 --variant zero1,fused --seq 512 --precision bf16 --update backward --bucket-mb 100\n"
                "./bench_zero1 --device cpu --ranks 2,4",
    BENCH_TABLES,
    .validate = model_steps_validate,
    .order = 120,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "zero1",
    .figures = (const char *const[]){"zero1_memory", "ddp_timeline", NULL},
};

static bool mine(const strategy *s)
{
    return s->share != SHARE_NONE && s->parameters == PARAMETERS_RESIDENT && s->gradients == GRADIENTS_RESIDENT;
}

int main(int argc, char **argv)
{
    /* Two communicators of a rank at once, zero1's: NCCL keeps the host's order among them. Elsewhere there is one
     * at a time, and the order would cost each call two waits and an event, in a graph two nodes on branches that
     * every call joins. */
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    ddp_add_variants(variant_table, mine);
    return ddp_main(&info, option_table, argc, argv);
}
