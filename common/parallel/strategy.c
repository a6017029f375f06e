/* SPDX-License-Identifier: MIT */
/* The table of strategies; see strategy.h. ZeRO-1 is that of Rajbhandari et al., 2020: a rank holds only the
 * optimizer state of its part, and updates that. zero1 sums only the gradients of its slices, half the bytes of an
 * all-reduce, and hides its all-gathers under the next forward; zero1-broadcast is the way of CS336's handout, and
 * fused does the work of zero1 in one pass over the memory of all ranks. zero2 and
 * fsdp (ZeRO-3) are the next stages of that paper, unit by unit as in Zhao et al., 2023. */
#include "common/parallel/strategy.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
const strategy parallel_strategies[] = {
    /* name               grouping      when        reduce          gradients           parameters           share            packed grouped */
    {"naive",           GROUP_TENSOR, WHEN_AFTER, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_NONE,      false, false,
     "an all-reduce per tensor, after the backward"},
    {"naive-grouped",   GROUP_TENSOR, WHEN_AFTER, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_NONE,      false, true,
     "the same in one launch"},
    {"flat",            GROUP_WHOLE,  WHEN_AFTER, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_NONE,      false, false,
     "one all-reduce of all gradients, after the backward, in place"},
    {"flat-copy",       GROUP_WHOLE,  WHEN_AFTER, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_NONE,      true,  false,
     "the same through a second buffer, to which every tensor is copied, and from it back"},
    {"overlap",         GROUP_TENSOR, WHEN_READY, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_NONE,      false, false,
     "an all-reduce per tensor, as soon as its gradient is ready"},
    {"bucketed",        GROUP_BUCKET, WHEN_READY, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_NONE,      false, false,
     "an all-reduce per bucket of tensors, as soon as it is ready"},
    {"zero1",           GROUP_BUCKET, WHEN_READY, REDUCE_SCATTER, GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_GATHER,    false, false,
     "reduce-scatter of gradients, AdamW on a slice of each bucket, all-gather during the next forward"},
    {"zero1-broadcast", GROUP_BUCKET, WHEN_READY, REDUCE_ALL,     GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_BROADCAST, false, false,
     "all-reduce, AdamW on whole tensors, each broadcast by its owner"},
    {"fused",           GROUP_BUCKET, WHEN_READY, REDUCE_FUSED,   GRADIENTS_RESIDENT, PARAMETERS_RESIDENT, SHARE_FUSED,     false, false,
     "as zero1 in one pass: a kernel adds up all ranks' gradients of a slice, updates it and stores it to all"},
    {"zero2",           GROUP_UNIT,   WHEN_READY, REDUCE_SCATTER, GRADIENTS_SLICED,   PARAMETERS_RESIDENT, SHARE_GATHER,    false, false,
     "as zero1, unit by unit, and a rank keeps only its slices of the summed gradients"},
    {"fsdp",            GROUP_UNIT,   WHEN_READY, REDUCE_SCATTER, GRADIENTS_SLICED,   PARAMETERS_GATHERED, SHARE_ON_USE,    false, false,
     "as zero2, and only its slices of the parameters: units are gathered before each use and freed after it"},
    {"fsdp-keep",       GROUP_UNIT,   WHEN_READY, REDUCE_SCATTER, GRADIENTS_SLICED,   PARAMETERS_KEPT,     SHARE_ON_USE,    false, false,
     "as fsdp, but what the forward has gathered stays for the backward"},
    {"fsdp-no-sync",    GROUP_UNIT,   WHEN_READY, REDUCE_SCATTER, GRADIENTS_RESIDENT, PARAMETERS_HELD,     SHARE_ON_USE,    false, false,
     "as fsdp-keep, but gathered parameters and gradients stay whole until a step's last micro-batch"},
    {"hsdp",            GROUP_UNIT,   WHEN_READY, REDUCE_HYBRID,  GRADIENTS_SLICED,   PARAMETERS_GATHERED, SHARE_ON_USE,    false, false,
     "fsdp within each of several replicas, whose slices of gradients are then summed by all-reduces"},
    {.name = NULL}};
/* clang-format on */

bool strategy_slices(const strategy *s)
{
    return s->share == SHARE_GATHER || s->share == SHARE_FUSED || s->share == SHARE_ON_USE;
}

bool strategy_fused(const strategy *s)
{
    return s->share == SHARE_FUSED;
}

const strategy *parallel_strategy(const char *name)
{
    for (const strategy *s = parallel_strategies; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}
