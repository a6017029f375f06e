/* SPDX-License-Identifier: MIT */
/* Ring attention (Liu et al., 2023): a block is the keys and values of a rank's two chunks. In step t a rank has the block of the
 * t-th rank before it, computes what its queries see there, and passes it on. Parts of o are merged by their lse in fp32.
 * In the backward the final o and lse give each block's exact share of dq; dk and dv travel with their block, in fp32, and
 * come home with one hop more.
 * Limit: an op gives parts of o, dq, dk and dv in the case's dtype, so with 16 bits each part is rounded before it is added. */
#include "common/context/internal.h"

/* Keys and values of a block in two places, and parts of what a call gives; in the backward also sums of dk and dv that travel. */
typedef struct ring {
    pieces block[2][CONTEXT_PLACES], part_q, part_kv[2];
    float *q_sum, *kv_sum[2][CONTEXT_PLACES], *part_lse; /* of two chunks: o or dq; dk and dv; of one chunk: lse */
} ring;

static ring ring_carve(context *k, bool backward)
{
    ring r = {.part_q = pieces_carve(k, false, 1)};
    for (int t = 0; t < 2; t++) {
        for (int place = 0; place < CONTEXT_PLACES; place++) {
            r.block[t][place] = pieces_carve(k, true, 2);
            if (backward)
                r.kv_sum[t][place] = carve(k, 2 * k->k_piece * sizeof(float));
        }
        if (backward)
            r.part_kv[t] = pieces_carve(k, true, 2);
    }
    r.q_sum = carve(k, 2 * k->q_piece * sizeof(float));
    if (!backward)
        r.part_lse = carve(k, k->q_piece / (size_t)k->head_dim * sizeof(float));
    return r;
}

/* What the queries of a chunk see of a block: its first chunks, and whether the last of these is their own. */
typedef struct sight {
    int chunks;
    bool causal;
} sight;

static sight sight_of(const context *k, int which, int step)
{
    const context_shape *s = &k->as.shape;
    const int n = s->ranks, from = (k->rank + n - step) % n;
    sight x = {2, false};
    if (step > 0 && breaks(k, CONTEXT_OWN))
        return (sight){0, false};
    while (s->causal && x.chunks > 0 && context_chunk(s, from, x.chunks - 1) > k->at[which])
        x.chunks--;
    x.causal = s->causal && x.chunks > 0 && context_chunk(s, from, x.chunks - 1) == k->at[which];
    return x;
}

static void *block(const context *k, const ring *r, int t, int step)
{
    const context_tensor *own = t ? &k->now.v : &k->now.k;
    return step == 0 && k->as.pieces ? own->data : r->block[t][step % CONTEXT_PLACES].data;
}

/* The first block, where it is no pieces as it lies. */
static void take_block(context *k, const ring *r)
{
    const context_tensor *own[] = {&k->now.k, &k->now.v};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 2 && !k->as.pieces; i++)
            chunk_take(k, own[t], true, 0, i, pieces_at(k, &r->block[t][0], i));
}

/* The block goes on while it is computed with. */
static void pass_block(context *k, const ring *r, int step)
{
    const int n = k->as.shape.ranks, place = (step + 1) % CONTEXT_PLACES;
    record(k, k->main, k->used[place]); /* by the block that was there, too */
    await(k, k->side, k->used[place]);
    moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int rank = 0; rank < n; rank++)
            move(k, rank, (rank + 1) % n, block(k, r, t, step), r->block[t][place].data, 2 * k->k_piece, k->wire);
    moves_end(k);
    record(k, k->side, k->arrived[place]);
}

static sb_attention part_of(const context *k, const ring *r, int which, int step, sight x)
{
    sb_attention a = k->as.whole;
    a.seq_q = k->rows;
    a.seq_k = x.chunks * k->rows;
    a.causal = x.causal;
    a.q = chunk_view(k, &k->now.q, 0, which);
    a.k = pieces_view(k, &r->block[0][0], block(k, r, 0, step));
    a.v = pieces_view(k, &r->block[1][0], block(k, r, 1, step));
    return a;
}

/* One step of the block, of all queries that see some of it. */
static void each_sight(context *k, const ring *r, int step,
                       void (*compute)(context *k, const ring *r, int which, int step, sight x))
{
    if (step + 1 < k->as.shape.ranks)
        pass_block(k, r, step);
    if (step > 0)
        await(k, k->main, k->arrived[step % CONTEXT_PLACES]);
    for (int i = 0; i < 2; i++) {
        const sight x = sight_of(k, i, step);
        if (x.chunks > 0)
            compute(k, r, i, step, x);
    }
}

static const context_operand none = {.data = NULL};

static void put_sums(context *k, const context_tensor *t, bool keys, float *sums)
{
    for (int i = 0; i < 2; i++)
        chunk_put(k, t, keys, 0, i, dense(k, true, sums + (size_t)i * (keys ? k->k_piece : k->q_piece), keys), none);
}

/* ---- forward ---- */

static void forward_part(context *k, const ring *r, int which, int step, sight x)
{
    sb_attention a = part_of(k, r, which, step, x);
    float *sum = r->q_sum + (size_t)which * k->q_piece;
    const context_operand so_far = dense(k, true, sum, false);
    a.o = pieces_view(k, &r->part_q, r->part_q.data);
    a.lse = r->part_lse;
    context_attend(k, a, false);
    if (step > 0 && breaks(k, CONTEXT_MERGE))
        context_add(k, so_far, dense(k, false, a.o.data, false), so_far, (size_t)k->rows, (size_t)so_far.ld);
    else
        merge(k, &a, step == 0, sum, context_lse(k, 0, which));
}

void ring_forward(context *k)
{
    const ring r = ring_carve(k, false);
    take_block(k, &r);
    for (int step = 0; step < k->as.shape.ranks; step++)
        each_sight(k, &r, step, forward_part);
    put_sums(k, &k->now.o, false, r.q_sum);
}

/* ---- backward ---- */

static void backward_part(context *k, const ring *r, int which, int step, sight x)
{
    sb_attention a = part_of(k, r, which, step, x);
    const context_operand dq = dense(k, true, r->q_sum + (size_t)which * k->q_piece, false);
    a.o = chunk_view(k, &k->now.o, 0, which);
    a.d_o = chunk_view(k, &k->now.d_o, 0, which);
    a.lse = context_lse(k, 0, which);
    a.dq = pieces_view(k, &r->part_q, r->part_q.data);
    a.dk = pieces_view(k, &r->part_kv[0], r->part_kv[0].data);
    a.dv = pieces_view(k, &r->part_kv[1], r->part_kv[1].data);
    context_attend(k, a, true);
    context_add(k, dense(k, false, a.dq.data, false), step ? dq : none, dq, (size_t)k->rows, (size_t)dq.ld);
    if (which == 1 && breaks(k, CONTEXT_TAIL))
        return;
    if (step > 0)
        await(k, k->main, k->returned[step % CONTEXT_PLACES]);
    for (int t = 0; t < 2; t++) {
        const context_operand sum = dense(k, true, r->kv_sum[t][step % CONTEXT_PLACES], true);
        context_add(k, sum, dense(k, false, r->part_kv[t].data, true), sum, (size_t)x.chunks * (size_t)k->rows,
                    (size_t)sum.ld);
    }
}

/* The sums of the block go on behind it. */
static void pass_sums(context *k, const ring *r, int step)
{
    const int n = k->as.shape.ranks, place = step % CONTEXT_PLACES, next = (step + 1) % CONTEXT_PLACES;
    if (step > 0)
        await(k, k->main, k->returned[place]); /* also where this rank's queries saw nothing of the block */
    record(k, k->main, k->computed[place]);
    await(k, k->side, k->computed[place]);
    moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int rank = 0; rank < n; rank++)
            move(k, rank, (rank + 1) % n, r->kv_sum[t][place], r->kv_sum[t][next], 2 * k->k_piece, COMM_FP32);
    moves_end(k);
    record(k, k->side, k->returned[next]);
}

void ring_backward(context *k)
{
    const ring r = ring_carve(k, true);
    const int home = k->as.shape.ranks % CONTEXT_PLACES;
    take_block(k, &r);
    for (int t = 0; t < 2 && !k->planning; t++)
        device_memset(k->as.d, r.kv_sum[t][0], 0, 2 * k->k_piece * sizeof(float));
    for (int step = 0; step < k->as.shape.ranks; step++) {
        each_sight(k, &r, step, backward_part);
        pass_sums(k, &r, step);
    }
    await(k, k->main, k->returned[home]);
    put_sums(k, &k->now.dq, false, r.q_sum);
    put_sums(k, &k->now.dk, true, r.kv_sum[0][home]);
    put_sums(k, &k->now.dv, true, r.kv_sum[1][home]);
}
