/* SPDX-License-Identifier: MIT */
/* A block's and the head's time; see layer.h. */
#include "common/formulas/mesh/layer.h"

#include <math.h>

enum { ACTIVATION_BYTES = 2, HEAD_GROUPS = 4 };
enum { OPS_FORWARD = 11, OPS_B = 16, OPS_W = 6 }; /* kernels of a block */

double mesh_seconds_sum(const mesh_seconds *s)
{
    double sum = 0;
    for (int i = 0; i < MESH_PARTS; i++)
        sum += s->part[i];
    return sum;
}

double mesh_rows(const mesh_job *j, const mesh_plan *p)
{
    return (double)p->micro_batch * (double)j->seq / p->axes.cp;
}

/* With fewer heads than ranks, neighbours hold the same one. */
double mesh_kv_columns(const mesh_job *j, int tp)
{
    const double head_dim = (double)j->d_model / (double)j->heads;
    return fmax((double)j->heads_kv / tp, 1) * head_dim;
}

typedef struct layer {
    const mesh_job *j;
    const mesh_plan *p;
    const mesh_rates *r;
    double rows, call_s[2]; /* of a rank's products; a gather before one and a sum behind one, of tensor parallelism */
} layer;
enum { BEFORE, BEHIND };

static layer layer_of(const mesh_job *j, const mesh_plan *p, const mesh_rates *r)
{
    const int t = p->axes.tp;
    const double rows = mesh_rows(j, p), bytes = rows * (double)j->d_model * ACTIVATION_BYTES * (t - 1) / t;
    const double gather = mesh_calls_s(r, MESH_GATHER, j->host, 1, t, bytes, 1);
    const double scatter = mesh_calls_s(r, MESH_SCATTER, j->host, 1, t, bytes, 1);
    if (p->rows_whole)
        return (layer){j, p, r, rows, {[BEHIND] = mesh_calls_s(r, MESH_SUM, j->host, 1, t, 2 * bytes, 1)}};
    return (layer){j, p, r, rows, {gather, scatter}};
}

/* A product with a gather before it or a sum behind it: one after the other, or in t chunks of rows whose tiles fill each other's
 * waves. Then the first chunk needs no communication, and the others hide it as far as they last, but for their flags. */
static void product(const layer *l, mesh_seconds *s, bool eight_bits, int where, double columns, double k)
{
    const int t = l->p->axes.tp;
    const double whole = mesh_product_s(l->r, eight_bits, l->rows, columns, k), call_s = l->call_s[where];
    const double hidden = fmax(0, call_s - whole * (t - 1) / t) + l->r->call_s + (t - 1) * l->r->chunk_s;
    s->part[MESH_PRODUCTS] += whole;
    s->part[MESH_TENSOR] += l->p->overlap ? fmin(hidden, call_s) : call_s;
}

/* Gradients of a weight; with `gathers`, its input is gathered once more beside the product of its dx, which takes as long. */
static void weights(const layer *l, mesh_seconds *s, bool eight_bits, bool gathers, double rows, double columns)
{
    const double takes = mesh_product_s(l->r, eight_bits, rows, columns, l->rows);
    s->part[MESH_PRODUCTS] += takes;
    if (gathers)
        s->part[MESH_TENSOR] += fmax(0, l->call_s[BEFORE] - (l->p->regather_waits ? 0 : takes));
}

static double groups_of(const mesh_job *j, const mesh_plan *p)
{
    return fmin(fmax((double)j->heads_kv / p->axes.tp, 1), HEAD_GROUPS);
}

/* Keys and values of the whole sequence, gathered by groups of heads where that hides them behind attention. */
static void context(const layer *l, mesh_seconds *s, double times, double attention)
{
    const int n = l->p->axes.cp;
    if (n == 1)
        return;
    const double kv = mesh_kv_columns(l->j, l->p->axes.tp), bytes = 2 * l->rows * kv * ACTIVATION_BYTES * (n - 1);
    const double whole = times * mesh_collective_s(l->r, l->j->host, l->p->axes.tp, n, bytes);
    const double groups = groups_of(l->j, l->p);
    const double hidden = fmax(whole / groups, whole - attention * (groups - 1) / groups) + (groups - 1) * l->r->call_s;
    s->part[MESH_CONTEXT] += l->p->overlap ? fmin(hidden, whole) : whole;
}

/* What launches cost where no graph makes them. With cp, of each group of heads chunks of k and v of each sequence are copied; in the
 * backward, dk and dv come and are added, too, besides two calls of attention. These are short: a graph's are no shorter than an
 * empty op. */
static void launches(const mesh_job *j, const mesh_plan *p, const mesh_rates *r, mesh_pass *m)
{
    const double each = p->launched ? r->launch_s : 0, groups = p->axes.cp > 1 ? groups_of(j, p) : 0;
    const double small = groups * (each + r->op_s);
    m->f.part[MESH_PASSES] += each * OPS_FORWARD + small * (4 * p->micro_batch + 2);
    m->b.part[MESH_PASSES] += each * OPS_B + small * (8 * p->micro_batch + 8);
    m->w.part[MESH_PASSES] += each * OPS_W;
}

typedef struct attention_times {
    double forward, backward;
} attention_times;

/* Causal: half of the pairs count. Plain attention has the whole square of scores in memory instead, which products and softmax with
 * dropout write and read three times, and as often again in the backward, twice. */
static attention_times attention_of(const mesh_job *j, const mesh_rates *r, double rows, int t)
{
    const double flops = 2 * rows * (double)j->seq * (double)j->d_model / t;
    const double heads = rows / (double)j->seq * (double)j->heads / t, head_dim = (double)j->d_model / (double)j->heads;
    if (!j->plain_attention) {
        double rates[] = {r->attention_forward, r->attention_backward};
        for (int i = 0; i < 2 && r->measured; i++) {
            const double rate = mesh_points_at(&r->measured->attention[i], head_dim, (double)j->seq, heads);
            rates[i] = rate > 0 ? rate : rates[i];
        }
        return (attention_times){flops / rates[0], 2.5 * flops / rates[1]};
    }
    const double rate = r->peak * r->share;
    const double scores = ACTIVATION_BYTES * rows * (double)j->seq * (double)j->heads / t;
    const double passes = 6 * scores / r->memory, forward = 2 * flops / rate + passes;
    return (attention_times){forward, 4 * flops / rate + 2 * passes};
}

/* Which part of the multiprocessors a call of attention keeps busy: with cp ours has a group of heads and a chunk of each sequence, a
 * tile of whose rows is on one of them at a time. */
static double filled(const mesh_job *j, const mesh_plan *p, const mesh_rates *r)
{
    enum { TILE = 128 };
    const int t = p->axes.tp, n = p->axes.cp;
    const double heads = fmax(1, (double)j->heads / t / groups_of(j, p)), chunk = (double)j->seq / (2 * n);
    const double tiles = p->micro_batch * ceil(heads) * ceil(chunk / TILE), most = r->multiprocessors;
    return n > 1 && r->measured ? tiles / (ceil(tiles / most) * most) : 1;
}

static void add(mesh_seconds *to, const mesh_seconds *s, double times)
{
    for (int i = 0; i < MESH_PARTS; i++)
        to->part[i] += times * s->part[i];
}

/* What a step of one GPU took against these formulas, for as many rows: communication is not in it. */
static void correct(const mesh_job *j, const mesh_plan *p, const mesh_rates *r, bool backward, mesh_seconds *s)
{
    const mesh_points *of = r->measured ? &r->measured->compute[backward] : NULL;
    const double times = mesh_points_at(of, mesh_rows(j, p), (double)j->seq, 1);
    for (int i = 0; i < MESH_PARTS && times > 0; i++)
        if (i == MESH_PRODUCTS || i == MESH_ATTENTION || i == MESH_PASSES)
            s->part[i] *= times;
}

/* `inputs`: the products whose outputs attention and SwiGLU read. */
static void recompute(const mesh_plan *p, const mesh_pass *m, const mesh_seconds *inputs, mesh_seconds *b)
{
    if (p->recompute == MESH_SELECTIVE)
        b->part[MESH_PASSES] += 0.5 * m->f.part[MESH_PASSES];
    if (p->recompute == MESH_HALF)
        b->part[MESH_PRODUCTS] += 0.5 * m->f.part[MESH_PRODUCTS];
    if (p->recompute == MESH_BUT_ATTENTION) {
        add(b, inputs, 1);
        b->part[MESH_PASSES] += m->f.part[MESH_PASSES];
    }
    if (p->recompute == MESH_BLOCK)
        add(b, &m->f, 1);
}

mesh_pass mesh_block(const mesh_job *j, const mesh_plan *p, const mesh_rates *r)
{
    const layer l = layer_of(j, p, r);
    const int t = p->axes.tp;
    const double d = (double)j->d_model, f = (double)j->d_ff / t, up = (j->matrices - 1) * f, a = d / t;
    const double qkv = a + 2 * mesh_kv_columns(j, t);
    const double moved = 14 * d / (p->rows_whole ? 1 : t) + j->matrices * f;
    const double passes = r->passes * ACTIVATION_BYTES * l.rows * moved / r->memory;
    const attention_times attention = attention_of(j, r, l.rows, t);
    const double busy = filled(j, p, r);
    const bool eight = j->eight_bits;
    mesh_pass m = {0};
    mesh_seconds inputs = {0};
    product(&l, &inputs, eight, BEFORE, qkv, d);
    product(&l, &inputs, eight, BEFORE, up, d);
    m.f = inputs;
    product(&l, &m.f, eight, BEHIND, d, a);
    product(&l, &m.f, eight, BEHIND, d, f);
    m.f.part[MESH_ATTENTION] = attention.forward / busy;
    m.f.part[MESH_PASSES] = passes;
    correct(j, p, r, false, &inputs);
    correct(j, p, r, false, &m.f);
    context(&l, &m.f, 1, m.f.part[MESH_ATTENTION]);
    product(&l, &m.b, eight, BEHIND, d, qkv);
    product(&l, &m.b, eight, BEFORE, a, d);
    product(&l, &m.b, eight, BEHIND, d, up);
    product(&l, &m.b, eight, BEFORE, f, d);
    m.b.part[MESH_ATTENTION] = attention.backward / busy;
    m.b.part[MESH_PASSES] = 2 * passes;
    correct(j, p, r, true, &m.b);
    context(&l, &m.b, 2, m.b.part[MESH_ATTENTION]);
    weights(&l, &m.w, eight, true, qkv, d);
    weights(&l, &m.w, eight, false, d, a);
    weights(&l, &m.w, eight, true, up, d);
    weights(&l, &m.w, eight, false, d, f);
    correct(j, p, r, true, &m.w);
    launches(j, p, r, &m);
    recompute(p, &m, &inputs, &m.b);
    return m;
}

mesh_pass mesh_head(const mesh_job *j, const mesh_plan *p, const mesh_rates *r)
{
    const layer l = layer_of(j, p, r);
    const double d = (double)j->d_model, v = (double)j->vocab / p->axes.tp;
    mesh_pass m = {0};
    product(&l, &m.f, false, BEFORE, v, d);
    product(&l, &m.b, false, BEHIND, d, v);
    weights(&l, &m.w, false, true, v, d);
    correct(j, p, r, false, &m.f);
    correct(j, p, r, true, &m.b);
    correct(j, p, r, true, &m.w);
    return m;
}
