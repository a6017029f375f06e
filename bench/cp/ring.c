/* SPDX-License-Identifier: MIT */
/* Ring attention (Liu et al., 2023): a block is the keys and values of a rank's two chunks. In step t a rank has the block of the
 * t-th rank before it, computes what its queries see there, and passes it on. Parts of o are merged by their lse in fp32.
 * In the backward the final o and lse give each block's exact share of dq; dk and dv travel with their block, in fp32, and
 * come home with one hop more.
 * Limit: an op gives parts of o, dq, dk and dv in the case's dtype, so with 16 bits each part is rounded before it is added. */
#include "bench/cp/ring.h"

/* seq: parts of o and dq, a chunk; the block in two places, keys and values; its parts of dk and dv. */
enum { PART_O, PART_DQ, BLOCK_K, BLOCK_V = 4, PART_DK = 6, PART_DV };

bool ring_allocate(cp_case *k)
{
    const int d = k->base.head_dim;
    const size_t q = 2 * k->q.piece * sizeof(float), kv = 2 * k->k.piece * sizeof(float);
    for (int i = 0; i < 8; i++) {
        const bool queries = i < BLOCK_K;
        if (!cp_tensor_alloc(k, &k->seq[i], 1, queries ? 1 : 2, queries ? k->base.heads : k->base.heads_kv, d, "block"))
            return false;
    }
    for (int i = 0; i < CP_PLACES; i++)
        if (!(k->dk_sum[i] = memory_alloc(k->s->mem, kv, "sums")) ||
            !(k->dv_sum[i] = memory_alloc(k->s->mem, kv, "sums")))
            return false;
    k->o_sum = memory_alloc(k->s->mem, q, "sums");
    k->dq_sum = memory_alloc(k->s->mem, q, "sums");
    k->part_lse = memory_alloc(k->s->mem, q / (size_t)d, "lse");
    return k->o_sum && k->dq_sum && k->part_lse;
}

/* What the queries of a chunk see of a block: its first chunks, and whether the last of these is their own. */
typedef struct sight {
    int chunks;
    bool causal;
} sight;

static sight sight_of(const cp_case *k, int which, int step)
{
    const int n = k->shape.ranks, from = (k->rank + n - step) % n;
    sight s = {2, false};
    if (k->plant == PLANT_OWN && k->rank == n - 1 && step > 0)
        return (sight){0, false};
    while (k->shape.causal && s.chunks > 0 && context_chunk(&k->shape, from, s.chunks - 1) > k->at[which])
        s.chunks--;
    s.causal = k->shape.causal && s.chunks > 0 && context_chunk(&k->shape, from, s.chunks - 1) == k->at[which];
    return s;
}

static const cp_tensor *block(const cp_case *k, int t, int step)
{
    return step == 0 ? (t ? &k->v : &k->k) : &k->seq[(t ? BLOCK_V : BLOCK_K) + step % CP_PLACES];
}

/* The block goes on while it is computed with. */
static void pass_block(cp_case *k, int step)
{
    const int n = k->shape.ranks, place = (step + 1) % CP_PLACES;
    cp_wait(k, k->side, k->used[place]);
    cp_moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int rank = 0; rank < n; rank++)
            cp_move(k, rank, (rank + 1) % n, block(k, t, step)->data, k->seq[(t ? BLOCK_V : BLOCK_K) + place].data,
                    2 * k->k.piece, k->wire);
    cp_moves_end(k);
    cp_record(k, k->side, k->arrived[place]);
}

static sb_attention part_of(const cp_case *k, int which, int step, sight s)
{
    const cp_tensor *keys = block(k, 0, step), *values = block(k, 1, step);
    sb_attention a = k->base;
    a.seq_q = k->rows;
    a.seq_k = s.chunks * k->rows;
    a.causal = s.causal;
    a.q = cp_view(k, &k->q, cp_piece(k, &k->q, 0, which));
    a.k = cp_view(k, keys, keys->data);
    a.v = cp_view(k, values, values->data);
    return a;
}

/* One step of the block, of all queries that see some of it. */
static void each_sight(cp_case *k, int step, void (*compute)(cp_case *k, int which, int step, sight s))
{
    const int n = k->shape.ranks;
    void *main = device_stream(k->s->dev);
    if (step + 1 < n)
        pass_block(k, step);
    if (step > 0)
        cp_wait(k, main, k->arrived[step % CP_PLACES]);
    for (int i = 0; i < 2; i++) {
        const sight s = sight_of(k, i, step);
        if (s.chunks > 0)
            compute(k, i, step, s);
    }
    cp_record(k, main, k->used[step % CP_PLACES]);
}

static size_t columns(const cp_tensor *t, const cp_case *k)
{
    return t->piece / (size_t)k->rows;
}

/* ---- forward ---- */

static void forward_part(cp_case *k, int which, int step, sight s)
{
    sb_attention a = part_of(k, which, step, s);
    float *sum = k->o_sum + (size_t)which * k->q.piece;
    a.o = cp_view(k, &k->seq[PART_O], k->seq[PART_O].data);
    a.lse = k->part_lse;
    cp_attend(k, a, false);
    if (k->plant == PLANT_MERGE && k->rank == k->shape.ranks - 1 && step > 0)
        cp_add(k, SB_FP32, sum, k->base.dtype, a.o.data, SB_FP32, sum, (size_t)k->rows, columns(&k->q, k));
    else
        cp_merge(k, &a, step == 0, &k->q, sum, k->lse[which]);
}

void ring_forward(cp_case *k)
{
    for (int step = 0; step < k->shape.ranks; step++)
        each_sight(k, step, forward_part);
    cp_add(k, SB_FP32, k->o_sum, SB_FP32, NULL, k->base.dtype, k->o.data, 2 * (size_t)k->rows, columns(&k->q, k));
}

/* ---- backward ---- */

static void backward_part(cp_case *k, int which, int step, sight s)
{
    sb_attention a = part_of(k, which, step, s);
    float *dq = k->dq_sum + (size_t)which * k->q.piece;
    float *const sums[] = {k->dk_sum[step % CP_PLACES], k->dv_sum[step % CP_PLACES]};
    a.o = cp_view(k, &k->o, cp_piece(k, &k->o, 0, which));
    a.d_o = cp_view(k, &k->d_o, cp_piece(k, &k->d_o, 0, which));
    a.lse = k->lse[which];
    a.dq = cp_view(k, &k->seq[PART_DQ], k->seq[PART_DQ].data);
    a.dk = cp_view(k, &k->seq[PART_DK], k->seq[PART_DK].data);
    a.dv = cp_view(k, &k->seq[PART_DV], k->seq[PART_DV].data);
    cp_attend(k, a, true);
    cp_add(k, k->base.dtype, a.dq.data, SB_FP32, step ? dq : NULL, SB_FP32, dq, (size_t)k->rows, columns(&k->q, k));
    if (k->plant == PLANT_TAIL && which == 1 && k->rank == k->shape.ranks - 1)
        return;
    cp_wait(k, device_stream(k->s->dev), k->returned[step % CP_PLACES]);
    for (int t = 0; t < 2; t++)
        cp_add(k, SB_FP32, sums[t], k->base.dtype, t ? a.dv.data : a.dk.data, SB_FP32, sums[t],
               (size_t)s.chunks * (size_t)k->rows, columns(&k->k, k));
}

/* The sums of the block go on behind it. */
static void pass_sums(cp_case *k, int step)
{
    const int n = k->shape.ranks, place = step % CP_PLACES, next = (step + 1) % CP_PLACES;
    void *main = device_stream(k->s->dev);
    cp_wait(k, main, k->returned[place]); /* also where this rank's queries saw nothing of the block */
    cp_record(k, main, k->computed[place]);
    cp_wait(k, k->side, k->computed[place]);
    cp_moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int rank = 0; rank < n; rank++)
            cp_move(k, rank, (rank + 1) % n, t ? k->dv_sum[place] : k->dk_sum[place],
                    t ? k->dv_sum[next] : k->dk_sum[next], 2 * k->k.piece, COMM_FP32);
    cp_moves_end(k);
    cp_record(k, k->side, k->returned[next]);
}

void ring_backward(cp_case *k)
{
    const size_t bytes = 2 * k->k.piece * sizeof(float);
    const int home = k->shape.ranks % CP_PLACES;
    if (!k->planning) {
        device_memset(k->s->dev, k->dk_sum[0], 0, bytes);
        device_memset(k->s->dev, k->dv_sum[0], 0, bytes);
    }
    for (int step = 0; step < k->shape.ranks; step++) {
        each_sight(k, step, backward_part);
        pass_sums(k, step);
    }
    cp_wait(k, device_stream(k->s->dev), k->returned[home]);
    cp_add(k, SB_FP32, k->dq_sum, SB_FP32, NULL, k->base.dtype, k->dq.data, 2 * (size_t)k->rows, columns(&k->q, k));
    cp_add(k, SB_FP32, k->dk_sum[home], SB_FP32, NULL, k->base.dtype, k->dk.data, 2 * (size_t)k->rows,
           columns(&k->k, k));
    cp_add(k, SB_FP32, k->dv_sum[home], SB_FP32, NULL, k->base.dtype, k->dv.data, 2 * (size_t)k->rows,
           columns(&k->k, k));
}
