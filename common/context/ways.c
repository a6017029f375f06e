/* SPDX-License-Identifier: MIT */
/* The ways of sharing a sequence; see internal.h for what they are made of.
 *
 * gather: keys and values of all tokens come to every rank that sees them, a group of heads at a time, while attention of the
 * group before runs. The queries of a chunk and the keys up to its end are one call of attention, whose causal mask is aligned at
 * the bottom right; so each row sees its keys in the order of one rank, and nothing is merged. Of a group the chunks that the
 * first chunk of queries sees come first, and the others while it is computed. In the backward a rank's shares of dk and dv go
 * to the chunks' owners while the next group is computed; the owner adds them in the order of ranks, in fp32.
 * all-to-all (Jacobs et al., 2023, "DeepSpeed Ulysses"): each rank gets the whole sequence of some heads, in turns: those of the next
 * turn come, and results of the one before go, while a turn is computed. */
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

/* Whole sequences (turn, chunk) of a rank's heads. */
typedef struct whole_heads {
    pieces q, k, v, o, d_o, dq, dk, dv;
} whole_heads;

static pieces saved_pieces(const context *k, size_t first, bool keys)
{
    const size_t piece = keys ? k->k_piece : k->q_piece;
    return (pieces){k->now.saved ? (char *)k->now.saved + first * k->element : NULL, keys ? k->heads_kv : k->heads,
                    piece};
}

static whole_heads heads_carve(context *k, bool backward)
{
    const int all = 2 * k->as.shape.ranks * k->turns;
    const size_t q = (size_t)all * k->q_piece, kv = (size_t)all * k->k_piece;
    whole_heads w = {.q = saved_pieces(k, 0, false),
                     .o = saved_pieces(k, q, false),
                     .k = saved_pieces(k, 2 * q, true),
                     .v = saved_pieces(k, 2 * q + kv, true)};
    if (backward) {
        w.d_o = pieces_carve(k, false, all);
        w.dq = pieces_carve(k, false, all);
        w.dk = pieces_carve(k, true, all);
        w.dv = pieces_carve(k, true, all);
    }
    return w;
}

/* One tensor on its way: as the rank has it, as pieces (group, chunk), which may be the same, and as whole sequences. */
typedef struct trip {
    const context_tensor *own;
    const pieces *seq;
    bool keys;
    context_tensor stage;
} trip;

typedef struct trips {
    trip t[3];
    int n;
} trips;

static void trips_add(context *k, trips *x, const context_tensor *own, const pieces *seq, bool keys)
{
    const size_t piece = keys ? k->k_piece : k->q_piece;
    const int64_t row = (int64_t)(keys ? k->heads_kv : k->heads) * k->head_dim;
    context_tensor stage = *own;
    if (!k->as.pieces)
        stage = (context_tensor){pieces_carve(k, keys, 2 * k->groups).data, row, row * k->as.whole.batch,
                                 2 * (int64_t)piece, (int64_t)piece};
    x->t[x->n++] = (trip){own, seq, keys, stage};
}

/* Every rank's chunks of the heads that each rank has in this turn, or back. */
static void exchange(context *k, const trip *t, int turn, bool back)
{
    const int n = k->as.shape.ranks;
    for (int chunk = 0; chunk < 2 * n; chunk++) {
        int which;
        const int owner = context_owner(&k->as.shape, chunk, &which);
        if (owner == k->rank && breaks(k, CONTEXT_ORDER))
            which = 1 - which;
        for (int rank = 0; rank < n; rank++) {
            void *piece = context_piece(k, &t->stage, rank * k->turns + turn, which);
            void *place = pieces_at(k, t->seq, 2 * n * turn + chunk);
            move(k, back ? rank : owner, back ? owner : rank, back ? place : piece, back ? piece : place, t->seq->piece,
                 k->wire);
        }
    }
}

static void copy_staged(context *k, const trips *x, int turn, bool back)
{
    const context_operand none = {.data = NULL};
    for (int i = 0; i < x->n && !k->as.pieces; i++)
        for (int rank = 0; rank < k->as.shape.ranks; rank++)
            for (int which = 0; which < 2; which++) {
                const trip *t = &x->t[i];
                const int group = rank * k->turns + turn;
                void *piece = context_piece(k, &t->stage, group, which);
                if (back)
                    chunk_put(k, t->own, t->keys, group, which, dense(k, false, piece, t->keys), none);
                else
                    chunk_take(k, t->own, t->keys, group, which, piece);
            }
}

/* Behind what main has so far. */
static void travel(context *k, const trips *x, int turn, bool back)
{
    const int place = turn % CONTEXT_PLACES;
    if (!back)
        copy_staged(k, x, turn, false);
    device_event *from = back ? k->computed[place] : k->used[place];
    record(k, k->main, from);
    await(k, k->side, from);
    moves_begin(k);
    for (int i = 0; i < x->n; i++)
        exchange(k, &x->t[i], turn, back);
    moves_end(k);
    record(k, k->side, back ? k->returned[place] : k->arrived[place]);
}

static void end_travel(context *k, const trips *x, int turn)
{
    await(k, k->main, k->returned[turn % CONTEXT_PLACES]);
    copy_staged(k, x, turn, true);
}

static sb_tensor heads_view(const context *k, const pieces *t, int turn)
{
    return t->data ? pieces_view(k, t, pieces_at(k, t, 2 * k->as.shape.ranks * turn)) : (sb_tensor){.data = NULL};
}

static sb_attention to_heads_call(const context *k, const whole_heads *w, int turn)
{
    sb_attention a = k->as.whole;
    a.heads = k->heads;
    a.heads_kv = k->heads_kv;
    a.q = heads_view(k, &w->q, turn);
    a.k = heads_view(k, &w->k, turn);
    a.v = heads_view(k, &w->v, turn);
    a.o = heads_view(k, &w->o, turn);
    a.d_o = heads_view(k, &w->d_o, turn);
    a.dq = heads_view(k, &w->dq, turn);
    a.dk = heads_view(k, &w->dk, turn);
    a.dv = heads_view(k, &w->dv, turn);
    a.lse = context_lse_heads(k, turn);
    return a;
}

/* A turn is computed while the next one's heads come and the one before's results go. */
static void take_turns(context *k, const whole_heads *w, const trips *in, const trips *out, bool backward)
{
    travel(k, in, 0, false);
    for (int turn = 0; turn < k->turns; turn++) {
        if (turn + 1 < k->turns)
            travel(k, in, turn + 1, false);
        await(k, k->main, k->arrived[turn % CONTEXT_PLACES]);
        context_attend(k, to_heads_call(k, w, turn), backward);
        travel(k, out, turn, true);
        if (turn > 0)
            end_travel(k, out, turn - 1);
    }
    end_travel(k, out, k->turns - 1);
}

void to_heads_forward(context *k)
{
    const whole_heads w = heads_carve(k, false);
    const context_pass *p = &k->now;
    trips in = {.n = 0}, out = {.n = 0};
    trips_add(k, &in, &p->q, &w.q, false);
    trips_add(k, &in, &p->k, &w.k, true);
    trips_add(k, &in, &p->v, &w.v, true);
    trips_add(k, &out, &p->o, &w.o, false);
    take_turns(k, &w, &in, &out, false);
}

void to_heads_backward(context *k)
{
    const whole_heads w = heads_carve(k, true);
    const context_pass *p = &k->now;
    trips in = {.n = 0}, out = {.n = 0};
    trips_add(k, &in, &p->d_o, &w.d_o, false);
    trips_add(k, &out, &p->dq, &w.dq, false);
    trips_add(k, &out, &p->dk, &w.dk, true);
    trips_add(k, &out, &p->dv, &w.dv, true);
    take_turns(k, &w, &in, &out, true);
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
