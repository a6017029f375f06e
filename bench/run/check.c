/* SPDX-License-Identifier: MIT */
/* The checks after a run: the loss against the entropy, the rate, the tokens on the device, the log, the ranks against each
 * other. What is compared with is computed anew, not what the run has used. See check.h. */
#include "bench/run/row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/train/feed.h"

static const double overfit_below = 0.05, rounding = 1e-3, log_slack = 1e-6, speed_slack = 0.02;
static const double learned = 1.1; /* how often each symbol comes, nearly */
enum { OVERFIT_STEPS = 200, LEARN_STEPS = 200 };

/* Values of step i: mean over ranks. */
static double mean_of(const run *x, int64_t i, int what)
{
    double sum = 0;
    for (int r = 0; r < x->k.ranks; r++)
        sum += x->all[((int64_t)r * x->steps + i) * PER_STEP + what];
    return sum / x->k.ranks;
}

/* Mean and its standard error of what the loss is above the surprise, over n steps. */
static void excess_of(const double *loss, const double *surprise, int64_t n, double *mean, double *sigma)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += loss[i] - surprise[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += pow(loss[i] - surprise[i] - *mean, 2);
    *sigma = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN;
}

static bool fail(run *x, const char *why)
{
    row_status_set(x->k.w, ROW_FAIL, "%s", why);
    return false;
}

/* ---- the loss ---- */

static void losses(const run *x, run_result *out)
{
    const int64_t tenth = x->steps / 10 > 10 ? x->steps / 10 : 10, n = tenth < x->steps ? tenth : x->steps;
    const int64_t quarter = x->steps / 4 > 1 ? x->steps / 4 : 1, from = x->steps - quarter;
    const made *m = x->data && !x->overfit ? data_made(x->data) : NULL;
    out->loss_first = mean_of(x, 0, PER_STEP_LOSS);
    out->loss_last = 0;
    for (int64_t i = x->steps - n; i < x->steps; i++)
        out->loss_last += mean_of(x, i, PER_STEP_LOSS) / (double)n;
    out->excess = out->sigma = out->floor = NAN;
    for (int i = 0; i < 3; i++)
        out->entropy[i] = m ? made_entropy(m, i) : NAN;
    if (!m)
        return;
    out->floor = made_window_entropy(m, x->k.o.seq + 1);
    OWNED double *loss = xcalloc((size_t)quarter, sizeof *loss), *surprise = xcalloc((size_t)quarter, sizeof *surprise);
    for (int64_t i = 0; i < quarter; i++) {
        loss[i] = mean_of(x, from + i, PER_STEP_LOSS);
        surprise[i] = mean_of(x, from + i, PER_STEP_SURPRISE);
    }
    excess_of(loss, surprise, quarter, &out->excess, &out->sigma);
}

static bool check_loss(run *x, const run_result *out)
{
    char why[200];
    for (int64_t i = x->first; i < x->steps; i++)
        if (!isfinite(mean_of(x, i, PER_STEP_LOSS))) {
            snprintf(why, sizeof why, "the loss of step %lld is not a number", (long long)i + 1);
            return fail(x, why);
        }
    if (x->overfit && x->steps >= OVERFIT_STEPS && !(out->loss_last < overfit_below)) {
        snprintf(why, sizeof why, "one batch again and again has a loss of %.3g after %lld steps; it must be below %g",
                 out->loss_last, (long long)x->steps, overfit_below);
        return fail(x, why);
    }
    if (isnan(out->excess))
        return true;
    if (out->excess < -3 * out->sigma - rounding) /* no honest model's */
        return fail(x, "the loss is below the entropy of the tokens: the model sees what it predicts");
    if (x->steps >= LEARN_STEPS && !(out->loss_last < learned * out->entropy[0])) {
        snprintf(why, sizeof why,
                 "a loss of %.3g after %lld steps says that nothing was learned: knowing only the symbols gives %.3g",
                 out->loss_last, (long long)x->steps, out->entropy[0]);
        return fail(x, why);
    }
    return true;
}

/* ---- rate and tokens ---- */

static const char *rate_problem(const run *x, run_result *out, char *why, size_t why_bytes)
{
    sb_optimizer_state s;
    trainer_optimizer_state(x->r->t, &s);
    const float want = (float)(x->rung >= RUNG_SCHEDULE ? schedule_rate(&x->schedule, s.step - 1) : x->k.o.lr);
    out->updates = s.step, out->rate = s.lr, out->norm = x->rung >= RUNG_CLIP ? s.grad_norm : NAN;
    if (s.step == 0 || s.lr == want)
        return NULL;
    snprintf(why, why_bytes, "update %lld was made with the rate %.9g, and the schedule says %.9g", (long long)s.step,
             s.lr, want);
    return why;
}

/* Whether these are the tokens of a step and a rank. */
static bool tokens_are(const run *x, const int32_t *ids, int64_t step, int rank, int32_t *room, bool *targets)
{
    const int64_t n = x->batch * x->k.o.seq;
    double surprise;
    char why[160];
    const loader_options o = {.from = x->data,
                              .seq = x->k.o.seq,
                              .vocab = x->k.o.config.vocab,
                              .batch = x->batch,
                              .global_batch = x->batch * x->ranks,
                              .rank_first = rank * x->batch,
                              .same = x->overfit};
    const int code = step < 0 ? EXIT_CODE_USAGE : loader_fill(&o, step, room, room + n, &surprise, why, sizeof why);
    if (code == EXIT_CODE_FAILURE)
        launch_fail(x->k.l, code, "--data %s: %s", case_text(x->k.c, "data"), why);
    if (code)
        return false;
    *targets = memcmp(ids + n, room + n, (size_t)n * sizeof *ids) == 0;
    return memcmp(ids, room, (size_t)n * sizeof *ids) == 0;
}

/* What the device had in the last step against what the data say, and if it is something else, whose. */
static const char *tokens_problem(const run *x, char *why, size_t why_bytes)
{
    const int64_t n = x->batch * x->k.o.seq, last = x->steps - 1;
    const int me = launch_rank(x->k.l);
    int32_t *got = xmalloc(4 * (size_t)n * sizeof *got), *room = got + 2 * n;
    bool targets = false;
    trainer_read_tokens(x->r->t, got, got + n);
    const bool right = tokens_are(x, got, last, me, room, &targets);
    snprintf(why, why_bytes, "rank %d did not have the tokens of step %lld", me, (long long)last + 1);
    if (right && !targets)
        snprintf(why, why_bytes, "the targets of rank %d are not the tokens that follow", me);
    for (int rank = 0; rank < x->k.ranks && !right; rank++)
        for (int64_t step = last - 1; step <= last + 1; step++) {
            bool ignored;
            if ((rank != me || step != last) && tokens_are(x, got, step, rank, room, &ignored))
                snprintf(why, why_bytes, "in step %lld rank %d had the tokens of rank %d in step %lld",
                         (long long)last + 1, me, rank, (long long)step + 1);
        }
    free(got);
    return right && targets ? NULL : why;
}

static bool check_feed(run *x, run_result *out)
{
    char why[200] = "";
    const char *problem = x->r->member ? rate_problem(x, out, why, sizeof why) : NULL;
    if (!problem && x->r->member && x->data)
        problem = tokens_problem(x, why, sizeof why);
    if (!problem && x->data && !data_order_is_whole(x->data))
        problem = "an epoch of this file has a window twice";
    replica_problem first;
    return replica_agree(&x->k.at, "tokens and rate", !problem, problem ? problem : "", &first) || fail(x, first.text);
}

/* ---- the log ---- */

/* Rank 0 alone has read the files. */
static const char *log_problem(run *x, char *why, size_t why_bytes)
{
    const journal_record *r = &x->log.last;
    double loss = 0, most = -INFINITY, ms = 0, timed = 0;
    const int64_t first = x->log.last_first, n = x->steps - first;
    for (int64_t i = first; i < x->steps; i++) {
        double slowest = 0;
        for (int k = 0; k < x->k.ranks; k++) {
            const double *of = x->all + ((int64_t)k * x->steps + i) * PER_STEP;
            most = fmax(most, i < x->first ? x->past[i].loss_max : of[PER_STEP_LOSS]);
            slowest = fmax(slowest, of[PER_STEP_MS]);
        }
        loss += mean_of(x, i, PER_STEP_LOSS) / (double)n;
        ms += slowest; /* 0: of another process */
        timed += i >= x->first;
    }
    const double tokens = (double)(x->batch * x->ranks * x->k.o.seq), speed = tokens * timed / ms * 1e3;
    if (!(fabs(r->loss - loss) <= log_slack * fabs(loss)))
        snprintf(why, why_bytes, "the log has a loss of %.9g, and the mean over ranks is %.9g", r->loss, loss);
    else if (r->loss_max != most)
        snprintf(why, why_bytes, "the log has a largest loss of %.9g, and the ranks had %.9g", r->loss_max, most);
    else if ((double)r->tokens != tokens * (double)x->steps || !(fabs(r->tokens_per_s - speed) <= speed_slack * speed))
        snprintf(why, why_bytes, "the log has %lld tokens at %.6g a second, and all ranks had %.0f at %.6g",
                 (long long)r->tokens, r->tokens_per_s, tokens * (double)x->steps, speed);
    else
        return NULL;
    return why;
}

static bool check_log(run *x)
{
    char why[500] = "";
    const char *problem = x->rung >= RUNG_LOG && launch_rank(x->k.l) == 0 ? log_problem(x, why, sizeof why) : NULL;
    if (!journal_close(x->log.files, problem ? NULL : why, sizeof why) && !problem)
        problem = why;
    x->log.files = NULL;
    replica_problem first;
    return replica_agree(&x->k.at, "log", !problem, problem ? problem : "", &first) || fail(x, first.text);
}

bool run_check(run *x, run_result *out)
{
    *out = (run_result){.norm = NAN, .rate = NAN};
    losses(x, out);
    if (!option_flag(x->k.s->opt, "check"))
        return true;
    out->checksum = replica_checksum(x->r);
    const int odd = replica_odd_rank(x->r, out->checksum);
    if (odd >= 0) {
        row_status_set(x->k.w, ROW_FAIL, "after the run the parameters of rank %d are not those of rank 0", odd);
        return false;
    }
    return check_loss(x, out) && check_feed(x, out) && check_log(x);
}
