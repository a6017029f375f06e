/* SPDX-License-Identifier: MIT */
/* Turns the options of a case into those of a trainer and a strategy, and exchanges values between ranks; see case.h. */
#include "bench/ddp/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/model/context.h"
#include "bench/model/mesh.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/core/units.h"

bool ddp_has_column(const ddp_case *k, const char *name)
{
    const column_spec *c = options_bench(k->s->opt)->columns;
    while (c->name && !text_is(c->name, name))
        c++;
    return c->name;
}

/* "unsharded" and "ddp" are what sharding is compared with; every other name is that of its strategy. Benches whose
 * variants are something else have an option for it. */
static const char *strategy_named(const char *name)
{
    return text_is(name, "unsharded") || text_is(name, "ddp") ? "bucketed" : name;
}

static const char *strategy_of(const bench_case *c)
{
    return strategy_named(case_has(c, "strategy") ? case_text(c, "strategy") : case_variant(c));
}

static grad_sums sums_of(const char *name)
{
    return text_is(name, "fp32") ? SUMS_FP32 : text_is(name, "bf16") ? SUMS_BF16 : SUMS_AS_MADE;
}

/* Why the case is skipped: it is not possible, or it is measured under another name already. NULL: it is not. */
static const char *contradiction(const ddp_case *k)
{
    const strategy *s = parallel_strategy(k->p.strategy);
    const bool at_once = s->grouped || s->grouping == GROUP_WHOLE, sharded = s->share != SHARE_NONE;
    const bool cpu = device_kind_of(k->s->dev) == DEVICE_CPU;
    const int sharers = k->o.context.ranks;
    const char *planted = option_text(k->s->opt, "plant-error");
    if ((text_is(planted, "half") || text_is(planted, "stale")) &&
        (step_sums_dtype(&k->o) != SB_FP32 || (sharers > 1 && k->o.precision->compute != SB_FP32)))
        return "roundings of 16 bits may hide this error: plant it with --grad-dtype fp32 or in fp32";
    if (sharers > 1 && !text_is(k->o.attention, "flash") && !text_is(k->o.attention, "flash_portable"))
        return "--cp is for --attention flash and flash_portable, which keep no scores";
    if (sharers < 2 && case_has(k->c, "cp-way") && !text_is(case_text(k->c, "cp-way"), "gather"))
        return "--cp 1 shares no sequences: --cp-way gather is the same";
    if (k->o.grad_fp32 && k->o.precision->grad == SB_FP32)
        return "gradients of this precision are fp32: --grad-dtype policy is the same";
    if (k->o.sums != SUMS_AS_MADE && step_sums_dtype(&k->o) == step_made_dtype(&k->o))
        return "gradients have this dtype already: --reduce-dtype grad is the same";
    if (k->o.sums == SUMS_BF16 && k->o.precision->loss_scaling)
        return "--precision fp16 reduces gradients in fp16 or in fp32: --reduce-dtype bf16 is for the other precisions";
    if (k->o.precision->loss_scaling && sharded && s->gradients == GRADIENTS_RESIDENT)
        return "--precision fp16 keeps separate fp32 weights, which are sharded by units only (bench_fsdp)";
    if (k->o.precision->loss_scaling && k->p.update != UPDATE_AFTER)
        return "--precision fp16 needs all gradients before the first update: use --update after";
    if (k->o.clip_norm > 0 && k->p.update != UPDATE_AFTER)
        return "--clip needs all gradients before the first update: use --update after";
    if (strategy_fused(s) && k->p.update == UPDATE_AFTER)
        return "sums and updates are one pass: --update buckets is the same";
    if (strategy_fused(s) &&
        (k->o.moments == MOMENTS_BF16 ? k->o.precision->master != SB_MASTER_SPLIT
                                      : k->o.moments == MOMENTS_FP32 && k->o.precision->moments != SB_FP32))
        return "fused has no kernel for --moments of another dtype than the precision's, but for bf16 in bf16";
    if (strategy_fused(s) && k->p.max_ctas)
        return "--max-ctas is for NCCL, and sums are no collectives here";
    if (k->p.update == UPDATE_BUCKETS && at_once)
        return "all gradients arrive at once: --update after is the same";
    if (k->p.update == UPDATE_BACKWARD && s->when == WHEN_AFTER)
        return "nothing is summed during backward: --update buckets is the same";
    if (k->p.update == UPDATE_BACKWARD && cpu)
        return "on the CPU updates run on the thread of backward: --update buckets is the same";
    if (k->p.update != UPDATE_BACKWARD && k->p.update_blocks)
        return "--update-blocks is for --update backward";
    if (k->o.shard.codes && !k->o.precision->float8)
        return "this precision has no float8: --gather-dtype param is the same";
    if (k->o.shard.codes && !k->o.shard.small)
        return "--gather-dtype float8 needs --small replicated: gains of norms stay as they are";
    if (cpu && k->p.gather != GATHER_COLLECTIVE)
        return "--gather copy and own are for GPUs that reach each other's memory";
    if (cpu && k->p.reduce != GATHER_COLLECTIVE)
        return "--reduce copy is for GPUs that reach each other's memory";
    if (cpu && k->p.max_ctas)
        return "--max-ctas is for NCCL";
    if (cpu && k->graph)
        return "the CPU has no graphs";
    return NULL;
}

/* --cp: a rank has two chunks of each sequence. False with a sentence. */
static bool share_sequences(ddp_case *k, char *why, size_t why_bytes)
{
    static const struct {
        const char *name;
        context_fault fault;
    } faults[] = {{"order", CONTEXT_ORDER},
                  {"position", CONTEXT_POSITION},
                  {"own", CONTEXT_OWN},
                  {"tail", CONTEXT_TAIL},
                  {"merge", CONTEXT_MERGE}};
    const char *planted = option_text(k->s->opt, "plant-error");
    const bench_case *c = k->c;
    model_mesh x;
    if (!model_mesh_of(c, &k->o, 1, &x, why, why_bytes))
        return false;
    const int n = x.m.cp;
    const size_t known = sizeof faults / sizeof *faults;
    size_t fault = 0;
    while (fault < known && !text_is(planted, faults[fault].name))
        fault++;
    if (n == 1) {
        const bool vain = fault < known && case_has(c, "cp");
        if (vain)
            snprintf(why, why_bytes, "--plant-error %s is for sequences that ranks share, with --cp", planted);
        return !vain;
    }
    k->o.context =
        (step_context){.ranks = n, .rank = launch_rank(k->l) % n, .way = context_way_named(case_text(c, "cp-way"))};
    if (fault < known)
        k->o.context.fault = faults[fault].fault;
    k->o.seq /= n;
    return true;
}

void ddp_case_set_strategy(ddp_case *k, const char *name, int ranks)
{
    const grouping by = parallel_strategy(strategy_named(name))->grouping;
    k->p.strategy = strategy_named(name);
    k->p.ranks = ranks;
    k->p.bucket_bytes =
        case_has(k->c, "bucket-mb") && by == GROUP_BUCKET ? (int64_t)(case_real(k->c, "bucket-mb") * MIB) : 0;
    k->o.shard.ranks = by == GROUP_UNIT ? ranks : 0; /* the same index space for the check's reference */
}

bool ddp_case_of(session *s, const bench_case *c, row *w, ddp_case *out)
{
    char why[512] = "";
    *out = (ddp_case){.s = s, .l = launch_of(s), .c = c, .w = w, .ranks = (int)case_int(c, "ranks")};
    out->at = model_place(s, out->l);
    out->member = launch_rank(out->l) < out->ranks;
    if (!model_case_options(c, &out->o, why, sizeof why) || !share_sequences(out, why, sizeof why)) {
        row_status_set(w, ROW_SKIP, "%s", why);
        return false;
    }
    out->graph = text_is(case_text(c, "fusion"), "graph");
    out->o.fusion = FUSION_KERNELS; /* a step with its collectives is captured here, not by the trainer */
    out->o.share_grad_memory = true;
    out->p = (parallel_options){.update = update_order_parse(case_text(c, "update")),
                                .update_blocks = (int)case_int(c, "update-blocks"),
                                .max_ctas = (int)case_int(c, "max-ctas"),
                                .join = out->graph};
    ddp_case_set_strategy(out, strategy_of(c), out->ranks);
    if (case_has(c, "prefetch"))
        out->o.shard.prefetch = (int)case_int(c, "prefetch");
    out->o.shard.free_every = case_has(c, "free-every") ? (int)case_int(c, "free-every") : 1;
    out->p.micro_batches = out->o.micro_batches;
    if (case_has(c, "gather") && parallel_strategy(out->p.strategy)->share == SHARE_ON_USE)
        out->p.gather = gather_way_parse(case_text(c, "gather"));
    if (case_has(c, "reduce") && parallel_strategy(out->p.strategy)->gradients == GRADIENTS_SLICED)
        out->p.reduce = gather_way_parse(case_text(c, "reduce"));
    if (case_has(c, "reduce-dtype"))
        out->o.sums = sums_of(case_text(c, "reduce-dtype"));
    if (case_has(c, "replicas"))
        out->p.replicas = (int)case_int(c, "replicas");
    if (case_has(c, "small"))
        out->o.shard.small = out->o.shard.ranks && text_is(case_text(c, "small"), "replicated");
    if (case_has(c, "gather-dtype"))
        out->o.shard.codes = text_is(case_text(c, "gather-dtype"), "float8");
    const char *problem = contradiction(out);
    if (problem)
        row_status_set(w, ROW_SKIP, "%s", problem);
    return !problem;
}

double ddp_case_estimate(const options *opt, const bench_case *c)
{
    (void)opt;
    enum { GRAD_UNITS = 2 }; /* one is made while the other is reduced; copies arrive in as many */
    step_options o;
    char why[256];
    const strategy *s = parallel_strategy(strategy_of(c));
    if (!s || !model_case_options(c, &o, why, sizeof why))
        return 0;
    const int ranks = (int)case_int(c, "ranks");
    o.seq /= case_has(c, "cp") ? (int)case_int(c, "cp") : 1;
    const int replicas = s->reduce == REDUCE_HYBRID && case_int(c, "replicas") > 0 ? (int)case_int(c, "replicas") : 1;
    const int slices = ranks > replicas ? ranks / replicas : 1;
    const int every = case_has(c, "free-every") ? (int)case_int(c, "free-every") : 1;
    model_slices held = {.state = s->share == SHARE_NONE ? 1 : slices, .grads = 1, .params = 1};
    if (s->gradients == GRADIENTS_SLICED) {
        held.grads = slices;
        held.grad_units =
            case_has(c, "reduce") && text_is(case_text(c, "reduce"), "copy") ? 2 * GRAD_UNITS : GRAD_UNITS;
    }
    if (s->parameters != PARAMETERS_RESIDENT) {
        held.params = slices;
        held.param_units = 1 + (case_has(c, "prefetch") ? (int)case_int(c, "prefetch") : 0);
        held.kept = s->parameters == PARAMETERS_KEPT ? 1 : every > 1 ? 1 - 1. / every : 0;
        if (s->parameters == PARAMETERS_HELD) /* whole gradients of a single micro-batch take their place */
            held.kept = step_micro_batches(&o) > 1;
    }
    o.fusion = FUSION_KERNELS;
    o.share_grad_memory = true;
    return model_estimate(&o, &held);
}

/* ---- exchanges ---- */

static void ddp_set_problem(ddp_case *k, const replica_problem *problem)
{
    row_status_set(k->w, problem->no_memory ? ROW_OOM : ROW_SKIP, "%s", problem->text);
}

bool ddp_agree(ddp_case *k, const char *name, bool ok, const char *why)
{
    replica_problem problem;
    const bool all = replica_agree(&k->at, name, ok, why, &problem);
    if (!all)
        ddp_set_problem(k, &problem);
    return all;
}

replica *ddp_replica(ddp_case *k, const step_options *o, const parallel_options *p)
{
    replica_problem problem;
    replica *r = replica_create(&k->at, o, p, &problem);
    if (!r)
        ddp_set_problem(k, &problem);
    return r;
}

bool ddp_capture(ddp_case *k, replica *r)
{
    replica_problem problem;
    const bool ok = replica_capture(r, &problem);
    if (!ok)
        ddp_set_problem(k, &problem);
    return ok;
}

double ddp_most(const ddp_case *k, const char *name, double mine)
{
    OWNED double *all = launch_gathered(k->l, name, &mine, sizeof mine);
    double most = NAN;
    for (int r = 0; r < k->ranks; r++)
        most = fmax(most, all[r]);
    return most;
}
