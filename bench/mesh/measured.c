/* SPDX-License-Identifier: MIT */
/* Meshes that other benches measured on this machine, predicted; see machine.h. Each way of the table is a mesh with what its bench
 * makes of it. Its bench verified and timed it with its own ranks, and left a row; nothing is timed here. Rates come from other
 * rows (rates.c), so that no prediction has seen what it is judged by. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/mesh/machine.h"
#include "bench/model/context.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/core/stats.h"
#include "common/core/text.h"
#include "common/session/ceiling.h"

/* ---- the ways ---- */

enum { REST = 0 }; /* of an axis: all ranks that the other one leaves */

typedef struct way {
    const char *name, *bench, *where; /* what its rows have in these columns, which are options of the bench, too */
    mesh_strategy strategy;           /* of the ranks that the axes leave */
    int pp, cp, tp;
    const char *schedule; /* NULL: none */
    bool rows_whole, overlap;
} way;

static const way ways[] = {
    {"ddp", "bench_fsdp", "update=buckets variant=ddp", MESH_DDP, 1, 1, 1, NULL, false, false},
    {"zero1", "bench_fsdp", "update=buckets variant=zero1", MESH_ZERO1, 1, 1, 1, NULL, false, false},
    {"zero2", "bench_fsdp", "update=buckets variant=zero2", MESH_ZERO2, 1, 1, 1, NULL, false, false},
    {"fsdp-keep", "bench_fsdp", "update=buckets variant=fsdp-keep", MESH_FSDP_KEEP, 1, 1, 1, NULL, false, false},
    {"fsdp", "bench_fsdp", "update=buckets variant=fsdp", MESH_FSDP_FREE, 1, 1, 1, NULL, false, false},
    {"hsdp", "bench_fsdp", "update=buckets variant=hsdp", MESH_FSDP_FREE, 1, 1, 1, NULL, false, false},
    {"tp-all-reduce", "bench_tp", "mesh=tp variant=all-reduce", MESH_DDP, 1, 1, REST, NULL, true, false},
    {"tp-nccl", "bench_tp", "mesh=tp variant=nccl", MESH_DDP, 1, 1, REST, NULL, false, false},
    {"tp-copy", "bench_tp", "mesh=tp variant=copy", MESH_DDP, 1, 1, REST, NULL, false, true},
    {"gpipe", "bench_pp", "mesh=pp variant=gpipe", MESH_DDP, REST, 1, 1, "gpipe", false, true},
    {"1f1b", "bench_pp", "mesh=pp variant=1f1b", MESH_DDP, REST, 1, 1, "1f1b", false, true},
    {"interleaved", "bench_pp", "mesh=pp variant=interleaved", MESH_DDP, REST, 1, 1, "interleaved", false, true},
    {"zb-h1", "bench_pp", "mesh=pp variant=zb-h1", MESH_DDP, REST, 1, 1, "zb-h1", false, true},
    {"zb-v", "bench_pp", "mesh=pp variant=zb-v", MESH_DDP, REST, 1, 1, "zb-v", false, true},
    {"tp2-ddp", "bench_tp", "mesh=tp2 strategy=ddp variant=nccl", MESH_DDP, 1, 1, 2, NULL, false, false},
    {"tp2-fsdp", "bench_tp", "mesh=tp2 strategy=fsdp variant=nccl", MESH_FSDP_FREE, 1, 1, 2, NULL, false, false},
    {"tp2-copy-ddp", "bench_tp", "mesh=tp2 strategy=ddp variant=copy", MESH_DDP, 1, 1, 2, NULL, false, true},
    {"tp2-copy-fsdp", "bench_tp", "mesh=tp2 strategy=fsdp variant=copy", MESH_FSDP_FREE, 1, 1, 2, NULL, false, true},
    {"1f1b2-ddp", "bench_pp", "mesh=pp2 strategy=ddp variant=1f1b", MESH_DDP, 2, 1, 1, "1f1b", false, true},
    {"1f1b2-fsdp", "bench_pp", "mesh=pp2 strategy=fsdp-keep variant=1f1b", MESH_FSDP_KEEP, 2, 1, 1, "1f1b", false,
     true},
    {"1f1b2-no-sync", "bench_pp", "mesh=pp2 strategy=fsdp-no-sync variant=1f1b", MESH_FSDP_KEEP, 2, 1, 1, "1f1b", false,
     true},
    {"1f1b2-tp2", "bench_pp", "mesh=pp2+tp2 strategy=ddp variant=1f1b", MESH_DDP, 2, 1, 2, "1f1b", false, false},
    {"zb-v2-ddp", "bench_pp", "mesh=pp2 strategy=ddp variant=zb-v", MESH_DDP, 2, 1, 1, "zb-v", false, true},
    {"zb-v2-no-sync", "bench_pp", "mesh=pp2 strategy=fsdp-no-sync variant=zb-v", MESH_FSDP_KEEP, 2, 1, 1, "zb-v", false,
     true},
    {"zb-v2-tp2", "bench_pp", "mesh=pp2+tp2 strategy=ddp variant=zb-v", MESH_DDP, 2, 1, 2, "zb-v", false, false},
    {"cp-zero2", "bench_fsdp", "update=buckets cp_way=gather variant=zero2", MESH_ZERO2, 1, REST, 1, NULL, false, true},
    {"cp-fsdp", "bench_fsdp", "update=buckets cp_way=gather variant=fsdp", MESH_FSDP_FREE, 1, REST, 1, NULL, false,
     true},
    {"cp2-fsdp", "bench_fsdp", "update=buckets cp_way=gather variant=fsdp", MESH_FSDP_FREE, 1, 2, 1, NULL, false, true},
    {"cp2-tp2", "bench_tp", "mesh=cp2+tp2 strategy=ddp variant=nccl", MESH_DDP, 1, 2, 2, NULL, false, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* What a rank of that way runs. */
static const char *strategy_of(const way *x)
{
    return text_is(x->name, "hsdp")      ? "hsdp"
           : strstr(x->name, "-no-sync") ? "fsdp-no-sync"
                                         : mesh_strategy_name(x->strategy);
}

/* What else a row has where its bench has that option: the planner knows nothing else. */
static const char plain[] =
    "gather=nccl reduce=nccl prefetch=1 free_every=1 bucket_mb=25 reduce_dtype=grad small=sharded regather=1 "
    "loss=parallel mode=train-step attention=flash recompute_every=1 offload=none moments=policy loss_chunk=0 "
    "deterministic=0 clip=0 replicas=2 chunks=2";

/* False: the ranks are not so many. */
static bool plan_of(const way *x, int gpus, const mesh_job *j, bool again, mesh_plan *p)
{
    const bool two = (x->pp == 2 || x->cp == 2 || x->tp == 2), hybrid = text_is(x->name, "hsdp");
    const int pp = x->pp == REST ? gpus : x->pp, cp = x->cp == REST ? gpus : x->cp, tp = x->tp == REST ? gpus : x->tp;
    const int data = gpus / (pp * cp * tp);
    if (two ? gpus % 4 : hybrid && (gpus < 4 || gpus % 2))
        return false;
    *p = (mesh_plan){.axes = {pp, 1, data, cp, tp},
                     .strategy = x->strategy,
                     .chunks = 1,
                     .micro_batch = 1,
                     .recompute = again ? MESH_BLOCK : MESH_KEEP,
                     .overlap = x->overlap,
                     .rows_whole = x->rows_whole,
                     .regather_waits = !x->overlap,
                     .each_micro = text_is(strategy_of(x), "fsdp-keep")};
    if (x->strategy == MESH_DDP || hybrid) {
        p->axes.dp_replicate = hybrid ? 2 : data;
        p->axes.dp_shard = hybrid ? gpus / 2 : 1;
    }
    if (x->schedule) {
        p->schedule = pipeline_schedule_find(x->schedule);
        p->chunks = p->schedule->chunks_least;
    } else {
        p->micro_batch = (int)(j->global_batch / data);
    }
    return true;
}

/* ---- its row ---- */

typedef struct asked {
    const char *model, *policy, *grads;
    int gpus;
    mesh_job job;
    bool again; /* blocks are computed again in the backward */
    double error_pct;
} asked;

/* What the case asks of a row of that way, as columns and values. */
static void wanted(const asked *q, const way *x, const mesh_plan *p, char *out, size_t bytes)
{
    const int micros = x->schedule ? (int)q->job.global_batch / (p->axes.dp_replicate * p->axes.dp_shard) : 1;
    const int n = snprintf(
        out, bytes, "ranks=%d batch=%d seq=%lld micro_batches=%d precision=%s grad_dtype=%s recompute=%s %s", q->gpus,
        p->micro_batch, (long long)q->job.seq, micros, q->policy, q->grads, q->again ? "block" : "none", x->where);
    if (text_is(x->bench, "bench_fsdp") && p->axes.cp > 1)
        snprintf(out + n, bytes - (size_t)n, " cp=%d", p->axes.cp);
}

static bool is_plain(const csv *c, size_t i, const way *x)
{
    return planner_row_has(c, i, plain, true) &&
           planner_row_has(c, i, x->schedule ? "update=units" : "max_ctas=0", true);
}

/* The newest such row, of stages one that copies if there is one: so the planner has them; false: there is none. */
static bool find(const planner_machine *m, const csv *c, const asked *q, const way *x, const char *pairs, int cp,
                 size_t *at)
{
    bool found = false, copies = false;
    for (size_t i = 0; c && i < c->rows; i++)
        if (planner_row_counts(m, c, i) && planner_row_of(c, i, &q->job) && planner_row_has(c, i, pairs, false) &&
            is_plain(c, i, x) && (cp > 1 || planner_row_has(c, i, "cp=1", true)) && csv_real(c, i, "step_ms") > 0 &&
            (!copies || csv_is(c, i, "transport", "copy"))) {
            *at = i;
            found = true;
            copies = csv_is(c, i, "transport", "copy");
        }
    return found;
}

/* A sentence when the bench of a way takes no such options, else NULL. */
static const char *no_command(const asked *q, const mesh_plan *p)
{
    if (q->job.eight_bits)
        return "fp8 is none of the benches' precisions in float8, whose recipes the planner does not tell apart";
    if (q->gpus > 1024 || q->job.seq > 1048576 ||
        q->job.global_batch / (p->axes.dp_replicate * p->axes.dp_shard) > 65536)
        return "it takes at most 1024 ranks, 1048576 tokens of a sequence and 65536 sequences of a rank";
    return NULL;
}

/* The command that measures it: a command's names have dashes where columns have underscores. */
static void command_of(const asked *q, const way *x, const char *pairs, char *out, size_t bytes)
{
    char column[32], value[32];
    OWNED char *size = planner_bench_model(q->model, &q->job, false);
    int length, n = snprintf(out, bytes, "./%s %s", x->bench, size);
    for (; sscanf(pairs, " %31[^=]=%31s%n", column, value, &length) == 2 && n < (int)bytes; pairs += length) {
        if (planner_all_ranks(column, value))
            continue;
        for (char *dash = column; (dash = strchr(dash, '_'));)
            *dash = '-';
        n += snprintf(out + n, bytes - (size_t)n, " --%s %s", column, value);
    }
}

/* ---- all ways of a case, which are judged together ---- */

typedef struct outcome {
    bool measured;
    double predicted_ms, measured_ms, planned_bytes, driver_bytes;
    char why[800]; /* it was not */
    mesh_plan plan;
    mesh_prediction p;
} outcome;

typedef struct judged {
    outcome of[WAYS];
    int count, best; /* measured ones; that with the shortest prediction */
    double median_pct, worst_pct, behind_pct;
    char summary[400]; /* "": nothing was measured */
    bool known;
} judged;

/* Percent by which the step was faster than measured, as for published runs. */
static double error_of(const outcome *x)
{
    return 100 * (x->measured_ms / x->predicted_ms - 1);
}

/* Libraries of collectives take as much for each communicator, outside of the plan: one of each axis, two of what is sharded, two
 * of each neighbour of a stage; and one of ranks that hold the same heads. */
static int communicators(const mesh_plan *p, const mesh_job *j)
{
    const mesh m = p->axes;
    const int shards = m.dp_shard * m.cp;
    const int data = m.dp_replicate * shards > 1 ? 1 + (shards > 1) + (m.dp_replicate > 1 && shards > 1) : 0;
    return data + (m.cp > 1) + (m.tp > 1 ? 1 + (m.tp > j->heads_kv) : 0) + (m.pp > 1 ? (m.pp > 2 ? 4 : 2) + 1 : 0);
}

static void look_up(session *s, const planner_machine *m, const asked *q, const way *x, outcome *out)
{
    char pairs[320], command[500], why[256];
    if (!plan_of(x, q->gpus, &q->job, q->again, &out->plan)) {
        snprintf(out->why, sizeof out->why, "%s is a mesh of %s", x->name,
                 text_is(x->name, "hsdp") ? "4 GPUs or more" : "4 GPUs, or 8 and so on");
        return;
    }
    if (out->plan.micro_batch == 0 || mesh_plan_problem(&q->job, &out->plan, why, sizeof why)) {
        snprintf(out->why, sizeof out->why, out->plan.micro_batch ? "%s" : "there are fewer sequences than ranks", why);
        return;
    }
    wanted(q, x, &out->plan, pairs, sizeof pairs);
    OWNED char *path = xasprintf("%s/%s.csv", m->dir, x->bench);
    csv *c = rows_of_bench(m->dir, x->bench);
    size_t at = 0;
    out->measured = find(m, c, q, x, pairs, out->plan.axes.cp, &at);
    out->plan.even = out->measured && csv_is(c, at, "balance", "even");
    out->plan.launched = !out->measured || !csv_is(c, at, "fusion", "graph"); /* as the bench does unless it is told */
    out->plan.beside = out->measured && csv_is(c, at, "overlap", "gradients");
    out->p = mesh_predict(&q->job, &out->plan, &m->rates, true);
    out->predicted_ms = 1e3 * out->p.step_s;
    if (out->measured) {
        const double driver = csv_real(c, at, "device_used_bytes"), peak = csv_real(c, at, "peak_bytes");
        const double stages = fmax(csv_real(c, at, "peak_bytes_first"), csv_real(c, at, "peak_bytes_last"));
        const double outside = driver > 0 ? communicators(&out->plan, &q->job) * m->rates.communicator : 0;
        out->measured_ms = csv_real(c, at, "step_ms");
        out->driver_bytes = driver > 0 ? driver : peak > 0 ? peak : stages;
        const bool ends = !(driver > 0 || peak > 0); /* older rows have no others of a pipeline */
        out->planned_bytes =
            planner_planned_bytes(s, q->model, &q->job, strategy_of(x), &out->plan, &m->rates, ends) + outside;
    } else if (no_command(q, &out->plan)) {
        snprintf(out->why, sizeof out->why, "%.4g ms are predicted, but %s does not measure it: %s", out->predicted_ms,
                 x->bench, no_command(q, &out->plan));
    } else {
        command_of(q, x, pairs, command, sizeof command);
        snprintf(out->why, sizeof out->why,
                 "%.4g ms are predicted, but there is no row of commit %s in %s; %s measures it", out->predicted_ms,
                 m->commit, path, command);
    }
    csv_free(c);
}

static void judge(const asked *q, judged *j)
{
    samples errors = {0};
    int fastest = -1;
    j->best = -1;
    for (int i = 0; i < WAYS; i++) {
        const outcome *x = &j->of[i];
        if (!x->measured)
            continue;
        samples_add(&errors, fabs(error_of(x)));
        j->count++;
        j->best = j->best < 0 || x->predicted_ms < j->of[j->best].predicted_ms ? i : j->best;
        fastest = fastest < 0 || x->measured_ms < j->of[fastest].measured_ms ? i : fastest;
    }
    if (j->count) {
        const stats all = stats_of(&errors);
        j->median_pct = all.median;
        j->worst_pct = all.max;
        j->behind_pct = 100 * (j->of[j->best].measured_ms / j->of[fastest].measured_ms - 1);
        snprintf(
            j->summary, sizeof j->summary,
            "%s on %d GPUs, %lld x %lld tokens, %s%s: %d meshes, median error %.1f %%, worst %.1f %%; its best, %s, is "
            "%.1f %% slower than the best measured, %s: %s 3 %%",
            q->model, q->gpus, (long long)q->job.global_batch, (long long)q->job.seq, q->policy,
            q->again ? ", blocks recomputed" : "", j->count, j->median_pct, j->worst_pct, ways[j->best].name,
            j->behind_pct, ways[fastest].name, j->behind_pct <= 3 ? "within" : "not within");
    }
    samples_free(&errors);
}

/* The place of a way among those that were measured, by prediction or by measurement; 1 is the fastest. */
static int place_of(const judged *j, int of, bool measured)
{
    int place = 1;
    for (int i = 0; i < WAYS; i++) {
        const outcome *x = &j->of[i], *y = &j->of[of];
        place += x->measured && (measured ? x->measured_ms < y->measured_ms : x->predicted_ms < y->predicted_ms);
    }
    return place;
}

static int ties_of(const asked *q, const judged *j)
{
    int ties = 0;
    for (int i = 0; i < WAYS; i++)
        ties += j->of[i].measured && j->of[i].predicted_ms <= j->of[j->best].predicted_ms * (1 + q->error_pct / 100);
    return ties;
}

/* ---- what is said at the end ---- */

/* Lines, each once, in the order of cases. */
typedef struct notes {
    char text[16384];
} notes;

static void note(session *s, const char *line)
{
    notes *n = session_cache(s, "mesh notes", sizeof *n, NULL);
    const size_t used = strlen(n->text);
    if (*line && !strstr(n->text, line) && used + strlen(line) + 2 < sizeof n->text)
        snprintf(n->text + used, sizeof n->text - used, "%s\n", line);
}

void planner_finish(session *s)
{
    const notes *n = session_cache(s, "mesh notes", sizeof *n, NULL);
    if (n->text[0] && !option_flag(s->opt, "quiet"))
        say("%s", n->text);
    model_finish(s);
}

/* ---- the variant ---- */

static asked asked_of(const bench_case *c)
{
    asked q = {.model = case_text(c, "model"),
               .policy = case_text(c, "precision"),
               .grads = case_text(c, "grad-dtype"),
               .gpus = (int)case_int(c, "gpus"),
               .again = text_is(case_text(c, "recomputed"), "block"),
               .error_pct = case_real(c, "error")};
    const int64_t layers = case_int(c, "layers");
    planner_model(q.model, &q.job);
    q.job.layers = layers ? layers : q.job.layers;
    q.job.seq = case_int(c, "seq");
    q.job.global_batch = case_int(c, "global-batch");
    q.job.host = (int)case_int(c, "host");
    planner_policy_set(&q.job, q.policy, q.grads);
    return q;
}

static const judged *judged_of(session *s, const planner_machine *m, const asked *q)
{
    char name[320];
    snprintf(name, sizeof name, "judged %s %lld %d %lld %lld %s %s %d", q->model, (long long)q->job.layers, q->gpus,
             (long long)q->job.global_batch, (long long)q->job.seq, q->policy, q->grads, q->again);
    judged *j = session_cache(s, name, sizeof *j, NULL);
    if (j->known)
        return j;
    for (int i = 0; i < WAYS; i++)
        look_up(s, m, q, &ways[i], &j->of[i]);
    judge(q, j);
    j->known = true;
    return j;
}

void planner_run_measured(session *s, const bench_case *c, row *w)
{
    const asked q = asked_of(c);
    const planner_machine *m = planner_machine_of(s, q.model, &q.job);
    int at = 0;
    while (!text_is(ways[at].name, case_text(c, "way")))
        at++;
    if (m->missing[0] || m->uncalibrated[0]) {
        row_status_set(w, ROW_SKIP, "%s", m->missing[0] ? m->missing : m->uncalibrated);
        return;
    }
    const judged *j = judged_of(s, m, &q);
    const outcome *x = &j->of[at];
    char text[700];
    if (!x->measured) {
        row_status_set(w, ROW_SKIP, "%s", x->why);
        return;
    }
    const int ties = ties_of(&q, j);
    const bool tie = x->predicted_ms <= j->of[j->best].predicted_ms * (1 + q.error_pct / 100);
    planner_plan_columns(w, &q.job, &x->plan, &x->p, &m->rates);
    row_real(w, "measured_ms", x->measured_ms);
    row_real(w, "err_pct", error_of(x));
    row_real(w, "planned_bytes", x->planned_bytes);
    row_real(w, "driver_bytes", x->driver_bytes);
    row_real(w, "bytes_err_pct", 100 * (x->planned_bytes / x->driver_bytes - 1));
    row_int(w, "place_predicted", place_of(j, at, false));
    row_int(w, "place_measured", place_of(j, at, true));
    row_int(w, "ties", ties);
    row_int(w, "tie", tie);
    row_int(w, "judged", j->count);
    row_real(w, "median_err_pct", j->median_pct);
    row_real(w, "worst_err_pct", j->worst_pct);
    row_real(w, "best_behind_pct", j->behind_pct);
    snprintf(text, sizeof text, "%s: %.4g ms predicted, %.4g measured (%+.1f %%)%s", ways[at].name, x->predicted_ms,
             x->measured_ms, error_of(x), tie && ties > 1 ? ", a tie for the best" : "");
    row_text(w, "answer", text);
    const double rows = (double)x->plan.micro_batch * (double)q.job.seq;
    OWNED char *size = planner_bench_model(q.model, &q.job, true);
    if (!mesh_points_has(&m->shapes.compute[0], rows, (double)q.job.seq, 1))
        row_status_set(w, ROW_OK,
                       "a step of one GPU with as few tokens was not measured; ./bench_transformer %s --seq %lld "
                       "--batch %d --precision %s --overlap none measures it",
                       size, (long long)q.job.seq, x->plan.micro_batch, q.policy);
    note(s, j->summary);
}
