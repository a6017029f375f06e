/* SPDX-License-Identifier: MIT */
/* What refuses the ratio of a peer's row and ours; see peer.h. */
#include "common/report/peer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/report/section.h"

/* Below this share of busy time a step measures its host, which another host would change. */
static const double BUSY_PCT = 80;

typedef struct pair {
    const csv *theirs, *ours;
    size_t peer, row;
    const char *what;
} pair;

static const char *text(const csv *c, size_t row, const char *column)
{
    const char *cell = csv_cell(c, row, column);
    return cell ? cell : "";
}

static bool one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names) != 0)
        names++;
    return *names;
}

static bool is_time(const pair *p)
{
    const size_t length = strlen(p->what);
    return length < 4 || strcmp(p->what + length - 4, "_gib") != 0;
}

/* A bench names the ./run_all.sh it was part of as its campaign, a peer as its run. */
static const char *run_of(const csv *c, size_t row)
{
    const char *campaign = text(c, row, "campaign");
    return *campaign ? campaign : text(c, row, "run_id");
}

static bool lacks_origin(const pair *p)
{
    return !*text(p->theirs, p->peer, "gpu_uuid") || !*text(p->ours, p->row, "gpu_uuid") ||
           !*run_of(p->theirs, p->peer) || !*run_of(p->ours, p->row);
}

static bool other_gpu(const pair *p)
{
    return strcmp(text(p->theirs, p->peer, "gpu_uuid"), text(p->ours, p->row, "gpu_uuid")) != 0;
}

static bool other_run(const pair *p)
{
    return strcmp(run_of(p->theirs, p->peer), run_of(p->ours, p->row)) != 0;
}

/* Calls of the host have its launches in their time, replays of a graph have not. Steps are timed by events around the whole
 * step on both sides, so that their benches name no timer; is_host_bound judges these. */
static bool other_timer(const pair *p)
{
    static const char *const calls[] = {"eager", "event", "host", NULL};
    const char *ours = text(p->ours, p->row, "timer"), *theirs = text(p->theirs, p->peer, "mode");
    return is_time(p) && *ours && one_of(theirs, calls) != one_of(ours, calls);
}

static bool settled_unlike(const pair *p)
{
    static const char *const kernels[] = {"gemm", "copy", NULL};
    const bool theirs = strstr(text(p->theirs, p->peer, "policy"), "samples after");
    return one_of(text(p->theirs, p->peer, "bench"), kernels) && theirs != (csv_real(p->ours, p->row, "settle_s") > 0);
}

/* How far its result is from the right one, by the pass that is compared; NAN where it was not checked. */
static double difference(const pair *p)
{
    return csv_real(p->theirs, p->peer, strncmp(p->what, "bwd", 3) == 0 ? "bwd_diff" : "fwd_diff");
}

static bool is_attention(const pair *p)
{
    return csv_column(p->theirs, "fwd_diff") >= 0;
}

static bool is_unchecked(const pair *p)
{
    return is_attention(p) && isnan(difference(p));
}

static bool is_wrong(const pair *p)
{
    const char *loss = text(p->theirs, p->peer, "loss");
    const double bound =
        check_attention_bound(text(p->theirs, p->peer, "dtype"), strncmp(p->what, "bwd", 3) == 0).rel_l2;
    return (is_attention(p) && difference(p) > bound) || csv_real(p->theirs, p->peer, "wrong") > 0 ||
           (*loss && !isfinite(csv_real(p->theirs, p->peer, "loss")));
}

static bool is_step(const pair *p)
{
    return is_time(p) && csv_column(p->theirs, "step_ms") >= 0;
}

double peer_busy_pct(const csv *theirs, size_t peer)
{
    static const char *const graphs[] = {"step-graph", "block-graph", NULL};
    const double measured = csv_real(theirs, peer, "gpu_busy_pct");
    return isnan(measured) && one_of(text(theirs, peer, "mode"), graphs) ? 100 : measured;
}

static bool is_of_unknown_load(const pair *p)
{
    return is_step(p) && isnan(peer_busy_pct(p->theirs, p->peer));
}

static bool is_host_bound(const pair *p)
{
    return is_step(p) && peer_busy_pct(p->theirs, p->peer) < BUSY_PCT;
}

/* The first that holds is what is said. */
static const struct {
    bool (*holds)(const pair *p);
    const char *why;
} rules[] = {
    {lacks_origin, "its GPU or run is not known"},
    {other_gpu, "measured on another GPU"},
    {other_run, "measured in another run"},
    {other_timer, "timed otherwise: one side from a CUDA graph, the other with its launches"},
    {settled_unlike, "sampled otherwise: one side after settling, the other not"},
    {is_unchecked, "its result was not checked"},
    {is_wrong, "its result is wrong"},
    {is_of_unknown_load, "how busy its GPU was is not known"},
    {is_host_bound, "host-bound"},
};

const char *peer_refusal(const csv *theirs, size_t peer, const csv *ours, size_t row, const char *what)
{
    const pair p = {theirs, ours, peer, row, what};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].holds(&p))
            return rules[i].why;
    return NULL;
}

const char *peer_refused(const csv *theirs, size_t peer, const table *ours, size_t row, const char *what)
{
    return peer_refusal(theirs, peer, ours->file, ours->rows[row], what);
}

bool peer_beside(const csv *theirs, size_t peer, const table *ours, size_t row, const char *what)
{
    return !peer_refused(theirs, peer, ours, row, what);
}

char *peer_named(const char *who, const csv *theirs, size_t peer, double our_mfu)
{
    const double mfu = csv_real(theirs, peer, "mfu_pct"), busy = csv_real(theirs, peer, "gpu_busy_pct");
    if (isnan(mfu))
        return xstrdup(who);
    char *ours = isnan(our_mfu) ? xstrdup("") : xasprintf(", ours %.0f %%", our_mfu);
    char *named = isnan(busy) ? xasprintf("%s (MFU %.0f %%%s)", who, mfu, ours)
                              : xasprintf("%s (MFU %.0f %%%s, busy %.0f %%)", who, mfu, ours, busy);
    free(ours);
    return named;
}
