/* SPDX-License-Identifier: MIT */
/* AdamW in a step: over ranges of the index space while backward goes on, or over everything after it. */
#include "common/step/optimizer.h"

enum { GROWTH_INTERVAL = 2000 /* good steps before the loss scale doubles, as in torch.amp.GradScaler */ };

/* Where the gradients of a range lie whose state starts at state_first. */
static const char *grads_at(const step *s, int64_t first, int64_t state_first)
{
    const char *arena = s->grad_sums ? s->grad_sums : s->block;
    return step_at((char *)arena, (s->o.shard.grads ? state_first : first) * s->grad_element);
}

bool optimizer_wants_statistics(const step *s)
{
    return s->o.precision->loss_scaling || s->o.clip_norm > 0;
}

bool optimizer_overlaps(const step *s)
{
    /* Statistics over all gradients must be known before the first update. */
    const bool alone = s->overlap == OVERLAP_ALL && s->micro_batches == 1 && s->part_count == 1 && !s->splits;
    return s->o.mode == STEP_TRAIN && (alone || s->o.update_units) && !s->eager && !optimizer_wants_statistics(s) &&
           !s->hooks.update && s->o.split_layers.ranks <= 1;
}

void optimizer_begin(step *s, void *stream)
{
    const sb_optimizer_begin p = {.state = s->state,
                                  .beta1 = s->o.beta1,
                                  .beta2 = s->o.beta2,
                                  .clip_norm = (float)s->o.clip_norm,
                                  .dynamic_scale = s->o.precision->loss_scaling,
                                  .growth_interval = GROWTH_INTERVAL,
                                  .rates = s->rates,
                                  .norms = s->norms,
                                  .updates = s->updates};
    if (step_go(s))
        step_done(s, s->k->train->optimizer_begin(s->ctx, &p, stream));
}

/* On `count` parameters whose state starts at state_first, without parameters and gradients. */
static sb_adamw update_of(const step *s, int64_t first, int64_t count, int64_t state_first, int max_blocks)
{
    const precision *policy = s->o.precision;
    const int64_t moment = s->moment_element, master = precision_master_bytes(policy);
    return (sb_adamw){.state = s->state,
                      .dtype_param = s->param_dtype,
                      .dtype_grad = s->grad_dtype,
                      .dtype_moments = s->moment_dtype,
                      .master_kind = policy->master,
                      .stochastic = s->o.moments == MOMENTS_BF16,
                      .first = (uint64_t)first, /* in all layers and ranks: parts have the bits of the whole */
                      .n = (size_t)count,
                      .master = master ? s->master + state_first * master : NULL,
                      .m = s->m + state_first * moment,
                      .v = s->v + state_first * moment,
                      .beta1 = s->o.beta1,
                      .beta2 = s->o.beta2,
                      .eps = s->o.eps,
                      .weight_decay = s->o.weight_decay,
                      .max_blocks = max_blocks};
}

void optimizer_range(step *s, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    for (int64_t n; count > 0; first += n, state_first += n, count -= n) {
        int64_t place = first;
        n = s->o.moments == MOMENTS_BF16 ? params_run(s->params, first, count, &place) : count;
        sb_adamw p = update_of(s, place, n, state_first, max_blocks);
        p.param = s->param + (s->o.shard.params ? state_first : first) * s->param_element;
        if (!step_go(s))
            continue;
        p.grad = grads_at(s, first, state_first);
        step_done(s, s->k->train->adamw(s->ctx, &p, stream));
    }
}

void optimizer_peer_range(step *s, sb_direct_adamw p, int64_t first, int64_t count, int64_t state_first, int max_blocks,
                          void *stream)
{
    p.update = update_of(s, first, count, state_first, max_blocks);
    if (step_go(s))
        step_done(s, sb_cuda_direct_adamw(&p, stream));
}

static sb_grad_stats grad_stats(sb_optimizer_state *state, sb_dtype dtype, const void *grad, int64_t n)
{
    return (sb_grad_stats){.state = state, .dtype = dtype, .n = (size_t)n, .grad = grad};
}

static void run_stats(step *s, sb_grad_stats p, void *stream)
{
    p.workspace_bytes = s->k->train->grad_stats_workspace(s->ctx, &p);
    p.workspace = step_pointer(s, s->stats_workspace);
    if (step_go(s))
        step_done(s, s->k->train->grad_stats(s->ctx, &p, stream));
}

/* Also where a hook then does without, so that every walk takes what the plan has. */
void optimizer_take_workspace(step *s)
{
    const sb_grad_stats p = grad_stats(s->state, s->grad_dtype, NULL, s->params->elements);
    s->stats_workspace = -1;
    if (optimizer_wants_statistics(s))
        s->stats_workspace =
            step_take(s, s->k->train->grad_stats_workspace(s->ctx, &p), MEMORY_WORKSPACE, -1, "gradient norm");
}

void optimizer_drop_workspace(step *s)
{
    step_drop(s, &s->stats_workspace);
}

void optimizer_all(step *s)
{
    if (optimizer_wants_statistics(s))
        run_stats(s, grad_stats(s->state, s->grad_dtype, grads_at(s, 0, 0), s->params->elements), s->main);
    optimizer_begin(s, s->main);
    if (!s->eager) {
        optimizer_range(s, 0, s->params->elements, 0, 0, s->main);
        return;
    }
    for (int i = 0; i < s->params->count; i++) { /* an eager framework's: tensor by tensor */
        const int64_t first = s->params->tensors[i].first;
        optimizer_range(s, first, s->params->tensors[i].count, first, 0, s->main);
    }
}

void optimizer_range_norm(step *s, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream)
{
    run_stats(s, grad_stats(s->range_state, s->grad_dtype, grads_at(s, first, state_first), count), stream);
    if (s->status == SB_OK)
        device_stream_copy(s->dev, stream, norm, &s->range_state->grad_norm, sizeof *norm);
}

void optimizer_take_norms(step *s, const float *norms, int n, void *stream)
{
    run_stats(s, grad_stats(s->state, SB_FP32, norms, n), stream);
}
