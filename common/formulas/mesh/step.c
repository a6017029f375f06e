/* SPDX-License-Identifier: MIT */
/* A step on a mesh: micro-batches through a pipeline, then what data parallelism and the update add; see mesh.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/formulas/mesh/layer.h"
#include "common/pipeline/simulate.h"

const char *mesh_strategy_name(mesh_strategy s)
{
    static const char *const names[] = {"ddp", "zero1", "zero2", "fsdp-keep", "fsdp"};
    return names[s];
}

const char *mesh_recompute_name(mesh_recompute r)
{
    static const char *const names[] = {"none", "selective", "half", "but-attention", "block"};
    return names[r];
}

double mesh_step_flops(const mesh_job *j, bool causal)
{
    const double tokens = (double)j->global_batch * (double)j->seq, d = (double)j->d_model, l = (double)j->layers;
    const double products = 6 * (mesh_block_parameters(j) * l + (double)j->vocab * d);
    return tokens * (products + (causal ? 6 : 12) * l * (double)j->seq * d);
}

const char *mesh_plan_problem(const mesh_job *j, const mesh_plan *p, char *out, size_t out_bytes)
{
    const int64_t sequences = (int64_t)p->axes.dp_replicate * p->axes.dp_shard * p->micro_batch;
    /* The embedding and the head may be chunks of their own. */
    const mesh_model of = {(int)j->layers + 2, (int)j->heads, (int)j->heads_kv, (int)j->d_ff,
                           p->chunks,          (int)j->seq,   p->micro_batch};
    if (mesh_problem(p->axes, &of, out, out_bytes))
        return out;
    if (j->global_batch % sequences != 0) {
        snprintf(out, out_bytes, "global batch %lld is not a multiple of %lld, of all replicas' micro-batches",
                 (long long)j->global_batch, (long long)sequences);
        return out;
    }
    if ((p->axes.pp > 1) != (p->schedule != NULL)) {
        snprintf(out, out_bytes, p->schedule ? "a schedule needs pp of 2 or more" : "pp %d needs a schedule",
                 p->axes.pp);
        return out;
    }
    const pipeline_shape s = {p->schedule, p->axes.pp, p->chunks, (int)(j->global_batch / sequences)};
    return p->schedule ? pipeline_problem(&s, out, out_bytes) : NULL;
}

void mesh_stages(int64_t layers, int stages, double head, int *blocks)
{
    int last = (int)layers;
    double best = INFINITY;
    for (int n = 0; n <= layers; n++) { /* of the last stage */
        const double others = stages > 1 ? ceil((double)(layers - n) / (stages - 1)) : n == layers ? 0 : INFINITY;
        const double slowest = fmax(others, n + head);
        if (slowest < best || (slowest <= best && fabs(others - n) < fabs(best - last))) {
            best = slowest;
            last = n;
        }
    }
    blocks[stages - 1] = last;
    for (int s = 0; s + 1 < stages; s++) /* what is left, the fewer blocks first: there the embedding is */
        blocks[s] = (int)((layers - last) * (s + 1) / (stages - 1) - (layers - last) * s / (stages - 1));
}

/* ---- the pipeline ---- */

typedef struct costs {
    double *f, *b, *w; /* of each stage */
    double busiest, mean;
    pipeline_costs c;
} costs;

static costs costs_create(const mesh_job *j, const mesh_plan *p, const mesh_rates *r, const pipeline_shape *s,
                          const mesh_pass *block, const mesh_pass *head)
{
    const int stages = pipeline_stages(s);
    const double f = mesh_seconds_sum(&block->f), b = mesh_seconds_sum(&block->b), w = mesh_seconds_sum(&block->w);
    const double hf = mesh_seconds_sum(&head->f), hb = mesh_seconds_sum(&head->b), hw = mesh_seconds_sum(&head->w);
    costs c = {.f = xmalloc(3 * (size_t)stages * sizeof(double))};
    OWNED int *blocks = xmalloc((size_t)stages * sizeof *blocks);
    c.b = c.f + stages;
    c.w = c.b + stages;
    /* Ranks of neighbouring stages; a rank that does not send beside its compute is busy for as long. */
    const int apart = mesh_world(p->axes) / p->axes.pp;
    const double bytes = 2 * mesh_rows(j, p) * (double)j->d_model / p->axes.tp;
    const double hop = r->call_s + bytes / (apart < j->host ? r->link : r->network), sends = p->overlap ? 0 : hop;
    c.c = (pipeline_costs){.f = c.f, .b = c.b, .w = c.w, .hop = hop - sends};
    mesh_stages(j->layers, stages, p->even ? 0 : (hf + hb + hw) / (f + b + w), blocks);
    for (int i = 0; i < stages; i++) {
        const bool last = i == stages - 1;
        c.f[i] = blocks[i] * f + (last ? hf : sends);
        c.b[i] = blocks[i] * b + (last ? hb : 0) + (i ? sends : 0);
        c.w[i] = blocks[i] * w + (last ? hw : 0);
    }
    for (int rank = 0; rank < s->ranks; rank++) {
        double busy = 0;
        for (int k = 0; k < s->chunks; k++) {
            const int stage = pipeline_stage(s, rank, k);
            busy += c.f[stage] + c.b[stage] + c.w[stage];
        }
        c.busiest = fmax(c.busiest, busy);
        c.mean += busy / s->ranks;
    }
    return c;
}

/* From 3 p micro-batches on, each further one adds what the busiest rank does with it, so that longer pipelines need
 * not be simulated whole. */
static double makespan(const pipeline_shape *s, const costs *c, bool simulate)
{
    if (!simulate || (double)pipeline_stages(s) * 3 * s->ranks > 1e6) {
        double f = 0, b = 0, w = 0;
        for (int i = 0; i < pipeline_stages(s); i++) {
            f += c->f[i] / s->ranks;
            b += c->b[i] / s->ranks;
            w += c->w[i] / s->ranks;
        }
        return pipeline_closed_form(s, f, b, w, c->c.hop) + s->micros * (c->busiest - c->mean);
    }
    pipeline_shape shorter = *s;
    const int most = 3 * s->ranks;
    if (s->micros > most)
        shorter.micros = most + s->micros % s->ranks;
    pipeline_table *t = pipeline_table_create(&shorter, &c->c);
    const double takes = pipeline_simulate(t, &c->c, NULL).makespan;
    pipeline_table_free(t);
    return takes + (s->micros - shorter.micros) * c->busiest;
}

/* ---- data parallelism and the update ---- */

enum { BUCKET_BYTES = 25000000 };

/* What a collective of `takes` costs beside compute of `beside`: by how much it slows compute down, or more where it is longer still. A
 * rank has as many of them as `micros`. In a pipeline a micro-batch meets that of each stage, one after the other. */
static double exposed(const mesh_rates *r, const mesh *m, double micros, double takes, double beside)
{
    return fmax(takes - beside, r->contention * takes * (micros + m->pp - 1) / micros);
}

/* Exposed seconds of each collective, and its last unit. Gradients that all ranks have go by tensors of BUCKET_BYTES or more. */
static double gradients(const mesh_job *j, const mesh_plan *p, const mesh_rates *r, int micros, double forward_s,
                        double backward_s)
{
    const mesh m = p->axes;
    const int shards = m.dp_shard * m.cp, inner = m.tp, all = shards * m.dp_replicate;
    const double ends = (double)j->vocab * (double)j->d_model / m.tp, block = mesh_block_parameters(j) / m.tp;
    const double held = ceil((double)j->layers / m.pp) * block + (m.pp == 1 ? 2 : 1) * ends;
    const double part = (shards - 1.0) / shards, units = held / block;
    const double buckets = fmin(held * j->grad / BUCKET_BYTES, 7 * units);
    if (all == 1)
        return 0;
    if (p->strategy == MESH_DDP) {
        const double each = 2 * (all - 1.0) / all * j->grad;
        return exposed(r, &m, 1, mesh_calls_s(r, MESH_SUM, j->host, inner, all, each * held, buckets), backward_s) +
               mesh_calls_s(r, MESH_SUM, j->host, inner, all, each * block, buckets / units);
    }
    const double calls = p->strategy == MESH_ZERO1 ? buckets : units;
    const double scatter = mesh_calls_s(r, MESH_SCATTER, j->host, inner, shards, part * j->grad * held, calls);
    const double gather = mesh_calls_s(r, MESH_GATHER, j->host, inner, shards, part * j->param * held, calls);
    const double unit = mesh_collective_s(r, j->host, inner, shards, part * (j->grad + j->param) * block);
    /* Between hosts, what each of them holds of the gradients is summed. */
    const double copies = m.dp_replicate, across = 2 * (copies - 1) / copies * j->grad * held / shards;
    const double sum = mesh_calls_s(r, MESH_SUM, j->host, inner * shards, m.dp_replicate, across, units);
    const double tail = fmin(unit, scatter + gather);
    switch (p->strategy) {
    case MESH_FSDP_FREE: { /* gathers twice for each micro-batch */
        const double sends = micros * 2 * gather + scatter + sum;
        return exposed(r, &m, micros, sends, micros * (forward_s + backward_s)) + tail;
    }
    case MESH_ZERO2: /* reduces each micro-batch's */
        return micros * exposed(r, &m, micros, scatter, backward_s) + sum + exposed(r, &m, 1, gather, forward_s) + tail;
    default: {
        const double times = p->each_micro ? micros : 1;
        return times * (exposed(r, &m, times, scatter + sum / times, backward_s) +
                        exposed(r, &m, times, gather, forward_s)) +
               tail;
    }
    }
}

static double update(const mesh_job *j, const mesh_plan *p, const mesh_rates *r)
{
    const mesh m = p->axes;
    const double ends = (double)j->vocab * (double)j->d_model;
    const double held = (ceil((double)j->layers / m.pp) * mesh_block_parameters(j) + (m.pp == 1 ? 2 : 1) * ends) / m.tp;
    const double own = p->strategy == MESH_DDP ? held : held / (m.dp_shard * m.cp);
    return own * (j->grad + 2 * j->state + j->param) / (r->update > 0 ? r->update : r->memory);
}

/* ---- all of it ---- */

mesh_prediction mesh_predict(const mesh_job *j, const mesh_plan *p, const mesh_rates *r, bool simulate)
{
    const mesh_pass block = mesh_block(j, p, r), head = mesh_head(j, p, r);
    const int64_t sequences = (int64_t)p->axes.dp_replicate * p->axes.dp_shard * p->micro_batch;
    const int micros = (int)(j->global_batch / sequences), pp = p->axes.pp;
    mesh_prediction out = {.micro_batches = micros, .bytes = mesh_memory(j, p)};
    double forward = 0, backward = 0;
    for (int i = 0; i < MESH_PARTS; i++) {
        const double f = (double)j->layers * block.f.part[i] + head.f.part[i];
        const double b = (double)j->layers * (block.b.part[i] + block.w.part[i]) + head.b.part[i] + head.w.part[i];
        out.parts[i] = micros * (f + b) / pp;
        forward += f / pp;
        backward += b / pp;
    }
    if (p->schedule) {
        const pipeline_shape s = {p->schedule, pp, p->chunks, micros};
        costs c = costs_create(j, p, r, &s, &block, &head);
        out.parts[MESH_BUBBLE] = makespan(&s, &c, simulate) - micros * (forward + backward);
        free(c.f);
    }
    out.parts[MESH_GRADIENTS] = gradients(j, p, r, micros, forward, backward);
    out.parts[MESH_UPDATE] = update(j, p, r);
    for (int i = 0; i < MESH_PARTS; i++)
        out.step_s += out.parts[i];
    return out;
}
