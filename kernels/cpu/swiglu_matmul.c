/* SPDX-License-Identifier: MIT */
/* The matmul with SwiGLU at its end: the two ops it stands for, on one tile after the other, so that the
 * intermediate result needs no more memory than a tile on the stack. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <string.h>

enum { TILE = 128, ELEMENT = 2 /* bytes */ };

/* Rows and columns of gate, of up and of h, from (row, column) on. */
typedef struct window {
    int row, column, rows, columns;
} window;

static window window_at(const sb_swiglu_matmul *p, int row, int column)
{
    return (window){row, column, p->rows - row < TILE ? p->rows - row : TILE,
                    p->f - column < TILE ? p->f - column : TILE};
}

static char *at(const void *x, size_t element)
{
    return (char *)x + element * ELEMENT;
}

/* Between a matrix whose rows have `ld` elements and a tile's columns among rows of `tile_ld`. */
static void copy_rows(void *to, size_t to_ld, const void *from, size_t from_ld, window w)
{
    for (int i = 0; i < w.rows; i++)
        memcpy(at(to, i * to_ld), at(from, i * from_ld), (size_t)w.columns * ELEMENT);
}

/* Where the window starts in gate_up (part 0: gate, 1: up) and in h. */
static char *gate_up_at(const sb_swiglu_matmul *p, window w, int part)
{
    return at(p->gate_up, ((size_t)w.row * 2 + (size_t)part) * (size_t)p->f + (size_t)w.column);
}

static char *h_at(const sb_swiglu_matmul *p, window w)
{
    return at(p->h, (size_t)w.row * (size_t)p->f + (size_t)w.column);
}

static sb_status forward_tile(const sb_swiglu_matmul *p, window w)
{
    _Alignas(64) char gate_up[2 * TILE * TILE * ELEMENT], h[TILE * TILE * ELEMENT];
    sb_matmul product = {.dtype = p->dtype,
                         .dtype_out = p->dtype,
                         .transpose_b = true,
                         .m = w.rows,
                         .n = w.columns,
                         .k = p->d,
                         .lda = p->lda,
                         .ldb = p->d,
                         .ldd = 2 * w.columns,
                         .a = at(p->x, (size_t)w.row * (size_t)p->lda)};
    const sb_swiglu end = {.dtype = p->dtype, .rows = w.rows, .f = w.columns, .gate_up = gate_up, .h = h};
    sb_status s = SB_OK;
    for (int part = 0; part < 2 && s == SB_OK; part++) {
        product.b = at(p->w13, ((size_t)part * (size_t)p->f + (size_t)w.column) * (size_t)p->d);
        product.d = at(gate_up, (size_t)part * (size_t)w.columns);
        s = cpu_matmul(NULL, &product, NULL);
        if (p->gate_up)
            copy_rows(gate_up_at(p, w, part), 2 * (size_t)p->f, product.d, 2 * (size_t)w.columns, w);
    }
    if (s == SB_OK)
        s = cpu_swiglu_forward(NULL, &end, NULL);
    copy_rows(h_at(p, w), (size_t)p->f, h, (size_t)w.columns, w);
    return s;
}

static sb_status backward_tile(const sb_swiglu_matmul *p, window w)
{
    _Alignas(64) char gate_up[2 * TILE * TILE * ELEMENT], dh[TILE * TILE * ELEMENT];
    const sb_matmul product = {.dtype = p->dtype,
                               .dtype_out = p->dtype,
                               .m = w.rows,
                               .n = w.columns,
                               .k = p->d,
                               .lda = p->lda,
                               .ldb = p->f,
                               .ldd = w.columns,
                               .a = at(p->dy, (size_t)w.row * (size_t)p->lda),
                               .b = at(p->w2, (size_t)w.column),
                               .d = dh};
    const sb_swiglu end = {.dtype = p->dtype,
                           .rows = w.rows,
                           .f = w.columns,
                           .gate_up = gate_up,
                           .h = p->h ? dh : NULL,
                           .dh = dh,
                           .d_gate_up = gate_up};
    sb_status s = cpu_matmul(NULL, &product, NULL);
    for (int part = 0; part < 2; part++)
        copy_rows(at(gate_up, (size_t)part * (size_t)w.columns), 2 * (size_t)w.columns, gate_up_at(p, w, part),
                  2 * (size_t)p->f, w);
    if (s == SB_OK)
        s = cpu_swiglu_backward(NULL, &end, NULL);
    for (int part = 0; part < 2; part++)
        copy_rows(gate_up_at(p, w, part), 2 * (size_t)p->f, at(gate_up, (size_t)part * (size_t)w.columns),
                  2 * (size_t)w.columns, w);
    if (p->h)
        copy_rows(h_at(p, w), (size_t)p->f, dh, (size_t)w.columns, w);
    return s;
}

static sb_status each_tile(const sb_swiglu_matmul *p, bool backward)
{
    sb_status s = sb_swiglu_matmul_check(p, backward);
    for (int row = 0; row < p->rows && s == SB_OK; row += TILE)
        for (int column = 0; column < p->f && s == SB_OK; column += TILE) {
            const window w = window_at(p, row, column);
            s = backward ? backward_tile(p, w) : forward_tile(p, w);
        }
    return s;
}

sb_status cpu_swiglu_matmul_supported(sb_context *ctx, const sb_swiglu_matmul *p)
{
    (void)ctx;
    return sb_swiglu_matmul_shape_check(p);
}

sb_status cpu_swiglu_matmul_forward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream)
{
    (void)ctx, (void)stream;
    return each_tile(p, false);
}

sb_status cpu_swiglu_matmul_backward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream)
{
    (void)ctx, (void)stream;
    return each_tile(p, true);
}
