/* SPDX-License-Identifier: MIT */
/* The argument checks of the matmul with SwiGLU: see train_check.h. */
#include "kernels/shared/train_check.h"

sb_status sb_swiglu_matmul_shape_check(const sb_swiglu_matmul *p)
{
    static const char op[] = "swiglu_matmul";
    if (p->rows < 1 || p->f < 1 || p->d < 1)
        return sb_error(SB_INVALID, "%s: rows %d, f %d and d %d must all be at least 1", op, p->rows, p->f, p->d);
    if (p->lda < p->d)
        return sb_error(SB_INVALID, "%s: lda %d is less than the %d columns of a row", op, p->lda, p->d);
    if (p->dtype != SB_BF16 && p->dtype != SB_FP16)
        return sb_error(SB_UNSUPPORTED, "%s: dtype %d is neither bf16 (0) nor fp16 (1)", op, (int)p->dtype);
    if (p->f % 8 != 0 || p->d % 8 != 0 || p->lda % 8 != 0)
        return sb_error(SB_UNSUPPORTED, "%s: f %d, d %d and lda %d must all be multiples of 8", op, p->f, p->d, p->lda);
    return SB_OK;
}

sb_status sb_swiglu_matmul_check(const sb_swiglu_matmul *p, bool backward)
{
    const char *op = backward ? "swiglu_matmul_backward" : "swiglu_matmul_forward";
    const struct {
        const char *name;
        const void *pointer;
    } needed[] = {{backward ? "dy" : "x", backward ? p->dy : p->x},
                  {backward ? "w2" : "w13", backward ? p->w2 : p->w13},
                  {backward ? "gate_up" : "h", backward ? p->gate_up : p->h}};
    const sb_status s = sb_swiglu_matmul_shape_check(p);
    if (s != SB_OK)
        return s;
    for (int i = 0; i < 3; i++)
        if (!needed[i].pointer)
            return sb_error(SB_INVALID, "%s: %s is missing (NULL)", op, needed[i].name);
    return SB_OK;
}
