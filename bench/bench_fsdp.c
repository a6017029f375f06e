/* SPDX-License-Identifier: MIT */
/* bench_fsdp: what does it cost to shard the whole model among the ranks, and what does it save?
 *
 * The sharded training of Stanford's CS336, assignment 2 (2026): fully sharded data parallelism (Zhao et al., 2023) and
 * the stages of ZeRO (Rajbhandari et al., 2020). With fsdp a rank holds a slice of every unit (the head, each block,
 * the embedding): of its parameters, gradients and optimizer state. A unit is gathered before its forward and again
 * before its backward, beside the compute of the units before it, and its gradients are reduced into slices beside the
 * backward of the next one. zero2 keeps the parameters whole; ddp and zero1 are what all are compared with. With --cp,
 * neighbouring ranks share each sequence, too.
 *
 * Expect: the memory of parameters, gradients and state divided by the ranks; the step of ddp as long as the compute of a
 * unit takes longer than its gathers and its reduction.
 * Limits: the fp16 policy is sharded by units, with --update after; zero1 does not take it. */
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/ddp.h"
#include "bench/model/mesh.h"
#include "bench/model/timing.h"

static option_spec option_table[] = {
    DDP_OPTIONS("buckets"),
    DDP_BUCKET_MB("25", "0.1"),
    {"prefetch", OPTION_INT, OPTION_LIST, "1",
     .help = "units whose parameters are gathered ahead of the one in use; 0: compute waits for every gather", .max = 3,
     .unit = "units"},
    {"free-every", OPTION_INT, OPTION_LIST, "1",
     .help = "fsdp, hsdp: free only every K-th block after its forward; the others stay for the backward", .min = 1,
     .max = 1024, .unit = "blocks"},
    {"gather", OPTION_CHOICE, OPTION_LIST, "nccl",
     .help = "how units are gathered: by NCCL (on the CPU, Gloo), by copy engines from the other GPUs' memory, "
             "or by our own kernel that loads from there (in --max-ctas thread blocks, else 16)",
     .choices = GATHER_CHOICES},
    {"reduce", OPTION_CHOICE, OPTION_LIST, "nccl",
     .help = "how slices of gradients are summed: by NCCL (on the CPU, Gloo), or sent by copy engines and "
             "added up by their owner",
     .choices = "nccl|copy"},
    {"gather-dtype", OPTION_CHOICE, OPTION_LIST, "param",
     .help = "float8: gather blocks as codes of one byte, where the precision's scales serve a weight and its "
             "transpose alike (fp8-tensorwise; fp8-block where ranks' slices end with rows of squares); else "
             "as parameters",
     .choices = "param|float8"},
    MODEL_UPDATE_OPTIONS(", with --update after"),
    {"reduce-dtype", OPTION_CHOICE, OPTION_LIST, "grad",
     .help = "dtype in which gradients are sent, summed and kept; grad: that of --grad-dtype, in which they "
             "are made",
     .choices = "grad|fp32|bf16"},
    {"small", OPTION_CHOICE, OPTION_LIST, "sharded",
     .help = "gains of norms: in slices with their units, or whole on every rank, summed by one all-reduce after the "
             "backward",
     .choices = "sharded|replicated"},
    {"replicas", OPTION_INT, OPTION_LIST, "2",
     .help = "hsdp: groups of ranks, each of which holds the whole model in slices", .min = 2, .max = 65536,
     .unit = "replicas"},
    {"cp", OPTION_INT, OPTION_LIST, "1",
     .help = "number of neighbouring ranks that share each sequence: --batch is then that of all of them "
             "together, and each has --seq / cp tokens, from the head and the tail of the sequence",
     .min = 1, .max = 1024, .unit = "ranks"},
    {"cp-way", OPTION_CHOICE, OPTION_LIST, "gather",
     .help = "how the queries of these ranks reach each other's keys (bench_cp says more)", .choices = CONTEXT_WAYS},
    /* fsdp-no-sync differs from fsdp-keep with micro-batches alone. */
    {"variant", OPTION_CHOICE, OPTION_LIST, "ddp,zero1,zero2,fsdp,fsdp-keep,hsdp", .help = "which variants to measure"},
    {0}};

static variant_spec variant_table[DDP_VARIANTS] = {
    {"ddp", "bucketed data parallelism: every rank has everything"},
    {"zero1", "the optimizer state in slices, all-gathers during the next forward"}};

static const column_spec column_table[] = {DDP_COLUMNS, DDP_MEMORY_COLUMNS, DDP_UNIT_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 20, "--ranks {gpus} --size small --seq 512 --precision bf16 --grad-dtype fp32"},
    /* FSDP2 runs the same (tests/peers/parallel_cases.py). */
    {RUN_DEFAULT | RUN_LOAD, 2, 110,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 4,2 --precision bf16 --grad-dtype fp32 --variant fsdp,fsdp-keep"},
    {RUN_FULL | RUN_LOAD, 2, 55,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 4,2 --precision bf16 --grad-dtype fp32 --variant fsdp --gather "
     "copy --reduce copy"},
    {RUN_FULL, 2, 120,
     "--ranks {gpus} --size xl-2026 --seq 2048 --batch 1 --precision bf16 --grad-dtype fp32 --variant ddp,zero1,fsdp"},
    {RUN_HEADLINE, 2, 40,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 2 --precision bf16 --grad-dtype fp32 --variant fsdp --gather copy "
     "--reduce copy"},
    {RUN_FULL, 2, 75, /* a minute of the headline */
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 2 --precision bf16 --grad-dtype fp32 --variant fsdp --gather copy "
     "--reduce copy --iters 160 --max-time 60"},
    {RUN_DEFAULT, 2, 60, "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32"},
    {RUN_FULL, 2, 30,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant fsdp --timeline 1"},
    /* Feature by feature: the rows that the run above does not have. */
    {RUN_DEFAULT, 2, 34, "--ranks {gpus} --size xl --seq 512 --precision fp32 --grad-dtype policy --variant ddp"},
    {RUN_DEFAULT, 2, 20, "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype policy --variant fsdp"},
    {RUN_DEFAULT, 2, 20,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant fsdp --recompute block"},
    {RUN_FULL, 2, 17,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant fsdp --gather copy"},
    {RUN_DEFAULT, 2, 36,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant zero2,fsdp --gather nccl,copy "
     "--update backward"},
    {RUN_FULL, 2, 17,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant fsdp --gather own"},
    {RUN_FULL, 2, 12,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant fsdp --reduce-dtype bf16"},
    {RUN_FULL, 2, 12,
     "--ranks {gpus} --size xl --seq 512 --precision bf16 --grad-dtype fp32 --variant fsdp --small replicated"},
    {RUN_FULL, 2, 90,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 2 --precision bf16,fp8-tensorwise,fp8-block --grad-dtype fp32 "
     "--variant fsdp --small replicated --gather-dtype param,float8"},
    /* Blocks without attention. */
    {RUN_FULL, 2, 60,
     "--ranks {gpus} --size mlp-1024,mlp-4096 --seq 1024 --precision fp32,bf16 --grad-dtype policy,fp32 --variant "
     "ddp,zero1,zero2,fsdp"},
    {RUN_FULL, 2, 8,
     "--ranks {gpus} --size mlp-1024,mlp-4096 --seq 1024 --precision bf16 --grad-dtype fp32 --variant fsdp --recompute "
     "block"},
    /* Weak and strong scaling: the same batch on each rank, and on all of them together. */
    {RUN_DEFAULT, 2, 26,
     "--ranks 1 --size large --seq 512 --batch 4,8 --precision bf16 --grad-dtype fp32 --variant ddp,fsdp"},
    {RUN_DEFAULT, 2, 20,
     "--ranks 2 --size large --seq 512 --batch 4 --precision bf16 --grad-dtype fp32 --variant ddp,fsdp"},
    {RUN_DEFAULT, 4, 32,
     "--ranks 4 --size large --seq 512 --batch 2,4 --precision bf16 --grad-dtype fp32 --variant ddp,fsdp"},
    {RUN_DEFAULT, 8, 32,
     "--ranks 8 --size large --seq 512 --batch 1,4 --precision bf16 --grad-dtype fp32 --variant ddp,fsdp"},
    {RUN_FULL, 2, 200,
     "--ranks {gpus} --size 8b --seq 32768 --batch 1 --precision bf16,fp8-tensorwise --grad-dtype policy "
     "--variant fsdp --recompute but-attention --loss-chunk 4096 --warmup 3 --iters 4"},
    {RUN_FULL, 2, 75,
     "--ranks {gpus} --size 8b --seq 8192 --batch 1 --precision bf16,fp8-tensorwise --grad-dtype policy --variant fsdp "
     "--recompute mlp --loss-chunk 4096 --warmup 3 --iters 4"},
    /* The model, sequence and batch of torchtitan's published table. */
    {RUN_FULL, 2, 75,
     "--ranks {gpus} --size llama3-8b --seq 8192 --batch 1 --precision bf16,fp8-tensorwise --grad-dtype policy "
     "--variant fsdp --recompute mlp --loss-chunk 4096 --warmup 3 --iters 4"},
    /* bench_mesh --variant measured predicts these. */
    {RUN_DEFAULT, 2, 26,
     "--ranks 2 --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --grad-dtype policy --variant zero2,fsdp "
     "--iters 8"},
    {RUN_FULL, 2, 45,
     "--ranks 2 --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --grad-dtype policy --variant "
     "ddp,zero1,fsdp-keep --iters 8"},
    {RUN_FULL, 2, 30,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 1 --micro-batches 4 --precision bf16-pure --grad-dtype policy "
     "--variant fsdp-keep,fsdp-no-sync --iters 8"},
    {RUN_FULL, 2, 90,
     "--ranks 2 --size 8b --seq 4096 --batch 2 --precision bf16-pure --grad-dtype policy --recompute block --variant "
     "ddp,zero1,zero2,fsdp-keep,fsdp --iters 3 --warmup 1"},
    {RUN_FULL, 2, 36,
     "--ranks 2 --cp 2 --size 8b --seq 4096 --batch 4 --precision bf16-pure --grad-dtype policy --recompute block "
     "--variant zero2,fsdp --iters 3 --warmup 1"},
    {RUN_FULL, 4, 69,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch 1 --precision bf16-pure --grad-dtype policy --variant "
     "ddp,zero1,zero2,fsdp-keep,fsdp,hsdp --iters 8"},
    {RUN_FULL, 4, 32,
     "--ranks {gpus} --cp {gpus} --size 2.7b --seq 2048 --batch {gpus} --precision bf16-pure --grad-dtype policy "
     "--variant zero2,fsdp --iters 8"},
    {RUN_FULL, 4, 16,
     "--ranks {gpus} --cp 2 --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --grad-dtype policy --variant fsdp "
     "--iters 8"},
    {RUN_FULL, 2, 26,
     "--ranks 2 --cp 2 --size 2.7b --seq 2048 --batch 4 --precision bf16-pure --grad-dtype policy --variant zero2,fsdp "
     "--iters 8"},
    {RUN_FULL, 4, 40,
     "--ranks 1,4 --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --grad-dtype policy --variant fsdp,hsdp "
     "--iters 8"},
    {RUN_FULL, 8, 40,
     "--ranks 8 --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --grad-dtype policy --variant fsdp,hsdp "
     "--replicas 2,4 --iters 8"},
    {RUN_FULL, 4, 19,
     "--ranks 4 --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --grad-dtype policy --variant fsdp --small "
     "replicated --iters 8"},
    {RUN_FULL, 4, 40,
     "--ranks 4 --size 10b --seq 1024 --batch 1 --precision bf16-pure --grad-dtype policy --variant fsdp --iters 8"},
    {RUN_FULL, 2, 34, "--ranks {gpus} --size xl --seq 512 --precision fp32 --grad-dtype policy --variant fsdp"},
    /* One GPU, and two that share its sequences. */
    {RUN_FULL, 2, 45,
     "--ranks 1,2 --cp 1,2 --size 2.7b --layers 8 --seq 32768 --batch 1 --precision bf16-pure --grad-dtype policy "
     "--loss-chunk 4096 --variant ddp --iters 6"},
    {RUN_FULL, 2, 30,
     "--ranks 2 --cp 2 --cp-way all-to-all,ring --size 2.7b --layers 8 --seq 32768 --batch 1 --precision bf16-pure "
     "--grad-dtype policy --loss-chunk 4096 --variant ddp --iters 6"},
    {RUN_FULL, 2, 50,
     "--ranks 1,2 --cp 1,2 --size llama3-8b --layers 8 --seq 32768 --batch 1 --precision bf16-pure --grad-dtype policy "
     "--loss-chunk 4096 --variant fsdp --iters 6"},
    {RUN_FULL, 4, 25,
     "--ranks 4 --cp 4 --size 2.7b --layers 8 --seq 32768 --batch 1 --precision bf16-pure --grad-dtype policy "
     "--loss-chunk 4096 --variant ddp --iters 6"},
    {RUN_CPU, 0, 5, ""},
    {RUN_CPU, 0, 2, "--cp 2 --cp-way gather,all-to-all,ring --precision fp32 --grad-dtype policy --variant ddp,fsdp"},
    {RUN_CPU, 0, 3, "--ranks 1 --batch 2,4 --precision bf16 --grad-dtype fp32 --variant ddp,fsdp"},
    {0}};

/* Units are gathered where ranks have slices of parameters, and buckets are those of whole gradients. */
static bool applies(const char *option, const char *variant)
{
    const bool units = strcmp(variant, "ddp") != 0 && strcmp(variant, "zero1") != 0;
    if (strcmp(option, "bucket-mb") == 0)
        return !units;
    if (strcmp(option, "reduce") == 0 && strcmp(variant, "fsdp-no-sync") == 0)
        return false;
    if (strcmp(option, "small") == 0 || strcmp(option, "reduce") == 0)
        return units;
    if (strcmp(option, "free-every") == 0)
        return strcmp(variant, "fsdp") == 0 || strcmp(variant, "hsdp") == 0;
    if (strcmp(option, "replicas") == 0)
        return strcmp(variant, "hsdp") == 0;
    return (strcmp(option, "prefetch") != 0 && strncmp(option, "gather", 6) != 0) ||
           (units && strcmp(variant, "zero2") != 0);
}

static const bench_info info = {
    .name = "bench_fsdp",
    .summary = "What does it cost to shard the whole model among the ranks, and what does it save?",
    .notes = DDP_NOTES
    "A unit is the model's head, one of its blocks, or its embedding. ddp and zero1 have buckets instead.\n"
    "gathered_bytes count each unit as often as a step gathers it: twice, except for those that stay between\n"
    "forward and backward.",
    .examples = "./bench_fsdp --size 2.7b --seq 2048 --precision bf16 --grad-dtype fp32\n"
                "./bench_fsdp --size xl --seq 512 --precision bf16 --variant fsdp --prefetch 0,1,2,3\n"
                "./bench_fsdp --ranks 2 --cp 2 --size 2.7b --seq 32768 --batch 1 --variant fsdp\n"
                "./bench_fsdp --device cpu --ranks 2,3",
    BENCH_TABLES,
    .validate = model_shared_steps_validate,
    .applies = applies,
    .order = 125,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "fsdp",
    .figures = (const char *const[]){"fsdp", "fsdp_timeline", "ladder", "ranks_scaling", NULL},
};

static bool mine(const strategy *s)
{
    return s->grouping == GROUP_UNIT;
}

int main(int argc, char **argv)
{
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* two communicators of a rank at once, as in bench_zero1 */
    ddp_add_variants(variant_table, mine);
    for (option_spec *o = option_table; o->name; o++)
        if (strcmp(o->name, "plant-error") == 0) {
            o->choices = "none|gradient|parameter|half|stale|order|position|own|tail|merge|group";
            o->help = DDP_PLANT_HELP
                "; with --cp: head and tail swapped; positions from 0 on; only its own chunks; dk and dv of its "
                "second chunk's queries left out; parts merged without scaling them; gradients summed by nobody";
        }
    return ddp_main(&info, option_table, argc, argv);
}
