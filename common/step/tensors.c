/* SPDX-License-Identifier: MIT */
/* Parameters and gradients by their names, and the hooks that are told when they are needed and final. */
#include "common/step/tensors.h"

#include "common/step/units.h"

static int64_t first_of(const step *s, param_kind kind, int layer)
{
    return params_find(s->params, kind, layer)->first;
}

void *step_param(const step *s, param_kind kind, int layer)
{
    return unit_param(s, params_find(s->params, kind, layer));
}

/* Where the tensor behind these `count` elements starts: between them is padding, and behind the last one to the end. */
static int64_t next_of(const step *s, param_kind kind, int layer, int64_t end)
{
    const param_tensor *next = params_find(s->params, kind, layer) + 1, *none = s->params->tensors + s->params->count;
    while (next < none && next->first < end)
        next++;
    return next < none ? next->first : s->params->elements;
}

void *step_grad(step *s, param_kind kind, int layer, int64_t count)
{
    static const char *const names[PARAM_KINDS] = {
        [PARAM_LM_HEAD] = "d_lm_head", [PARAM_LN_FINAL] = "d_ln_final", [PARAM_W2] = "d_w2",
        [PARAM_W1] = "d_w13",          [PARAM_LN2] = "d_ln2",           [PARAM_O] = "d_o",
        [PARAM_Q] = "d_qkv",           [PARAM_LN1] = "d_ln1",           [PARAM_EMBEDDING] = "d_embedding"};
    const int64_t first = first_of(s, kind, layer), end = first + count, next = next_of(s, kind, layer, end);
    if (s->o.share_grad_memory && !unit_grads_apart(s))
        arena_fixed(s->arena, (size_t)(first * s->made_element), (size_t)((next - first) * s->made_element),
                    MEMORY_GRAD, layer, names[kind]);
    if (arena_planning(s->arena))
        return NULL;
    const int unit = params_unit_of(s->params, params_find(s->params, kind, layer));
    /* An activation may have lain here, and padding must be zero. */
    if (next > end && !s->adds)
        device_memset(s->dev, unit_grad(s, unit, end), 0, (size_t)((next - end) * s->made_element));
    return unit_grad(s, unit, first);
}

void step_ready(step *s, param_kind kind, int layer, int64_t count, void *stream)
{
    if (unit_ready_whole(s))
        return; /* unit_grads_end */
    if (s->params->gains_apart && param_is_gain(kind))
        return; /* all at once, when those of the last norm are there: units_end */
    if (s->hooks.ready && step_launching(s))
        s->hooks.ready(s->hooks.user, first_of(s, kind, layer), count, stream);
}

void step_need(step *s, int layer)
{
    int64_t first, count;
    if (!s->hooks.need || !step_launching(s))
        return;
    params_range(s->params, layer, &first, &count);
    s->hooks.need(s->hooks.user, first, count, s->main);
}
