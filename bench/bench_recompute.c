/* SPDX-License-Identifier: MIT */
/* bench_recompute: what does recomputing activations instead of keeping them save, and cost?
 *
 * The `gradient_checkpointing` problem of Stanford's CS336, assignment 2 (2026): a training step without recomputation,
 * with parts of each block, whole blocks, groups of blocks and nested recomputation, and the best group beside its
 * neighbours. Variant `plan` chooses for a memory budget what to keep, block by block, by bytes saved per millisecond, and
 * `plan-offload` also what goes to the host's memory and comes back.
 *
 * One row is one model, shape, policy and way. The bytes of a step are planned before it runs and compared with the
 * driver's; its time is predicted from a few blocks and compared with the measurement.
 * Expect: selective recomputation is almost free; whole blocks cost a third of the step and leave one input each.
 * Limits: the budget is for one GPU. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/timing.h"
#include "bench/model/verify.h"
#include "bench/recompute/costs.h"
#include "common/core/cache.h"
#include "common/core/error.h"
#include "common/core/units.h"
#include "common/formulas/memory.h"
#include "common/formulas/offload.h"
#include "common/train/memory_step.h"

static const option_spec option_table[] = {
    MODEL_SHAPE_OPTIONS("xl", "tiny", "512", "32", "bf16", "train-step"),
    MODEL_DETAIL_OPTIONS,
    {"group", OPTION_INT, OPTION_LIST, "2,4,8", .help = "group: blocks in a group", .min = 1, .max = RECOMPUTE_LAYERS,
     .unit = "blocks"},
    {"budget", OPTION_BYTES, OPTION_LIST, "0", .help = "plan: device memory that the step may take", .max = 1e15,
     .unit = "bytes", .unset = "0: halfway between keeping everything and keeping only inputs"},
    {"offload", OPTION_CHOICE, OPTION_LIST, "block",
     .help = "offload, plan-offload: which part of a block is offloaded: its input and residual stream, what its "
             "attention or feed-forward half keeps, or all of it",
     .choices = OFFLOAD_CHOICES},
    {"warmup", OPTION_INT, 0, "5", .help = "warm-up steps", .max = 1000000, .unit = "steps"},
    {"iters", OPTION_INT, 0, "10", .help = "measured steps", .min = 1, .max = 1000000, .unit = "steps"},
    {"max-time", OPTION_REAL, 0, "0", .help = "end early after this time, but not before 3 steps", .max = 86400,
     .unit = "s", .unset = "0: never"},
    MODEL_PEAK_OPTION("MFU and HFU"),
    {0}};

static const variant_spec variant_table[] = {
    {"none", "every activation is kept"},
    {"selective", "norms and the SwiGLU product are recomputed"},
    {"attn", "the attention half of each block is recomputed"},
    {"mlp", "the feed-forward half of each block is recomputed"},
    {"but-attention", "each block is recomputed except for attention itself, whose output is kept"},
    {"block", "each block is recomputed, from its input"},
    {"group", "groups of --group blocks are recomputed, from the input of the first"},
    {"group-best", "the same with the group size that takes the fewest bytes by the plan"},
    {"group-smaller", "the same with one block fewer than the best"},
    {"group-larger", "the same with one block more than the best"},
    {"nested", "blocks are recomputed one by one, from log2 L inputs that are kept on the way"},
    {"plan", "recomputes what saves the most bytes per millisecond, until the step fits --budget"},
    {"offload", "nothing is recomputed: --offload of every block goes to the host's memory and comes back"},
    {"plan-offload", "as plan, and offloads the blocks whose copies compute can hide or that are worth the wait"},
    {0}};

static const column_spec column_table[] = {
    MODEL_STEP_COLUMNS,
    MODEL_RATE_COLUMNS,
    {"schedule", COLUMN_TEXT, true, "what the blocks compute again, from the first one on"},
    {"group_used", COLUMN_INT, false, "blocks of a group; 0: no groups"},
    {"forwards_again", COLUMN_INT, false, "forwards of a whole block that backward runs for what they keep"},
    {"forwards_passed", COLUMN_INT, false, "those that it runs only to reach another block"},
    {"budget_bytes", COLUMN_INT, false, "plan: the budget; 0 is resolved"},
    {"peak_bytes", COLUMN_INT, true, "device memory of the step, by its plan"},
    {"driver_bytes", COLUMN_INT, false, "the same by the driver; GPUs only"},
    {"err_bytes_pct", COLUMN_REAL, false, "|peak_bytes - driver_bytes| / driver_bytes"},
    {"offloaded_bytes", COLUMN_INT, true, "bytes that go to the host's memory in a step and come back"},
    {"offload_exposed_ms", COLUMN_REAL, true, "how long the last step waited for these copies"},
    {"predicted_exposed_ms", COLUMN_REAL, false, "the same, by the times of a block and the rate of the link"},
    {"link_out_gb_s", COLUMN_REAL, false, "large copies to pinned memory of the host"},
    {"link_in_gb_s", COLUMN_REAL, false, "large copies from there"},
    {"saved_bytes", COLUMN_INT, true, "peak_bytes without recomputation - peak_bytes, by the plans"},
    {"predicted_step_ms", COLUMN_REAL, true, "the step, by what few blocks take"},
    {"err_step_pct", COLUMN_REAL, true, "|predicted_step_ms - step_ms| / step_ms"},
    {"extra_pct", COLUMN_REAL, true, "the step over that of variant none, measured in this run, less 1"},
    {"ms_per_gib", COLUMN_REAL, false, "how much longer the step takes for each GiB that is saved"},
    {"overlap_used", COLUMN_TEXT, false, "what ran during the backward; with --overlap auto, the fastest"},
    MODEL_ERROR_COLUMNS,
    {0}};

static bool offloads(const char *variant)
{
    return strcmp(variant, "offload") == 0 || strcmp(variant, "plan-offload") == 0;
}

static bool applies(const char *option, const char *variant)
{
    if (strcmp(option, "group") == 0)
        return strcmp(variant, "group") == 0;
    if (strcmp(option, "offload") == 0)
        return offloads(variant);
    return strcmp(option, "budget") != 0 || strncmp(variant, "plan", 4) == 0;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    for (size_t i = 0; i < option_count(o, "mode"); i++)
        if (strcmp(option_text_at(o, "mode", i), "forward") == 0) {
            snprintf(msg, msg_bytes, "--mode forward keeps nothing that could be recomputed");
            return false;
        }
    if (strcmp(option_text(o, "l2"), "cold") == 0) {
        snprintf(msg, msg_bytes, "--l2 cold says nothing about a whole step; only warm is allowed");
        return false;
    }
    if (strcmp(option_text(o, "timer"), "auto") != 0) {
        snprintf(msg, msg_bytes, "--timer has no effect here: steps are timed by device events");
        return false;
    }
    return model_peak_validate(o, msg, msg_bytes) && model_shape_validate(o, msg, msg_bytes);
}

static const bench_run run_table[] = {{RUN_QUICK, 1, 8, "--size small --seq 512 --variant none,selective,block,plan"},
                                      {RUN_DEFAULT, 1, 50, ""},
                                      {RUN_DEFAULT, 1, 75, "--size xl-2026 --seq 1024"},
                                      {RUN_FULL, 1, 90, "--size 2.7b --seq 2048 --budget 52G,58G"},
                                      {RUN_CPU, 0, 5, ""},
                                      {0}};

static const bench_info info = {
    .name = "bench_recompute",
    .summary = "What does recomputing activations instead of keeping them save, and cost?",
    .notes = "One row is one model, shape, precision and way of recomputation. A slice of the model is compared with\n"
             "plain fp32 before anything is timed. Bytes are planned before the step runs. Times are predicted from\n"
             "models of at most 12 blocks: the difference that each kind of recomputation makes, per block, times\n"
             "the blocks. The plan mixes two kinds; the blocks that the backward reaches last recompute most.",
    .examples = "./bench_recompute --size xl --seq 512\n"
                "./bench_recompute --size 2.7b --seq 2048 --variant none,selective,block,nested\n"
                "./bench_recompute --size 2.7b --seq 2048 --variant plan --budget 52G,58G",
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 65,
    .small = "--size tiny --seq 16 --layers 6 --group 2 --iters 3 --warmup 1",
    .section = "recompute",
    .figures = (const char *const[]){"recompute", NULL},
};

/* ---- what is remembered ---- */

/* What is kept about a model from one variant to the next. */
typedef struct model_facts {
    int64_t none_bytes; /* planned without recomputation; 0: not asked yet */
    int best_group;     /* likewise */
    double none_ms;     /* the step of variant none; NAN before it is measured */
    overlap overlap;    /* with --overlap auto, what the first variant chose: all of them are compared under it */
} model_facts;

static model_facts *facts_of(session *s, const bench_case *c)
{
    char key[512] = "";
    for (size_t i = 0, used = 0; i < options_param_count(s->opt); i++) {
        const char *name = options_param_name(s->opt, i);
        if (applies(name, "none"))
            used += (size_t)snprintf(key + used, used < sizeof key ? sizeof key - used : 0, "%s ", case_param(c, i));
    }
    model_facts *facts = cache_find(s->kept, "a model's facts", key);
    if (!facts) {
        facts = cache_add(s->kept, "a model's facts", key, sizeof *facts, NULL);
        *facts = (model_facts){.none_ms = NAN, .overlap = overlap_parse(case_text(c, "overlap"))};
    }
    return facts;
}

/* ---- plans ---- */

enum { PLANS = 6 };

typedef struct planner {
    session *s;
    const step_options *o;
    model_facts *facts;
    memory_step step; /* what plans are tried with, whatever its schedule */
} planner;

static int64_t planned_bytes(void *user, const recompute_schedule *schedule)
{
    const planner *p = user;
    const model_bench *b = p->s->user;
    step_options o = *p->o;
    o.schedule = schedule;
    return trainer_planned_bytes(p->s->dev, b->kernels, b->ctx, &o);
}

static int64_t uniform_bytes(planner *p, recompute what)
{
    const recompute_schedule s = recompute_uniform(p->o->config.layers, what, 1);
    return planned_bytes(p, &s);
}

static int64_t none_bytes(planner *p)
{
    if (!p->facts->none_bytes)
        p->facts->none_bytes = uniform_bytes(p, RECOMPUTE_NONE);
    return p->facts->none_bytes;
}

static int best_group(planner *p)
{
    if (!p->facts->best_group)
        p->facts->best_group = recompute_best_group(p->o->config.layers, planned_bytes, p);
    return p->facts->best_group;
}

/* In closed form, which the planner of the step exceeds by the gaps between tensors only, in a thousandth of the time. */
static int64_t predicted_bytes(void *user, const recompute_schedule *schedule)
{
    memory_step step = ((const planner *)user)->step;
    step.schedule = *schedule;
    const memory_peaks peaks = memory_predict(&step);
    const int64_t forward = memory_total(&peaks.forward), backward = memory_total(&peaks.backward);
    const int64_t update = memory_total(&peaks.update), most = forward > backward ? forward : backward;
    return most > update ? most : update;
}

/* Where gaps make the step larger than the budget, the next plan aims so much lower. */
static recompute_plan plan_within(planner *p, const recompute_costs *costs, int64_t budget)
{
    const model_bench *b = p->s->user;
    recompute_plan found;
    int64_t aim = budget;
    p->step = memory_step_of(p->o, b->kernels, b->ctx);
    for (int i = 0; i < PLANS; i++) {
        found = recompute_plan_for(p->o->config.layers, costs, aim, predicted_bytes, p);
        found.bytes = planned_bytes(p, &found.schedule);
        const bool end = !found.fits;
        found.fits = found.bytes >= 0 && found.bytes <= budget;
        if (found.fits || end)
            break;
        aim -= found.bytes - budget;
    }
    return found;
}

static bool plan(planner *p, const bench_case *c, const step_costs *costs, row *w, recompute_schedule *out)
{
    int64_t budget = case_int(c, "budget");
    if (!budget)
        budget = (none_bytes(p) + uniform_bytes(p, RECOMPUTE_BLOCK)) / 2;
    const recompute_plan found = plan_within(p, &costs->again, budget);
    row_int(w, "budget_bytes", budget);
    *out = found.schedule;
    if (!found.fits)
        row_status_set(w, ROW_SKIP, "no schedule fits %.3g GiB; the smallest takes %.3g GiB", (double)budget / GIB,
                       (double)found.bytes / GIB);
    return found.fits;
}

/* Blocks of a group for the variants that have groups; 0: the variant has none. */
static int group_of(planner *p, const bench_case *c)
{
    const char *variant = case_variant(c);
    if (strcmp(variant, "group") == 0)
        return (int)case_int(c, "group");
    if (strncmp(variant, "group-", 6) != 0)
        return 0;
    const int best = best_group(p);
    return strcmp(variant, "group-best") == 0 ? best : strcmp(variant, "group-smaller") == 0 ? best - 1 : best + 1;
}

/* False after setting the row's status. */
static bool schedule_of(planner *p, const bench_case *c, const step_costs *costs, row *w, recompute_schedule *out)
{
    const int layers = p->o->config.layers, group = group_of(p, c);
    const char *variant = case_variant(c);
    row_int(w, "group_used", group);
    if (strncmp(variant, "plan", 4) == 0)
        return plan(p, c, costs, w, out);
    if (strcmp(variant, "offload") == 0) {
        *out = recompute_uniform(layers, RECOMPUTE_NONE, 1);
        offload_every(out, offload_parse(case_text(c, "offload")), 1);
        return true;
    }
    if (strncmp(variant, "group", 5) != 0) {
        *out = recompute_uniform(layers, recompute_parse(variant), 1);
        return true;
    }
    if (group >= 1 && group <= layers) {
        *out = recompute_uniform(layers, RECOMPUTE_BLOCK, group);
        return true;
    }
    if (group < 1)
        row_status_set(w, ROW_SKIP, "no group is smaller than one block");
    else
        row_status_set(w, ROW_SKIP, "groups of %d need more layers than %d", group, layers);
    return false;
}

/* ---- rows ---- */

/* Returns the bytes that are saved. */
static int64_t fill_plan(planner *p, row *w, const recompute_schedule *schedule, const step_costs *costs)
{
    char text[128];
    const recompute_work work = recompute_work_of(schedule);
    recompute_describe(schedule, text, sizeof text);
    row_text(w, "schedule", text);
    row_int(w, "forwards_again", work.kept);
    row_int(w, "forwards_passed", work.passed);
    const int64_t saved = none_bytes(p) - planned_bytes(p, schedule);
    row_int(w, "saved_bytes", saved);
    row_real(w, "predicted_step_ms", step_costs_predict(costs, schedule));
    if (costs->again.offload.kinds) {
        row_real(w, "predicted_exposed_ms", offload_exposed_ms(&costs->again.offload, schedule, costs->again.again_ms));
        row_real(w, "link_out_gb_s", costs->again.offload.out_gb_s);
        row_real(w, "link_in_gb_s", costs->again.offload.in_gb_s);
    }
    return saved;
}

static void fill_measured(row *w, double none_ms, const recompute_schedule *schedule, const step_costs *costs,
                          int64_t saved, double step_ms)
{
    const double extra = step_ms - none_ms, predicted = step_costs_predict(costs, schedule);
    row_real(w, "err_step_pct", 100 * fabs(predicted - step_ms) / step_ms);
    row_real(w, "extra_pct", 100 * extra / none_ms);
    row_real(w, "ms_per_gib", saved > 0 ? extra / ((double)saved / GIB) : NAN);
}

static void fill_bytes(row *w, const trainer *t, double driver)
{
    const int64_t bytes = trainer_memory_of(t).allocated;
    row_int(w, "peak_bytes", bytes);
    if (driver > 0) {
        row_int(w, "driver_bytes", (int64_t)driver);
        row_real(w, "err_bytes_pct", 100 * fabs((double)bytes - driver) / driver);
    }
}

/* Offloaded blocks of a plan do without what passes over memory make again: fewer bytes have to leave. */
static bool offload_costs_of(session *s, const bench_case *c, const step_options *o, row *w, step_costs *costs)
{
    const bool plans = strncmp(case_variant(c), "plan", 4) == 0;
    return !offloads(case_variant(c)) || step_costs_offload(s, o, offload_parse(case_text(c, "offload")),
                                                            plans ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE, w, costs);
}

static void recompute_run(session *s, const bench_case *c, row *w)
{
    step_options o;
    char why[256];
    recompute_schedule schedule;
    step_costs costs;
    model_facts *facts = facts_of(s, c);
    planner p = {.s = s, .o = &o, .facts = facts};
    if (!model_case_shape(c, &o, why, sizeof why)) {
        row_status_set(w, ROW_SKIP, "%s", why);
        return;
    }
    if (o.precision->float8) {
        row_status_set(w, ROW_SKIP, "the closed form of a step's memory does not count copies in float8");
        return;
    }
    const bool gpu = device_kind_of(s->dev) == DEVICE_CUDA;
    o.fusion = gpu ? FUSION_GRAPH : FUSION_KERNELS;
    phase_set("costs per block of %s", case_name(c));
    if (!step_costs_measure(s, &o, w, &costs) || !offload_costs_of(s, c, &o, w, &costs) ||
        !schedule_of(&p, c, &costs, w, &schedule))
        return;
    const int64_t saved = fill_plan(&p, w, &schedule, &costs);
    o.schedule = &schedule;
    o.overlap = facts->overlap;
    if (!model_verify(s, &o, w))
        return;
    phase_set("setup of %s", case_name(c));
    memory_release_all(s->mem); /* what the check kept would be missing from the driver's count */
    const double before = gpu ? (double)device_free_bytes(s->dev) : 0;
    trainer *t = model_trainer(s, &o, w);
    if (!t)
        return;
    device_sync(s->dev);
    fill_bytes(w, t, gpu ? before - (double)device_free_bytes(s->dev) : 0);
    model_timed m;
    if (model_time_steps(s, w, t, (int)option_int(s->opt, "warmup"), &m)) {
        model_fill_rates(s, w, &o, m.median_ms[MODEL_STEP]);
        row_text(w, "overlap_used", overlap_name(trainer_overlap(t)));
        facts->overlap = trainer_overlap(t);
        if (strcmp(case_variant(c), "none") == 0)
            facts->none_ms = m.median_ms[MODEL_STEP];
        row_int(w, "offloaded_bytes", trainer_offloaded_bytes(t));
        row_real(w, "offload_exposed_ms", trainer_offload_exposed_ms(t));
        fill_measured(w, facts->none_ms, &schedule, &costs, saved, m.median_ms[MODEL_STEP]);
    }
    trainer_free(t);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {model_start, recompute_run, model_finish, NULL};
    return session_main(&info, &hooks, argc, argv);
}
