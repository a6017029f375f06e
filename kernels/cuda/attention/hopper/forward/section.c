/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/attention/hopper/forward/section.h"

#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/shared/internal.h"

int flash_forward_section(const sb_attention *a)
{
    const int group = a->heads / a->heads_kv;
    if (!a->causal && !a->windowed && !a->packed)
        return group;
    const int64_t bytes = (int64_t)a->seq_k * (a->head_dim + sb_head_dim_v(a)) * (flash_in_parts(a) ? 4 : 2);
    const int64_t all = (int64_t)a->batch * a->heads_kv, fit = (32 << 20) / bytes,
                  most = fit < 1     ? 1
                         : fit < all ? fit
                                     : all;
    const int64_t sections = (all + most - 1) / most, size = (all + sections - 1) / sections;
    const bool short_last = sections > 1 && 2 * (all - size * (sections - 1)) < size;
    return (int)(short_last ? (all + sections - 2) / (sections - 1) : size) * group;
}
