/* SPDX-License-Identifier: MIT */
/* Cross-entropy over columns that several ranks hold (kernels/train.h).
 *
 * Bound: bytes. Partial reads its columns once, finish reads and writes them once; one block a row. A thread of partial
 * rescales its sum when its maximum grows, and threads are combined at their common maximum. The order of all sums depends on
 * the shape alone. Limits: a row is read again by finish, from L2 where the logits fit there. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/cuda/primitives/reduction.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, MEAN_THREADS = 1024, NUMBERS = 3; /* maximum, sum, the target's logit */
constexpr float LOG2_E = 1.44269504f;

struct arguments {
    const int32_t *targets;
    const float *partials, *scale;
    float *partial, *row_loss;
    float inverse_rows;
    int rows, columns, ld, first_id, ranks;
    bool backward;
};

/* e^(x - maximum); 0 where there is no maximum yet. */
__device__ __forceinline__ float exponential(float x, float maximum)
{
    return maximum == -INFINITY ? 0.0f : exp2f((x - maximum) * LOG2_E);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) partial_kernel(const T *logits, arguments a)
{
    constexpr int N = vector16<T>::N;
    __shared__ float shared_max[32], shared_sum[32];
    const T *row = logits + (int64_t)blockIdx.x * a.ld;
    float maximum = -INFINITY, sum = 0;
    for (int at = (int)threadIdx.x * N; at < a.columns; at += THREADS * N) {
        float x[N];
        reinterpret_cast<const vector16<T> *>(row + at)->unpack(x);
        float larger = maximum;
#pragma unroll
        for (int j = 0; j < N; j++)
            larger = at + j < a.columns ? max_op::apply(larger, x[j]) : larger;
        sum *= exponential(maximum, larger);
        maximum = larger;
#pragma unroll
        for (int j = 0; j < N; j++)
            sum += at + j < a.columns ? exponential(x[j], maximum) : 0.0f;
    }
    const float of_row = block_reduce<max_op>(maximum, shared_max);
    sum = block_reduce<add_op>(maximum == -INFINITY ? 0.0f : sum * exponential(maximum, of_row), shared_sum);
    if (threadIdx.x == 0) {
        const int target = a.targets[blockIdx.x] - a.first_id;
        float *to = a.partial + (int64_t)blockIdx.x * NUMBERS;
        to[0] = of_row;
        to[1] = sum;
        to[2] = target >= 0 && target < a.columns ? to_float(row[target]) : 0.0f;
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) finish_kernel(T *logits, arguments a)
{
    constexpr int N = vector16<T>::N;
    const float *of = a.partials + (int64_t)blockIdx.x * NUMBERS;
    const int64_t next = (int64_t)a.rows * NUMBERS;
    float maximum = -INFINITY, sum = 0, at_target = 0;
    for (int k = 0; k < a.ranks; k++)
        maximum = max_op::apply(maximum, of[k * next]);
    for (int k = 0; k < a.ranks; k++) {
        sum += of[k * next + 1] * exponential(of[k * next], maximum);
        at_target += of[k * next + 2];
    }
    if (threadIdx.x == 0)
        a.row_loss[blockIdx.x] = logf(sum) + (maximum - at_target);
    if (!a.backward)
        return;
    const float numerator = (a.scale ? *a.scale : 1.0f) * a.inverse_rows, factor = numerator / sum;
    const int target = a.targets[blockIdx.x] - a.first_id;
    T *row = logits + (int64_t)blockIdx.x * a.ld;
    for (int at = (int)threadIdx.x * N; at < a.ld; at += THREADS * N) {
        vector16<T> *to = reinterpret_cast<vector16<T> *>(row + at);
        vector16<T> packed = *to;
        float x[N];
        packed.unpack(x);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float e = exponential(x[j], maximum);
            x[j] = at + j >= a.columns ? 0.0f : (at + j == target ? e - sum : e) * factor;
        }
        packed.pack(x);
        *to = packed;
    }
}

__global__ void __launch_bounds__(MEAN_THREADS) mean_kernel(const float *row_loss, int rows, float *loss)
{
    __shared__ double shared[32];
    const double sum = block_sum(row_loss, rows, shared);
    if (threadIdx.x == 0)
        *loss = (float)(sum / rows);
}

arguments arguments_of(const sb_vocab_loss *p)
{
    arguments a = {};
    a.targets = p->targets, a.partials = p->partials, a.scale = p->scale;
    a.partial = p->partial, a.row_loss = p->row_loss;
    a.inverse_rows = 1.0f / (float)(p->total_rows ? p->total_rows : p->rows);
    a.rows = p->rows, a.columns = p->columns, a.ld = p->ld, a.first_id = p->first_id, a.ranks = p->ranks;
    a.backward = p->backward;
    return a;
}

sb_status check(const sb_vocab_loss *p, bool finish)
{
    const sb_status s = sb_vocab_loss_check(p, finish);
    if (s == SB_OK && (uintptr_t)p->logits % 16 != 0)
        return sb_error(SB_INVALID, "vocab_loss: logits must be aligned to 16 bytes");
    return s;
}

} // namespace

extern "C" sb_status sb_cuda_vocab_loss_partial(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    (void)ctx;
    SB_TRY(check(p, false));
    return with_element_type(p->dtype, [&](auto zero) {
        using T = decltype(zero);
        partial_kernel<T>
            <<<(unsigned)p->rows, THREADS, 0, (cudaStream_t)stream>>>((const T *)p->logits, arguments_of(p));
        return sb_cuda_launched("vocab_loss partial kernel");
    });
}

extern "C" sb_status sb_cuda_vocab_loss_finish(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    (void)ctx;
    sb_status s = check(p, true);
    if (s != SB_OK)
        return s;
    s = with_element_type(p->dtype, [&](auto zero) {
        using T = decltype(zero);
        finish_kernel<T><<<(unsigned)p->rows, THREADS, 0, (cudaStream_t)stream>>>((T *)p->logits, arguments_of(p));
        return sb_cuda_launched("vocab_loss finish kernel");
    });
    if (s != SB_OK)
        return s;
    mean_kernel<<<1, MEAN_THREADS, 0, (cudaStream_t)stream>>>(p->row_loss, p->rows, p->loss);
    return sb_cuda_launched("vocab_loss mean kernel");
}
