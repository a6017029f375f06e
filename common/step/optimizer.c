/* SPDX-License-Identifier: MIT */
/* AdamW in a step: over ranges of the index space while backward goes on, or over everything after it. */
#include "common/step/step.h"

enum { GROWTH_INTERVAL = 2000 /* good steps before the loss scale doubles, as in torch.amp.GradScaler */ };

/* Those of a range whose state starts at state_first. */
static const char *grads_at(const trainer *t, int64_t first, int64_t state_first)
{
    const char *arena = t->grad_sums ? t->grad_sums : t->block;
    return step_at((char *)arena, (t->o.shard.grads ? state_first : first) * t->grad_element);
}

static bool wants_statistics(const trainer *t)
{
    return t->o.precision->loss_scaling || t->o.clip_norm > 0;
}

bool optimizer_overlaps(const trainer *t)
{
    /* Statistics over all gradients must be known before the first update. */
    return t->o.mode == STEP_TRAIN && t->overlap == OVERLAP_ALL && !t->eager && !wants_statistics(t) &&
           t->micro_batches == 1 && !t->hooks.update;
}

void optimizer_begin(trainer *t, void *stream)
{
    const sb_optimizer_begin p = {.state = t->state,
                                  .beta1 = t->o.beta1,
                                  .beta2 = t->o.beta2,
                                  .clip_norm = (float)t->o.clip_norm,
                                  .dynamic_scale = t->o.precision->loss_scaling,
                                  .growth_interval = GROWTH_INTERVAL};
    if (step_go(t))
        step_done(t, t->k->train->optimizer_begin(t->ctx, &p, stream));
}

/* On `count` parameters whose state starts at state_first, without parameters and gradients. */
static sb_adamw update_of(const trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks)
{
    const precision *policy = t->o.precision;
    const int64_t moment = t->moment_element, master = precision_master_bytes(policy);
    return (sb_adamw){.state = t->state,
                      .dtype_param = t->param_dtype,
                      .dtype_grad = t->grad_dtype,
                      .dtype_moments = t->moment_dtype,
                      .master_kind = policy->master,
                      .stochastic = t->o.moments == MOMENTS_BF16,
                      .first = (uint64_t)first, /* of all ranks' index space: slices have the bits of the whole */
                      .n = (size_t)count,
                      .master = master ? t->master + state_first * master : NULL,
                      .m = t->m + state_first * moment,
                      .v = t->v + state_first * moment,
                      .beta1 = t->o.beta1,
                      .beta2 = t->o.beta2,
                      .eps = t->o.eps,
                      .weight_decay = t->o.weight_decay,
                      .max_blocks = max_blocks};
}

void optimizer_range(trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    sb_adamw p = update_of(t, first, count, state_first, max_blocks);
    p.param = t->param + (t->o.shard.params ? state_first : first) * t->param_element;
    if (!step_go(t))
        return;
    p.grad = grads_at(t, first, state_first);
    step_done(t, t->k->train->adamw(t->ctx, &p, stream));
}

static sb_grad_stats grad_stats(sb_optimizer_state *state, sb_dtype dtype, const void *grad, int64_t n)
{
    return (sb_grad_stats){.state = state, .dtype = dtype, .n = (size_t)n, .grad = grad};
}

static void run_stats(trainer *t, sb_grad_stats p, void *stream)
{
    p.workspace_bytes = t->k->train->grad_stats_workspace(t->ctx, &p);
    p.workspace = step_pointer(t, t->stats_workspace);
    if (step_go(t))
        step_done(t, t->k->train->grad_stats(t->ctx, &p, stream));
}

/* Also where a hook then does without, so that every walk takes what the plan has. */
void optimizer_take_workspace(trainer *t)
{
    const sb_grad_stats p = grad_stats(t->state, t->grad_dtype, NULL, t->params->elements);
    t->stats_workspace = -1;
    if (wants_statistics(t))
        t->stats_workspace =
            step_take(t, t->k->train->grad_stats_workspace(t->ctx, &p), MEMORY_WORKSPACE, -1, "gradient norm");
}

void optimizer_drop_workspace(trainer *t)
{
    step_drop(t, &t->stats_workspace);
}

void optimizer_all(trainer *t)
{
    if (wants_statistics(t))
        run_stats(t, grad_stats(t->state, t->grad_dtype, grads_at(t, 0, 0), t->params->elements), t->main);
    optimizer_begin(t, t->main);
    if (!t->eager) {
        optimizer_range(t, 0, t->params->elements, 0, 0, t->main);
        return;
    }
    for (int i = 0; i < t->params->count; i++) { /* an eager framework's: tensor by tensor */
        const int64_t first = t->params->tensors[i].first;
        optimizer_range(t, first, t->params->tensors[i].count, first, 0, t->main);
    }
}

bool trainer_optimizer(trainer *t)
{
    t->status = SB_OK;
    arena_run_begin(t->arena); /* not a walk of the step: only its pointers are used, and no run_end checks it */
    optimizer_begin(t, t->main);
    optimizer_range(t, 0, t->o.state_elements ? t->o.state_elements : t->params->elements, 0, 0, t->main);
    return t->status == SB_OK;
}

bool trainer_update_begin(trainer *t, void *stream)
{
    optimizer_begin(t, stream);
    return t->status == SB_OK;
}

bool trainer_update_range(trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    optimizer_range(t, first, count, state_first, max_blocks, stream);
    return t->status == SB_OK;
}

bool trainer_update_pass(trainer *t, sb_peer_adamw p, int64_t first, int64_t count, int64_t state_first, int max_blocks,
                         void *stream)
{
    p.update = update_of(t, first, count, state_first, max_blocks);
    if (step_go(t))
        step_done(t, sb_cuda_peer_adamw(&p, stream));
    return t->status == SB_OK;
}

bool trainer_update_all(trainer *t)
{
    optimizer_all(t);
    return t->status == SB_OK;
}

bool trainer_range_norm(trainer *t, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream)
{
    run_stats(t, grad_stats(t->range_state, t->grad_dtype, grads_at(t, first, state_first), count), stream);
    if (t->status == SB_OK)
        device_stream_copy(t->dev, stream, norm, &t->range_state->grad_norm, sizeof *norm);
    return t->status == SB_OK;
}

bool trainer_take_norms(trainer *t, const float *norms, int n, void *stream)
{
    run_stats(t, grad_stats(t->state, SB_FP32, norms, n), stream);
    return t->status == SB_OK;
}

bool trainer_update_wants_all(const trainer *t)
{
    return wants_statistics(t);
}

double trainer_optimizer_bytes(const trainer *t)
{
    const precision *p = t->o.precision;
    const double param = t->param_element, master = precision_master_bytes(p), moment = t->moment_element;
    /* Beside an fp32 master the 16-bit parameter is only written. */
    const double reads = (p->master == SB_MASTER_FP32 ? 0 : param) + master + t->grad_element + 2 * moment;
    const double writes = param + master + 2 * moment;
    return (reads + writes) * (double)t->params->elements;
}
