/* SPDX-License-Identifier: MIT */
/* The log of a run. At each interval the host enqueues a copy of the interval's history and reads the one before, which is there by
 * then: the stream never runs dry. Means and maxima over ranks travel on the control channel. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/timing.h"
#include "bench/run/run.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/train/feed.h"

double run_mfu_pct(const run *x, double step_ms)
{
    return 100 * model_flops(&x->k.o, FLOPS_CAUSAL) / (step_ms * 1e9) / model_peak_of(x->k.s, &x->k.o);
}

/* ---- one record ---- */

static double loss_of(const run *x, int64_t step)
{
    const int n = step_micro_batches(&x->k.o);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x->losses[step * n + i];
    return sum / n;
}

/* Takes what was fetched, which is of steps of this process. */
static void read_losses(run *x, int64_t first, int64_t until)
{
    for (int64_t i = first > x->first ? first : x->first; i < until && x->r->member; i++)
        x->per_step[i * PER_STEP + PER_STEP_LOSS] = loss_of(x, i);
}

static void warn_outlier(int64_t step, const char *what, double value, double deviations)
{
    warn("step %lld stands out: its %s of %.4g is %.1f standard deviations off the mean of the last %d",
         (long long)step + 1, what, value, deviations, OUTLIERS_WINDOW);
}

static void note_outliers(run *x, int64_t step, double loss, double norm)
{
    double z_loss, z_norm = NAN;
    const bool loss_out = outliers_add(&x->log.loss, loss, &z_loss);
    const bool norm_out = x->rung >= RUNG_CLIP && outliers_add(&x->log.norm, norm, &z_norm);
    if ((!loss_out && !norm_out) || step >= x->steps)
        return;
    x->log.outliers++;
    if (launch_rank(x->k.l) != 0 || step < x->first)
        return;
    if (loss_out)
        warn_outlier(step, "loss", loss, z_loss);
    if (norm_out)
        warn_outlier(step, "gradient norm", norm, z_norm);
}

/* What ranks exchange for a record: PER_STEP numbers of each step, then these. */
enum { RANK_FREE, RANK_PEAK, RANK_WAITED, RANK_MHZ, RANK_POWER, PER_RANK };

typedef struct shared_record {
    int64_t first, n;
    size_t stride;
    double *all;
} shared_record;

static shared_record exchange(run *x, int64_t first, int64_t until)
{
    const int64_t n = until - first;
    shared_record s = {first, n, (size_t)n * PER_STEP + PER_RANK, NULL};
    OWNED double *mine = xcalloc(s.stride, sizeof *mine);
    double *of = mine + n * PER_STEP;
    run_times(x, until);
    read_losses(x, first, until);
    memcpy(mine, x->per_step + first * PER_STEP, (size_t)n * PER_STEP * sizeof *mine);
    of[RANK_FREE] = (double)device_free_bytes(x->r->at.d);
    of[RANK_PEAK] = x->r->member ? (double)trainer_memory_of(x->r->t).allocated : 0;
    of[RANK_WAITED] = x->waited_s - x->log.last_wait_s;
    device_sense_lately(x->r->at.d, &of[RANK_MHZ], &of[RANK_POWER]);
    x->log.last_wait_s = x->waited_s;
    s.all = launch_gathered(x->k.l, "log", mine, s.stride * sizeof *mine);
    return s;
}

/* A step by what each rank says of it: `of`, and so many doubles on that of the next one. */
static run_past on_all_ranks(const run *x, int64_t step, const double *of, size_t stride)
{
    run_past p = {.loss_max = -INFINITY, .norm = x->r->member ? x->norms[step] : 0};
    for (int k = 0; k < x->k.ranks; k++, of += stride) {
        p.loss += of[PER_STEP_LOSS];
        p.surprise += of[PER_STEP_SURPRISE];
        p.loss_max = of[PER_STEP_LOSS] > p.loss_max || isnan(of[PER_STEP_LOSS]) ? of[PER_STEP_LOSS] : p.loss_max;
    }
    p.loss /= x->k.ranks;
    p.surprise /= x->k.ranks;
    return p;
}

/* Adds step i of a record, with the time of the slowest rank, if it was one of this process. */
static void sum_step(run *x, const shared_record *s, int64_t i, journal_record *r, samples *ms)
{
    const int64_t step = s->first + i;
    const double *of = s->all + i * PER_STEP;
    const run_past p = step < x->first ? x->past[step] : on_all_ranks(x, step, of, s->stride);
    double slowest = 0;
    for (int k = 0; k < x->k.ranks; k++)
        slowest = fmax(slowest, of[(size_t)k * s->stride + PER_STEP_MS]);
    r->loss += (x->fault == FAULT_MEAN  ? p.loss * x->k.ranks
                : x->fault == FAULT_MAX ? p.loss_max
                                        : p.loss) /
               (double)s->n;
    r->entropy += p.surprise / (double)s->n;
    r->loss_max = p.loss_max > r->loss_max || isnan(p.loss_max) ? p.loss_max : r->loss_max;
    r->norm = p.norm;
    if (step >= x->first)
        samples_add(ms, slowest);
    note_outliers(x, step, p.loss, p.norm);
}

/* Takes in what ranks say of their devices. Returns how long the slowest one has waited for data. */
static double sum_ranks(const run *x, const shared_record *s, journal_record *r)
{
    double waited_s = 0;
    r->free_bytes = INFINITY, r->sm_mhz = NAN;
    for (int k = 0; k < x->k.ranks; k++) {
        const double *of = s->all + (size_t)k * s->stride + s->n * PER_STEP;
        r->free_bytes = fmin(r->free_bytes, of[RANK_FREE]);
        r->peak_bytes = fmax(r->peak_bytes, of[RANK_PEAK]);
        r->power_w += of[RANK_POWER] / x->k.ranks;
        r->sm_mhz = fmin(r->sm_mhz, of[RANK_MHZ]);
        waited_s = fmax(waited_s, of[RANK_WAITED]);
    }
    return waited_s;
}

static void write_record(run *x, int64_t until)
{
    const int64_t first = x->log.written;
    const shared_record s = exchange(x, first, until);
    const double step_tokens = (double)(x->batch * x->k.o.seq) * (x->fault == FAULT_TOKENS ? 1 : (double)x->ranks);
    journal_record r = {.step = until, .loss_max = -INFINITY, .norm = NAN, .mfu_pct = NAN};
    samples ms = {0};
    for (int64_t i = 0; i < s.n; i++)
        sum_step(x, &s, i, &r, &ms);
    const stats time = stats_of(&ms);
    const double waited_s = sum_ranks(x, &s, &r);
    r.tokens = (int64_t)(step_tokens * (double)until);
    r.rate = x->rung >= RUNG_SCHEDULE ? schedule_rate(&x->schedule, until - 1) : x->k.o.lr;
    r.norm = x->rung >= RUNG_CLIP && x->r->member ? r.norm : NAN;
    r.tokens_per_s = step_tokens / (time.mean * 1e-3);
    r.mfu_pct = run_mfu_pct(x, time.median);
    r.step_ms = time.median, r.step_max_ms = time.max;
    r.data_wait_pct = 100 * waited_s / (time.mean * 1e-3 * (double)ms.n);
    r.outliers = x->log.outliers;
    x->log.last = r;
    x->log.written = until;
    x->log.last_first = first;
    if (x->log.files &&
        until <= x->steps) /* the ladder's steps are no part of the curve, and the check has closed it */
        journal_write(x->log.files, &r);
    samples_free(&ms);
    free(s.all);
}

/* ---- intervals ---- */

static int64_t interval(const run *x)
{
    return x->rung == RUNG_WAIT ? 1 : option_int(x->k.s->opt, "log-every");
}

/* Norms are there one step later than losses, so the copy leaves out the last step. */
static void fetch(run *x, int64_t until)
{
    const int n = step_micro_batches(&x->k.o);
    const int64_t first = x->log.fetched > x->first ? x->log.fetched : x->first;
    if (x->r->member && until > first) {
        trainer_fetch_history(x->r->t, first, until - first, x->losses + first * n, x->norms + first);
        device_event_record(x->r->at.d, x->log.arrived);
    }
    x->log.fetched = until;
}

void run_log_step(run *x)
{
    const double start = host_seconds();
    if (x->at < 2 || (x->at - 1) % interval(x) != 0) /* the last step is left out, see fetch */
        return;
    if (x->log.fetched > x->log.written) {
        if (x->r->member)
            device_event_sync(x->r->at.d, x->log.arrived);
        write_record(x, x->log.fetched);
    }
    fetch(x, x->at - 1);
    x->log.waited_s += host_seconds() - start;
}

void run_log_rest(run *x)
{
    if (x->rung >= RUNG_LOG && x->log.fetched > x->log.written)
        write_record(x, x->log.fetched);
    fetch(x, x->steps);
    replica_settle(x->r);
    read_losses(x, 0, x->steps);
    if (x->rung >= RUNG_LOG && x->log.written < x->steps)
        write_record(x, x->steps);
}

void run_log_pause(run *x)
{
    if (x->log.fetched > x->log.written) {
        replica_settle(x->r);
        write_record(x, x->log.fetched);
    }
    journal_close(x->log.files, NULL, 0);
    x->log.files = NULL;
}

void run_steps_so_far(run *x, int64_t first, int64_t until, run_past *out)
{
    const int n = step_micro_batches(&x->k.o);
    const size_t count = (size_t)(until - first) * PER_STEP;
    replica_settle(x->r); /* the last norm, too */
    if (x->r->member) {
        trainer_fetch_history(x->r->t, first, until - first, x->losses + first * n, x->norms + first);
        replica_settle(x->r);
    }
    read_losses(x, first, until);
    OWNED double *all =
        launch_gathered(x->k.l, "losses so far", x->per_step + first * PER_STEP, count * sizeof *x->per_step);
    for (int64_t i = first; i < until; i++)
        out[i - first] = on_all_ranks(x, i, all + (i - first) * PER_STEP, count);
}

/* ---- opening ---- */

/* Rank 0's log goes on behind step *last; records between that and this process are made from what is known of their steps. */
static void take_up(run *x, int64_t *last)
{
    launch_share(x->k.l, "end of the log", last, sizeof *last, 0);
    if (x->rung < RUNG_LOG)
        return;
    for (int64_t i = 0; i < *last; i++)
        note_outliers(x, i, x->past[i].loss, x->past[i].norm);
    x->log.written = *last;
    for (int64_t until = (*last / interval(x) + 1) * interval(x); until <= x->first; until += interval(x))
        write_record(x, until);
    x->log.fetched = x->log.written;
}

/* What a sweep varies is in the name, too: else the log of each case would take the place of the one before. Caller frees. */
static char *log_name(const run *x)
{
    static const char *const named[] = {"strategy", "ranks", "size", "seq", "precision"};
    const options *opt = x->k.s->opt;
    char *text;
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "%s-%s-%d-%s-%d-%s", case_variant(x->k.c), case_text(x->k.c, "strategy"), x->k.ranks,
            case_text(x->k.c, "size"), x->k.o.seq, x->k.o.precision->name);
    for (size_t i = 0; i < options_param_count(opt); i++) {
        bool swept = options_param_values(opt, i) > 1;
        for (size_t k = 0; k < sizeof named / sizeof *named; k++)
            swept = swept && !text_is(options_param_name(opt, i), named[k]);
        if (swept)
            fprintf(out, "-%s-%s", options_param_name(opt, i), case_cell(x->k.c, i));
    }
    fclose(out);
    return text;
}

bool run_log_open(run *x)
{
    char why[400] = "", about[300];
    int64_t last = 0;
    const session *s = x->k.s;
    if (x->rung < RUNG_LOG || !s->csv_path || launch_rank(x->k.l) != 0) {
        take_up(x, &last);
        return true;
    }
    const char *slash = strrchr(s->csv_path, '/');
    OWNED char *folder = xasprintf("%.*srun", slash ? (int)(slash - s->csv_path) + 1 : 0, s->csv_path);
    OWNED char *name = log_name(x);
    snprintf(about, sizeof about, "%s, context %d, %s, %s, %d ranks, %lld sequences a step; data: %s",
             case_text(x->k.c, "size"), x->k.o.seq, x->k.o.precision->name, case_text(x->k.c, "strategy"), x->k.ranks,
             (long long)x->batch * x->ranks, case_text(x->k.c, "data"));
    x->log.files = journal_open(folder, name, about, x->first, &last, why, sizeof why);
    if (x->log.files && x->fault == FAULT_CRC)
        events_plant(journal_events(x->log.files));
    if (x->log.files)
        row_text(x->k.w, "log", name);
    else
        warn("%s", why);
    take_up(x, &last);
    return x->log.files;
}
