/* SPDX-License-Identifier: MIT */
/* Joins a part of attention and the sum of other parts, in fp32. Bound: bytes. A warp has a row and a lane four columns at a
 * time; every lane reads both lse before the first one writes their sum. */
#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int WARPS = 4, EACH = 4; /* of a block; columns of a lane at a time */

struct merge_shape {
    int heads, seq, columns;
    int64_t rows;
    bool first;
    int64_t o_b, o_h, o_s, sum_b, sum_h, sum_s; /* strides */
};

__device__ __forceinline__ float weight(float lse, float all)
{
    return lse == -INFINITY ? 0.0f : expf(lse - all);
}

template <typename T>
__global__ void __launch_bounds__(32 * WARPS)
    attention_merge_kernel(const T *o, const float *lse, float *o_sum, float *lse_sum, merge_shape m)
{
    wait_if_early();
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= m.rows)
        return;
    const int64_t s = row % m.seq, h = row / m.seq % m.heads, b = row / m.seq / m.heads;
    const float part = lse[row], before = m.first ? -INFINITY : lse_sum[row], most = fmaxf(before, part);
    const float all = most == -INFINITY ? most : most + logf(expf(before - most) + expf(part - most));
    const float keep = weight(before, all), add = weight(part, all);
    o += b * m.o_b + h * m.o_h + s * m.o_s;
    o_sum += b * m.sum_b + h * m.sum_h + s * m.sum_s;
    for (int at = (int)threadIdx.x; at < m.columns / EACH; at += 32) {
        float x[EACH], sum[EACH];
        load_chunk<EACH>(o, at).unpack(x);
        chunk<float, EACH> out = load_chunk<EACH>((const float *)o_sum, at);
        out.unpack(sum);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            sum[j] = m.first ? x[j] : sum[j] * keep + x[j] * add;
        out.pack(sum);
        store_chunk<EACH>(o_sum, at, out);
    }
    __syncwarp();
    if (threadIdx.x == 0)
        lse_sum[row] = all;
}

sb_status check_tensors(const sb_attention_merge *p)
{
    const sb_tensor *const both[] = {&p->o, &p->o_sum};
    for (const sb_tensor *t : both)
        if (t->stride_b % EACH || t->stride_h % EACH || t->stride_s % EACH || p->columns % EACH)
            return sb_error(SB_UNSUPPORTED,
                            "attention_merge: columns and every stride must be a multiple of %d on CUDA", EACH);
    return check_aligned("attention_merge", {{"o.data", p->o.data}, {"o_sum.data", p->o_sum.data}});
}

} // namespace

extern "C" sb_status sb_cuda_attention_merge(sb_context *ctx, const sb_attention_merge *p, void *stream)
{
    SB_TRY(sb_attention_merge_check(p));
    SB_TRY(check_tensors(p));
    const int64_t rows = (int64_t)p->batch * p->heads * p->seq;
    const merge_shape m = {p->heads,          p->seq,
                           p->columns,        rows,
                           p->first,          p->o.stride_b,
                           p->o.stride_h,     p->o.stride_s,
                           p->o_sum.stride_b, p->o_sum.stride_h,
                           p->o_sum.stride_s};
    return with_element_type(p->dtype, [&](auto element) {
        using T = decltype(element);
        launch_early(ctx, attention_merge_kernel<T>, dim3((unsigned)((rows + WARPS - 1) / WARPS)), dim3(32, WARPS), 0,
                     (cudaStream_t)stream, (const T *)p->o.data, p->lse, (float *)p->o_sum.data, p->lse_sum, m);
        return sb_cuda_launched("attention_merge kernel");
    });
}
