/* SPDX-License-Identifier: MIT */
/* Small ops on tensors of any dtype; see mixed.h. */
#include "bench/mixed/mixed.h"

#include <stdlib.h>

#include "common/core/error.h"
#include "common/model/dtypes.h"
#include "common/session/status.h"

bool mixed_ok(mixed *m, sb_status status)
{
    return status_ok(m->w, status, NULL);
}

mixed_tensor mixed_new(mixed *m, sb_dtype dtype, size_t n, const char *tag)
{
    return (mixed_tensor){memory_alloc(m->s->mem, n * (size_t)sb_dtype_bytes(dtype), tag), dtype};
}

void mixed_upload(mixed *m, mixed_tensor to, const float *from, size_t n)
{
    size_t bytes = n * (size_t)sb_dtype_bytes(to.dtype);
    OWNED void *raw = xmalloc(bytes);
    dtype_store(to.dtype, raw, from, n);
    device_upload(m->s->dev, to.p, raw, bytes);
}

void mixed_download(mixed *m, float *to, mixed_tensor from, size_t n)
{
    size_t bytes = n * (size_t)sb_dtype_bytes(from.dtype);
    OWNED void *raw = xmalloc(bytes);
    device_download(m->s->dev, raw, from.p, bytes);
    dtype_load(from.dtype, to, raw, n);
}

bool mixed_point(mixed *m, sb_point op, int rows, int columns, mixed_tensor a, mixed_tensor b, sb_spread spread,
                 float scalar, mixed_tensor out)
{
    const sb_pointwise p = {.op = op,
                            .dtype_a = a.dtype,
                            .dtype_b = b.dtype,
                            .dtype_out = out.dtype,
                            .rows = rows,
                            .columns = columns,
                            .lda = columns,
                            .ldb = columns,
                            .ld_out = columns,
                            .spread_b = spread,
                            .a = a.p,
                            .b = b.p,
                            .out = out.p,
                            .scalar = scalar};
    return mixed_ok(m, m->kernels->train->pointwise(m->ctx, &p, device_stream(m->s->dev)));
}
