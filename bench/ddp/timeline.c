/* SPDX-License-Identifier: MIT */
/* A recorded step of a case: what ran when on which stream of each rank, as files to draw and as how much of the
 * communication ran beside compute; see time.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/ddp/time.h"
#include "common/train/history.h"
#include "common/profile/files.h"
#include "common/profile/lanes.h"
#include "common/core/clock.h"
#include "common/core/error.h"

/* All-gathers run under the next forward, so a single step would not show them. */
static int steps_of(const replica *r)
{
    return r->plan->s->share == SHARE_GATHER ? 2 : 1;
}

typedef struct recorded { /* a rank's; NULL: nothing, since it is no member or that failed */
    recording *r;
    record_window w;
} recorded;

/* Called by members. False with a sentence. */
static bool record_steps(replica *r, recorded *x, double *from_s, char *why, size_t why_bytes)
{
    if (!recorder_start_spans(r->at.d, why, why_bytes))
        return false;
    replica_step(r); /* the first recorded step is slower */
    replica_settle(r);
    *from_s = host_seconds();
    for (int i = 0; i < steps_of(r); i++)
        replica_step(r);
    replica_settle(r);
    x->r = recorder_stop(r->at.d, why, why_bytes);
    return x->r;
}

/* By the clock of rank 0's host. */
static recorded record(ddp_case *k, replica *r, char *why, size_t why_bytes)
{
    recorded x = {0};
    double from_s = 0;
    const clock_reading before = launch_clock(k->l);
    const bool ok = r->member && record_steps(r, &x, &from_s, why, why_bytes);
    const clock_reading after = launch_clock(k->l);
    const host_clock clock = host_clock_of(&before, &after);
    row_real(k->w, "clock_err_us", ddp_most(k, "error of clocks", r->member ? clock.err_us : 0));
    if (!ok)
        return x;
    recording_move(x.r, &clock);
    if (!record_rest(x.r, host_clock_rank_0_s(&clock, from_s) * 1e6, &x.w)) {
        snprintf(why, why_bytes, "nothing ran in the recorded step");
        recording_free(x.r);
        x.r = NULL;
    }
    return x;
}

/* A variant, and a way to gather that is not the default one. */
static char *name_of(const ddp_case *k)
{
    static const char *const ways[] = {"", "-copy", "-own"};
    return xasprintf("%s%s", case_variant(k->c), ways[k->p.gather]);
}

/* What the rank holds, op by op. False with errno. */
static bool write_memory(const replica *r, const char *folder, const char *name, int rank, const char *label)
{
    OWNED char *path = xasprintf("%s/%s_rank%d.csv", folder, name, rank);
    timeline held = timeline_of(r->t);
    mkdir(folder, 0777);
    const bool ok = timeline_write(&held, path, label);
    timeline_free(&held);
    return ok;
}

/* One rank after another, so that rank 0 can start new files. */
static void write_files(const ddp_case *k, const replica *r, const recorded *x)
{
    const session *s = k->s;
    char beside[256] = "", label[128];
    double base_us = x->w.from_us; /* of the rows: rank 0's first span; a trace has no time before its first */
    const double first_us = -ddp_most(k, "first of the recordings", x->r ? -base_us : -INFINITY);
    if (launch_rank(k->l) == 0 && s->csv_path) { /* beside the rows */
        const char *slash = strrchr(s->csv_path, '/');
        snprintf(beside, sizeof beside, "%.*s", slash ? (int)(slash - s->csv_path) + 1 : 2, slash ? s->csv_path : "./");
    }
    launch_share(k->l, "folder of timelines", beside, sizeof beside, 0);
    launch_share(k->l, "start of the recording", &base_us, sizeof base_us, 0);
    if (!*beside)
        return;
    OWNED char *name = name_of(k), *folder = xasprintf("%stimeline", beside), *memory = xasprintf("%smemory", beside);
    snprintf(label, sizeof label, "%s: %s, context %d, %s, %s on the wire, %d ranks", name, case_text(k->c, "size"),
             k->o.seq, k->o.precision->name, comm_dtype_name(replica_comm_dtype(step_sums_dtype(&k->o))), k->ranks);
    OWNED char *csv = xasprintf("%s/%s.csv", folder, name), *trace = xasprintf("%s/%s.json", folder, name);
    if (launch_rank(k->l) == 0) {
        mkdir(folder, 0777);
        remove(csv);
        remove(trace);
    }
    for (int rank = 0; rank < k->ranks; rank++) {
        launch_barrier(k->l, "timeline");
        if (rank != launch_rank(k->l) || !x->r)
            continue;
        if (!lanes_write(csv, label, rank, x->r, x->w, base_us) ||
            !profile_write_trace(trace, label, rank, x->r, x->w, first_us) ||
            !write_memory(r, memory, name, rank, label)) {
            warn("%s can't be written: %s", csv, strerror(errno));
            k->s->lost = true;
        }
    }
}

static sweep_sums sums_of(const recorded *x)
{
    size_t n;
    OWNED record_span *cut = record_cut(x->r, x->w, &n);
    const sweep_sums sums = sweep(cut, n, x->w.from_us, x->w.to_us);
    return sums;
}

void ddp_record(ddp_case *k, replica *r)
{
    char why[300] = "";
    phase_set("recording of %s", case_name(k->c));
    recorded x = record(k, r, why, sizeof why);
    if (!launch_all(k->l, "recording", !r->member || x.r)) {
        if (*why)
            warn("no timeline of %s: %s", case_name(k->c), why);
    } else {
        const sweep_sums sums = x.r ? sums_of(&x) : (sweep_sums){{0}};
        const double all_us = sweep_lane_us(&sums, LANE_COMMUNICATION), exposed_us = sweep_exposed_us(&sums);
        const double none = r->member ? 0 : -INFINITY, shown_pct = all_us > 0 ? 100 * exposed_us / all_us : none;
        row_real(k->w, "recorded_comm_ms", ddp_most(k, "recorded communication", all_us / 1e3));
        row_real(k->w, "recorded_exposed_ms", ddp_most(k, "recorded exposure", exposed_us / 1e3));
        row_real(k->w, "overlapped_pct", 100 - ddp_most(k, "recorded share", shown_pct));
        write_files(k, r, &x);
    }
    recording_free(x.r);
}
