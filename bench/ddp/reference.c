/* SPDX-License-Identifier: MIT */
/* The results that a slice must have: one rank computes the batches of all ranks one after another, adds up their
 * gradients in fp32 in the order of ranks, and updates everything. It knows neither communicators nor strategies. Where a
 * rank's products add up its micro-batches, so do these: the sums of fp32 have their bits. Both it and the ranks have the
 * trainer divide by the number of ranks, so the first batch is also computed by a trainer that knows no other ranks, and
 * no micro-batches: its gradients divided by their number must be the batch's share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/ddp/verify.h"
#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/device/pieces.h"
#include "common/session/watchdog.h"
#include "common/model/dtypes.h"
#include "common/model/float8.h"
#include "common/train/update.h"

typedef struct batches {
    trainer *t;
    device *d;
    int added, ranks; /* added: batches of this step so far */
    size_t n;
    float *sum;
    bool hold;          /* nothing is updated yet */
    float *first_sums;  /* where the sums of the first step go; NULL after that */
    const float *whole; /* the first batch's gradients of a trainer alone; NULL: not compared */
    double err_mean;
} batches;

/* ---- sums of gradients as they lie in memory, of every tensor ---- */

typedef struct addition {
    float *to;
    const char *from;
    sb_dtype dtype;
    float count; /* what is added is divided by it */
} addition;

static void add_few(void *arg, size_t first, size_t count)
{
    const addition *a = arg;
    float few[1024];
    for (size_t i = first, n; i < first + count; i += n) {
        n = first + count - i < 1024 ? first + count - i : 1024;
        dtype_load(a->dtype, few, a->from + i * (size_t)sb_dtype_bytes(a->dtype), n);
        for (size_t j = 0; j < n; j++)
            a->to[i + j] += few[j] / a->count;
    }
}

static void add_piece(void *arg, const void *piece, size_t at, size_t bytes)
{
    addition a = *(const addition *)arg;
    const size_t element = (size_t)sb_dtype_bytes(a.dtype);
    a.to += at / element;
    a.from = piece;
    spread_pieces(bytes / element, SPREAD_PIECE, add_few, &a);
}

/* Adds the trainer's gradients, over `count`, to `to`. */
static void add_grads(const batches *b, float *to, int count)
{
    const trainer_state s = trainer_state_of(b->t);
    addition a = {.to = to, .dtype = s.grad_dtype, .count = (float)count};
    device_sync(b->d);
    pieces_read(b->d, s.grad, b->n * (size_t)sb_dtype_bytes(a.dtype), add_piece, &a);
}

typedef struct shares {
    const float *whole, *one;
    int ranks;
} shares;

static spread_sums share_sums(const void *arg, size_t first, size_t count)
{
    const shares *m = arg;
    double off = 0, size = 0;
    for (size_t i = first; i < first + count; i++) {
        const double want = (double)m->whole[i] / m->ranks, d = m->one[i] - want;
        off += d * d;
        size += want * want;
    }
    return (spread_sums){{off, size}};
}

static double mean_error(const batches *b)
{
    const params *p = trainer_params(b->t);
    double off = 0, size = 0;
    for (int i = 0; i < p->count; i++) {
        const shares of = {b->whole + p->tensors[i].first, b->sum + p->tensors[i].first, b->ranks};
        const spread_sums x = spread_sum((size_t)p->tensors[i].count, share_sums, &of);
        off += x.x[0];
        size += x.x[1];
    }
    return off == 0 ? 0 : sqrt(off / size);
}

/* In place of the update of one batch. */
static void add_up(void *user)
{
    batches *b = user;
    const trainer_state s = trainer_state_of(b->t);
    device_sync(b->d);
    phase_set("check: gradients of batch %d of %d on one rank", b->added + 1, b->ranks);
    if (b->added == 0)
        dtype_download(b->d, s.grad_dtype, b->sum, s.grad, b->n);
    if (b->whole && b->added == 0)
        b->err_mean = mean_error(b);
    b->whole = NULL;
    if (b->added > 0)
        add_grads(b, b->sum, 1);
    watchdog_beat();
    if (b->added < b->ranks - 1)
        return;
    if (b->first_sums)
        spread_copy(b->first_sums, b->sum, b->n * sizeof *b->sum);
    b->first_sums = NULL;
    if (b->hold)
        return;
    dtype_upload(b->d, s.grad_dtype, s.grad, b->sum, b->n);
    trainer_update_all(b->t);
}

/* By index; what lies between tensors stays as it was. */
static void ddp_read_params(trainer *t, float *out)
{
    const params *p = trainer_params(t);
    phase_set("check: parameters of one rank");
    for (int i = 0; i < p->count; i++)
        trainer_read_param(t, &p->tensors[i], out + p->tensors[i].first);
}

double ddp_grad_norm(trainer *t)
{
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    return state.grad_norm;
}

/* The gradients of one batch of several, in place of their update. */
static void keep_whole(void *user)
{
    batches *b = user;
    add_grads(b, b->sum, b->ranks);
}

/* Steps on the first `micros` batches, the mean of whose gradients goes to `out`, zeros in the index space. */
static bool run_whole(ddp_case *k, trainer *t, int micros, float *out)
{
    const size_t n = (size_t)trainer_params(t)->elements;
    batches b = {.t = t, .d = k->s->dev, .ranks = micros, .n = n, .sum = out};
    bool ok = true;
    replica_set_safe_loss_scale(t);
    trainer_set_hooks(t, &(step_hooks){.user = &b, .update = keep_whole});
    for (int m = 0; m < micros && ok; m++) {
        replica_set_tokens(t, k->o.seed, m);
        trainer_set_same_step(t, m > 0);
        ok = trainer_step(t);
        device_sync(k->s->dev);
        watchdog_beat();
    }
    return ok;
}

int ddp_reference_micros(const ddp_case *k, const step_options *slice)
{
    step_options o = *slice;
    o.shard.grads = parallel_strategy(k->p.strategy)->gradients == GRADIENTS_SLICED;
    return step_sums_in_products(&o) ? step_micro_batches(&o) : 1;
}

/* The batches of a step on all ranks, in the order of samples, as the reference takes them. */
static int batches_of(const ddp_case *k, int micros)
{
    return k->ranks / step_context_ranks(&k->o) * step_micro_batches(&k->o) / micros;
}

/* One step for the sums of gradients; more steps if parameters are wanted. The ranks hold the update of a step before these,
 * which their scales remember where they are those of earlier steps (fp8-delayed): then so does this one. */
static bool reference_steps(ddp_case *k, trainer *t, int count, const float *whole, ddp_reference *r)
{
    const float8_recipe *recipe = float8_recipe_find(trainer_options_of(t)->precision->name);
    const int steps = r->after ? DDP_CHECK_STEPS : 1, held = recipe && recipe->delayed ? 1 : 0;
    const size_t n = (size_t)trainer_params(t)->elements;
    batches b = {.t = t,
                 .d = k->s->dev,
                 .ranks = count,
                 .n = n,
                 .sum = xmalloc(n * sizeof *b.sum),
                 .first_sums = r->grads,
                 .whole = whole};
    bool ok = true;
    replica_set_safe_loss_scale(t);
    trainer_set_hooks(t, &(step_hooks){.user = &b, .update = add_up});
    for (int step = -held; step < steps && ok; step++) {
        b.hold = step < 0;
        for (b.added = 0; b.added < b.ranks && ok; b.added++) {
            phase_set("check: step %d of %d, batch %d of %d on one rank", step + 1 + held, steps + held, b.added + 1,
                      b.ranks);
            replica_set_tokens(t, k->o.seed, b.added);
            trainer_set_same_step(t, b.added > 0);
            ok = trainer_step(t);
        }
        if (ok && step == 0)
            r->norm = ddp_grad_norm(t);
        if (ok && step == 0 && r->first)
            ddp_read_params(t, r->first);
    }
    if (ok && r->after)
        ddp_read_params(t, r->after);
    r->err_mean = b.err_mean;
    free(b.sum);
    return ok;
}

/* A fresh model on this rank, for one of `ranks`. Returns NULL and a sentence in `why` on failure. */
static trainer *alone(ddp_case *k, const step_options *slice, int ranks, int micros, char *why, size_t why_bytes)
{
    const model_bench *b = k->s->user;
    step_options o = *slice;
    o.seq = (int)step_context_shape(slice).seq; /* whole sequences */
    o.context = (step_context){.ranks = 1};
    o.ranks = ranks;
    o.micro_batches = micros;
    o.granularity = parallel_granularity(k->ranks);
    o.state_elements = 0;
    return trainer_create(k->s->dev, k->s->mem, b->kernels, b->ctx, &o, why, why_bytes);
}

static bool step_failed(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "a step of the reference: %s", sb_last_message());
    return false;
}

/* The first batch's gradients of a process alone; NULL with a sentence in `why`. Caller frees. */
static float *make_whole(ddp_case *k, const step_options *slice, char *why, size_t why_bytes)
{
    trainer *t = alone(k, slice, 1, 1, why, why_bytes);
    if (!t)
        return NULL;
    float *whole = xcalloc((unsigned long)trainer_params(t)->elements, sizeof *whole);
    if (!run_whole(k, t, ddp_reference_micros(k, slice), whole)) {
        step_failed(why, why_bytes);
        free(whole);
        whole = NULL;
    }
    trainer_free(t);
    return whole;
}

static bool make(ddp_case *k, const step_options *slice, const float *whole, ddp_reference *r, char *why,
                 size_t why_bytes)
{
    phase_set("check: set-up of one rank with all batches");
    const int micros = ddp_reference_micros(k, slice), count = batches_of(k, micros);
    trainer *t = alone(k, slice, count, micros, why, why_bytes);
    if (!t)
        return false;
    const unsigned long n = (unsigned long)trainer_params(t)->elements;
    r->elements = (int64_t)n;
    r->grads = xcalloc(n, sizeof *r->grads);
    if (launch_rank(k->l) == 0) {
        r->start = xcalloc(n, sizeof *r->start);
        r->first = xcalloc(n, sizeof *r->first);
        r->after = xcalloc(n, sizeof *r->after);
        ddp_read_params(t, r->start);
    }
    const bool ok = reference_steps(k, t, count, whole, r) || step_failed(why, why_bytes);
    trainer_free(t);
    return ok;
}

static void clear(void *reference)
{
    ddp_reference *r = reference;
    free(r->grads);
    free(r->start);
    free(r->first);
    free(r->after);
}

const ddp_reference *ddp_reference_of(ddp_case *k, const step_options *slice, const char *key, char *why,
                                      size_t why_bytes)
{
    cache *kept = k->s->kept;
    ddp_reference *r = cache_find(kept, "reference", key);
    if (r)
        return r;
    cache_drop(kept, "reference"); /* it is several times the size of its slice */
    r = cache_add(kept, "reference", key, sizeof *r, clear);
    phase_set("check: one batch without other ranks");
    const bool first = k->ranks > 1 && launch_rank(k->l) == 0; /* on another it would be the same batch again */
    OWNED float *whole = first ? make_whole(k, slice, why, why_bytes) : NULL;
    const bool ok = (whole || !first) && make(k, slice, whole, r, why, why_bytes);
    if (ok)
        return r;
    cache_drop(kept, "reference");
    return NULL;
}
