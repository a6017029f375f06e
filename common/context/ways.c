/* SPDX-License-Identifier: MIT */
/* The ways of sharing a sequence; see internal.h for what they are made of.
 *
 * gather: keys and values of all tokens come to every rank that sees them, a group of heads at a time, while attention of the
 * group before runs. The queries of a chunk and the keys up to its end are one call of attention, whose causal mask is aligned at
 * the bottom right; so each row sees its keys in the order of one rank, and nothing is merged. Of a group the chunks that the
 * first chunk of queries sees come first, and the others while it is computed. In the backward a rank's shares of dk and dv go
 * to the chunks' owners while the next group is computed; the owner adds them in the order of ranks, in fp32.
 * all-to-all (Jacobs et al., 2023, "DeepSpeed Ulysses"): each rank gets the whole sequence of some heads. */
#include "common/context/internal.h"

/* ---- gather ---- */

/* A group in two places: keys and values of all chunks, this rank's shares of their dk and dv, and those of other ranks,
 * (ranks, 2 chunks). parts: dk and dv of the first chunk's queries. */
typedef struct gathered {
    pieces seq[2][CONTEXT_PLACES], shares[2][CONTEXT_PLACES], in[2][CONTEXT_PLACES], parts[2];
    float *sum; /* a piece */
} gathered;

static gathered gather_carve(context *k, bool backward)
{
    const int all = 2 * k->as.shape.ranks;
    gathered g = {.sum = NULL};
    for (int t = 0; t < 2; t++) {
        for (int place = 0; place < CONTEXT_PLACES; place++) {
            g.seq[t][place] = pieces_carve(k, true, all);
            if (backward) {
                g.shares[t][place] = pieces_carve(k, true, all);
                g.in[t][place] = pieces_carve(k, true, all);
            }
        }
        if (backward)
            g.parts[t] = pieces_carve(k, true, all);
    }
    if (backward)
        g.sum = carve(k, k->k_piece * sizeof(float));
    return g;
}

static bool sees(const context *k, int rank, int chunk)
{
    return context_seen(&k->as.shape, rank) > chunk;
}

/* Keys and values of the chunks [first, end) of a group to all ranks that see them. */
static void gather_chunks(context *k, const gathered *g, int group, int first, int end)
{
    const context_tensor *own[] = {&k->now.k, &k->now.v};
    moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int chunk = first; chunk < end; chunk++) {
            int which;
            const int owner = context_owner(&k->as.shape, chunk, &which);
            const pieces *to = &g->seq[t][group % CONTEXT_PLACES];
            const void *from = k->as.pieces ? context_piece(k, own[t], group, which)
                                            : pieces_at(k, to, context_chunk(&k->as.shape, k->rank, which));
            for (int rank = 0; rank < k->as.shape.ranks; rank++)
                if (sees(k, rank, chunk))
                    move(k, owner, rank, from, pieces_at(k, to, chunk), to->piece, k->wire);
        }
    moves_end(k);
}

/* Where they are no pieces as they lie, this rank's chunks go to their places on main. */
static void gather_group(context *k, const gathered *g, int group)
{
    const int place = group % CONTEXT_PLACES, first = context_first_chunks(&k->as.shape);
    const context_tensor *own[] = {&k->now.k, &k->now.v};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 2 && !k->as.pieces; i++)
            chunk_take(k, own[t], true, group, i,
                       pieces_at(k, &g->seq[t][place], context_chunk(&k->as.shape, k->rank, i)));
    record(k, k->main, k->used[place]); /* by the group that was there, too */
    await(k, k->side, k->used[place]);
    gather_chunks(k, g, group, 0, first);
    record(k, k->side, k->first_arrived[place]);
    gather_chunks(k, g, group, first, 2 * k->as.shape.ranks);
    record(k, k->side, k->arrived[place]);
}

/* The call of a chunk of queries with the keys that it sees: those up to its own end, or all. */
static sb_attention gather_call(const context *k, const gathered *g, int group, int which)
{
    const bool own_alone = breaks(k, CONTEXT_OWN);
    const int place = group % CONTEXT_PLACES, first = own_alone ? k->at[which] : 0;
    const int end = k->as.shape.causal || own_alone ? k->at[which] + 1 : 2 * k->as.shape.ranks;
    const pieces *keys = &g->seq[0][place], *values = &g->seq[1][place];
    sb_attention a = k->as.whole;
    a.heads = k->heads;
    a.heads_kv = k->heads_kv;
    a.seq_q = k->rows;
    a.seq_k = (end - first) * k->rows;
    a.q = chunk_view(k, &k->now.q, group, which);
    a.k = pieces_view(k, keys, pieces_at(k, keys, first));
    a.v = pieces_view(k, values, pieces_at(k, values, first));
    a.o = chunk_view(k, &k->now.o, group, which);
    a.lse = context_lse(k, group, which);
    return a;
}

static void gather_await(context *k, int group, int which)
{
    await(k, k->main, which ? k->arrived[group % CONTEXT_PLACES] : k->first_arrived[group % CONTEXT_PLACES]);
}

void gather_forward(context *k)
{
    const gathered g = gather_carve(k, false);
    gather_group(k, &g, 0);
    for (int group = 0; group < k->groups; group++) {
        if (group + 1 < k->groups)
            gather_group(k, &g, group + 1);
        for (int i = 0; i < 2; i++) {
            gather_await(k, group, i);
            context_attend(k, gather_call(k, &g, group, i), false);
        }
    }
}

/* dk and dv of the queries of both chunks: the second sees all keys that the first does. */
static void gather_shares(context *k, const gathered *g, int group)
{
    const int place = group % CONTEXT_PLACES;
    for (int i = 0; i < 2; i++) {
        sb_attention a = gather_call(k, g, group, i);
        const pieces *dk = i ? &g->shares[0][place] : &g->parts[0], *dv = i ? &g->shares[1][place] : &g->parts[1];
        a.d_o = chunk_view(k, &k->now.d_o, group, i);
        a.dq = chunk_view(k, &k->now.dq, group, i);
        a.dk = pieces_view(k, dk, dk->data);
        a.dv = pieces_view(k, dv, dv->data);
        gather_await(k, group, i);
        context_attend(k, a, true);
    }
    const int chunks = k->as.shape.causal ? k->at[0] + 1 : 2 * k->as.shape.ranks;
    for (int t = 0; t < 2; t++) {
        const context_operand both = dense(k, false, g->shares[t][place].data, true);
        context_operand second = both;
        if (breaks(k, CONTEXT_TAIL))
            second.data = NULL;
        context_add(k, dense(k, false, g->parts[t].data, true), second, both, (size_t)chunks * (size_t)k->rows,
                    (size_t)both.ld);
    }
}

/* Shares of a chunk's dk and dv to its owner. */
static void return_group(context *k, const gathered *g, int group)
{
    const int place = group % CONTEXT_PLACES;
    record(k, k->main, k->computed[place]);
    await(k, k->side, k->computed[place]);
    moves_begin(k);
    for (int t = 0; t < 2; t++)
        for (int chunk = 0; chunk < 2 * k->as.shape.ranks; chunk++) {
            int which;
            const int owner = context_owner(&k->as.shape, chunk, &which);
            const pieces *mine = &g->shares[t][place], *in = &g->in[t][place];
            for (int rank = 0; rank < k->as.shape.ranks; rank++)
                if (rank != owner && sees(k, rank, chunk))
                    move(k, rank, owner, pieces_at(k, mine, chunk), pieces_at(k, in, 2 * rank + which), mine->piece,
                         k->wire);
        }
    moves_end(k);
    record(k, k->side, k->returned[place]);
}

/* This rank's dk or dv of a chunk: the sum of all shares, in the order of ranks, in fp32, rounded once. */
static void sum_shares(context *k, const gathered *g, int t, int group, int which)
{
    const int place = group % CONTEXT_PLACES, chunk = context_chunk(&k->as.shape, k->rank, which);
    const context_operand none = {.data = NULL}, on_the_way = dense(k, true, g->sum, true);
    context_operand sum = none;
    int last = k->as.shape.ranks - 1;
    while (!sees(k, last, chunk))
        last--;
    for (int rank = 0; rank <= last; rank++) {
        if (!sees(k, rank, chunk))
            continue;
        const pieces *from = rank == k->rank ? &g->shares[t][place] : &g->in[t][place];
        const context_operand share =
            dense(k, false, pieces_at(k, from, rank == k->rank ? chunk : 2 * rank + which), true);
        const context_operand a = sum.data ? sum : share, b = sum.data ? share : none;
        if (rank == last) {
            chunk_put(k, t ? &k->now.dv : &k->now.dk, true, group, which, a, b);
        } else if (!sum.data) {
            sum = share;
        } else {
            context_add(k, a, b, on_the_way, (size_t)k->rows, (size_t)on_the_way.ld);
            sum = on_the_way;
        }
    }
}

static void gather_sums(context *k, const gathered *g, int group)
{
    await(k, k->main, k->returned[group % CONTEXT_PLACES]);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 2; i++)
            sum_shares(k, g, t, group, i);
}

void gather_backward(context *k)
{
    const gathered g = gather_carve(k, true);
    gather_group(k, &g, 0);
    for (int group = 0; group < k->groups; group++) {
        if (group + 1 < k->groups)
            gather_group(k, &g, group + 1);
        gather_shares(k, &g, group);
        return_group(k, &g, group);
        if (group > 0)
            gather_sums(k, &g, group - 1);
    }
    gather_sums(k, &g, k->groups - 1);
}

/* ---- all-to-all ---- */

/* Whole sequences of this rank's heads, and what a tensor of its tokens becomes where it is no pieces. */
typedef struct whole_heads {
    pieces q, k, v, o;
    int staged;
} whole_heads;

static pieces saved_pieces(const context *k, size_t first, bool keys)
{
    const size_t piece = keys ? k->k_piece : k->q_piece;
    return (pieces){k->now.saved ? (char *)k->now.saved + first * k->element : NULL, keys ? k->heads_kv : k->heads,
                    piece};
}

static whole_heads heads_saved(const context *k)
{
    const size_t all = 2 * (size_t)k->as.shape.ranks, q = all * k->q_piece, kv = all * k->k_piece;
    return (whole_heads){.q = saved_pieces(k, 0, false),
                         .o = saved_pieces(k, q, false),
                         .k = saved_pieces(k, 2 * q, true),
                         .v = saved_pieces(k, 2 * q + kv, true)};
}

/* A rank's tensor as pieces (group, chunk): itself, or a copy. */
static context_tensor staged(context *k, const context_tensor *t, bool keys)
{
    const size_t piece = keys ? k->k_piece : k->q_piece;
    const int64_t row = (int64_t)(keys ? k->heads_kv : k->heads) * k->head_dim;
    if (k->as.pieces)
        return *t;
    return (context_tensor){pieces_carve(k, keys, 2 * k->groups).data, row, row * k->as.whole.batch, 2 * (int64_t)piece,
                            (int64_t)piece};
}

/* Every rank's chunks of the heads of each rank, or back. */
static void exchange(context *k, const context_tensor *own, const pieces *seq, bool back)
{
    for (int chunk = 0; chunk < 2 * k->as.shape.ranks; chunk++) {
        int which;
        const int owner = context_owner(&k->as.shape, chunk, &which);
        if (owner == k->rank && breaks(k, CONTEXT_ORDER))
            which = 1 - which;
        for (int rank = 0; rank < k->as.shape.ranks; rank++) {
            void *piece = context_piece(k, own, rank, which), *place = pieces_at(k, seq, chunk);
            move(k, back ? rank : owner, back ? owner : rank, back ? place : piece, back ? piece : place, seq->piece,
                 k->wire);
        }
    }
}

typedef struct trip {
    const context_tensor *own;
    const pieces *seq;
    bool keys;
} trip;

static void copy_staged(context *k, const trip *t, const context_tensor *stage, bool back)
{
    const context_operand none = {.data = NULL};
    for (int g = 0; g < k->groups && stage->data != t->own->data; g++)
        for (int i = 0; i < 2; i++) {
            void *piece = context_piece(k, stage, g, i);
            if (back)
                chunk_put(k, t->own, t->keys, g, i, dense(k, false, piece, t->keys), none);
            else
                chunk_take(k, t->own, t->keys, g, i, piece);
        }
}

static void travel(context *k, const trip *t, int n, bool back)
{
    context_tensor stage[3];
    for (int i = 0; i < n; i++) {
        stage[i] = staged(k, t[i].own, t[i].keys);
        if (!back)
            copy_staged(k, &t[i], &stage[i], false);
    }
    record(k, k->main, k->computed[back]);
    await(k, k->side, k->computed[back]);
    moves_begin(k);
    for (int i = 0; i < n; i++)
        exchange(k, &stage[i], t[i].seq, back);
    moves_end(k);
    record(k, k->side, k->arrived[back]);
    await(k, k->main, k->arrived[back]);
    for (int i = 0; i < n && back; i++)
        copy_staged(k, &t[i], &stage[i], true);
}

static sb_attention to_heads_call(const context *k, const whole_heads *w)
{
    sb_attention a = k->as.whole;
    a.heads = k->heads;
    a.heads_kv = k->heads_kv;
    a.q = pieces_view(k, &w->q, w->q.data);
    a.k = pieces_view(k, &w->k, w->k.data);
    a.v = pieces_view(k, &w->v, w->v.data);
    a.o = pieces_view(k, &w->o, w->o.data);
    a.lse = k->now.lse; /* (B, heads of a rank, S) */
    return a;
}

void to_heads_forward(context *k)
{
    const whole_heads w = heads_saved(k);
    const context_pass *p = &k->now;
    travel(k, (const trip[]){{&p->q, &w.q, false}, {&p->k, &w.k, true}, {&p->v, &w.v, true}}, 3, false);
    context_attend(k, to_heads_call(k, &w), false);
    travel(k, &(const trip){&p->o, &w.o, false}, 1, true);
}

void to_heads_backward(context *k)
{
    const whole_heads w = heads_saved(k);
    const context_pass *p = &k->now;
    const int all = 2 * k->as.shape.ranks;
    const pieces d_o = pieces_carve(k, false, all), dq = pieces_carve(k, false, all), dk = pieces_carve(k, true, all),
                 dv = pieces_carve(k, true, all);
    sb_attention a = to_heads_call(k, &w);
    a.d_o = pieces_view(k, &d_o, d_o.data);
    a.dq = pieces_view(k, &dq, dq.data);
    a.dk = pieces_view(k, &dk, dk.data);
    a.dv = pieces_view(k, &dv, dv.data);
    travel(k, &(const trip){&p->d_o, &d_o, false}, 1, false);
    context_attend(k, a, true);
    travel(k, (const trip[]){{&p->dq, &dq, false}, {&p->dk, &dk, true}, {&p->dv, &dv, true}}, 3, true);
}

/* ---- the table ---- */

#define BIT(fault) (1u << (fault))

const context_row context_rows[] = {
    [CONTEXT_GATHER] = {"gather", BIT(CONTEXT_ORDER) | BIT(CONTEXT_POSITION) | BIT(CONTEXT_TAIL) | BIT(CONTEXT_OWN),
                        gather_forward, gather_backward},
    [CONTEXT_ALL_TO_ALL] = {"all-to-all", BIT(CONTEXT_ORDER), to_heads_forward, to_heads_backward},
    [CONTEXT_RING] = {
        "ring", BIT(CONTEXT_ORDER) | BIT(CONTEXT_POSITION) | BIT(CONTEXT_MERGE) | BIT(CONTEXT_TAIL) | BIT(CONTEXT_OWN),
        ring_forward, ring_backward}};
