/* SPDX-License-Identifier: MIT */
/* From the chosen step to tables, trace and summary; see profile.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"
#include "common/core/output.h"
#include "common/session/ceiling.h"
#include "common/session/profile_internal.h"

typedef struct ceilings {
    const session *s;
    bool any_run;
} ceilings;

static double rate_of(void *user, const char *dtype)
{
    const ceilings *c = user;
    return ceiling_tflops(c->any_run ? NULL : c->s, c->s->results_dir, dtype);
}

/* The ceilings of this run where it has them, else of any run on this machine. */
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
    OWNED record_span *s = xmalloc((r->span_count + 1) * sizeof *s);
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
    if (!same && profile_first_rank(s))
        warn("the ranks recorded different numbers of collectives; they are not compared");
    return same ? members : 0;
}

void profile_write_together(session *s, const char *folder, const profile_identity *id, const recording *r, int step,
                            double base_us, double clock_err_us)
{
    size_t n = 0, most = 0;
    OWNED rank_collective *mine = r ? collectives_of(r, step, &n) : xcalloc(1, sizeof *mine), *all = NULL;
    const int ranks = gather_collectives(s, mine, n, &all, &most);
    char why[300] = "";
    if (ranks > 0 && s->peers->rank < ranks) {
        OWNED collective_times *t = xcalloc((size_t)ranks * most, sizeof *t);
        OWNED double *bus = xcalloc(most, sizeof *bus);
        for (size_t k = 0; k < most; k++)
            bus[k] = profile_bus_factor(mine[k].op, ranks);
        const size_t own = (size_t)s->peers->rank * most;
        if (!ranks_times(all, ranks, most, clock_err_us, t, why, sizeof why)) {
            if (profile_first_rank(s))
                warn("collectives of %s: %s", id->key, why);
        } else if (*folder && !profile_write_collectives(folder, id, mine, t + own, bus, most, base_us)) {
            warn("%s/collectives.csv can't be written: %s", folder, strerror(errno));
            s->lost = true;
        }
    }
}

static void print_summary(const profile_identity *id, const profile_totals *t, const profile_tables *tables)
{
    say("\nprofile of %s, %s: %.4g ms by events, %.4g ms of the recorded step busy, %.1f %% idle; recording costs "
        "%.1f %%\n",
        id->key, id->measurement, t->event_ms, t->busy_us / 1e3, 100 * (1 - t->busy_us / t->window_us),
        100 * (t->recorded_event_ms / t->event_ms - 1));
    say("%8s %6s %7s %9s %9s  %s\n", "ms", "share", "calls", "attained", "lost ms", "range, op, kernel");
    for (size_t i = 0; i < tables->kernel_count && i < 8; i++) {
        const kernel_row *k = &tables->kernels[i];
        const double attained = kernel_attained_pct(k);
        say("%8.4g %5.1f%% %7zu ", k->total_us / 1e3, 100 * k->total_us / tables->kernel_us, k->calls);
        if (isnan(attained))
            say("%9s %9s", "-", "-");
        else
            say("%8.1f%% %9.3g", attained, kernel_lost_us(k) / 1e3);
        say("  %s, %s, %s\n", k->range, k->op, k->name);
    }
}

void profile_write(session *s, const profile_how *how, const profile_identity *id, const profile_work *x,
                   profile_choice c, const char *folder, profile_result *out)
{
    const recording *r = x->r[c.block];
    const record_window w = x->windows[c.block][c.step];
    ceilings from = {.s = s};
    profile_totals t = {.timed_ms = profile_noted_ms(s, id->key, id->measurement),
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
    OWNED idle_part *parts = idle_parts(r, w, s->profile->limits, &parts_count);
    OWNED char *name = trace_name(id), *trace = xasprintf("%s/%s", folder, name);
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
    OWNED char *label = xasprintf("%s %s", id->bench, id->key);
    const bool ok =
        !*folder || (profile_write_kernels(folder, id, tables) && profile_write_products(folder, id, tables) &&
                     profile_write_softmax(folder, id, tables) && profile_write_totals(folder, id, &t) &&
                     profile_write_idle(folder, id, parts, parts_count) && profile_write_overlap(folder, id, &o) &&
                     profile_write_trace(trace, label, id->rank, r, w, c.base_us));
    if (!ok) {
        warn("a table of the profile can't be written to %s: %s", folder, strerror(errno));
        s->lost = true;
    }
    if (t.attributed_pct < 99.5)
        warn("profile of %s: only %.1f %% of the time is attributed to ranges", id->key, t.attributed_pct);
    if (profile_first_rank(s) && !option_flag(s->opt, "quiet"))
        print_summary(id, &t, tables);
    profile_tables_free(tables);
}

void profile_prepare_folder(session *s, const profile_how *how, const profile_identity *id, char *folder, size_t bytes)
{
    snprintf(folder, bytes, "%s", s->profile->folder);
    profile_share(s, how, folder, bytes);
    if (!*folder || !profile_first_rank(s) || how->silent)
        return;
    mkdir(folder, 0777);
    OWNED char *name = trace_name(id), *trace = xasprintf("%s/%s", folder, name);
    remove(trace);
}
