/* SPDX-License-Identifier: MIT */
/* bench_ddp_bucketed: which bucket size hides communication best, and does a model of buckets predict it?
 *
 * The `ddp_bucketed_benchmarking` problem of Stanford's CS336, assignment 2: gradients are sent in buckets of 1, 10,
 * 100 and 1000 MB (of 2^20 bytes) beside the backward; (b) the overhead as a formula of bucket size, and the best size.
 * All-reduces measured in the same run give its o and w.
 *
 * One row is one model, context, precision, dtype of sums and bucket size; bench/ddp/row.h says what is measured,
 * against what.
 * Expect: a flat curve from 1 to 100 MB on NVLink, where o is some 20 us; with 1000 MB the last bucket is not
 * hidden.
 * Limits: two sizes differ only if their intervals (exposed_lo_ms, exposed_hi_ms) do not overlap. */
#include "bench/ddp/ddp.h"

static option_spec option_table[] = {DDP_OPTIONS("buckets"), DDP_BUCKET_MB("1,10,100,1000", "0.01,0.1,1"), {0}};

static variant_spec variant_table[DDP_VARIANTS];

static const column_spec column_table[] = {DDP_COLUMNS, DDP_MODEL_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 20,
     "--ranks {gpus} --size small --bucket-mb 1,25,1000 --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 43, "--ranks {gpus} --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 26, "--ranks {gpus} --bucket-mb 0.25,25,250 --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_DEFAULT, 2, 18,
     "--ranks {gpus} --bucket-mb 100 --update backward --seq 512 --precision bf16 --grad-dtype policy"},
    {RUN_FULL, 4, 15, "--ranks 2 --bucket-mb 100 --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 50, "--ranks {gpus} --bucket-mb 2,5,50,200,500 --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --bucket-mb 10,100 --seq 1024 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 18, "--ranks {gpus} --bucket-mb 100 --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1"},
    {RUN_FULL, 2, 61, "--ranks {gpus} --seq 128 --precision fp32 --grad-dtype policy"},
    {RUN_FULL, 2, 18, "--ranks {gpus} --bucket-mb 25 --update backward --seq 512 --precision bf16 --grad-dtype policy"},
    /* DDP runs the same (tests/peers/parallel_cases.py). */
    {RUN_FULL, 2, 26, "--ranks {gpus} --bucket-mb 25,100 --seq 512 --precision bf16-pure --grad-dtype policy"},
    {RUN_FULL | RUN_LOAD, 2, 30,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 4 --bucket-mb 25 --precision bf16-pure --grad-dtype policy"},
    {RUN_FULL | RUN_LOAD, 2, 55,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 4,2 --bucket-mb 100 --precision bf16-pure --grad-dtype policy"},
    {RUN_FULL, 2, 40,
     "--ranks {gpus} --size xl-2026 --seq 2048 --batch 1 --precision bf16 --grad-dtype fp32 --bucket-mb 100"},
    {RUN_HEADLINE, 2, 18,
     "--ranks {gpus} --bucket-mb 100 --update backward --seq 512 --precision bf16 --grad-dtype policy"},
    {RUN_FULL, 2, 75, /* a minute of the headline */
     "--ranks {gpus} --bucket-mb 100 --update backward --seq 512 --precision bf16 --grad-dtype policy --iters 1000 "
     "--max-time 60"},
    {RUN_CPU, 0, 10, ""},
    {0}};

static const bench_info info = {
    .name = "bench_ddp_bucketed",
    .summary = "Which bucket size hides communication best, and does a model of buckets predict it?",
    .notes = DDP_NOTES
    "Gradients are sent in buckets during the backward. predicted_ms is the overhead n o + s / (n w) of n\n"
    "buckets and s bytes of gradients; o and w are fitted to all-reduces of 0.25 MB to 1 GB that this run\n"
    "measures first. predicted_exposed_ms is max(slowdown alone + last, stretch alone - window): alone is\n"
    "interpolated between those all-reduces, last is the last bucket's time that nothing hides, window is the\n"
    "compute during the collectives, and slowdown and stretch come from the first row of a sweep of buckets.",
    .examples = "./bench_ddp_bucketed --size xl --seq 512\n"
                "./bench_ddp_bucketed --bucket-mb 0.25,1,2,5,10,25,50,100,200,500,1000 --seq 512 --iters 40\n"
                "./bench_ddp_bucketed --bucket-mb 1,10,100,1000 --max-ctas 1 --seq 128\n"
                "./bench_ddp_bucketed --device cpu --ranks 2,4",
    BENCH_TABLES,
    .validate = model_steps_validate,
    .order = 110,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "ddp",
    .figures = (const char *const[]){"ddp_steps", "ddp_buckets", "ddp_scaling", "ddp_timeline", NULL},
};

static bool mine(const strategy *s)
{
    return s->grouping == GROUP_BUCKET && s->share == SHARE_NONE;
}

int main(int argc, char **argv)
{
    ddp_add_variants(variant_table, mine);
    return ddp_main(&info, option_table, argc, argv);
}
