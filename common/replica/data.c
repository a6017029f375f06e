/* SPDX-License-Identifier: MIT */
/* The input and output of a rank's model: tokens, checksums; see replica.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/core/spread.h"
#include "common/device/pieces.h"
#include "common/model/dtypes.h"
#include "common/replica/replica.h"
#include "common/session/watchdog.h"

/* ---- tokens ---- */

void replica_set_tokens(trainer *t, uint64_t seed, int rank)
{
    const step_options *o = trainer_options_of(t);
    const context_shape whole = step_context_shape(o);
    const size_t sequences = (size_t)o->batch * (size_t)step_micro_batches(o), n = sequences * (size_t)o->seq;
    const uint64_t before = (uint64_t)(rank / whole.ranks) * sequences; /* ranks' samples follow each other */
    const int rows = whole.ranks > 1 ? o->seq / 2 : o->seq;
    OWNED int32_t *ids = xmalloc(2 * n * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        const int at = (int)(i % (size_t)o->seq), chunk = context_chunk(&whole, rank % whole.ranks, at / rows);
        const uint64_t place = (before + i / (size_t)o->seq) * (uint64_t)whole.seq + (uint64_t)chunk * (uint64_t)rows +
                               (uint64_t)(at % rows);
        ids[i] = (int32_t)(rng_uniform(seed, 0xdd9, place) * o->config.vocab);
        ids[n + i] = (int32_t)(rng_uniform(seed, 0xdda, place) * o->config.vocab);
    }
    trainer_set_tokens(t, ids, ids + n);
}

void replica_set_safe_loss_scale(trainer *t)
{
    if (trainer_options_of(t)->precision->loss_scaling)
        trainer_set_loss_scale(t, 1024);
}

/* ---- checksums ---- */

/* A sum over words of what each and its place come to: so threads can share the work, and it is the same whether the
 * parameters are whole or come unit by unit. */
typedef struct checksum {
    const unsigned char *piece;
    uint64_t words; /* before the piece */
    atomic_ullong sum;
} checksum;

/* `bytes` is a multiple of 8. */
static void add_part(void *arg, size_t first, size_t bytes)
{
    checksum *c = arg;
    uint64_t sum = 0;
    for (size_t i = first; i + 8 <= first + bytes; i += 8) {
        uint64_t word;
        memcpy(&word, c->piece + i, sizeof word);
        word = (word ^ (c->words + i / 8 + 1) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
        sum += (word ^ word >> 29) * 0x94d049bb133111ebu;
    }
    atomic_fetch_add(&c->sum, sum);
}

static void add_piece(void *arg, const void *piece, size_t at, size_t bytes)
{
    checksum *c = arg;
    (void)at;
    c->piece = piece;
    spread_pieces(bytes, (size_t)1 << 20, add_part, c);
    c->words += bytes / 8;
    watchdog_beat();
}

/* Where the parameters of bucket i are whole until the next call; unit by unit if each rank has a slice. */
static const char *whole_bucket(replica *r, int i)
{
    const trainer_state s = trainer_state_of(r->t);
    if (r->plan->s->parameters == PARAMETERS_RESIDENT)
        return (const char *)s.param + r->plan->b.b[i].first * sb_dtype_bytes(s.param_dtype);
    parallel_gather_now(r->p, i, s.scratch);
    device_sync(r->at.d);
    return s.scratch;
}

uint64_t replica_checksum(replica *r)
{
    checksum c = {.sum = 1};
    if (!r->member)
        return 0;
    const trainer_state s = trainer_state_of(r->t);
    const size_t element = (size_t)sb_dtype_bytes(s.param_dtype);
    replica_settle(r);
    if (r->plan->s->parameters == PARAMETERS_RESIDENT)
        pieces_read(r->at.d, s.param, (size_t)r->plan->elements * element, add_piece, &c);
    else
        for (int i = 0; i < r->plan->b.n; i++)
            pieces_read(r->at.d, whole_bucket(r, i), (size_t)r->plan->b.b[i].count * element, add_piece, &c);
    return c.sum;
}

/* ---- parameters and gradients ---- */

void replica_read_params(replica *r, float *out)
{
    const params *p = trainer_params(r->t);
    replica_settle(r);
    if (r->plan->s->parameters == PARAMETERS_RESIDENT) {
        for (int i = 0; i < p->count; i++)
            trainer_read_param(r->t, &p->tensors[i], out + p->tensors[i].first);
        return;
    }
    for (int i = 0; i < r->plan->b.n; i++)
        dtype_download(r->at.d, trainer_state_of(r->t).param_dtype, out + r->plan->b.b[i].first, whole_bucket(r, i),
                       (size_t)r->plan->b.b[i].count);
}

int64_t replica_grad_elements(const replica *r)
{
    return r->plan->s->gradients == GRADIENTS_SLICED ? r->plan->own.state_elements : r->plan->elements;
}

void replica_read_grads(replica *r, float *out)
{
    const trainer_state s = trainer_state_of(r->t);
    const ownership *own = &r->plan->own;
    const char *grads = s.grad;
    if (r->plan->s->gradients == GRADIENTS_RESIDENT) {
        dtype_download(r->at.d, s.grad_dtype, out, grads, (size_t)r->plan->elements);
        return;
    }
    for (int i = 0; i < own->n; i++)
        dtype_download(r->at.d, s.grad_dtype, out + own->r[i].first,
                       grads + own->r[i].state_first * sb_dtype_bytes(s.grad_dtype), (size_t)own->r[i].count);
}

double replica_wire_bytes(const replica *r)
{
    const trainer_state s = trainer_state_of(r->t);
    return parallel_wire_bytes(r->plan, sb_dtype_bytes(s.grad_dtype), sb_dtype_bytes(s.param_dtype));
}

int replica_odd_rank(const replica *r, uint64_t checksum)
{
    if (!r->at.l)
        return -1;
    OWNED uint64_t *all = launch_gathered(r->at.l, "checksums", &checksum, sizeof checksum);
    int odd = -1;
    for (int k = r->plan->o.ranks - 1; k > 0; k--)
        odd = all[k] != all[0] ? k : odd;
    return odd;
}
