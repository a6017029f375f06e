/* SPDX-License-Identifier: MIT */
/* A case of bench_allreduce: what the ranks agree on, verification, and the statistics over ranks. */
#include "bench/collective/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/session/measure.h"
#include "common/session/profile.h"

static const double sample_ms = 1;
enum { CALLS_MAX = 100, BURST = 20 };

/* ---- set-up and verification ---- */

static void set_sizes(collective *k)
{
    const size_t e = comm_dtype_bytes(k->t), n = (size_t)comm_size(k->c);
    const bool to_all = k->op == COLLECTIVE_ALL_TO_ALL;
    const bool sliced = to_all || k->op == COLLECTIVE_ALL_GATHER || k->op == COLLECTIVE_REDUCE_SCATTER;
    k->count = (size_t)case_int(k->k, "bytes") / e / (sliced ? n : 1);
    k->send_n = k->count * (to_all || k->op == COLLECTIVE_REDUCE_SCATTER ? n : 1);
    k->recv_n = k->count * (to_all || k->op == COLLECTIVE_ALL_GATHER ? n : 1);
    k->bytes = (double)(k->count * e) * (sliced ? (double)n : 1);
}

/* True on every rank when every member has its buffers. */
static bool set_up(collective *k)
{
    size_t asked = 0;
    const bool have = !k->member || collective_allocate(k, &asked);
    if (launch_all(k->l, "memory", have))
        return true;
    row_status_set(k->w, ROW_OOM, "a rank has no memory for the buffers of %s (%zu bytes here)", case_name(k->k),
                   asked);
    return false;
}

/* Calls back to back from fresh inputs, by the graph that was timed if there is one. True on every rank when every member
 * has the right result; else the row says what is wrong. */
static bool verified(collective *k, const char *when, int calls)
{
    int64_t mine = 0, wrong = 0;
    int worst = 0;
    if (k->member) {
        collective_fill(k);
        comm_barrier(k->c, device_stream(k->s->dev));
        if (k->replay)
            device_graph_launch(k->s->dev, k->replay);
        else
            collective_enqueue(k, calls);
        collective_wait(k);
        mine = (int64_t)collective_wrong(k, calls);
    }
    OWNED int64_t *all = launch_gathered(k->l, "wrong elements", &mine, sizeof mine);
    for (int r = 0; r < launch_size(k->l); r++) {
        wrong += all[r];
        worst = all[r] > all[worst] ? r : worst;
    }
    row_int(k->w, "err_elements", wrong);
    if (wrong)
        row_status_set(k->w, ROW_FAIL, "%s timing %lld elements are wrong, most of them (%lld) on rank %d", when,
                       (long long)wrong, (long long)all[worst], worst);
    return wrong == 0;
}

/* ---- measuring ---- */

/* The same numbers of calls and samples on all ranks. A sum over n ranks in place must not overflow within a sample. */
static void plan_samples(collective *k)
{
    double estimate = launch_most(k->l, "estimate", k->member ? collective_estimate(k) : 0, launch_size(k->l));
    if (estimate < sample_ms) /* most of that may be the wait, which calls back to back share */
        estimate = launch_most(k->l, "estimate", k->member ? collective_burst(k, BURST) : 0, launch_size(k->l));
    const int asked = (int)option_int(k->s->opt, "calls");
    k->lead_in = k->graph && !k->s->timing.cold_l2;
    const double doublings = (k->lead_in ? 2 : 1) * fmax(log2(comm_size(k->c)), 1); /* of the sum, by a call */
    const int most = k->source ? (int)fmin(CALLS_MAX, 115 / doublings) : CALLS_MAX;
    const int wanted = asked                  ? asked
                       : k->s->timing.cold_l2 ? 1
                       : estimate < sample_ms ? (int)ceil(sample_ms / fmax(estimate, 1e-4))
                                              : 1;
    k->calls = wanted < most ? wanted : most;
    k->samples = measure_iters(&k->s->timing, fmax(estimate, 1e-4) * k->calls * 1e-3);
}

static double mean_of(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

/* all: (size, samples) */
static void fill_row(collective *k, const double *all)
{
    const int ranks = comm_size(k->c);
    char size[64];
    samples slowest = {0};
    OWNED double *means = xcalloc((unsigned long)ranks, sizeof *means);
    int worst = 0;
    for (int i = 0; i < k->samples; i++) {
        double most = 0;
        for (int r = 0; r < ranks; r++)
            most = fmax(most, all[(size_t)r * (size_t)k->samples + (size_t)i]);
        samples_add(&slowest, most);
    }
    for (int r = 0; r < ranks; r++) {
        means[r] = mean_of(all + (size_t)r * (size_t)k->samples, k->samples);
        worst = means[r] > means[worst] ? r : worst;
    }
    const stats s = stats_of(&slowest);
    const double rate = collective_gb_s(k->bytes, s.median);
    collective_size_text(case_int(k->k, "bytes"), size, sizeof size);
    row_real(k->w, "median_ms", s.median);
    row_real(k->w, "mean_ms", s.mean);
    row_real(k->w, "min_ms", s.min);
    row_real(k->w, "max_ms", s.max);
    row_real(k->w, "std_ms", s.stdev);
    row_real(k->w, "algbw_gb_s", rate);
    row_real(k->w, "busbw_gb_s", rate * collective_bus_factor(k->op, ranks));
    row_numbers(k->w, "rank_mean_ms", means, ranks, 6);
    row_int(k->w, "slowest_rank", worst);
    row_text(k->w, "size", size);
    row_int(k->w, "n_samples", k->samples);
    row_int(k->w, "n_calls", k->calls);
    row_text(k->w, "backend",
             !k->p                                ? comm_backend(k->c)
             : k->algorithm == SB_DIRECT_TWO_SHOT ? "peer two-shot"
                                                  : "peer one-shot");
    row_int(k->w, "hosts", launch_hosts(k->l));
    row_text(k->w, "timer", device_kind_of(k->s->dev) == DEVICE_CPU ? "host" : k->replay ? "graph" : "event");
    samples_free(&slowest);
}

static bool call_once(void *arg)
{
    collective_enqueue(arg, 1);
    return true;
}

static bool replay_once(void *arg)
{
    collective *k = arg;
    device_graph_launch(k->s->dev, k->replay);
    return true;
}

/* False on every rank, after making the row `skip`, when the calls cannot be captured. */
static bool time_case(collective *k)
{
    samples mine = {0};
    if (session_profiling(k->s)) {
        profile_result ignored;
        const profile_how how = {.dev = k->s->dev, .together = true, .member = k->member};
        k->calls = 1;
        const bool captured = !k->graph || !k->member || collective_capture(k);
        if (launch_all(k->l, "graph", captured))
            session_profile(k->s, "collective", &how, k->replay ? replay_once : call_once, k, &ignored);
        return false;
    }
    plan_samples(k);
    const bool captured = !k->graph || !k->member || collective_capture(k);
    if (!launch_all(k->l, "graph", captured)) {
        row_status_set(k->w, ROW_SKIP, "%s cannot be captured in a graph", case_variant(k->k));
        return false;
    }
    if (k->member) {
        collective_sample(k, &mine);
        measure_again(k->s, "collective", call_once, k);
    }
    const size_t n = (size_t)k->samples;
    OWNED double *own = xcalloc(n, sizeof *own);
    if (k->member)
        memcpy(own, mine.x, n * sizeof *own);
    OWNED double *all = launch_gathered(k->l, "samples", own, n * sizeof *own);
    fill_row(k, all);
    samples_free(&mine);
    return true;
}

void collective_run(collective *k)
{
    const bool check = option_flag(k->s->opt, "check");
    k->member = comm_rank(k->c) >= 0;
    k->warmup = k->s->timing.warmup;
    set_sizes(k);
    if (k->count == 0) {
        row_status_set(k->w, ROW_SKIP, "%lld bytes are less than an element for each of %d ranks",
                       (long long)case_int(k->k, "bytes"), comm_size(k->c));
        return;
    }
    if ((k->op == COLLECTIVE_ALL_TO_ALL || k->op == COLLECTIVE_SEND_RECV) && k->in_place) {
        row_status_set(k->w, ROW_SKIP, "%s needs a second buffer: --in-place 0",
                       k->op == COLLECTIVE_ALL_TO_ALL ? "an all-to-all" : "a send-recv");
        return;
    }
    if (k->op == COLLECTIVE_SEND_RECV && comm_size(k->c) == 1) {
        row_status_set(k->w, ROW_SKIP, "a send-recv needs at least two ranks");
        return;
    }
    if (k->p && k->bytes > (double)peers_message_bytes(k->p, k->algorithm)) {
        row_status_set(k->w, ROW_SKIP, "the ranks' mailboxes take messages of up to %zu bytes",
                       peers_message_bytes(k->p, k->algorithm));
        return;
    }
    if (k->graph && !device_has_graphs(k->s->dev)) {
        row_status_set(k->w, ROW_SKIP, "the CPU has no graphs");
        return;
    }
    if (!set_up(k))
        return;
    if (k->member && !check)
        collective_fill(k);
    if (!check || verified(k, "before", 1)) {
        const bool timed = time_case(k);
        if (check && timed)
            verified(k, "after", k->calls);
    }
    if (k->replay)
        device_graph_destroy(k->s->dev, k->replay);
    k->replay = NULL;
}
