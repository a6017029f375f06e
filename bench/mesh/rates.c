/* SPDX-License-Identifier: MIT */
/* What this machine reaches, by shape, from rows that other benches stored in its folder; see machine.h. Rows count if they are
 * of the commit whose one-GPU steps of the model are the newest. No row of several GPUs' steps is read here: those judge. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/accounting/accounting.h"
#include "bench/mesh/machine.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/device/visible.h"
#include "common/formulas/mesh/layer.h"
#include "common/formulas/model.h"
#include "common/session/ceiling.h"
#include "common/train/tune/choices.h"

bool planner_row_counts(const planner_machine *m, const csv *c, size_t row)
{
    return csv_is(c, row, "status", "ok") && (!m->commit[0] || csv_is(c, row, "commit", m->commit)) &&
           same_peers(c, row);
}

/* ---- products, by shape ---- */

static void add_product(planner_machine *m, double rows, double columns, double k, double seconds)
{
    const mesh_rates plain = {.peak = m->rates.peak, .share = m->rates.share, .multiprocessors = 132};
    mesh_points_add(&m->shapes.products, fmax(rows, columns), fmin(rows, columns), k,
                    seconds / mesh_product_s(&plain, false, rows, columns, k));
}

/* Products of steps, as they were timed when their algorithms were chosen, and products that were timed alone. */
static void products(planner_machine *m)
{
    OWNED char *path = xasprintf("%s/gemm_choices.csv", m->dir);
    choices *known = choices_open(m->gpu, path, false);
    csv *c = rows_of_bench(m->dir, "bench_roofline");
    for (size_t i = 0; c && i < c->rows; i++) {
        const double size = csv_real(c, i, "size"), rate = 1e12 * csv_real(c, i, "tflops");
        double s[3] = {size, size, size};
        if (!planner_row_counts(m, c, i) || !csv_is(c, i, "dtype", "bf16") || !(rate > 0))
            continue;
        if (csv_is(c, i, "variant", "gemm_best") && sscanf(csv_cell(c, i, "mnk"), "%lfx%lfx%lf", s, s + 1, s + 2) != 3)
            continue;
        add_product(m, s[0], s[1], s[2], 2 * s[0] * s[1] * s[2] / rate);
    }
    for (int i = 0; i < choices_count(known); i++) {
        const kept_choice *k = choices_at(known, i);
        if (k->shape.dtype == SB_BF16 && !k->shape.scaling_a && k->choice.ms > 0)
            add_product(m, k->shape.m, k->shape.n, k->shape.k, 1e-3 * (double)k->choice.ms);
    }
    csv_free(c);
    choices_free(known);
}

/* Steps of one GPU are graphs. */
static void launches(planner_machine *m)
{
    csv *c = rows_of_bench(m->dir, "bench_roofline");
    double host = 0, graph = 0;
    for (size_t i = 0; c && i < c->rows; i++) {
        if (planner_row_counts(m, c, i) && csv_is(c, i, "variant", "launch"))
            host = 1e-6 * csv_real(c, i, "time_us");
        if (planner_row_counts(m, c, i) && csv_is(c, i, "variant", "launch_graph"))
            graph = 1e-6 * csv_real(c, i, "time_us");
    }
    m->rates.launch_s = host > 0 && graph > 0 ? host - graph : 0;
    m->rates.op_s = graph;
    csv_free(c);
}

/* ---- attention and collectives, by shape ---- */

/* Rows with the model's ratio of heads to those of keys and values come behind others, whose rates differ by up to 2.5 %: the last at a
 * place counts. */
static void attention(planner_machine *m, const mesh_job *j)
{
    csv *c = rows_of_bench(m->dir, "bench_flash");
    for (int alike = 0; alike <= 1; alike++)
        for (size_t i = 0; c && i < c->rows; i++) {
            const double head_dim = csv_real(c, i, "head_dim"), seq = csv_real(c, i, "seq");
            const double queries = csv_real(c, i, "heads"), heads = csv_real(c, i, "batch") * queries;
            const double keys = csv_real(c, i, "heads_kv") > 0 ? csv_real(c, i, "heads_kv") : queries;
            if (!planner_row_counts(m, c, i) ||
                !planner_row_has(c, i, "variant=flash dtype=bf16 causal=1 window=-1", false) ||
                !planner_row_has(c, i, "documents=0 deterministic=0 head_dim_v=0 seq_k=0", true) ||
                (fabs(queries * (double)j->heads_kv - keys * (double)j->heads) <= 0) != alike)
                continue;
            mesh_points_add(&m->shapes.attention[0], head_dim, seq, heads, 1e12 * csv_real(c, i, "fwd_tflops"));
            mesh_points_add(&m->shapes.attention[1], head_dim, seq, heads, 1e12 * csv_real(c, i, "bwd_tflops"));
        }
    csv_free(c);
}

/* Calls of a graph, where there are some, come without what the host takes to launch them. */
static void calls(planner_machine *m)
{
    static const char *const names[] = {
        [MESH_GATHER] = "all-gather", [MESH_SCATTER] = "reduce-scatter", [MESH_SUM] = "all-reduce"};
    csv *c = rows_of_bench(m->dir, "bench_allreduce");
    for (int graph = 0; graph <= 1; graph++)
        for (size_t i = 0; c && i < c->rows; i++)
            for (int call = 0; call < MESH_CALLS; call++) {
                const double rate = 1e9 * csv_real(c, i, "busbw_gb_s");
                if (planner_row_counts(m, c, i) && csv_is(c, i, "variant", names[call]) &&
                    csv_is(c, i, "mode", "graph") == (graph == 1))
                    mesh_points_add(&m->shapes.calls[call], rate * 1e-3 * csv_real(c, i, "median_ms"),
                                    pow(csv_real(c, i, "ranks"), 8), 1, rate);
            }
    csv_free(c);
}

/* ---- a step of one GPU ---- */

static bool of_model(const csv *c, size_t i, const mesh_job *j)
{
    return !planner_no_bench_model(j) && (int64_t)csv_real(c, i, "d_model") == j->d_model &&
           (int64_t)csv_real(c, i, "d_ff") == j->d_ff && (int64_t)csv_real(c, i, "heads") == j->heads &&
           (int64_t)csv_real(c, i, "heads_kv") == j->heads_kv && (int64_t)csv_real(c, i, "vocab") == j->vocab;
}

bool planner_row_of(const csv *c, size_t i, const mesh_job *j)
{
    return of_model(c, i, j) && (int64_t)csv_real(c, i, "layers") == j->layers;
}

bool planner_all_ranks(const char *column, const char *value)
{
    return text_is(column, "mesh") && strlen(value) == 2;
}

/* Whether the mesh of a row is that of a way on as many ranks; what neither of them names, dp_shard takes. */
static bool same_mesh(const csv *c, size_t i, const char *of)
{
    const int ranks = (int)csv_real(c, i, "ranks");
    char why[256];
    mesh a, b;
    return mesh_parse(of, ranks, &a, why, sizeof why) &&
           mesh_parse(csv_cell(c, i, "mesh"), ranks, &b, why, sizeof why) && memcmp(&a, &b, sizeof a) == 0;
}

bool planner_row_has(const csv *c, size_t i, const char *pairs, bool some)
{
    char column[32], value[32];
    int length;
    for (; sscanf(pairs, " %31[^=]=%31s%n", column, value, &length) == 2; pairs += length) {
        const char *cell = csv_cell(c, i, column);
        if (!*cell && (some || planner_all_ranks(column, value)))
            continue;
        char *end;
        const double number = strtod(value, &end);
        const bool same = text_is(column, "mesh") ? same_mesh(c, i, value)
                          : *end                  ? text_is(cell, value)
                                                  : fabs(csv_real(c, i, column) - number) <= 0;
        if (!same)
            return false;
    }
    return true;
}

/* The step is the one that the planner knows. Older rows lack some of the columns that may be absent here. */
static bool calibrates(const csv *c, size_t i, const mesh_job *j)
{
    return of_model(c, i, j) &&
           planner_row_has(c, i,
                           "status=ok mode=train-step attention=flash recompute=none offload=none loss_chunk=0 "
                           "micro_batches=1",
                           false) &&
           planner_row_has(c, i, "moments=policy clip=0 deterministic=0 cold=0", true) &&
           (csv_is(c, i, "precision", "bf16") || csv_is(c, i, "precision", "bf16-pure")) &&
           !csv_is(c, i, "variant", "none") && csv_real(c, i, "opt_alone_ms") > 0;
}

/* Steps of a graph come behind others, and those without streams beside the backward behind all, like the steps of ranks: the last at a
 * place counts. */
static void steps(planner_machine *m, const csv *c, const mesh_job *of)
{
    mesh_points compute[2] = {{0}};
    for (int like = 0; like < 4; like++)
        for (size_t i = 0; c && i < c->rows; i++) {
            if (!calibrates(c, i, of) || !planner_row_counts(m, c, i) ||
                2 * csv_is(c, i, "overlap", "none") + csv_is(c, i, "variant", "graph") != like)
                continue;
            mesh_job j = *of;
            const double batch = csv_real(c, i, "batch"), update = csv_real(c, i, "opt_alone_ms");
            const double forward = csv_real(c, i, "fwd_ms"), whole = csv_real(c, i, "step_ms") - update;
            j.seq = (int64_t)csv_real(c, i, "seq");
            planner_policy_set(&j, csv_cell(c, i, "precision"), csv_cell(c, i, "grad_dtype"));
            const mesh_plan p = {.axes = {1, 1, 1, 1, 1}, .chunks = 1, .micro_batch = (int)batch};
            const mesh_pass block = mesh_block(&j, &p, &m->rates), head = mesh_head(&j, &p, &m->rates);
            const double layers = csv_real(c, i, "layers"), rows = batch * (double)j.seq;
            const double f = layers * mesh_seconds_sum(&block.f) + mesh_seconds_sum(&head.f);
            const double b = layers * (mesh_seconds_sum(&block.b) + mesh_seconds_sum(&block.w)) +
                             mesh_seconds_sum(&head.b) + mesh_seconds_sum(&head.w);
            mesh_points_add(&compute[0], rows, (double)j.seq, 1, 1e-3 * forward / f);
            mesh_points_add(&compute[1], rows, (double)j.seq, 1, 1e-3 * (whole - forward) / b);
            m->rates.update = csv_real(c, i, "params") * (j.grad + 2 * j.state + j.param) / (1e-3 * update);
        }
    m->shapes.compute[0] = compute[0];
    m->shapes.compute[1] = compute[1];
}

/* The commit and the GPU of the newest step of one GPU. */
static void newest(planner_machine *m, const csv *c, const mesh_job *j)
{
    const char *run = "";
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!calibrates(c, i, j) || strcmp(csv_cell(c, i, "run_id"), run) < 0)
            continue;
        run = csv_cell(c, i, "run_id");
        snprintf(m->commit, sizeof m->commit, "%s", csv_cell(c, i, "commit"));
        snprintf(m->gpu, sizeof m->gpu, "%s", csv_cell(c, i, "gpu"));
    }
}

/* ---- all of it ---- */

static void replace(double *rate, double measured)
{
    if (measured > 0)
        *rate = measured;
}

static void machine_free(void *machine)
{
    planner_machine *m = machine;
    mesh_points_free(&m->shapes.products);
    for (int i = 0; i < 2; i++) {
        mesh_points_free(&m->shapes.attention[i]);
        mesh_points_free(&m->shapes.compute[i]);
    }
    for (int i = 0; i < MESH_CALLS; i++)
        mesh_points_free(&m->shapes.calls[i]);
}

static void missing(planner_machine *m, const mesh_job *j, const char *model)
{
    const char *policy = j->eight_bits ? "bf16" : planner_policy_of(j)->name; /* float8 steps calibrate nothing */
    const bool none = m->shapes.compute[0].count == 0;
    if (isnan(ceiling_tflops(NULL, m->dir, "bf16")))
        snprintf(m->missing, sizeof m->missing,
                 "no rates: %s/bench_roofline.csv has no bf16 gemm; ./bench_roofline --variant gemm --dtype bf16 "
                 "measures it",
                 m->dir);
    else if (none && planner_no_bench_model(j))
        snprintf(m->uncalibrated, sizeof m->uncalibrated, "no bench measures a step of one GPU of %s: %s", model,
                 planner_no_bench_model(j));
    else if (none) {
        OWNED char *size = planner_bench_model(model, j, true);
        snprintf(m->uncalibrated, sizeof m->uncalibrated,
                 "no step of one GPU of %s in %s in %s/bench_transformer.csv; ./bench_transformer %s --seq %lld "
                 "--precision %s --overlap none measures it",
                 model, policy, m->dir, size, (long long)j->seq, policy);
    } else if (m->shapes.calls[MESH_SUM].count == 0)
        snprintf(m->uncalibrated, sizeof m->uncalibrated,
                 "no collectives of commit %s %s " VISIBLE_APART
                 " in %s/bench_allreduce.csv; ./bench_allreduce measures them",
                 m->commit, visible_apart(getenv(VISIBLE_APART)) ? "with" : "without", m->dir);
}

const planner_machine *planner_machine_of(session *s, const char *model, const mesh_job *j)
{
    char name[320];
    const char *from;
    snprintf(name, sizeof name, "machine %s %lld %s", model, (long long)j->layers, planner_policy_of(j)->name);
    planner_machine *m = session_cache(s, name, sizeof *m, machine_free);
    if (m->dir)
        return m;
    m->dir = s->results_dir;
    m->rates = *mesh_machine_find("h200");
    m->rates.share = 1e12 * ceiling_tflops(NULL, m->dir, "bf16") / m->rates.peak;
    csv *c = rows_of_bench(m->dir, "bench_transformer");
    newest(m, c, j);
    if (m->rates.share > 0) {
        products(m);
        launches(m);
        attention(m, j);
        calls(m);
        if (device_kind_of(s->dev) == DEVICE_CUDA)
            m->rates.bytes = (double)device_get_info(s->dev)->memory_bytes;
        replace(&m->rates.peak, 1e12 * peak_tflops(m->gpu, "bf16"));
        replace(&m->rates.memory, 1e9 * ceiling_copy_gb_s(NULL, m->dir));
        replace(&m->rates.link, accounting_measured_bandwidth(m->dir, &from));
        m->rates.measured = &m->shapes;
        steps(m, c, j);
    }
    missing(m, j, model);
    csv_free(c);
    return m;
}

bool planner_rates(session *s, const bench_case *c, row *w, const mesh_job *j, mesh_rates *r)
{
    const char *name = case_text(c, "rates");
    if (!text_is(name, "measured")) {
        *r = *mesh_machine_find(name);
        return true;
    }
    const planner_machine *m = planner_machine_of(s, case_text(c, "model"), j);
    *r = m->rates;
    if (m->missing[0])
        row_status_set(w, ROW_SKIP, "%s, and --rates %s does without", m->missing, MESH_MACHINE_NAMES);
    else if (m->uncalibrated[0])
        row_status_set(w, ROW_OK, "%s", m->uncalibrated);
    return !m->missing[0];
}
