/* SPDX-License-Identifier: MIT */
/* The L2 norm of all gradients, and whether one is not finite, in one pass over memory.
 *
 * Bound: bytes, 2 or 4 an element, only read. A thread adds squares in fp32 in eight sums, about a hundred terms each
 * at 2e9 gradients; what follows adds in double.
 * Blocks leave one partial each; a second kernel adds these in a fixed order. There are several times more blocks than
 * fit on the chip, so that those on SMs farther from memory do not set the time. A partial is NaN exactly where an
 * element is not finite: squares may overflow to infinity, but no sum of them becomes a NaN. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/cuda/primitives/reduction.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256;
constexpr int VECTORS = 4; /* a thread has in flight */
constexpr int BLOCKS_PER_SM = 64;
constexpr int FINISH_THREADS = 1024;

/* x^2 onto the sum; onto `bad` 0, or NaN for an element that is not finite. */
__device__ __forceinline__ void add_square(float x, float &sum, float &bad)
{
    sum = fmaf(x, x, sum);
    bad = fmaf(x, 0.0f, bad);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    partial_squares_kernel(const T *__restrict__ grad, int64_t n, double *__restrict__ partials)
{
    constexpr int N = vector16<T>::N;
    __shared__ double shared[32];
    const vector16<T> *in = reinterpret_cast<const vector16<T> *>(grad);
    const int64_t vectors = n / N, stride = (int64_t)gridDim.x * (THREADS * VECTORS);
    float sum[VECTORS][2] = {}, bad[2] = {};
    for (int64_t first = (int64_t)blockIdx.x * (THREADS * VECTORS) + threadIdx.x; first < vectors; first += stride) {
        vector16<T> x[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            x[i] = first + i * THREADS < vectors ? in[first + i * THREADS] : vector16<T>{};
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            float f[N];
            x[i].unpack(f);
#pragma unroll
            for (int j = 0; j < N; j++)
                add_square(f[j], sum[i][j % 2], bad[j % 2]);
        }
    }
    const int64_t tail = vectors * N + threadIdx.x;
    if (blockIdx.x == 0 && tail < n)
        add_square(to_float(grad[tail]), sum[0][0], bad[0]);

    double total = (double)bad[0] + (double)bad[1];
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
        total += (double)sum[i][0] + (double)sum[i][1];
    total = block_reduce<add_op>(total, shared);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(FINISH_THREADS)
    finish_kernel(const double *__restrict__ partials, int n, sb_optimizer_state *state)
{
    __shared__ double shared[32];
    const double squares = block_sum(partials, n, shared);
    if (threadIdx.x != 0)
        return;
    state->grad_norm = (float)(sqrt(squares) / (double)state->loss_scale);
    if (isnan(squares))
        state->found_nonfinite = 1;
}

int most_blocks(const sb_context *ctx)
{
    return ctx->sm_count * BLOCKS_PER_SM;
}

} // namespace

extern "C" size_t sb_cuda_grad_stats_workspace(sb_context *ctx, const sb_grad_stats *p)
{
    (void)p;
    return (size_t)most_blocks(ctx) * sizeof(double);
}

extern "C" sb_status sb_cuda_grad_stats(sb_context *ctx, const sb_grad_stats *p, void *stream)
{
    SB_TRY(sb_grad_stats_check(p));
    SB_TRY(
        sb_train_workspace_check("grad_stats", p->workspace, p->workspace_bytes, sb_cuda_grad_stats_workspace(ctx, p)));
    if ((uintptr_t)p->grad % 16 != 0 || (uintptr_t)p->workspace % sizeof(double) != 0)
        return sb_error(SB_INVALID, "grad_stats: grad and workspace must be aligned to 16 bytes");
    const cudaStream_t on = (cudaStream_t)stream;
    double *partials = (double *)p->workspace;
    return with_element_type(p->dtype, [&](auto zero) {
        using T = decltype(zero);
        const int64_t n = (int64_t)p->n, wanted = n / (THREADS * VECTORS * vector16<T>::N) + 1;
        const int blocks = (int)(wanted < most_blocks(ctx) ? wanted : most_blocks(ctx));
        partial_squares_kernel<T><<<blocks, THREADS, 0, on>>>((const T *)p->grad, n, partials);
        SB_TRY(sb_cuda_launched("grad_stats kernel"));
        finish_kernel<<<1, FINISH_THREADS, 0, on>>>(partials, blocks, p->state);
        return sb_cuda_launched("grad_stats finish kernel");
    });
}
