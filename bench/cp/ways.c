/* SPDX-License-Identifier: MIT */
/* The ways of sharing a sequence; see case.h for what they are made of.
 *
 * gather: keys and values of all tokens come to every rank that sees them, a group of heads at a time, while attention of the
 * group before runs. The queries of a chunk and the keys up to its end are one call of attention, whose causal mask is aligned at
 * the bottom right; so each row sees its keys in the order of one rank, and nothing is merged. In the backward a rank's
 * shares of dk and dv go to the chunks' owners while the next group is computed; the owner adds them in the order of ranks, in fp32.
 * all-to-all (Jacobs et al., 2023, "DeepSpeed Ulysses"): each rank gets the whole sequence of some heads. */
#include "bench/cp/case.h"
#include "bench/cp/ring.h"

/* ---- gather ---- */

/* seq[0..1]: keys in two places; [2..3]: values; [4..7]: this rank's shares of dk and dv, of the queries of its second chunk with
 * those of the first added, in two places. parts: the first chunk's. Shares of others arrive in dk_in and dv_in. */
enum { KEYS, VALUES = 2, SHARES_K = 4, SHARES_V = 6 };

static bool gather_allocate(cp_case *k)
{
    const sb_attention *a = &k->base;
    const int heads = a->heads_kv / k->groups, d = a->head_dim, all = 2 * k->shape.ranks;
    for (int i = 0; i < 8; i++)
        if (!cp_tensor_alloc(k, &k->seq[i], 1, all, heads, d, i < SHARES_K ? "gathered" : "shares"))
            return false;
    for (int i = 0; i < 2; i++)
        if (!cp_tensor_alloc(k, &k->parts[i], 1, all, heads, d, "first shares") ||
            !cp_tensor_alloc(k, &k->in[i], CP_PLACES, all, heads, d, "incoming shares"))
            return false;
    k->sum = memory_alloc(k->s->mem, k->k.piece * sizeof(float), "sum");
    return k->sum;
}

static bool sees(const cp_case *k, int rank, int chunk)
{
    return context_seen(&k->shape, rank) > chunk;
}

/* Each chunk's keys and values of a group to all ranks that see them. */
static void gather_group(cp_case *k, int group)
{
    const cp_tensor *own[] = {&k->k, &k->v};
    const int place = group % CP_PLACES;
    cp_wait(k, k->side, k->used[place]);
    cp_moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int chunk = 0; chunk < 2 * k->shape.ranks; chunk++) {
            int which;
            const int owner = context_owner(&k->shape, chunk, &which);
            const cp_tensor *to = &k->seq[(t ? VALUES : KEYS) + place];
            for (int rank = 0; rank < k->shape.ranks; rank++)
                if (sees(k, rank, chunk))
                    cp_move(k, owner, rank, cp_piece(k, own[t], group, which), cp_chunk(k, to, chunk), to->piece,
                            k->wire);
        }
    cp_moves_end(k);
    cp_record(k, k->side, k->arrived[place]);
}

/* The call of a chunk of queries with the keys that it sees: those up to its own end, or all. */
static sb_attention gather_call(const cp_case *k, int group, int which, bool own_alone)
{
    const int place = group % CP_PLACES, first = own_alone ? k->at[which] : 0;
    const int end = k->shape.causal || own_alone ? k->at[which] + 1 : 2 * k->shape.ranks;
    const cp_tensor *keys = &k->seq[KEYS + place], *values = &k->seq[VALUES + place];
    sb_attention a = k->base;
    a.heads = k->q.heads;
    a.heads_kv = k->k.heads;
    a.seq_q = k->rows;
    a.seq_k = (end - first) * k->rows;
    a.q = cp_view(k, &k->q, cp_piece(k, &k->q, group, which));
    a.k = cp_view(k, keys, cp_chunk(k, keys, first));
    a.v = cp_view(k, values, cp_chunk(k, values, first));
    a.o = cp_view(k, &k->o, cp_piece(k, &k->o, group, which));
    a.lse = cp_lse(k, group, which);
    return a;
}

static bool own_alone(const cp_case *k)
{
    return k->plant == PLANT_OWN && k->rank == k->shape.ranks - 1;
}

static void gather_forward(cp_case *k)
{
    void *main = device_stream(k->s->dev);
    gather_group(k, 0);
    for (int g = 0; g < k->groups; g++) {
        if (g + 1 < k->groups)
            gather_group(k, g + 1);
        cp_wait(k, main, k->arrived[g % CP_PLACES]);
        for (int i = 0; i < 2; i++)
            cp_attend(k, gather_call(k, g, i, own_alone(k)), false);
        cp_record(k, main, k->used[g % CP_PLACES]);
    }
}

/* dk and dv of the queries of both chunks: the second sees all keys that the first does. */
static void gather_shares(cp_case *k, int group)
{
    const int place = group % CP_PLACES;
    const bool lost = k->plant == PLANT_TAIL && k->rank == k->shape.ranks - 1;
    for (int i = 0; i < 2; i++) {
        sb_attention a = gather_call(k, group, i, own_alone(k));
        const cp_tensor *dk = i ? &k->seq[SHARES_K + place] : &k->parts[0];
        const cp_tensor *dv = i ? &k->seq[SHARES_V + place] : &k->parts[1];
        a.d_o = cp_view(k, &k->d_o, cp_piece(k, &k->d_o, group, i));
        a.dq = cp_view(k, &k->dq, cp_piece(k, &k->dq, group, i));
        a.dk = cp_view(k, dk, dk->data);
        a.dv = cp_view(k, dv, dv->data);
        cp_attend(k, a, true);
    }
    const size_t rows = (size_t)(k->shape.causal ? k->at[0] + 1 : 2 * k->shape.ranks) * (size_t)k->rows;
    for (int t = 0; t < 2; t++) {
        char *both = k->seq[(t ? SHARES_V : SHARES_K) + place].data;
        cp_add(k, k->base.dtype, k->parts[t].data, k->base.dtype, lost ? NULL : both, k->base.dtype, both, rows,
               k->k.piece / (size_t)k->rows);
    }
}

/* Shares of a chunk's dk and dv to its owner; (places, ranks, 2 chunks) there. */
static void *incoming(const cp_case *k, int t, int place, int from, int which)
{
    return cp_chunk(k, &k->in[t], (place * k->shape.ranks + from) * 2 + which);
}

static void return_group(cp_case *k, int group)
{
    const int place = group % CP_PLACES;
    cp_wait(k, k->side, k->computed[place]);
    cp_moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int chunk = 0; chunk < 2 * k->shape.ranks; chunk++) {
            int which;
            const int owner = context_owner(&k->shape, chunk, &which);
            const cp_tensor *mine = &k->seq[(t ? SHARES_V : SHARES_K) + place];
            for (int rank = 0; rank < k->shape.ranks; rank++)
                if (rank != owner && sees(k, rank, chunk))
                    cp_move(k, rank, owner, cp_chunk(k, mine, chunk), incoming(k, t, place, rank, which), mine->piece,
                            k->wire);
        }
    cp_moves_end(k);
    cp_record(k, k->side, k->returned[place]);
}

/* This rank's dk or dv of a chunk: the sum of all shares, in the order of ranks, in fp32, rounded once. */
static void sum_shares(cp_case *k, int t, int group, int which)
{
    const int place = group % CP_PLACES, chunk = context_chunk(&k->shape, k->rank, which), n = k->shape.ranks;
    const size_t rows = (size_t)k->rows, columns = k->k.piece / rows;
    const cp_tensor *mine = &k->seq[(t ? SHARES_V : SHARES_K) + place];
    void *out = cp_piece(k, t ? &k->dv : &k->dk, group, which);
    const void *sum = NULL;
    sb_dtype sum_dtype = k->base.dtype;
    int last = n - 1;
    while (!sees(k, last, chunk))
        last--;
    for (int rank = 0; rank <= last; rank++) {
        if (!sees(k, rank, chunk))
            continue;
        const void *share = rank == k->rank ? cp_chunk(k, mine, chunk) : incoming(k, t, place, rank, which);
        if (!sum && rank < last) {
            sum = share;
            continue;
        }
        const sb_dtype to = rank == last ? k->base.dtype : SB_FP32;
        void *at = rank == last ? out : k->sum;
        cp_add(k, sum ? sum_dtype : k->base.dtype, sum ? sum : share, k->base.dtype, sum ? share : NULL, to, at, rows,
               columns);
        sum = k->sum;
        sum_dtype = SB_FP32;
    }
}

static void gather_sums(cp_case *k, int group)
{
    cp_wait(k, device_stream(k->s->dev), k->returned[group % CP_PLACES]);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 2; i++)
            sum_shares(k, t, group, i);
}

static void gather_backward(cp_case *k)
{
    void *main = device_stream(k->s->dev);
    gather_group(k, 0);
    for (int g = 0; g < k->groups; g++) {
        if (g + 1 < k->groups)
            gather_group(k, g + 1);
        cp_wait(k, main, k->arrived[g % CP_PLACES]);
        gather_shares(k, g);
        cp_record(k, main, k->used[g % CP_PLACES]);
        cp_record(k, main, k->computed[g % CP_PLACES]);
        return_group(k, g);
        if (g > 0)
            gather_sums(k, g - 1);
    }
    gather_sums(k, k->groups - 1);
}

/* ---- all-to-all ---- */

/* seq: whole sequences of this rank's heads. */
enum { SEQ_Q, SEQ_K, SEQ_V, SEQ_O, SEQ_DO, SEQ_DQ, SEQ_DK, SEQ_DV };

static bool to_heads_allocate(cp_case *k)
{
    const sb_attention *a = &k->base;
    const int n = k->shape.ranks;
    for (int i = 0; i < 8; i++) {
        const bool keys = i == SEQ_K || i == SEQ_V || i == SEQ_DK || i == SEQ_DV;
        if (!cp_tensor_alloc(k, &k->seq[i], 1, 2 * n, (keys ? a->heads_kv : a->heads) / n, a->head_dim, "whole"))
            return false;
    }
    k->lse_whole =
        memory_alloc(k->s->mem, sizeof(float) * (size_t)a->batch * (size_t)(a->heads / n) * (size_t)a->seq_q, "lse");
    return k->lse_whole;
}

/* Every rank's chunks of the heads of each rank, or back. */
static void exchange(cp_case *k, const cp_tensor *own, const cp_tensor *seq, bool back)
{
    for (int chunk = 0; chunk < 2 * k->shape.ranks; chunk++) {
        int which;
        const int owner = context_owner(&k->shape, chunk, &which);
        if (k->plant == PLANT_ORDER && owner == k->shape.ranks - 1 && k->rank == owner)
            which = 1 - which;
        for (int rank = 0; rank < k->shape.ranks; rank++) {
            void *piece = cp_piece(k, own, rank, which), *place = cp_chunk(k, seq, chunk);
            cp_move(k, back ? rank : owner, back ? owner : rank, back ? place : piece, back ? piece : place, seq->piece,
                    k->wire);
        }
    }
}

static void there(cp_case *k, const cp_tensor *const own[], const int seq[], int n)
{
    cp_moves_begin(k);
    for (int i = 0; i < n; i++)
        exchange(k, own[i], &k->seq[seq[i]], false);
    cp_moves_end(k);
    cp_record(k, k->side, k->arrived[0]);
    cp_wait(k, device_stream(k->s->dev), k->arrived[0]);
}

static void back(cp_case *k, const cp_tensor *const own[], const int seq[], int n)
{
    cp_record(k, device_stream(k->s->dev), k->computed[0]);
    cp_wait(k, k->side, k->computed[0]);
    cp_moves_begin(k);
    for (int i = 0; i < n; i++)
        exchange(k, own[i], &k->seq[seq[i]], true);
    cp_moves_end(k);
    cp_record(k, k->side, k->returned[0]);
    cp_wait(k, device_stream(k->s->dev), k->returned[0]);
}

static sb_attention to_heads_call(const cp_case *k)
{
    sb_attention a = k->base;
    sb_tensor *const t[] = {&a.q, &a.k, &a.v, &a.o, &a.d_o, &a.dq, &a.dk, &a.dv};
    a.heads = k->q.heads;
    a.heads_kv = k->k.heads;
    for (int i = 0; i < 8; i++)
        *t[i] = cp_view(k, &k->seq[i], k->seq[i].data);
    a.lse = k->lse_whole;
    return a;
}

static void to_heads_forward(cp_case *k)
{
    there(k, (const cp_tensor *[]){&k->q, &k->k, &k->v}, (const int[]){SEQ_Q, SEQ_K, SEQ_V}, 3);
    cp_attend(k, to_heads_call(k), false);
    back(k, (const cp_tensor *[]){&k->o}, (const int[]){SEQ_O}, 1);
}

static void to_heads_backward(cp_case *k)
{
    there(k, (const cp_tensor *[]){&k->d_o}, (const int[]){SEQ_DO}, 1);
    cp_attend(k, to_heads_call(k), true);
    back(k, (const cp_tensor *[]){&k->dq, &k->dk, &k->dv}, (const int[]){SEQ_DQ, SEQ_DK, SEQ_DV}, 3);
}

/* ---- the table ---- */

#define BIT(plant) (1u << (plant))

const cp_way cp_ways[] = {
    {"gather", "keys and values of all tokens, a group of heads at a time, beside attention of the group before",
     CONTEXT_GATHER, BIT(PLANT_ORDER) | BIT(PLANT_POSITION) | BIT(PLANT_TAIL) | BIT(PLANT_OWN), gather_allocate,
     gather_forward, gather_backward},
    {"all-to-all", "the whole sequence of an n-th of the heads on each rank", CONTEXT_ALL_TO_ALL, BIT(PLANT_ORDER),
     to_heads_allocate, to_heads_forward, to_heads_backward},
    {"ring", "blocks of keys go round from rank to rank, and parts of attention are merged", CONTEXT_RING,
     BIT(PLANT_ORDER) | BIT(PLANT_POSITION) | BIT(PLANT_MERGE) | BIT(PLANT_TAIL) | BIT(PLANT_OWN), ring_allocate,
     ring_forward, ring_backward},
    {0}};
