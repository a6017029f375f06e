/* SPDX-License-Identifier: MIT */
/* bench_tp: what does sharing each layer among ranks cost, and what does it save?
 *
 * Tensor parallelism (Shoeybi et al., 2019) with sequence parallelism (Korthikanti et al., 2022): a rank has some heads of each
 * attention, some columns of the feed-forward, and some ids of both vocabularies. Variants are the ways in which rows come
 * together for a product and partial sums are added: by a library, by copy engines beside the products, or by these themselves.
 * Expect: the memory of one rank divided by the ranks but for norms; a speedup that falls short by what a library sends, which
 * nothing but the weight gradients' products hides, and by less with copies. Ranks that hold the same parts share the batch
 * (--mesh, --strategy). Limits: no stages (bench_pp has them), no fp16. */
#include <stdio.h>

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/mesh.h"
#include "bench/model/timing.h"
#include "bench/share/share.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/replica/parts.h"
#include "common/session/profile.h"

static option_spec option_table[] = {
    LAUNCH_RANKS("2", "2"),
    MODEL_MESH_OPTIONS("tp", "tp2+dp_shard2"),
    MODEL_OPTIONS("2.7b", "tiny", "2048", "32", "bf16", "train-step"),
    {"loss", OPTION_CHOICE, OPTION_LIST, "parallel",
     .help = "how the loss is computed: ranks exchange three numbers per token, or each gathers all logits",
     .choices = "parallel|gathered"},
    {"regather", OPTION_FLAG, OPTION_LIST, "1",
     .help = "nccl: gather the norms' outputs again for the weight gradients; 0: keep all rows of them"},
    MODEL_UPDATE_OPTIONS(", over all ranks"),
    {"fusion", OPTION_CHOICE, OPTION_LIST, "kernels",
     .help = "fused kernels launched by the host, or the whole step with its collectives as one CUDA graph",
     .choices = "kernels|graph"},
    {"max-ctas", OPTION_INT, OPTION_LIST, "0", .help = "limit on the thread blocks of an NCCL collective", .max = 64,
     .unit = "thread blocks", .unset = "0: NCCL decides"},
    {"warmup", OPTION_INT, 0, "5", .help = "warm-up steps", .min = 1, .max = 1000000, .unit = "steps"},
    {"iters", OPTION_INT, 0, "20",
     .help = "measured steps, alternating in blocks with as many compute-only steps; 0: only the check", .def_cpu = "6",
     .max = 1000000, .unit = "steps"},
    MODEL_PEAK_OPTION("MFU"),
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",
     .help = "test the check: rows of the wrong rank; a part left out of one sum; gradients not summed, of gains or of "
             "key and value heads that ranks share; ids of the logits off by one; columns that pad the logits counted; "
             "rows behind their flag; one number of a sum; gains counted by each rank in the norm; data parallelism "
             "between ranks that hold other parts, or whose order is not the mesh's; tokens that see only their own "
             "rank's",
     .choices = TEAM_FAULTS},
    {0}};

static variant_spec variant_table[8];

static const column_spec column_table[] = {SHARE_COLUMNS, {0}};

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 10, "--ranks {gpus} --size medium --seq 1024 --fusion graph --variant nccl"},
    /* PyTorch runs the same (tests/peers/tp.py). */
    {RUN_DEFAULT | RUN_LOAD, 2, 40,
     "--ranks {gpus} --size 2.7b --seq 2048 --precision bf16-pure --fusion graph --overlap none --variant "
     "all-reduce,nccl --iters 10"},
    {RUN_DEFAULT | RUN_LOAD, 2, 22,
     "--ranks {gpus} --size 2.7b --seq 2048 --precision bf16-pure --fusion graph --overlap gradients --variant copy"},
    {RUN_FULL, 2, 22,
     "--ranks {gpus} --size 2.7b --seq 2048 --precision bf16-pure --fusion graph --overlap gradients --variant push"},
    {RUN_FULL, 2, 120,
     "--ranks {gpus} --size 2.7b --seq 2048 --precision bf16-pure --fusion graph --overlap gradients --regather 1,0"},
    {RUN_FULL, 2, 20, "--ranks {gpus} --size 2.7b --seq 2048 --fusion graph --loss gathered --variant nccl"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --size 2.7b --seq 2048 --fusion graph --variant nccl --max-ctas 4,8,16"},
    {RUN_FULL, 2, 30, "--ranks {gpus} --size 2.7b --seq 2048 --fusion graph --variant nccl --recompute block"},
    /* At which d_ff gathers and sums are hidden (the course's tp_calcs). */
    {RUN_FULL, 2, 65,
     "--ranks 2 --size 2.7b --layers 4 --d-ff 640,2560,10240 --seq 2048 --precision bf16-pure --fusion graph --overlap "
     "none --variant nccl,copy,push --iters 8"},
    /* bench_mesh --variant measured predicts these and the first run of 2.7b. */
    {RUN_FULL, 4, 52,
     "--ranks {gpus} --size 2.7b --seq 2048 --batch {gpus} --precision bf16-pure --fusion graph --iters 8"},
    {RUN_FULL, 4, 52,
     "--ranks {gpus} --mesh tp2+dp_shard --size 2.7b --seq 2048 --batch 2 --precision bf16-pure --fusion graph "
     "--variant "
     "nccl,copy --strategy ddp,fsdp --iters 8"},
    {RUN_FULL, 4, 34,
     "--ranks {gpus} --mesh cp2+tp2 --size 2.7b --seq 2048 --precision bf16-pure --fusion graph --variant nccl,copy "
     "--iters "
     "8"},
    {RUN_FULL, 4, 80,
     "--ranks {gpus} --mesh tp2+dp_shard --size 8b --seq 4096 --batch 2 --precision bf16-pure --recompute block "
     "--variant nccl,copy --strategy fsdp --iters 4 --warmup 2"},
    {RUN_FULL, 4, 45,
     "--ranks {gpus} --mesh cp2+tp2 --size 8b --seq 4096 --batch 4 --precision bf16-pure --recompute block --variant "
     "nccl --iters 4 --warmup 2"},
    {RUN_FULL, 2, 65,
     "--ranks 2 --size 8b --seq 4096 --batch 4 --precision bf16-pure --recompute block --fusion graph --iters 3 "
     "--warmup 1"},
    {RUN_CPU, 0, 3, "--ranks 2,4 --precision fp32 --regather 1,0"},
    {RUN_CPU, 0, 2,
     "--ranks 4 --mesh tp2+dp_shard2,cp2+tp2 --strategy ddp,fsdp --clip 1 --variant nccl --precision fp32"},
    {RUN_CPU, 0, 2, "--ranks 3 --seq 30 --d-model 96 --heads 6 --precision fp32,bf16 --variant nccl --loss gathered"},
    {0}};

static bool applies(const char *option, const char *variant)
{
    const team_way *w = team_way_find(variant);
    return !text_is(option, "regather") || (w->rows_apart && !w->windows);
}

static const bench_info info = {
    .name = "bench_tp",
    .summary = "What does sharing each layer among ranks cost, and what does it save?",
    .notes =
        "batch is that of ranks that share layers or sequences. Before a case is timed, a slice of its model (at most\n"
        "two blocks) takes a step and three updates on its ranks and, on each of them, with whole layers: loss,\n"
        "gradients and parameters must agree within roundings, and in every bit with one rank that computes the same\n"
        "parts, where sums come in the order of ranks. compute_ms is the same step with nothing sent, and one_ms a\n"
        "step of the whole model on one GPU in the same run. predicted_ms assumes that compute divides by the ranks\n"
        "and that nothing is hidden: err_pct above 0 is what was hidden, below 0 what smaller products cost.",
    .examples = "./bench_tp --size 2.7b --seq 2048 --fusion graph --overlap none,gradients\n"
                "./bench_tp --size 2.7b --seq 2048 --variant nccl --loss parallel,gathered\n"
                "./bench_tp --device cpu --ranks 2,4",
    BENCH_TABLES,
    .validate = model_shared_steps_validate,
    .applies = applies,
    .order = 127,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1",
    .section = "tp",
    .figures = (const char *const[]){"tp", NULL},
};

static const char *contradiction(const share_case *k)
{
    const bool cpu = device_kind_of(k->s->dev) == DEVICE_CPU;
    if (k->m.pp > 1)
        return "bench_pp has the meshes with stages";
    if (k->m.tp == 1)
        return "one rank has nobody to share layers with: one_ms of the other rows is its step";
    if (k->o.seq == 1)
        return "a token that sees itself alone gives q and k gradients of roundings, which can't be checked";
    if (cpu && k->graph)
        return "the CPU has no graphs";
    if (cpu && k->max_ctas)
        return "--max-ctas is for NCCL";
    if (k->fault == TEAM_GAIN && !k->way->rows_apart)
        return "--plant-error gain is for ways in which each rank has its own rows: else gains' gradients are whole";
    if (k->fault == TEAM_FLAG && !k->way->windows)
        return "--plant-error flag is for copies, which raise flags";
    if (k->fault == TEAM_NUMBER && !share_has_bits(k))
        return "--plant-error number is found by bits, which neither sums of more than two ranks by a library keep nor "
               "a "
               "mesh of two axes";
    if (k->fault == TEAM_KEY && k->m.tp <= k->o.config.heads_kv)
        return "--plant-error key is for fewer key and value heads than ranks";
    if (k->fault == TEAM_NORM && !(k->o.clip_norm > 0))
        return "--plant-error norm is for --clip";
    if (k->fault == TEAM_OWN && k->m.cp == 1)
        return "--plant-error own is for a mesh with cp";
    if (k->fault >= TEAM_GROUPS && k->data == 1)
        return "--plant-error groups and order are for a mesh with data parallelism";
    return NULL;
}

static bool describe(session *s, const bench_case *c, row *w, share_case *k)
{
    char why[512] = "";
    *k = (share_case){.s = s, .l = launch_of(s), .c = c, .w = w, .ranks = (int)case_int(c, "ranks")};
    k->at = model_place(s, k->l);
    k->way = team_way_find(case_variant(c));
    k->fault = (team_fault)option_choice(s->opt, "plant-error");
    k->max_ctas = (int)case_int(c, "max-ctas");
    k->graph = text_is(case_text(c, "fusion"), "graph");
    model_mesh x = {.m = {1, 1, 1, 1, 1}};
    bool ok = model_case_options(c, &k->o, why, sizeof why) && model_mesh_of(c, &k->o, 1, &x, why, sizeof why);
    k->m = x.m, k->data = x.data, k->batches = x.data / x.m.cp, k->strategy = x.strategy;
    k->o.shard.prefetch = 1;
    k->o.fusion = FUSION_KERNELS; /* a step with its collectives is captured by the team */
    k->o.keep_rows = k->way->rows_apart && !k->way->windows && !case_int(c, "regather");
    k->o.gather_logits = text_is(case_text(c, "loss"), "gathered");
    if (ok && contradiction(k)) {
        snprintf(why, sizeof why, "%s", contradiction(k));
        ok = false;
    }
    if (!ok)
        row_status_set(w, ROW_SKIP, "%s", why);
    return ok;
}

static void run_case(session *s, const bench_case *c, row *w)
{
    share_case k;
    share_times m;
    double one_ms;
    int64_t one_bytes;
    const bool profiling = session_profiling(s); /* then the case was verified and timed before */
    if (!describe(s, c, w, &k) || (!profiling && !share_verify(&k)) || s->timing.iters == 0 ||
        (!profiling && !share_one(&k, &one_ms, &one_bytes)))
        return;
    phase_set("setup of %s", case_name(c));
    team *x = share_team(&k, &k.o, k.way);
    if (!x)
        return;
    if (profiling) {
        share_profile(&k, x);
    } else {
        if (share_time(&k, x, &m)) {
            share_fill_row(&k, x, &m, one_ms, one_bytes);
            profile_note(s, case_key(c), "steps", stats_of(&m.step).median);
        }
        share_times_free(&m);
    }
    team_free(x);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {model_start, run_case, model_finish, model_case_estimate};
    for (int i = 0; team_ways[i].name; i++)
        variant_table[i] = (variant_spec){team_ways[i].name, team_ways[i].summary};
    for (option_spec *o = option_table; o->name; o++)
        if (text_is(o->name, "overlap")) {
            o->def = "gradients";
            o->choices = "none|gradients";
            o->help = "what runs on other streams during the backward: weight gradients, or nothing";
        } else if (text_is(o->name, "mode")) {
            o->choices = "train-step";
        }
    launch_default_ranks(option_table, "2");
    return launch_main(&info, &hooks, argc, argv);
}
