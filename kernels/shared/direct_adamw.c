/* SPDX-License-Identifier: MIT */
/* Argument checks of AdamW between GPUs, which need no GPU; see direct_adamw.h. */
#include "kernels/shared/direct_adamw.h"

#include "kernels/shared/stochastic.h"
#include "kernels/shared/train_check.h"

static bool is_fp32(sb_dtype t)
{
    return t == SB_FP32 || t == SB_TF32;
}

static bool has_kernel(const sb_adamw *u)
{
    const sb_dtype t = u->dtype_param;
    if (is_fp32(t))
        return u->master_kind == SB_MASTER_NONE && is_fp32(u->dtype_grad) && is_fp32(u->dtype_moments);
    return t == SB_BF16 && (is_fp32(u->dtype_grad) || u->dtype_grad == SB_BF16) &&
           ((u->master_kind == SB_MASTER_SPLIT && (is_fp32(u->dtype_moments) || u->stochastic)) ||
            (u->master_kind == SB_MASTER_NONE && u->dtype_moments == SB_BF16 && !u->stochastic));
}

static bool misaligned(const void *p)
{
    return (uintptr_t)p % 16;
}

static sb_status check_memory(const sb_direct_adamw *p)
{
    for (int r = 0; r < p->ranks; r++) {
        if (!p->params[r] || !p->grads[r])
            return sb_error(SB_INVALID, "the %s of rank %d are NULL", p->params[r] ? "gradients" : "parameters", r);
        if (misaligned(p->params[r]) || misaligned(p->grads[r]))
            return sb_error(SB_INVALID, "the memory of rank %d is not aligned to 16 bytes", r);
    }
    if (misaligned(p->update.master) || misaligned(p->update.m) || misaligned(p->update.v) || misaligned(p->sums))
        return sb_error(SB_INVALID, "master, m, v and sums must be aligned to 16 bytes");
    return SB_OK;
}

sb_status sb_direct_adamw_check(const sb_direct_adamw *p)
{
    if (p->ranks < 1 || p->ranks > SB_DIRECT_RANKS_MAX)
        return sb_error(SB_UNSUPPORTED, "AdamW between GPUs is for 1 to %d ranks, not %d", SB_DIRECT_RANKS_MAX,
                        p->ranks);
    if (p->rank < 0 || p->rank >= p->ranks)
        return sb_error(SB_INVALID, "rank %d is none of the %d", p->rank, p->ranks);
    sb_adamw own = p->update;
    own.param = p->params[p->rank];
    own.grad = p->grads[p->rank];
    const sb_status s = sb_adamw_check(&own);
    if (s != SB_OK || own.n == 0)
        return s;
    if (own.n % 4 || own.n >= (size_t)1 << 32)
        return sb_error(SB_UNSUPPORTED, "AdamW between GPUs takes a multiple of 4 parameters below 2^32, not %zu",
                        own.n);
    if (own.stochastic && own.first % SB_STOCHASTIC_GROUP)
        return sb_error(SB_INVALID, "`first` must be a multiple of %d, not %llu", SB_STOCHASTIC_GROUP,
                        (unsigned long long)own.first);
    if (!has_kernel(&own))
        return sb_error(SB_UNSUPPORTED, "AdamW between GPUs has no kernel for these dtypes and master weights");
    return check_memory(p);
}
