/* SPDX-License-Identifier: MIT */
/* The options of a training step by name, and their defaults. */
#include "common/step/options.h"

#include <string.h>

#include "common/core/error.h"
#include "common/formulas/offload.h"

static int parse(const char *name, const char *const names[], int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(name, names[i]))
            return i;
    die(EXIT_CODE_USAGE, "no such %s: %s", what, name);
}

step_mode step_mode_parse(const char *name)
{
    static const char *const names[] = {"forward", "forward-backward", "train-step"};
    return (step_mode)parse(name, names, 3, "mode");
}

recompute recompute_parse(const char *name)
{
    const char *names[RECOMPUTE_KINDS];
    for (int i = 0; i < RECOMPUTE_KINDS; i++)
        names[i] = recompute_name((recompute)i);
    return (recompute)parse(name, names, RECOMPUTE_KINDS, "recompute mode");
}

int step_micro_batches(const step_options *o)
{
    return o->micro_batches > 1 ? o->micro_batches : 1;
}

int step_context_ranks(const step_options *o)
{
    return o->context.ranks > 1 ? o->context.ranks : 1;
}

context_shape step_context_shape(const step_options *o)
{
    const int ranks = step_context_ranks(o);
    return (context_shape){ranks, o->context.contiguous, true, (int64_t)o->seq * ranks};
}

recompute_schedule step_schedule(const step_options *o)
{
    if (o->schedule)
        return *o->schedule;
    recompute_schedule s = recompute_uniform(o->config.layers, o->recompute, o->recompute_every);
    if (o->offload && o->mode != STEP_FORWARD)
        offload_every(&s, o->offload, o->offload_every > 1 ? o->offload_every : 1);
    return s;
}

static const char *const overlap_names[] = {"none", "gradients", "all", "auto"};

overlap overlap_parse(const char *name)
{
    return (overlap)parse(name, overlap_names, 4, "way of overlap");
}

const char *overlap_name(overlap o)
{
    return overlap_names[o];
}

fusion fusion_parse(const char *name)
{
    static const char *const names[] = {"none", "kernels", "graph"};
    return (fusion)parse(name, names, 3, "fusion level");
}

sb_dtype step_made_dtype(const step_options *o)
{
    return o->grad_fp32 ? SB_FP32 : o->precision->grad;
}

sb_dtype step_sums_dtype(const step_options *o)
{
    return o->sums == SUMS_FP32 ? SB_FP32 : o->sums == SUMS_BF16 ? SB_BF16 : step_made_dtype(o);
}

/* Products write their operands' dtype or fp32. Slices are summed by their strategy. A single batch stays in the dtype in
 * which it is made, and in its bits. */
bool step_sums_in_products(const step_options *o)
{
    const sb_dtype sums = step_sums_dtype(o);
    return step_micro_batches(o) > 1 && !o->shard.grads && (sums == step_made_dtype(o) || sums == SB_FP32);
}

step_options step_defaults(void)
{
    return (step_options){.config = *model_size_find("small"),
                          .batch = 4,
                          .seq = 128,
                          .mode = STEP_TRAIN,
                          .precision = precision_find("fp32"),
                          .attention = "flash",
                          .recompute_every = 1,
                          .fusion = FUSION_GRAPH,
                          .overlap = OVERLAP_AUTO,
                          .share_grad_memory = true,
                          .lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .weight_decay = 0.01,
                          .seed = 1};
}
