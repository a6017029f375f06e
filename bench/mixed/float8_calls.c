/* SPDX-License-Identifier: MIT */
/* The calls of a product of float8; see float8.h. */
#include "bench/mixed/float8.h"

static void *stream_of(const float8_case *f)
{
    return device_stream(f->m->s->dev);
}

bool float8_amax(float8_case *f, float8_side *s)
{
    const sb_amax p = {.dtype = SB_BF16,
                       .rows = s->rows,
                       .columns = s->k,
                       .ld = s->k,
                       .x = s->x,
                       .of_all = s->of_all,
                       .of_rows = s->of_rows,
                       .of_columns = s->of_columns};
    return mixed_ok(f->m, f->m->kernels->train->amax(f->m->ctx, &p, stream_of(f)));
}

bool float8_cast(float8_case *f, float8_side *s)
{
    const sb_quantize p = {.dtype = SB_BF16,
                           .format = s->as.format,
                           .scaling = s->as.scaling,
                           .rows = s->rows,
                           .columns = s->k,
                           .ld = s->k,
                           .x = s->x,
                           .amax = s->as.scaling == SB_SCALE_TENSOR ? s->of_all : s->of_rows,
                           .amax_t = s->of_columns,
                           .y = s->codes,
                           .ld_y = s->k,
                           .scales = s->scales,
                           .y_t = s->codes_t,
                           .ld_t = s->rows,
                           .scales_t = s->scales_t,
                           .counts = s->counts};
    return mixed_ok(f->m, f->m->kernels->train->quantize(f->m->ctx, &p, stream_of(f)));
}

sb_matmul float8_matmul(const float8_case *f)
{
    sb_matmul p = {.dtype = SB_BF16,
                   .dtype_out = SB_BF16,
                   .transpose_b = true,
                   .m = f->rows,
                   .n = f->columns,
                   .k = f->k,
                   .lda = f->k,
                   .ldb = f->k,
                   .ldd = f->columns,
                   .a = f->a.x,
                   .b = f->b.x,
                   .d = f->d,
                   .workspace = f->workspace,
                   .workspace_bytes = f->workspace_bytes};
    if (f->product) {
        p.dtype = f->a.as.format, p.dtype_b = f->b.as.format;
        p.a = f->a.codes, p.b = f->b.codes;
        p.scaling_a = f->a.as.scaling, p.scaling_b = f->b.as.scaling;
        p.scale_a = f->a.scales, p.scale_b = f->b.scales;
        p.sums = f->product->sums;
    }
    return p;
}
