/* SPDX-License-Identifier: MIT */
/* Stands between a bench and the CPU's kernels and clock: time passes in kernels alone, so that durations are known. Calls
 * of an op that cycles take 1, 2, 3, 4, 5, 1, ... ms:
 *   flash forward and backward, gemm, copy, nothing, embedding_forward   the cycle
 *   unfused forward and backward                                        twice and three times the cycle
 *   embedding_backward, adamw                                           20 ms and 4 ms
 * Everything else takes no time. Limit: threads share the clock, so it is for benches that compute on one. */
#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

static const sb_kernels *right;
static sb_kernels kernels;
static sb_train_ops train;
static sb_attention_op attention[8];
static const sb_attention_op *flash, *unfused;
static double passed_ms;

static void pass(double ms)
{
    passed_ms += ms;
}

/* Each op counts its own calls. */
static void cycle(int *calls, double times)
{
    pass(times * (1 + (*calls)++ % 5));
}

static int (*real_clock)(clockid_t id, struct timespec *now);

static void find_clock(void)
{
    if (!real_clock)
        *(void **)&real_clock = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    static const long long start_ns = 1000000000000;
    find_clock();
    if (id != CLOCK_MONOTONIC)
        return real_clock(id, now);
    const long long ns = start_ns + (long long)(passed_ms * 1e6 + 0.5);
    now->tv_sec = (time_t)(ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

#define ATTENTION(op, pass, times)                                                                                     \
    static sb_status op##_##pass(sb_context *ctx, const sb_attention *a, void *stream)                                 \
    {                                                                                                                  \
        static int calls;                                                                                              \
        cycle(&calls, times);                                                                                          \
        return op->pass(ctx, a, stream);                                                                               \
    }

ATTENTION(flash, forward, 1)
ATTENTION(flash, backward, 1)
ATTENTION(unfused, forward, 2)
ATTENTION(unfused, backward, 3)

static sb_status gemm(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                      void *stream)
{
    static int calls;
    cycle(&calls, 1);
    return right->gemm(ctx, dtype, m, n, k, a, b, c, stream);
}

static sb_status copy(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    static int calls;
    cycle(&calls, 1);
    return right->copy(ctx, dst, src, bytes, stream);
}

static sb_status nothing(sb_context *ctx, void *stream)
{
    static int calls;
    cycle(&calls, 1);
    return right->nothing(ctx, stream);
}

static sb_status embedding_forward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    static int calls;
    cycle(&calls, 1);
    return right->train->embedding_forward(ctx, p, stream);
}

static sb_status embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    pass(20);
    return right->train->embedding_backward(ctx, p, stream);
}

static sb_status adamw(sb_context *ctx, const sb_adamw *p, void *stream)
{
    pass(4);
    return right->train->adamw(ctx, p, stream);
}

static void copy_attention(void)
{
    for (int i = 0; right->attention[i].name; i++) {
        attention[i] = right->attention[i];
        if (strcmp(attention[i].name, "flash") == 0) {
            flash = &right->attention[i];
            attention[i].forward = flash_forward;
            attention[i].backward = flash_backward;
        } else if (strcmp(attention[i].name, "unfused") == 0) {
            unfused = &right->attention[i];
            attention[i].forward = unfused_forward;
            attention[i].backward = unfused_backward;
        }
    }
}

const sb_kernels *sb_kernels_cpu(void)
{
    if (right)
        return &kernels;
    right = ((const sb_kernels *(*)(void))dlsym(RTLD_NEXT, "sb_kernels_cpu"))();
    kernels = *right;
    copy_attention();
    kernels.attention = attention;
    kernels.gemm = gemm;
    kernels.copy = copy;
    kernels.nothing = nothing;
    train = *right->train;
    train.embedding_forward = embedding_forward;
    train.embedding_backward = embedding_backward;
    train.adamw = adamw;
    kernels.train = &train;
    return &kernels;
}
