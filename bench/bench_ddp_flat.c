/* SPDX-License-Identifier: MIT */
/* bench_ddp_flat: what does it save to sum all gradients in one call?
 *
 * The `minimal_ddp_flat_benchmarking` problem of Stanford's CS336, assignment 2: one all-reduce over all gradients
 * after the backward. Here gradients lie side by side in memory, so flat copies nothing; flat-copy is the handout's
 * way, which concatenates them into a second buffer and splits that again.
 *
 * One row is one model, context, precision, dtype of sums and strategy; bench/ddp/row.h says what is measured,
 * against what.
 * Expect: flat saves the launches of bench_ddp_naive; flat-copy takes four more passes over the gradients than flat.
 * Limits: flat-copy holds the gradients twice; peak_bytes does not count the copy, device_used_bytes does. Its
 * compute-only step copies as well, so that exposed_ms leaves the copies out: compare step_ms. */
#include "bench/ddp/ddp.h"

static option_spec option_table[] = {DDP_OPTIONS("after"), {0}};

static variant_spec variant_table[DDP_VARIANTS];

static const column_spec column_table[] = {DDP_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 12, "--ranks {gpus} --size small --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 18, "--ranks {gpus} --variant flat --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1"},
    {RUN_DEFAULT, 2, 17, "--ranks {gpus} --variant flat-copy --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 20, "--ranks {gpus} --variant flat --seq 128 --precision fp32 --grad-dtype policy"},
    {RUN_FULL, 2, 60, "--ranks {gpus} --variant flat --seq 128,512,1024"},
    {RUN_FULL, 4, 15, "--ranks 2 --variant flat --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 40,
     "--ranks {gpus} --size xl-2026 --seq 2048 --batch 1 --precision bf16 --grad-dtype fp32 --variant flat"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_ddp_flat",
    .summary = "What does it save to sum all gradients in one call?",
    .notes = DDP_NOTES
    "Gradients are sent after the backward, in one call: no communication is hidden. flat sums them in place.\n"
    "The compute-only step of flat-copy copies as well, so its exposed_ms leaves the copies out: compare step_ms.",
    .examples = "./bench_ddp_flat --size xl --seq 512\n"
                "./bench_ddp_flat --size small,medium,large,xl --seq 512 --precision bf16\n"
                "./bench_ddp_flat --device cpu --ranks 2,4",
    BENCH_TABLES,
    .validate = model_steps_validate,
    .order = 90,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "ddp",
    .figures = (const char *const[]){"ddp_steps", "ddp_scaling", "ddp_timeline", NULL},
};

static bool mine(const strategy *s)
{
    return s->grouping == GROUP_WHOLE;
}

int main(int argc, char **argv)
{
    ddp_add_variants(variant_table, mine);
    return ddp_main(&info, option_table, argc, argv);
}
