/* SPDX-License-Identifier: MIT */
/* Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019): a rank has some heads of each attention, some of the feed-forward's
 * columns, and some ids of both vocabularies. Weights of which it has outputs read all rows of their input, and weights of which
 * it has inputs give a part of a sum. Between those products the residual stream and the norms have all rows on every rank, or
 * with options.rows_apart each rank its own (Korthikanti et al., 2022): then inputs are gathered, and sums scattered.
 *
 * What is sent is up to the hooks; where they are missing nothing is, and the walk is the compute of a step. All of it is on
 * main. A gathered slot obeys the rule of every slot that the side stream reads. */
#include "common/step/exchange.h"

#include "common/record/nvtx.h"
#include "common/step/streams.h"

bool share_on(const step *s)
{
    return s->o.split_layers.ranks > 1;
}

bool share_inputs(const step *s, param_kind kind)
{
    return share_on(s) && (kind == PARAM_O || kind == PARAM_W2);
}

bool share_outputs(const step *s, param_kind kind)
{
    return share_on(s) && !share_inputs(s, kind) && !param_is_gain(kind);
}

static bool apart(const step *s)
{
    return s->rows < s->tokens;
}

arena_slot share_gather(step *s, int layer, arena_slot x, bool whole)
{
    if (!apart(s))
        return x;
    const arena_slot sent = share_sent(s, x);
    if (s->o.windows)
        return sent != -1 ? sent : share_spread(s, x, whole);
    arena_slot all = step_take(s, step_rows(s, s->d), MEMORY_TEMPORARY, layer, "all rows");
    if (step_launching(s) && s->share.gather)
        s->share.gather(s->share.user, step_pointer(s, x), step_pointer(s, all), (size_t)s->rows * (size_t)s->d,
                        s->dtype, s->main);
    return all;
}

arena_slot share_input(step *s, int layer, arena_slot n, bool whole)
{
    return s->o.keep_rows ? n : share_gather(s, layer, n, whole);
}

void share_norm(step *s, int layer, arena_slot *n)
{
    if (!s->o.keep_rows || !apart(s))
        return;
    arena_slot all = share_gather(s, layer, *n, true);
    step_drop(s, n);
    *n = all;
}

void share_drop(step *s, arena_slot x, arena_slot *all, bool aside)
{
    if (*all < -1)
        share_close(s, all);
    else if (*all != x)
        (aside ? side_drop : step_drop)(s, all);
}

arena_slot share_partial(step *s, int layer, arena_slot y)
{
    return apart(s) ? step_take(s, step_rows(s, s->d), MEMORY_TEMPORARY, layer, "partial sums") : y;
}

/* y += residual, of this rank's rows. */
static void add(step *s, arena_slot residual, arena_slot y)
{
    if (step_go(s))
        step_sum(s, step_pointer(s, y), s->dtype, step_pointer(s, residual), s->dtype, true, s->rows, s->d, s->main);
}

void share_sum(step *s, arena_slot *partial, arena_slot residual, arena_slot y)
{
    const size_t own = (size_t)s->rows * (size_t)s->d;
    if (s->o.windows)
        share_add_parts(s, *partial, residual, y);
    else if (step_launching(s) && *partial != y && s->share.scatter)
        s->share.scatter(s->share.user, step_pointer(s, *partial), step_pointer(s, y), own, s->dtype, s->main);
    else if (step_launching(s) && *partial == y && s->share.sum)
        s->share.sum(s->share.user, step_pointer(s, y), own, s->dtype, s->main);
    share_drop(s, y, partial, false);
    if (residual >= 0 && !s->o.windows)
        add(s, residual, y);
}

/* ---- gradients ---- */

void share_gains(step *s, void *sums, int64_t count, sb_dtype t)
{
    if (apart(s) && s->share.sum_gains && step_launching(s))
        s->share.sum_gains(s->share.user, sums, (size_t)count, t, s->main);
}

bool share_keys(const step *s)
{
    return share_on(s) && layer_shape_of(&s->o.config, step_split(&s->o)).sharers_kv > 1;
}

void share_keys_sum(step *s, void *sums, sb_dtype t)
{
    if (s->share.sum_kv && step_launching(s))
        s->share.sum_kv(s->share.user, sums, 2 * (size_t)s->kv * (size_t)s->d, t, s->main);
}

/* ---- the loss ---- */

enum { NUMBERS = 3 }; /* of a row; sb_vocab_loss */

static sb_vocab_loss loss_of(const step *s, int first, int rows, bool backward)
{
    const layer_shape shape = layer_shape_of(&s->o.config, step_split(&s->o));
    const int left = s->o.config.vocab - shape.first_id, own = left < s->vocab ? left : s->vocab;
    return (sb_vocab_loss){.dtype = s->dtype,
                           .rows = rows,
                           .columns = own > 0 ? own : 0,
                           .ld = s->vocab,
                           .first_id = shape.first_id,
                           .ranks = step_split(&s->o).ranks,
                           .total_rows = (int64_t)s->tokens * s->micro_batches * (s->o.ranks > 1 ? s->o.ranks : 1),
                           .targets = s->targets + (int64_t)s->micro->number * s->tokens + first,
                           .row_loss = s->row_loss + first,
                           .loss = s->loss + s->micro->number,
                           .scale = s->state && s->o.precision->loss_scaling ? &s->state->loss_scale : NULL,
                           .backward = backward};
}

/* All ranks' logits on each, which makes the numbers of all by itself: for comparison with three numbers a row. */
static void gather_logits(step *s, sb_vocab_loss p, arena_slot logits, float *partials)
{
    const size_t count = (size_t)p.rows * (size_t)p.ld;
    arena_slot all = step_take(s, (size_t)p.ranks * count * (size_t)s->element, MEMORY_TEMPORARY, -1, "all logits");
    if (step_launching(s) && s->share.gather)
        s->share.gather(s->share.user, step_pointer(s, logits), step_pointer(s, all), count, s->dtype, s->main);
    for (int k = 0; k < p.ranks; k++) {
        const int left = s->o.config.vocab - k * p.ld;
        p.first_id = k * p.ld, p.columns = left < 0 ? 0 : left < p.ld ? left : p.ld;
        p.logits = step_at(step_pointer(s, all), (int64_t)k * (int64_t)count * s->element);
        p.partial = partials ? partials + (size_t)k * (size_t)p.rows * NUMBERS : NULL;
        if (step_go(s))
            step_done(s, s->k->train->vocab_loss_partial(s->ctx, &p, s->main));
    }
    step_drop(s, &all);
}

void share_loss(step *s, int first, int rows, arena_slot logits, bool backward)
{
    sb_vocab_loss p = loss_of(s, first, rows, backward);
    const size_t own = (size_t)rows * NUMBERS, rank = (size_t)step_split(&s->o).rank;
    arena_slot all = step_take(s, own * (size_t)p.ranks * sizeof(float), MEMORY_TEMPORARY, -1, "loss of all");
    float *partials = step_pointer(s, all);
    range_push("loss");
    p.logits = step_pointer(s, logits);
    p.partial = partials ? partials + rank * own : NULL;
    p.partials = partials;
    if (step_launching(s) && s->share.loss)
        s->share.loss(s->share.user, &p);
    if (s->o.gather_logits) {
        gather_logits(s, p, logits, partials);
    } else {
        if (step_go(s))
            step_done(s, s->k->train->vocab_loss_partial(s->ctx, &p, s->main));
        if (step_launching(s) && s->share.gather)
            s->share.gather(s->share.user, p.partial, partials, own, SB_FP32, s->main);
    }
    if (step_go(s))
        step_done(s, s->k->train->vocab_loss_finish(s->ctx, &p, s->main));
    range_pop();
    step_drop(s, &all);
}
