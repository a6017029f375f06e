/* SPDX-License-Identifier: MIT */
/* A shared sequence whose pieces copy engines move: each rank is a thread of this process with a context and streams of its own. Copies
 * take their time, and so does attention of one rank; what comes late or is overwritten unread makes other numbers than the whole
 * sequence on one rank. */
#include "tests/support/test.h"

#include <pthread.h>

#include "common/context/context.h"
#include "common/core/rng.h"

enum { RANKS = 3, ROWS = 64, SEQ = 2 * RANKS * ROWS, HEADS = 12, COLUMNS = 16, ALL = SEQ * HEADS * COLUMNS };
enum { Q, K, V, D_O, O, DQ, DK, DV, TENSORS };

typedef struct rank {
    device *d;
    sb_context *ctx;
    context *k;
    context_pass p;
    bool ok;
} rank;

static float whole[TENSORS][ALL]; /* (S, H, D) */
static int slow;                  /* the rank whose attention takes its time */

void __real_device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes);
void __wrap_device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes);
void __real_context_attend(context *k, sb_attention a, bool backward);
void __wrap_context_attend(context *k, sb_attention a, bool backward);

static void nap(void *arg)
{
    usleep(*(unsigned *)arg);
}

void __wrap_device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes)
{
    const unsigned us = 100;
    if (stream)
        device_stream_run(d, stream, nap, &us, sizeof us);
    __real_device_stream_copy(d, stream, dst, src, bytes);
}

void __wrap_context_attend(context *k, sb_attention a, bool backward)
{
    if (!k->planning && k->rank == slow)
        usleep(1000);
    __real_context_attend(k, a, backward);
}

static sb_attention shape_of(void)
{
    const sb_tensor none = {NULL, ALL, COLUMNS, HEADS * COLUMNS};
    sb_attention a = {.batch = 1, .heads = HEADS, .heads_kv = HEADS, .seq_q = SEQ, .seq_k = SEQ};
    a.head_dim = COLUMNS;
    a.dtype = SB_FP32;
    a.causal = true;
    a.q = a.k = a.v = a.d_o = a.o = a.dq = a.dk = a.dv = none;
    return a;
}

/* On one rank. */
static void compute_whole(sb_context *ctx)
{
    sb_attention a = shape_of();
    sb_tensor *const t[] = {&a.q, &a.k, &a.v, &a.d_o, &a.o, &a.dq, &a.dk, &a.dv};
    const sb_attention_op *op = sb_attention_find(sb_kernels_cpu(), "flash");
    OWNED float *lse = xcalloc(HEADS * SEQ, sizeof *lse);
    for (int i = 0; i < TENSORS; i++)
        t[i]->data = whole[i];
    for (int i = 0; i <= D_O; i++)
        rng_normal(whole[i], ALL, 1, (uint32_t)i, 0, 1);
    a.lse = lse;
    a.workspace_bytes = op->forward_workspace(ctx, &a) + op->backward_workspace(ctx, &a);
    OWNED char *workspace = xmalloc(a.workspace_bytes + 1);
    a.workspace = workspace;
    assert_int_equal(op->forward(ctx, &a, NULL), SB_OK);
    assert_int_equal(op->backward(ctx, &a, NULL), SB_OK);
}

/* The place of a piece's element in the whole tensor. */
static int at_whole(const context *k, int group, int which, int i)
{
    const int width = k->heads * COLUMNS, token = context_chunk(&k->as.shape, k->rank, which) * ROWS + i / width;
    return (token * HEADS * COLUMNS) + group * width + i % width;
}

/* Puts inputs there, and NaN into results; or looks at results. */
static bool each_piece(rank *r, bool look)
{
    context_tensor *const t[] = {&r->p.q, &r->p.k, &r->p.v, &r->p.d_o, &r->p.o, &r->p.dq, &r->p.dk, &r->p.dv};
    bool same = true;
    for (int i = 0; i < TENSORS; i++)
        for (int group = 0; group < r->k->groups; group++)
            for (int which = 0; which < 2; which++) {
                float *piece = context_piece(r->k, t[i], group, which);
                for (size_t j = 0; j < r->k->q_piece; j++) {
                    const float want = whole[i][at_whole(r->k, group, which, (int)j)];
                    if (look)
                        same = same && fabsf(piece[j] - want) <= 1e-5f * (1 + fabsf(want));
                    else
                        piece[j] = i > D_O ? NAN : want;
                }
            }
    return same;
}

static void create(rank *r, int number, context_way way, char **block)
{
    const context_setup x = {.d = r->d = device_open(DEVICE_CPU, 0),
                             .kernels = sb_kernels_cpu(),
                             .ctx = r->ctx,
                             .op = sb_attention_find(sb_kernels_cpu(), "flash"),
                             .whole = shape_of(),
                             .shape = {.ranks = RANKS, .causal = true, .seq = SEQ},
                             .way = way,
                             .rank = number,
                             .pieces = true,
                             .any_rank = true};
    context_tensor *const t[] = {&r->p.q, &r->p.k, &r->p.v, &r->p.d_o, &r->p.o, &r->p.dq, &r->p.dk, &r->p.dv};
    r->k = context_create(&x);
    const size_t tensor = 2 * r->k->q_piece * (size_t)r->k->groups * sizeof(float), saved = context_saved_bytes(r->k);
    const size_t work = context_workspace(r->k, true) + context_workspace(r->k, false);
    char *at = *block = aligned_alloc(256, CONTEXT_WORDS_BYTES + (TENSORS + 1) * tensor + saved + work);
    memset(at, 0, CONTEXT_WORDS_BYTES + (TENSORS + 1) * tensor + saved + work);
    at += CONTEXT_WORDS_BYTES;
    const int64_t piece = (int64_t)r->k->q_piece, row = (int64_t)r->k->heads * COLUMNS;
    for (int i = 0; i < TENSORS; i++, at += tensor)
        *t[i] = (context_tensor){at, row, row, 2 * piece, piece};
    r->p.lse = (float *)at;
    r->p.saved = saved ? at + tensor : NULL;
    r->p.workspace = at + tensor + saved;
}

static void *run(void *arg)
{
    rank *r = arg;
    r->ok = true;
    for (int step = 0; step < 3; step++) { /* to the end, since others wait for this one's pieces */
        each_piece(r, false);
        context_run(r->k, &r->p, false, NULL);
        context_run(r->k, &r->p, true, NULL);
        r->ok = each_piece(r, true) && r->ok;
    }
    return NULL;
}

static void moves_by_copies(context_way way)
{
    rank all[RANKS] = {{0}};
    char *blocks[RANKS];
    pthread_t threads[RANKS];
    comm *const nobody = (comm *)all; /* there is one, but nothing is asked of it */
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(sb_kernels_cpu()->create(0, &all[r].ctx), SB_OK);
        create(&all[r], r, way, &blocks[r]);
    }
    compute_whole(all[0].ctx);
    for (int r = 0; r < RANKS; r++)
        context_connect(all[r].k, nobody, (void *const *)blocks);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, &all[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        if (!all[r].ok)
            fail_msg("%s: rank %d has other numbers than the whole sequence", context_rows[way].name, r);
        context_free(all[r].k);
        sb_kernels_cpu()->destroy(all[r].ctx);
        device_close(all[r].d);
        for (int word = 0; word < 2 * RANKS; word++)
            assert_int_equal(((uint32_t *)blocks[r])[word], 0); /* or the next pass would not wait */
        free(blocks[r]);
    }
}

TEST(every_way_gives_what_one_rank_gives)
{
    for (slow = -1; slow < RANKS; slow += 2)
        for (int way = CONTEXT_GATHER; way <= CONTEXT_RING; way++)
            moves_by_copies((context_way)way);
}
