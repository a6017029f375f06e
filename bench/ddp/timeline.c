/* SPDX-License-Identifier: MIT */
/* A recorded step of a case: what ran when on which stream of each rank, as files to draw and as how much of the
 * communication ran beside compute; see timeline.h and common/profile/timeline.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/ddp/timeline.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/profile/timeline.h"

/* All-gathers run under the next forward, so a single step would not show them. */
static int steps_of(const replica *r)
{
    return r->plan->s->share == SHARE_GATHER ? 2 : 1;
}

/* Called by members. Returns NULL and a sentence on failure. */
static stream_timeline *record_steps(replica *r, char *why, size_t why_bytes)
{
    if (!timeline_start(r->at.d, why, why_bytes))
        return NULL;
    replica_step(r); /* the first recorded step is slower */
    replica_settle(r);
    const double from = host_seconds();
    for (int i = 0; i < steps_of(r); i++)
        replica_step(r);
    replica_settle(r);
    stream_timeline *t = timeline_stop(r->at.d, why, why_bytes);
    if (t)
        timeline_keep(t, from, INFINITY);
    return t;
}

/* The same, by the clock of rank 0's host. */
static stream_timeline *record(ddp_case *k, replica *r, char *why, size_t why_bytes)
{
    const clock_reading before = launch_clock(k->l);
    stream_timeline *t = r->member ? record_steps(r, why, why_bytes) : NULL;
    const clock_reading after = launch_clock(k->l);
    const host_clock clock = host_clock_of(&before, &after);
    if (t)
        timeline_to_rank_0(t, &clock);
    row_real(k->w, "clock_err_us", ddp_most(k, "error of clocks", r->member ? clock.err_us : 0));
    return t;
}

/* A variant, and a way to gather that is not the default one. */
static char *name_of(const ddp_case *k)
{
    static const char *const ways[] = {"", "-copy", "-own"};
    return xasprintf("%s%s", case_variant(k->c), ways[k->p.gather]);
}

/* One rank after another, so that rank 0 can start new files. */
static void write_files(const ddp_case *k, stream_timeline *t)
{
    const session *s = k->s;
    char folder[256] = "", label[128];
    double origin_s = t ? t->origin_s : 0;
    if (launch_rank(k->l) == 0 && s->csv_path) { /* beside the rows */
        const char *slash = strrchr(s->csv_path, '/');
        snprintf(folder, sizeof folder, "%.*stimeline", slash ? (int)(slash - s->csv_path) + 1 : 0, s->csv_path);
    }
    launch_share(k->l, "folder of timelines", folder, sizeof folder, 0);
    launch_share(k->l, "start of the recording", &origin_s, sizeof origin_s, 0);
    if (!*folder)
        return;
    char *name = name_of(k);
    snprintf(label, sizeof label, "%s: %s, context %d, %s, %s on the wire, %d ranks", name, case_text(k->c, "size"),
             k->o.seq, k->o.precision->name, comm_dtype_name(replica_comm_dtype(step_sums_dtype(&k->o))), k->ranks);
    char *csv = xasprintf("%s/%s.csv", folder, name), *chrome = xasprintf("%s/%s.json", folder, name);
    if (launch_rank(k->l) == 0) {
        mkdir(folder, 0777);
        remove(csv);
        remove(chrome);
    }
    for (int rank = 0; rank < k->ranks; rank++) {
        launch_barrier(k->l, "timeline");
        if (rank != launch_rank(k->l) || !t)
            continue;
        timeline_rebase(t, origin_s);
        if (!timeline_write_csv(csv, label, rank, t) || !timeline_write_chrome(chrome, label, rank, t))
            warn("%s can't be written: %s", csv, strerror(errno));
    }
    free(name);
    free(csv);
    free(chrome);
}

void ddp_record(ddp_case *k, replica *r)
{
    char why[300] = "";
    phase_set("recording of %s", case_key(k->c));
    stream_timeline *t = record(k, r, why, sizeof why);
    if (!launch_all(k->l, "recording", !r->member || t)) {
        if (*why)
            warn("no timeline of %s: %s", case_key(k->c), why);
    } else {
        const timeline_sums sums = t ? timeline_sum(t) : (timeline_sums){0};
        const double all = sums.communication_us, none = r->member ? 0 : -INFINITY;
        const double shown_pct = all > 0 ? 100 * sums.exposed_us / all : none;
        row_real(k->w, "recorded_comm_ms", ddp_most(k, "recorded communication", all / 1e3));
        row_real(k->w, "recorded_exposed_ms", ddp_most(k, "recorded exposure", sums.exposed_us / 1e3));
        row_real(k->w, "overlapped_pct", 100 - ddp_most(k, "recorded share", shown_pct));
        write_files(k, t);
    }
    if (t)
        timeline_destroy(t);
}
