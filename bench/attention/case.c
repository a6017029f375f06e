/* SPDX-License-Identifier: MIT */
/* An attention case: set up, checked, timed. See case.h. */
#include "bench/attention/case.h"

#include <math.h>
#include <stdlib.h>

#include "bench/attention/problem.h"
#include "common/core/error.h"
#include "common/formulas/attention.h"
#include "common/record/nvtx.h"
#include "common/session/measure.h"
#include "common/session/profile.h"
#include "common/session/status.h"

void attention_start(session *s)
{
    attention_context *b = xcalloc(1, sizeof *b);
    b->kernels = session_kernels(s, &b->ctx);
    s->user = b;
}

void attention_finish(session *s)
{
    attention_context *b = s->user;
    b->kernels->destroy(b->ctx);
    free(b);
    s->user = NULL;
}

bool attention_prepare(attention_case *ac, session *s, const bench_case *c, row *w, const attention_problem *problem)
{
    if (!attention_describe(ac, s, c, w, problem))
        return false;
    phase_set("setup and first step of %s", case_name(c));
    scope_push("setup");
    bool ok = attention_step(ac);
    scope_pop();
    return ok && attention_check(ac);
}

bool attention_check(attention_case *ac)
{
    if (!option_flag(ac->s->opt, "check"))
        return true;
    phase_set("verification of %s variant=%s", ac->key, ac->op->name);
    scope_push("verify");
    bool ok = attention_verify(ac);
    scope_pop();
    return ok;
}

/* A call that fails here may be one that can't be captured in a graph, which the timer gets over: the row is told only
 * when the whole measurement failed. */
static bool run_forward(void *arg)
{
    attention_case *ac = arg;
    ac->last = attention_case_run(ac, false);
    return ac->last == SB_OK;
}

static bool run_backward(void *arg)
{
    attention_case *ac = arg;
    ac->last = attention_case_run(ac, true);
    return ac->last == SB_OK;
}

static bool run_both(void *arg)
{
    return run_forward(arg) && run_backward(arg);
}

/* What is timed, under the name of its columns. */
static const struct {
    const char *name, *sustained;
    bool (*run)(void *arg);
} parts[] = {[ATTENTION_FORWARD] = {"fwd", "sustained_fwd", run_forward},
             [ATTENTION_BACKWARD] = {"bwd", "sustained_bwd", run_backward},
             [ATTENTION_BOTH] = {"fwd_bwd", "sustained_fwd_bwd", run_both}};

static measure_how how_of(const attention_case *ac, attention_part part)
{
    const double forward = attention_forward_flops(&ac->problem.shape),
                 backward = attention_backward_flops(&ac->problem.shape);
    measure_how how = measure_default(ac->s);
    how.flops = part == ATTENTION_FORWARD ? forward : part == ATTENTION_BACKWARD ? backward : forward + backward;
    return how;
}

bool attention_time(attention_case *ac, attention_part part, double *median_ms)
{
    if (ac->a.forward_only && part != ATTENTION_FORWARD) {
        *median_ms = NAN;
        return true;
    }
    sb_context *ctx = attention_context_of(ac)->ctx;
    size_t need_forward = ac->op->forward_workspace(ctx, &ac->a);
    size_t need_backward = ac->a.forward_only ? 0 : ac->op->backward_workspace(ctx, &ac->a);
    if (!attention_workspace(ac, need_forward > need_backward ? need_forward : need_backward))
        return false;

    const char *name = parts[part].name;
    const measure_how how = how_of(ac, part);
    return measure_with(ac->s, ac->w, name, &how, parts[part].run, ac, median_ms) || status_ok(ac->w, ac->last, name);
}

bool attention_sustain(attention_case *ac, attention_part part)
{
    double ms;
    if (ac->a.forward_only && part != ATTENTION_FORWARD)
        return true;
    const measure_how how = how_of(ac, part);
    return measure_sustained(ac->s, ac->w, parts[part].sustained, &how, parts[part].run, ac, &ms) ||
           status_ok(ac->w, ac->last, parts[part].sustained);
}
