/* SPDX-License-Identifier: MIT */
/* Recording what was timed; see profile.h. Blocks of steps without and with a recording alternate, so that the cost of
 * recording is known. All tables and the trace are of one step, that of median length, so that they add up. */
#include "common/session/profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/build_info.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/analysis/files.h"
#include "common/profile/ops.h"
#include "common/profile/record.h"
#include "common/session/ceiling.h"
#include "common/session/watchdog.h"

enum { WARM_UP = 3, BLOCKS = 2, STEPS_MIN = 5, STEPS_MAX = 40, KERNELS = 100, LAUNCHES = 20 };
static const double block_ms = 2;
static const size_t calibration_bytes = 16 << 20; /* of a kernel that runs longer than the host takes to launch one */

struct session_profile {
    char *folder;                   /* "": rows go nowhere, nor do profiles */
    char run_id[64], campaign[256]; /* rank 0's */
    const bench_case *c;
    bool armed, calibrated;
    bool recorded, told; /* some step was; the user knows why none is */
    idle_limits limits;
};

bool session_profiling(const session *s)
{
    return s->profile != NULL;
}

const sb_kernels *session_kernels(const session *s)
{
    const sb_kernels *k = device_kind_of(s->dev) == DEVICE_CUDA ? sb_kernels_cuda() : sb_kernels_cpu();
    return option_flag(s->opt, "profile") ? profiled_kernels(k) : k;
}

static bool is_first(const session *s)
{
    return !s->peers || s->peers->rank == 0;
}

/* ---- ranks ---- */

static void share(const session *s, const profile_how *how, void *data, size_t bytes)
{
    if (how->together && s->peers)
        s->peers->share(s->peers->user, data, bytes);
}

static bool on_all(const session *s, const profile_how *how, bool mine)
{
    if (!how->together || !s->peers)
        return mine;
    char *all = xmalloc((size_t)s->peers->size);
    const char own = mine;
    s->peers->gather(s->peers->user, &own, 1, all);
    for (int i = 0; i < s->peers->size; i++)
        mine = mine && all[i];
    free(all);
    return mine;
}

/* ---- recording ---- */

typedef struct work {
    session *s;
    const profile_how *how;
    bool (*fn)(void *arg);
    void *arg;
    int steps; /* of a block */
    samples event_ms, recorded_ms, host_ms;
    recording *r[BLOCKS];
    record_window windows[BLOCKS][STEPS_MAX];
    int window_count[BLOCKS];
} work;

static void wait_for(const work *x)
{
    if (x->how->settle)
        x->how->settle(x->arg);
    device_sync(x->how->dev);
}

/* Steps back to back, one more than are wanted: a step ends where the next begins. */
static bool run_block(work *x, bool recorded)
{
    device *d = x->how->dev;
    device_event *at[STEPS_MAX + 1];
    bool ok = true;
    for (int i = 0; i <= x->steps; i++)
        at[i] = device_event_create(d);
    ok = x->fn(x->arg); /* the host gets ahead; the first recorded one is slower */
    const double start = host_seconds();
    for (int i = 0; ok && i <= x->steps; i++) {
        if (recorded)
            recorder_step(i);
        device_event_record(d, at[i]);
        ok = x->fn(x->arg);
    }
    if (recorded)
        recorder_step(-1);
    wait_for(x);
    const double host_ms = (host_seconds() - start) * 1e3;
    for (int i = 0; ok && i < x->steps; i++)
        samples_add(recorded ? &x->recorded_ms : &x->event_ms, device_event_ms(d, at[i], at[i + 1]));
    if (!recorded)
        samples_add(&x->host_ms, host_ms / (x->steps + 1));
    for (int i = 0; i <= x->steps; i++)
        device_event_destroy(d, at[i]);
    watchdog_beat();
    return ok;
}

static bool record_block(work *x, int block, char *why, size_t why_bytes)
{
    if (!recorder_start(x->how->dev, why, why_bytes))
        return false;
    const bool ran = run_block(x, true);
    x->r[block] = recorder_stop(x->how->dev, why, why_bytes);
    if (!ran)
        snprintf(why, why_bytes, "a step failed");
    else if (x->r[block])
        x->window_count[block] = record_windows(x->r[block], x->windows[block], x->steps);
    return ran && x->r[block];
}

static bool warm_up(work *x, double *ms)
{
    *ms = INFINITY;
    for (int i = 0; i < WARM_UP; i++) {
        const double start = host_seconds();
        if (!x->fn(x->arg))
            return false;
        wait_for(x);
        *ms = fmin(*ms, (host_seconds() - start) * 1e3);
        watchdog_beat();
    }
    return true;
}

static bool record(work *x, char *why, size_t why_bytes)
{
    double ms = INFINITY;
    bool ok = !x->how->member || warm_up(x, &ms);
    if (!ok)
        snprintf(why, why_bytes, "a step failed");
    x->steps = (int)fmin(STEPS_MAX, fmax(STEPS_MIN, ceil(block_ms / ms)));
    share(x->s, x->how, &x->steps, sizeof x->steps);
    for (int block = 0; block < BLOCKS; block++) {
        if (!on_all(x->s, x->how, ok))
            return false;
        if (!x->how->member)
            continue;
        ok = run_block(x, false) && record_block(x, block, why, why_bytes);
        if (!ok && !*why)
            snprintf(why, why_bytes, "a step failed");
    }
    return on_all(x->s, x->how, ok);
}

/* ---- the step of median length ---- */

typedef struct chosen {
    int block, step; /* block -1: there is none */
    double base_us;  /* where it begins on the first rank that begins it */
} chosen;

typedef struct length {
    double us;
    int block, step;
} length;

static int by_length(const void *a, const void *b)
{
    const double x = ((const length *)a)->us, y = ((const length *)b)->us;
    return (x > y) - (x < y);
}

static chosen choose(const work *x)
{
    length all[BLOCKS * STEPS_MAX];
    int n = 0;
    for (int block = 0; block < BLOCKS; block++)
        for (int i = 0; i < x->window_count[block]; i++)
            all[n++] = (length){x->windows[block][i].to_us - x->windows[block][i].from_us, block, i};
    if (n == 0)
        return (chosen){.block = -1};
    qsort(all, (size_t)n, sizeof *all, by_length);
    const length *l = &all[(n - 1) / 2];
    return (chosen){l->block, l->step, x->windows[l->block][l->step].from_us};
}

static clock_reading read_clock(const session *s, const profile_how *how)
{
    return how->together && s->peers ? s->peers->clock(s->peers->user) : (clock_reading){0};
}

/* By how much times of two ranks may be off: twice what the worst of them is. */
static double move_to_one_clock(work *x, const clock_reading *before, const clock_reading *after)
{
    const session *s = x->s;
    if (!x->how->together || !s->peers)
        return 0;
    const host_clock clock = host_clock_of(before, after);
    double worst = 0, *all = xcalloc((size_t)s->peers->size, sizeof *all);
    s->peers->gather(s->peers->user, &clock.err_us, sizeof clock.err_us, all);
    for (int i = 0; i < s->peers->size; i++)
        worst = fmax(worst, all[i]);
    free(all);
    for (int block = 0; block < BLOCKS; block++) {
        if (x->r[block])
            recording_move(x->r[block], &clock);
        for (int i = 0; i < x->window_count[block]; i++) {
            record_window *w = &x->windows[block][i];
            w->from_us = host_clock_rank_0_s(&clock, w->from_us * 1e-6) * 1e6;
            w->to_us = host_clock_rank_0_s(&clock, w->to_us * 1e-6) * 1e6;
        }
    }
    return 2 * worst;
}

/* The same step on every rank, rank 0's. */
static chosen choose_together(const work *x, bool ok)
{
    const session *s = x->s;
    chosen c = ok && x->how->member ? choose(x) : (chosen){.block = -1};
    if (!x->how->together || !s->peers)
        return c;
    share(s, x->how, &c, sizeof c);
    if (x->how->member && c.block >= 0 && c.step >= x->window_count[c.block])
        c.block = -1;
    double mine = x->how->member && c.block >= 0 ? x->windows[c.block][c.step].from_us : INFINITY;
    double *all = xcalloc((size_t)s->peers->size, sizeof *all);
    s->peers->gather(s->peers->user, &mine, sizeof mine, all);
    for (int i = 0; i < s->peers->size; i++)
        c.base_us = fmin(c.base_us, all[i]);
    free(all);
    return c;
}

/* ---- limits of the device ---- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *x, int n, double q)
{
    if (n == 0)
        return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[(int)(q * (n - 1) + 0.5)];
}

/* Kernels that fill memory with random numbers. */
typedef struct filler {
    const sb_kernels *k;
    sb_context *ctx;
    device *d;
    void *memory;
} filler;

static bool fill(const filler *f, int times)
{
    bool ok = true;
    for (int i = 0; ok && i < times; i++)
        ok = f->k->fill_normal(f->ctx, SB_FP32, f->memory, calibration_bytes / sizeof(float), 1, 0, 1,
                               device_stream(f->d)) == SB_OK;
    return ok;
}

/* A graph, behind which the host is in time with launches; then launches of which each finds nothing running. */
static recording *record_pauses(const filler *f)
{
    char why[256];
    recording *r = NULL;
    if (!device_graph_begin(f->d))
        return NULL;
    const bool filled = fill(f, KERNELS);
    device_graph *g = device_graph_end(f->d);
    if (g && filled && recorder_start(f->d, why, sizeof why)) {
        device_graph_launch(f->d, g);
        fill(f, KERNELS);
        device_sync(f->d);
        for (int i = 0; i < LAUNCHES; i++) {
            fill(f, 1);
            device_sync(f->d);
        }
        r = recorder_stop(f->d, why, sizeof why);
    }
    if (g)
        device_graph_destroy(f->d, g);
    return r;
}

/* Some kernels are harder to start than others, so a pause may be three times the usual one. */
static idle_limits limits_of(const recording *r)
{
    double node[KERNELS], kernel[KERNELS], launch[LAUNCHES];
    int nodes = 0, kernels = 0, launches = 0;
    for (size_t i = 1; i < r->span_count; i++) {
        const record_span *x = &r->spans[i];
        const double pause = fmax(0, x->start_us - r->spans[i - 1].end_us);
        if (i < KERNELS && nodes < KERNELS)
            node[nodes++] = pause;
        else if (i > KERNELS && i < 2 * KERNELS && kernels < KERNELS)
            kernel[kernels++] = pause;
        else if (i >= 2 * KERNELS && x->call >= 0 && launches < LAUNCHES)
            launch[launches++] = fmax(0, x->start_us - r->calls[x->call].end_us);
    }
    return (idle_limits){.launch_us = quantile(launch, launches, 0.5),
                         .node_us = 3 * quantile(node, nodes, 0.5),
                         .kernel_us = 3 * quantile(kernel, kernels, 0.5)};
}

/* Stays 0 where there is no memory for it. */
static void calibrate(session *s, device *d)
{
    struct session_profile *p = s->profile;
    if (p->calibrated || device_kind_of(d) == DEVICE_CPU)
        return;
    p->calibrated = true;
    filler f = {.k = sb_kernels_cuda(), .d = d, .memory = device_malloc(d, calibration_bytes)};
    if (f.memory && f.k->create(device_ordinal(d), &f.ctx) == SB_OK) {
        recording *r = fill(&f, 1) ? record_pauses(&f) : NULL;
        if (r)
            p->limits = limits_of(r);
        recording_free(r);
        device_sync(d);
        f.k->destroy(f.ctx);
    }
    if (f.memory)
        device_free(d, f.memory);
}

/* ---- writing ---- */

typedef struct ceilings {
    const session *s;
    bool any_run;
} ceilings;

static double rate_of(void *user, const char *dtype)
{
    const ceilings *c = user;
    return ceiling_tflops(c->any_run ? NULL : c->s, c->s->results_dir, dtype);
}

/* Of this run where it has them, else of any run on this machine. */
static profile_ceilings ceilings_of(ceilings *c, const char **from)
{
    profile_ceilings p = {.copy_gb_s = ceiling_copy_gb_s(c->s, c->s->results_dir), .tflops = rate_of, .user = c};
    *from = "this run";
    if (isnan(p.copy_gb_s)) {
        c->any_run = true;
        p.copy_gb_s = ceiling_copy_gb_s(NULL, c->s->results_dir);
        *from = isnan(p.copy_gb_s) ? "none" : "another run";
    }
    return p;
}

static void describe_costs(const recording *r, record_window w, char *out, size_t bytes)
{
    const char *names[8];
    double us[8] = {0};
    int n = 0;
    *out = 0;
    for (size_t i = 0; i < r->cost_count; i++) {
        const double shared = fmin(r->costs[i].end_us, w.to_us) - fmax(r->costs[i].start_us, w.from_us);
        int k = 0;
        while (k < n && names[k] != r->costs[i].name)
            k++;
        if (shared <= 0 || k == 8)
            continue;
        if (k == n)
            names[n++] = r->costs[i].name;
        us[k] += shared;
    }
    for (int k = 0; k < n; k++) {
        const size_t used = strlen(out);
        snprintf(out + used, bytes - used, "%s%s %.3g us", used ? "; " : "", names[k], us[k]);
    }
}

/* "bench_flash-flash-fwd-0123abcd.json": readable, and different for cases that differ. */
static char *trace_name(const profile_identity *id)
{
    unsigned long hash = 14695981039346656037u;
    for (const char *c = id->key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    char *name = xasprintf("%s-%s%s%s-%08lx.json", id->bench, id->variant, *id->variant ? "-" : "", id->measurement,
                           hash & 0xffffffffu);
    for (char *c = name; *c; c++)
        if (*c == ' ' || *c == '/')
            *c = '_';
    return name;
}

static bool is_collective(const record_span *s, int step)
{
    return s->lane == LANE_COMMUNICATION && s->step == step;
}

static int by_enqueue(const void *a, const void *b)
{
    const record_span *x = a, *y = b;
    if (x->range != y->range)
        return x->range < y->range ? -1 : 1;
    return (x->start_us > y->start_us) - (x->start_us < y->start_us);
}

/* Those that the step enqueued, in that order: the same on all ranks. Caller frees. */
static rank_collective *collectives_of(const recording *r, int step, size_t *n)
{
    record_span *s = xmalloc((r->span_count + 1) * sizeof *s);
    *n = 0;
    for (size_t i = 0; i < r->span_count; i++)
        if (is_collective(&r->spans[i], step))
            s[(*n)++] = r->spans[i];
    qsort(s, *n, sizeof *s, by_enqueue);
    rank_collective *c = xcalloc(*n + 1, sizeof *c);
    for (size_t i = 0; i < *n; i++) {
        const record_work *op = record_op(r, s[i].range);
        snprintf(c[i].op, sizeof c[i].op, "%s", op ? op->op : s[i].name);
        c[i].bytes = op ? op->bytes : 0;
        c[i].start_us = s[i].start_us, c[i].end_us = s[i].end_us;
    }
    free(s);
    return c;
}

/* Members' lists are compared; a rank without work gives an empty one. Returns the ranks with lists, 0: none. */
static int gather_collectives(const session *s, const rank_collective *mine, size_t n, rank_collective **all,
                              size_t *of)
{
    const int size = s->peers->size;
    unsigned long own = n, *counts = xcalloc((size_t)size, sizeof *counts), most = 0;
    int members = 0;
    bool same = true;
    s->peers->gather(s->peers->user, &own, sizeof own, counts);
    for (int i = 0; i < size; i++)
        most = counts[i] > most ? counts[i] : most;
    for (int i = 0; i < size; i++) {
        members += counts[i] == most;
        same = same && (counts[i] == most || counts[i] == 0);
    }
    free(counts);
    *of = most;
    if (most == 0)
        return 0;
    rank_collective *padded = xcalloc(most, sizeof *padded), *gathered = xcalloc((size_t)size * most, sizeof *gathered);
    memcpy(padded, mine, n * sizeof *mine);
    s->peers->gather(s->peers->user, padded, most * sizeof *padded, gathered);
    free(padded);
    *all = gathered; /* members are the first ranks of the job */
    if (!same && is_first(s))
        warn("the ranks recorded different numbers of collectives; they are not compared");
    return same ? members : 0;
}

static void write_collectives(session *s, const char *folder, const profile_identity *id, const recording *r, int step,
                              double base_us, double clock_err_us)
{
    size_t n = 0, most = 0;
    rank_collective *mine = r ? collectives_of(r, step, &n) : xcalloc(1, sizeof *mine), *all = NULL;
    const int ranks = gather_collectives(s, mine, n, &all, &most);
    char why[300] = "";
    if (ranks > 0 && s->peers->rank < ranks) {
        collective_times *t = xcalloc((size_t)ranks * most, sizeof *t);
        double *bus = xcalloc(most, sizeof *bus);
        for (size_t k = 0; k < most; k++)
            bus[k] = profile_bus_factor(mine[k].op, ranks);
        const size_t own = (size_t)s->peers->rank * most;
        if (!ranks_times(all, ranks, most, clock_err_us, t, why, sizeof why)) {
            if (is_first(s))
                warn("collectives of %s: %s", id->key, why);
        } else if (*folder && !profile_write_collectives(folder, id, mine, t + own, bus, most, base_us)) {
            warn("%s/collectives.csv can't be written: %s", folder, strerror(errno));
        }
        free(t);
        free(bus);
    }
    free(mine);
    free(all);
}

static void print_summary(const profile_identity *id, const profile_totals *t, const profile_tables *tables)
{
    printf("\nprofile of %s, %s: %.4g ms by events, %.4g ms of the recorded step busy, %.1f %% idle; recording costs "
           "%.1f %%\n",
           id->key, id->measurement, t->event_ms, t->busy_us / 1e3, 100 * (1 - t->busy_us / t->window_us),
           100 * (t->recorded_event_ms / t->event_ms - 1));
    printf("%8s %6s %7s %9s %9s  %s\n", "ms", "share", "calls", "attained", "lost ms", "range, op, kernel");
    for (size_t i = 0; i < tables->kernel_count && i < 8; i++) {
        const kernel_row *k = &tables->kernels[i];
        const double attained = kernel_attained_pct(k);
        printf("%8.4g %5.1f%% %7zu ", k->total_us / 1e3, 100 * k->total_us / tables->kernel_us, k->calls);
        if (isnan(attained))
            printf("%9s %9s", "-", "-");
        else
            printf("%8.1f%% %9.3g", attained, kernel_lost_us(k) / 1e3);
        printf("  %s, %s, %s\n", k->range, k->op, k->name);
    }
}

/* NAN: it was not timed under this name. */
static double timed_of(const session *s, const char *key, const char *name)
{
    char *both = xasprintf("%s %s", key, name);
    const double *ms = cache_find(s->kept, "timed", both);
    free(both);
    return ms ? *ms : NAN;
}

void profile_note(session *s, const char *key, const char *name, double ms)
{
    if (!option_flag(s->opt, "profile") || session_profiling(s))
        return;
    char *both = xasprintf("%s %s", key, name);
    double *kept = cache_find(s->kept, "timed", both);
    kept = kept ? kept : cache_add(s->kept, "timed", both, sizeof *kept, NULL);
    *kept = ms;
    free(both);
}

/* One rank's tables and its part of the trace. */
static void write_mine(session *s, const profile_how *how, const profile_identity *id, const work *x, chosen c,
                       const char *folder, profile_result *out)
{
    const recording *r = x->r[c.block];
    const record_window w = x->windows[c.block][c.step];
    ceilings from = {.s = s};
    profile_totals t = {.timed_ms = timed_of(s, id->key, id->measurement),
                        .event_ms = stats_of(&x->event_ms).median,
                        .recorded_event_ms = stats_of(&x->recorded_ms).median,
                        .host_ms = stats_of(&x->host_ms).median,
                        .limits = s->profile->limits};
    const profile_ceilings rates = ceilings_of(&from, &t.ceilings);
    profile_tables *tables = profile_tables_of(r, w, &rates);
    *out = (profile_result){true, t.event_ms, tables->sums};
    if (how->silent) {
        profile_tables_free(tables);
        return;
    }
    size_t parts_count;
    char costs[256];
    idle_part *parts = idle_parts(r, w, s->profile->limits, &parts_count);
    char *name = trace_name(id), *trace = xasprintf("%s/%s", folder, name);
    describe_costs(r, w, costs, sizeof costs);
    t.window_us = w.to_us - w.from_us;
    t.busy_us = t.window_us - tables->sums.us[0];
    t.kernel_us = tables->kernel_us;
    t.attributed_pct = 100 * tables->attributed_us / tables->kernel_us;
    for (size_t i = 0; i < tables->kernel_count; i++)
        t.kernels += tables->kernels[i].calls;
    t.costs = costs;
    t.trace = name;
    profile_overlap o = {.step_ms = t.event_ms, .own = tables->sums, .has_twin = how->twin && how->twin->ok};
    if (o.has_twin)
        o.twin_ms = how->twin->step_ms, o.twin = how->twin->sums;
    char *label = xasprintf("%s %s", id->bench, id->key);
    const bool ok =
        !*folder || (profile_write_kernels(folder, id, tables) && profile_write_products(folder, id, tables) &&
                     profile_write_softmax(folder, id, tables) && profile_write_totals(folder, id, &t) &&
                     profile_write_idle(folder, id, parts, parts_count) && profile_write_overlap(folder, id, &o) &&
                     profile_write_trace(trace, label, id->rank, r, w, c.base_us));
    if (!ok)
        warn("a table of the profile can't be written to %s: %s", folder, strerror(errno));
    if (t.attributed_pct < 99.5)
        warn("profile of %s: only %.1f %% of the time is attributed to ranges", id->key, t.attributed_pct);
    if (is_first(s) && !option_flag(s->opt, "quiet"))
        print_summary(id, &t, tables);
    free(label);
    free(name);
    free(trace);
    free(parts);
    profile_tables_free(tables);
}

static profile_identity identity_of(const session *s, const char *name)
{
    const char *machine = strrchr(s->results_dir, '/');
    return (profile_identity){.bench = options_bench(s->opt)->name,
                              .variant = case_variant(s->profile->c) ? case_variant(s->profile->c) : "",
                              .key = case_key(s->profile->c),
                              .measurement = name,
                              .rank = s->peers ? s->peers->rank : 0,
                              .ranks = s->peers ? s->peers->size : 1,
                              .run_id = s->profile->run_id,
                              .campaign = s->profile->campaign,
                              .machine = machine ? machine + 1 : s->results_dir,
                              .gpu = device_get_info(s->dev)->name,
                              .device = option_text(s->opt, "device"),
                              .commit = build_commit()};
}

/* The folder of rank 0's rows, for every rank; and no trace of an earlier recording in it. */
static void prepare_folder(session *s, const profile_how *how, const profile_identity *id, char *folder, size_t bytes)
{
    snprintf(folder, bytes, "%s", s->profile->folder);
    share(s, how, folder, bytes);
    if (!*folder || !is_first(s) || how->silent)
        return;
    mkdir(folder, 0777);
    char *name = trace_name(id), *trace = xasprintf("%s/%s", folder, name);
    remove(trace);
    free(trace);
    free(name);
}

static void work_free(work *x)
{
    for (int block = 0; block < BLOCKS; block++)
        recording_free(x->r[block]);
    samples_free(&x->event_ms);
    samples_free(&x->recorded_ms);
    samples_free(&x->host_ms);
}

bool session_profile(session *s, const char *name, const profile_how *how, bool (*fn)(void *arg), void *arg,
                     profile_result *out)
{
    const profile_identity id = identity_of(s, name);
    work *x = xcalloc(1, sizeof *x);
    char why[300] = "", folder[512];
    *out = (profile_result){.ok = false};
    x->s = s, x->how = how, x->fn = fn, x->arg = arg;
    phase_set("profile of %s, %s", id.key, name);
    const bool armed = on_all(s, how, s->profile->armed);
    if (armed && how->member)
        calibrate(s, how->dev);
    const clock_reading before = read_clock(s, how);
    const bool ok = armed && record(x, why, sizeof why);
    const clock_reading after = read_clock(s, how);
    const double clock_err_us = move_to_one_clock(x, &before, &after);
    const chosen c = choose_together(x, ok);
    if (on_all(s, how, ok && c.block >= 0)) {
        prepare_folder(s, how, &id, folder, sizeof folder);
        on_all(s, how, true); /* the old trace is gone before anybody adds to the new one */
        if (how->member)
            write_mine(s, how, &id, x, c, folder, out);
        if (how->together && s->peers && !how->silent)
            write_collectives(s, folder, &id, how->member ? x->r[c.block] : NULL, c.step, c.base_us, clock_err_us);
    } else if (armed && (*why || is_first(s))) {
        warn("no profile of %s, %s: %s", id.key, name, *why ? why : "no whole step was recorded");
        s->profile->told = true;
    }
    s->profile->recorded = s->profile->recorded || out->ok;
    work_free(x);
    free(x);
    return out->ok;
}

/* ---- the pass ---- */

/* What was just timed. Ranks may call this each at its own time. */
static void after_measure(session *s, const char *name, bool (*fn)(void *arg), void *arg)
{
    profile_result ignored;
    session_profile(s, name, &(profile_how){.dev = s->dev, .member = true}, fn, arg, &ignored);
}

static char *folder_beside(const char *csv)
{
    const char *slash = csv ? strrchr(csv, '/') : NULL;
    return !csv ? xstrdup("") : slash ? xasprintf("%.*s/profile", (int)(slash - csv), csv) : xstrdup("profile");
}

void profile_pass_begin(session *s)
{
    s->profile = xcalloc(1, sizeof *s->profile);
    s->profile->folder = folder_beside(s->csv_path);
    snprintf(s->profile->run_id, sizeof s->profile->run_id, "%s", rows_run_id(s->rows));
    snprintf(s->profile->campaign, sizeof s->profile->campaign, "%s", rows_campaign(s->rows));
    if (s->peers) {
        s->peers->share(s->peers->user, s->profile->run_id, sizeof s->profile->run_id);
        s->peers->share(s->peers->user, s->profile->campaign, sizeof s->profile->campaign);
    }
    s->after_measure = after_measure;
    s->timing.iters = 1;
    s->timing.warmup = 1;
}

void profile_pass_end(session *s)
{
    if (is_first(s) && s->profile->recorded && *s->profile->folder)
        printf("profile: %s\n", s->profile->folder);
    else if (is_first(s) && !s->profile->recorded && !s->profile->told)
        warn("no profile: nothing was timed that runs on the device");
    s->after_measure = NULL;
    free(s->profile->folder);
    free(s->profile);
    s->profile = NULL;
}

void profile_case_begin(session *s, const bench_case *c)
{
    char why[300] = "";
    s->profile->c = c;
    s->profile->armed = recorder_arm(s->dev, why, sizeof why);
    if (!s->profile->armed && !s->profile->told)
        warn("no profile: %s", why);
    s->profile->told = s->profile->told || !s->profile->armed;
}

void profile_case_end(session *s)
{
    recorder_disarm();
    s->profile->armed = false;
    s->profile->c = NULL;
}
