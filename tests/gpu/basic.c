/* SPDX-License-Identifier: MIT */
/* gemm, fill_normal, copy and the empty kernel. */
#include "tests/gpu/ops.h"

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double element(sb_dtype dtype, const void *data, size_t i)
{
    return dtype == SB_BF16   ? bf16_to_float(((const uint16_t *)data)[i])
           : dtype == SB_FP16 ? fp16_to_float(((const uint16_t *)data)[i])
                              : ((const float *)data)[i];
}

static void store(sb_dtype dtype, void *data, size_t i, float x)
{
    if (dtype == SB_BF16)
        ((uint16_t *)data)[i] = bf16_from_float(x);
    else if (dtype == SB_FP16)
        ((uint16_t *)data)[i] = fp16_from_float(x);
    else
        ((float *)data)[i] = x;
}

/* A device matrix of N(0,1), and the same as stored on the host. */
static guarded random_matrix(const runner *r, sb_dtype dtype, size_t n, uint32_t stream, double **values)
{
    const size_t bytes = n * (size_t)sb_dtype_bytes(dtype);
    OWNED float *x = xmalloc(n * sizeof *x);
    OWNED void *stored = xmalloc(bytes);
    *values = xcalloc(n, sizeof **values);
    rng_normal(x, n, 5, stream, 0, 1);
    for (size_t i = 0; i < n; i++) {
        store(dtype, stored, i, x[i]);
        (*values)[i] = element(dtype, stored, i);
    }
    guarded g = guarded_create(r, bytes);
    device_upload(r->dev, g.data, stored, bytes);
    return g;
}

static bool test_gemm(const runner *r, sb_dtype dtype, const char *name, int m, int n, int k)
{
    /* Rounding of the result for 16 bits, of the factors for tf32, of the sums for fp32 (which tf32 would fail). */
    static const double rel_l2[] = {4e-3, 5e-4, 1e-3, 2e-6};
    const check_bound bound = {.rel_l2 = rel_l2[dtype], .rel_row = 8 * rel_l2[dtype], .max_abs = 30 * rel_l2[dtype]};
    const size_t count = (size_t)m * (size_t)n, bytes = count * (size_t)sb_dtype_bytes(dtype);
    double *a_values, *b_values, *want = xcalloc(count, sizeof *want), *got = xcalloc(count, sizeof *got);
    OWNED unsigned char *stored = xmalloc(bytes);
    guarded a = random_matrix(r, dtype, (size_t)m * (size_t)k, 0, &a_values);
    guarded b = random_matrix(r, dtype, (size_t)n * (size_t)k, 1, &b_values);
    guarded c = guarded_create(r, bytes);
    bool ok = true;

    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < k; l++)
                want[(size_t)i * (size_t)n + (size_t)j] +=
                    a_values[(size_t)i * (size_t)k + (size_t)l] * b_values[(size_t)j * (size_t)k + (size_t)l];
    if (r->kernels->gemm(r->ctx, dtype, m, n, k, a.data, b.data, c.data, device_stream(r->dev)) != SB_OK)
        ok = runner_fail(r, "gemm", case_dtype_names[dtype], name, "%s", sb_last_message());
    device_sync(r->dev);
    device_download(r->dev, stored, c.data, bytes);
    for (size_t i = 0; i < count; i++)
        got[i] = element(dtype, stored, i);
    const check_result result = check_compare(want, got, count, (size_t)n, bound);
    if (ok && !result.ok) {
        char text[256];
        check_describe(&result, bound, text, sizeof text);
        ok = runner_fail(r, "gemm", case_dtype_names[dtype], name, "%s", text);
    }
    if (!guarded_intact(r, &c))
        ok = runner_fail(r, "gemm", case_dtype_names[dtype], name, "bytes around the result were written");
    guarded_free(r, &a);
    guarded_free(r, &b);
    guarded_free(r, &c);
    free(a_values);
    free(b_values);
    free(want);
    free(got);
    return ok;
}

static bool test_fill(const runner *r, sb_dtype dtype, const char *name, size_t n)
{
    const uint64_t seed = 0x123456789abcdef0u;
    const uint32_t stream = 3;
    const float scale = 0.5f;
    /* Half a unit in the last place of the dtype, and a few of fp32 for the device's logarithm, sine and cosine. */
    static const double rounding[] = {0x1p-8, 0x1p-11, 0, 0};
    const size_t bytes = n * (size_t)sb_dtype_bytes(dtype);
    OWNED float *want = xmalloc(n * sizeof *want);
    OWNED unsigned char *stored = xmalloc(bytes);
    guarded out = guarded_create(r, bytes);
    bool ok = true;

    rng_normal(want, n, seed, stream, 0, scale);
    if (r->kernels->fill_normal(r->ctx, dtype, out.data, n, seed, stream, scale, device_stream(r->dev)) != SB_OK)
        ok = runner_fail(r, "fill_normal", case_dtype_names[dtype], name, "%s", sb_last_message());
    device_sync(r->dev);
    device_download(r->dev, stored, out.data, bytes);
    for (size_t i = 0; i < n && ok; i++) {
        const double got = element(dtype, stored, i);
        if (!(fabs(got - want[i]) <= rounding[dtype] * fabs(want[i]) + 3e-6))
            ok = runner_fail(r, "fill_normal", case_dtype_names[dtype], name, "[%zu] is %.9g, not %.9g", i, got,
                             want[i]);
    }
    enum { FIRST = 8 };
    OWNED unsigned char *rest = xmalloc(bytes);
    if (n > FIRST && r->kernels->fill_normal_from(r->ctx, dtype, out.data, n - FIRST, seed, stream, FIRST, scale,
                                                  device_stream(r->dev)) != SB_OK)
        ok = runner_fail(r, "fill_normal", case_dtype_names[dtype], name, "%s", sb_last_message());
    device_sync(r->dev);
    device_download(r->dev, rest, out.data, bytes);
    const size_t skipped = FIRST * (size_t)sb_dtype_bytes(dtype);
    if (n > FIRST && memcmp(rest, stored + skipped, bytes - skipped) != 0)
        ok = runner_fail(r, "fill_normal", case_dtype_names[dtype], name, "from draw %d on it gives others", FIRST);
    if (!guarded_intact(r, &out))
        ok = runner_fail(r, "fill_normal", case_dtype_names[dtype], name, "bytes around the output were written");
    guarded_free(r, &out);
    return ok;
}

/* From pinned memory to pinned memory, of which large pieces are taken in another way. */
static bool test_copy(const runner *r, const char *name, size_t bytes)
{
    unsigned char *want = device_host_malloc(r->dev, bytes + 1), *got = device_host_malloc(r->dev, bytes + 1);
    guarded src = guarded_create(r, bytes + 16),
            dst = guarded_create(r, bytes + 16); /* 16: bytes that must not change */
    bool ok = true;
    if (!want || !got)
        die(EXIT_CODE_FAILURE, "the host has no pinned memory of %zu bytes", bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        want[i] = (unsigned char)(i * 2654435761u >> 13);
    if (bytes > 0)
        device_upload(r->dev, src.data, want, bytes);
    if (r->kernels->copy(r->ctx, dst.data, src.data, bytes, device_stream(r->dev)) != SB_OK)
        ok = runner_fail(r, "copy", "bytes", name, "%s", sb_last_message());
    device_sync(r->dev);
    want[bytes] = 0xff;
    device_download(r->dev, got, dst.data, bytes + 1);
    if (ok && memcmp(want, got, bytes + 1) != 0)
        ok = runner_fail(r, "copy", "bytes", name, "the copy differs, or the byte after it was written");
    if (!guarded_intact(r, &dst))
        ok = runner_fail(r, "copy", "bytes", name, "bytes around the copy were written");
    guarded_free(r, &src);
    guarded_free(r, &dst);
    device_host_free(r->dev, want);
    device_host_free(r->dev, got);
    return ok;
}

static void count(runner *r, const char *op, const char *dtype, bool ok)
{
    tally *t = runner_tally(r, op, dtype);
    t->passed += ok;
    t->failed += !ok;
}

/* Is it wanted, and to be run? Prints its name where the list is asked for. */
static bool due(const arguments *x, const char *op, const char *dtype, const char *name, bool small)
{
    if (!arguments_want(x, op, dtype, name, small))
        return false;
    if (x->list)
        printf("%s %s %s\n", op, dtype, name);
    return !x->list;
}

static void test_nothing(runner *r)
{
    const bool ok = r->kernels->nothing(r->ctx, device_stream(r->dev)) == SB_OK;
    if (!ok)
        runner_fail(r, "nothing", "bytes", "nothing", "%s", sb_last_message());
    device_sync(r->dev);
    count(r, "nothing", "bytes", ok);
}

void run_basic(runner *r, const arguments *x)
{
    static const int gemms[][3] = {{1, 8, 16}, {64, 64, 64}, {129, 65, 200}, {1, 300, 24}, {256, 384, 1024}};
    static const size_t fills[] = {1, 2, 3, 5, 1023, 1000003}, copies[] = {0, 1, 15, 16, 17, 4099, 67108869};
    enum { GEMMS = sizeof gemms / sizeof *gemms, FILLS = sizeof fills / sizeof *fills };
    enum { COPIES = sizeof copies / sizeof *copies }; /* the last of each is large */
    char name[64];
    for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++) {
        const char *dtype_name = case_dtype_names[dtype];
        for (int i = 0; i < GEMMS; i++) {
            snprintf(name, sizeof name, "gemm-%dx%dx%d", gemms[i][0], gemms[i][1], gemms[i][2]);
            if (due(x, "gemm", dtype_name, name, i < GEMMS - 1))
                count(r, "gemm", dtype_name,
                      test_gemm(r, (sb_dtype)dtype, name, gemms[i][0], gemms[i][1], gemms[i][2]));
        }
        for (int i = 0; i < FILLS; i++) {
            snprintf(name, sizeof name, "fill-%zu", fills[i]);
            if (due(x, "fill_normal", dtype_name, name, i < FILLS - 1))
                count(r, "fill_normal", dtype_name, test_fill(r, (sb_dtype)dtype, name, fills[i]));
        }
    }
    for (int i = 0; i < COPIES; i++) {
        snprintf(name, sizeof name, "copy-%zu", copies[i]);
        if (due(x, "copy", "bytes", name, i < COPIES - 1))
            count(r, "copy", "bytes", test_copy(r, name, copies[i]));
    }
    if (due(x, "nothing", "bytes", "nothing", true))
        test_nothing(r);
}
