/* SPDX-License-Identifier: MIT */
/* The k-th fastest mesh, and of those without room the one that lacks the k-th least; see planner.h. A search is kept for the cases that ask for its other
 * places. */
#include <stdio.h>
#include <string.h>

#include "bench/mesh/machine.h"
#include "common/core/text.h"
#include "common/core/units.h"

void planner_plan_columns(row *w, const mesh_job *j, const mesh_plan *p, const mesh_prediction *x, const mesh_rates *r)
{
    static const char *const shares[] = {
        [MESH_PRODUCTS] = "products_pct", [MESH_ATTENTION] = "attention_pct", [MESH_PASSES] = "passes_pct",
        [MESH_TENSOR] = "tp_pct",         [MESH_CONTEXT] = "cp_pct",          [MESH_BUBBLE] = "bubble_pct",
        [MESH_GRADIENTS] = "data_pct",    [MESH_UPDATE] = "update_pct"};
    const double gpus = mesh_world(p->axes), tokens = (double)j->global_batch * (double)j->seq;
    char text[96];
    row_text(w, "plan_mesh", mesh_text(p->axes, text, sizeof text));
    row_int(w, "pp", p->axes.pp);
    row_int(w, "dp_replicate", p->axes.dp_replicate);
    row_int(w, "dp_shard", p->axes.dp_shard);
    row_int(w, "cp", p->axes.cp);
    row_int(w, "tp", p->axes.tp);
    row_text(w, "strategy", mesh_strategy_name(p->strategy));
    row_text(w, "plan_schedule", p->schedule ? p->schedule->name : "none");
    row_int(w, "plan_chunks", p->chunks);
    row_int(w, "micro_batch", p->micro_batch);
    row_text(w, "recompute", mesh_recompute_name(p->recompute));
    row_int(w, "plan_micro_batches", x->micro_batches);
    row_int(w, "step_tokens", (int64_t)tokens);
    row_real(w, "model_flops", mesh_step_flops(j, true));
    row_real(w, "peak_flops", r->peak);
    row_real(w, "predicted_ms", 1e3 * x->step_s);
    row_real(w, "tokens_per_s_gpu", tokens / x->step_s / gpus);
    row_real(w, "mfu_pct", 100 * mesh_step_flops(j, true) / x->step_s / gpus / r->peak);
    for (int i = 0; i < MESH_PARTS; i++)
        row_real(w, shares[i], 100 * x->parts[i] / x->step_s);
    row_real(w, "param_bytes", x->bytes.params);
    row_real(w, "grad_bytes", x->bytes.grads);
    row_real(w, "state_bytes", x->bytes.state);
    row_real(w, "activation_bytes", x->bytes.activations);
    row_real(w, "gathered_bytes", x->bytes.gathered);
    row_real(w, "logit_bytes", x->bytes.logits);
    row_real(w, "total_bytes", x->bytes.total);
}

typedef struct kept_answer {
    mesh_answer a;
    bool known;
} kept_answer;

bool planner_question(const bench_case *c, mesh_question *q, char *why, size_t why_bytes)
{
    *q = (mesh_question){
        .gpus = (int)case_int(c, "gpus"), .error_pct = case_real(c, "error"), .overlap = case_int(c, "overlap") != 0};
    mesh_job *j = &q->job;
    planner_model(case_text(c, "model"), j); /* checked when the options were read */
    const int64_t layers = case_int(c, "layers");
    j->layers = layers ? layers : j->layers;
    j->seq = case_int(c, "seq");
    j->global_batch = case_int(c, "global-batch");
    j->host = (int)case_int(c, "host");
    planner_policy_set(j, case_text(c, "precision"), case_text(c, "grad-dtype"));
    if (text_is(case_text(c, "mesh"), "any"))
        return true;
    if (!mesh_parse(case_text(c, "mesh"), q->gpus, &q->only, why, why_bytes))
        return false;
    mesh_plan p = {.axes = q->only, .schedule = q->only.pp > 1 ? pipeline_schedules : NULL, .chunks = 1};
    for (p.micro_batch = MESH_MICRO_MOST; p.micro_batch; p.micro_batch /= 2) /* the sentence is that of one sequence */
        if (!mesh_plan_problem(j, &p, why, why_bytes))
            return true;
    return false;
}

/* False after the row was set to skip. */
static bool question_of(session *s, const bench_case *c, row *w, mesh_question *q, mesh_rates *r)
{
    char why[256];
    const bool possible = planner_question(c, q, why, sizeof why);
    if (!possible)
        row_status_set(w, ROW_SKIP, "%s", why);
    if (!possible || !planner_rates(s, c, w, &q->job, r))
        return false;
    q->bytes = case_int(c, "memory") ? (double)case_int(c, "memory") : 0.9 * r->bytes;
    return true;
}

/* The answer to a case's question, which is searched for once. */
static const mesh_answer *answer_of(session *s, const bench_case *c, const mesh_question *q, const mesh_rates *r)
{
    char name[320];
    snprintf(name, sizeof name, "mesh %s %d %lld %lld %s %s %lld %s %s", case_text(c, "model"), q->gpus,
             (long long)q->job.global_batch, (long long)q->job.seq, case_text(c, "precision"),
             case_text(c, "grad-dtype"), (long long)case_int(c, "overlap"), case_text(c, "rates"),
             case_text(c, "mesh"));
    kept_answer *k = session_cache(s, name, sizeof *k, NULL);
    if (!k->known)
        k->a = mesh_search(q, r);
    k->known = true;
    return &k->a;
}

static const char *plan_text(const mesh_plan *p, char *out, size_t out_bytes)
{
    char axes[96], schedule[48] = "";
    if (p->schedule)
        snprintf(schedule, sizeof schedule, " %s%s", p->schedule->name,
                 p->chunks > 2    ? p->chunks == 4 ? " x4" : " x8"
                 : p->chunks == 2 ? " x2"
                                  : "");
    snprintf(out, out_bytes, "%s %s%s, micro-batch %d, recompute %s", mesh_text(p->axes, axes, sizeof axes),
             mesh_strategy_name(p->strategy), schedule, p->micro_batch, mesh_recompute_name(p->recompute));
    return out;
}

/* The place of a case, among those with room or without, and the question's answer; NULL after the row was set to skip. */
static const mesh_found *found_for(session *s, const bench_case *c, row *w, bool room, mesh_question *q, mesh_rates *r,
                                   const mesh_answer **answer)
{
    const int place = (int)case_int(c, "rank");
    if (!question_of(s, c, w, q, r))
        return NULL;
    const mesh_answer *a = *answer = answer_of(s, c, q, r);
    row_int(w, "plans", a->plans);
    row_int(w, "plans_with_room", a->fits);
    row_int(w, "ties", a->ties);
    row_real(w, "memory_bytes", q->bytes);
    if (place > (room ? a->best_count : a->lacking_count)) {
        row_status_set(w, ROW_SKIP,
                       !room           ? "no other mesh of %d GPU%s lacks memory"
                       : a->plans == 0 ? "no mesh of %d GPU%s is possible: heads, layers, batch or host do not divide"
                       : a->best_count == 0 ? "nothing fits on %d GPU%s; --variant lacking says what is missing"
                                            : "no other mesh of %d GPU%s fits",
                       q->gpus, q->gpus == 1 ? "" : "s");
        return NULL;
    }
    const mesh_found *f = &(room ? a->best : a->lacking)[place - 1];
    planner_plan_columns(w, &q->job, &f->plan, &f->p, r);
    return f;
}

void planner_run_best(session *s, const bench_case *c, row *w)
{
    mesh_question q;
    mesh_rates r;
    const mesh_answer *a;
    char plan[160], text[400];
    const mesh_found *f = found_for(s, c, w, true, &q, &r, &a);
    if (!f)
        return;
    const double behind = 100 * (f->p.step_s / a->best[0].p.step_s - 1);
    const bool tie = f < a->best + a->ties;
    row_real(w, "planned_bytes",
             planner_planned_bytes(s, case_text(c, "model"), &q.job, mesh_strategy_name(f->plan.strategy), &f->plan, &r,
                                   false));
    row_real(w, "behind_pct", behind);
    row_int(w, "tie", tie);
    plan_text(&f->plan, plan, sizeof plan);
    if (!tie)
        snprintf(text, sizeof text, "%s: %.1f %% slower than the best", plan, behind);
    else if (a->ties > 1)
        snprintf(text, sizeof text, "%s: a tie of %d%s meshes within %g %%", plan, a->ties,
                 a->ties == MESH_FOUND ? " or more" : "", q.error_pct);
    else
        snprintf(text, sizeof text, "%s: the best by more than %g %%", plan, q.error_pct);
    row_text(w, "answer", text);
}

void planner_run_lacking(session *s, const bench_case *c, row *w)
{
    mesh_question q;
    mesh_rates r;
    const mesh_answer *a;
    char plan[160], text[400];
    const mesh_found *f = found_for(s, c, w, false, &q, &r, &a);
    if (!f)
        return;
    const double lacks = f->p.bytes.total - q.bytes;
    row_real(w, "lacks_bytes", lacks);
    snprintf(text, sizeof text, "%s: %.1f GiB are missing of %.1f", plan_text(&f->plan, plan, sizeof plan), lacks / GIB,
             f->p.bytes.total / GIB);
    row_text(w, "answer", text);
}
