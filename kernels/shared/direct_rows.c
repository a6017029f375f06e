/* SPDX-License-Identifier: MIT */
/* Argument checks of direct_rows.h, which need no GPU. */
#include "kernels/shared/direct_rows.h"

#include "kernels/shared/internal.h"

sb_status sb_direct_await_check(const sb_direct_await *p)
{
    if (p->count < 1 || p->count > SB_DIRECT_RANKS_MAX)
        return sb_error(SB_INVALID, "a wait is for 1 to %d flags, not %d", SB_DIRECT_RANKS_MAX, p->count);
    for (int i = 0; i < p->count; i++)
        if (!p->flags[i] || (uintptr_t)p->flags[i] % 4)
            return sb_error(SB_INVALID, "flag %d is %s", i, p->flags[i] ? "not 4-byte aligned" : "NULL");
    if (!p->number || !p->leave)
        return sb_error(SB_INVALID, "%s is NULL", p->number ? "leave" : "number");
    return SB_OK;
}

sb_status sb_direct_sum_check(const sb_direct_sum *p)
{
    const size_t element = (size_t)sb_dtype_bytes(p->dtype);
    uintptr_t all = (uintptr_t)p->out | (uintptr_t)p->residual;
    if (p->count < 1 || p->count > SB_DIRECT_RANKS_MAX)
        return sb_error(SB_INVALID, "a sum is of 1 to %d parts, not %d", SB_DIRECT_RANKS_MAX, p->count);
    if (element != 2 && element != 4)
        return sb_error(SB_UNSUPPORTED, "a sum of parts is in fp32, bf16 or fp16");
    for (int i = 0; i < p->count; i++) {
        if (!p->parts[i])
            return sb_error(SB_INVALID, "part %d of a sum is NULL", i);
        all |= (uintptr_t)p->parts[i];
    }
    if (!p->out || all % 16 || p->n * element % 16)
        return sb_error(SB_INVALID,
                        p->out ? "parts of a sum must be multiples of 16 bytes, 16-byte aligned" : "out is NULL");
    return SB_OK;
}
