/* SPDX-License-Identifier: MIT */
/* AdamW in one pass over memory, and what has to be known before its first range.
 *
 * Bound: bytes. A parameter moves 28 (all fp32), 26 (bf16 with a split master) or 28 (16-bit with an fp32 master), and 8
 * less with moments in bf16. At 4.2 TB/s and 132 SMs of 1.7 GHz that leaves an SM 1.0 to 1.5 cycles a parameter: 130 to
 * 180 instructions of a thread, of which these kernels issue 35 to 60.
 * Work: a quad is four parameters, 8 bytes of each 16-bit stream and 16 of each fp32 stream, so that a warp reads whole
 * contiguous lines of every stream. A thread starts the loads of QUADS quads before it uses any. Blocks come and go, one
 * piece each, which evens out what far and near memory costs an SM. Where the caller bounds their number they stay, and are as
 * large as an SM has registers for, so that they take as few SMs as possible from what runs at the same time. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/adamw.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256,
              THREADS_PER_SM = 1024; /* threads of a block; the least on an SM, so a thread has 64 registers */
constexpr int QUADS = 2;             /* a thread has in flight */
constexpr int64_t MAX_GRID = 0x7fffffff;
constexpr float SMALLEST_SCALE = 0x1p-14f, LARGEST_SCALE = 0x1p24f, CLIP_EPSILON = 1e-6f;

__global__ void optimizer_begin_kernel(sb_optimizer_begin p)
{
    sb_optimizer_state *s = p.state;
    const bool skip = s->found_nonfinite;
    s->found_nonfinite = 0;
    s->skip = skip;
    s->grad_scale = s->loss_scale;
    if (skip) {
        s->skipped++;
        s->good_steps = 0;
        if (p.dynamic_scale)
            s->loss_scale = fmaxf(s->loss_scale / 2, SMALLEST_SCALE);
        return;
    }
    const double step = (double)++s->step;
    if (p.rates)
        s->lr = p.rates[s->step < p.updates ? s->step - 1 : p.updates - 1];
    if (p.norms && s->step <= p.updates)
        p.norms[s->step - 1] = s->grad_norm;
    s->correction1 = (float)(1 - pow(p.beta1, step));
    s->correction2 = (float)sqrt(1 - pow(p.beta2, step));
    float factor = 1 / s->loss_scale;
    if (p.clip_norm > 0 && s->grad_norm > p.clip_norm)
        factor *= p.clip_norm / (s->grad_norm + CLIP_EPSILON);
    s->grad_factor = factor;
    s->good_steps++;
    /* The gradients of this step were made with the old scale, which has been copied to grad_scale. */
    if (p.dynamic_scale && s->good_steps >= p.growth_interval) {
        s->loss_scale = fminf(s->loss_scale * 2, LARGEST_SCALE);
        s->good_steps = 0;
    }
}

template <typename P, typename G, typename M, sb_master KIND>
struct streams {
    using master_type = typename adamw_parameters<P, KIND>::master_type;
    P *param;
    master_type *master;
    const G *grad;
    M *m, *v;
};

/* One parameter: for the up to three after the last quad. */
template <adamw_rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
__device__ __forceinline__ void update_one(const streams<P, G, M, KIND> &x, int64_t i, uint64_t first,
                                           const adamw_scalars &s, const adamw_constants &c)
{
    float p, m = to_float(x.m[i]), v = to_float(x.v[i]);
    if constexpr (KIND == SB_MASTER_FP32)
        p = x.master[i];
    else if constexpr (KIND == SB_MASTER_SPLIT)
        p = adamw_join(__bfloat16_as_ushort(x.param[i]), __bfloat16_as_ushort(x.master[i]));
    else
        p = to_float(x.param[i]);
    adamw_update<ROUNDING>(p, to_float(x.grad[i]), m, v, s, c);
    from_float(m, &x.m[i]);
    if constexpr (ROUNDING == ADAMW_STOCHASTIC) {
        const unsigned place = (unsigned)i % 4;
        const unsigned chance = sb_chances_of((first + (uint64_t)i) / 4, s.key).word[place / 2] >> 16 * (place % 2);
        x.v[i] = __ushort_as_bfloat16((unsigned short)sb_round_stochastic(__float_as_uint(v), chance));
    } else {
        from_float(v, &x.v[i]);
    }
    if constexpr (KIND == SB_MASTER_SPLIT) {
        unsigned bf16, remainder;
        adamw_split(p, bf16, remainder);
        x.param[i] = __ushort_as_bfloat16((unsigned short)bf16);
        x.master[i] = __ushort_as_bfloat16((unsigned short)remainder);
    } else {
        from_float(p, &x.param[i]);
        if constexpr (KIND == SB_MASTER_FP32)
            x.master[i] = p;
    }
}

/* `first_element`, of the range in the model, is a multiple of 4. */
template <int THREADS, adamw_rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
__global__ void __launch_bounds__(THREADS, THREADS_PER_SM / THREADS)
    adamw_kernel(streams<P, G, M, KIND> x, int64_t n, uint64_t first_element, const sb_optimizer_state *state,
                 adamw_constants c)
{
    const int64_t quads = n / 4, stride = (int64_t)gridDim.x * (THREADS * QUADS);
    for (int64_t first = (int64_t)blockIdx.x * (THREADS * QUADS) + threadIdx.x; first < quads; first += stride) {
        adamw_parameters<P, KIND> p[QUADS];
        packed<G, 4> g[QUADS];
        packed<M, 4> m[QUADS], v[QUADS];
        int64_t at[QUADS];
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            /* Past the end the last quad is read again and not written, so that there is no branch between the loads. */
            at[i] = 4 * (i == 0 ? first : min(first + i * THREADS, quads - 1));
            p[i].load(x.param + at[i], x.master + at[i]);
            g[i].load_streaming(x.grad + at[i]);
            m[i].load_streaming(x.m + at[i]);
            v[i].load_streaming(x.v + at[i]);
        }
        /* Read here, so that the loads above cover the time of these. */
        const adamw_scalars s = adamw_read(state, c);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            float pf[4], gf[4], mf[4], vf[4];
            p[i].unpack(pf);
            g[i].unpack(gf);
            m[i].unpack(mf);
            v[i].unpack(vf);
#pragma unroll
            for (int j = 0; j < 4; j++)
                adamw_update<ROUNDING>(pf[j], gf[j], mf[j], vf[j], s, c);
            p[i].pack(pf);
            m[i].pack(mf);
            adamw_pack_squares<ROUNDING>(v[i], vf, (first_element + (uint64_t)at[i]) / SB_STOCHASTIC_GROUP, s);
            if (first + i * THREADS < quads && !s.skip) {
                p[i].store(x.param + at[i], x.master + at[i]);
                m[i].store_streaming(x.m + at[i]);
                v[i].store_streaming(x.v + at[i]);
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < n % 4) {
        const adamw_scalars s = adamw_read(state, c);
        if (!s.skip)
            update_one<ROUNDING>(x, 4 * quads + threadIdx.x, first_element, s, c);
    }
}

template <adamw_rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
sb_status launch(const sb_adamw *p, cudaStream_t stream)
{
    using S = streams<P, G, M, KIND>;
    const S x = {(P *)p->param, (typename S::master_type *)p->master, (const G *)p->grad, (M *)p->m, (M *)p->v};
    const adamw_constants c = adamw_constants_of(p);
    const int threads = p->max_blocks ? THREADS_PER_SM : THREADS;
    const int64_t n = (int64_t)p->n, most = p->max_blocks ? p->max_blocks : MAX_GRID;
    const int64_t wanted = n / (4 * threads * QUADS) + 1;
    const unsigned blocks = (unsigned)(wanted < most ? wanted : most);
    const auto kernel = p->max_blocks ? adamw_kernel<THREADS_PER_SM, ROUNDING, P, G, M, KIND>
                                      : adamw_kernel<THREADS, ROUNDING, P, G, M, KIND>;
    kernel<<<blocks, threads, 0, stream>>>(x, n, p->first, p->state, c);
    return sb_cuda_launched("adamw kernel");
}

template <adamw_rounding ROUNDING, typename P, typename G, typename M>
sb_status launch_master(const sb_adamw *p, cudaStream_t stream)
{
    if (p->master_kind == SB_MASTER_NONE)
        return launch<ROUNDING, P, G, M, SB_MASTER_NONE>(p, stream);
    if constexpr (std::is_same_v<P, __nv_bfloat16>)
        if (p->master_kind == SB_MASTER_SPLIT)
            return launch<ROUNDING, P, G, M, SB_MASTER_SPLIT>(p, stream);
    if constexpr (!std::is_same_v<P, float>)
        return launch<ROUNDING, P, G, M, SB_MASTER_FP32>(p, stream);
    return sb_error(SB_UNSUPPORTED, "adamw: parameters in fp32 have no master beside them");
}

bool is_fp32(sb_dtype t)
{
    return t == SB_FP32 || t == SB_TF32;
}

/* fp32 parameters whose gradients are summed in bf16. */
bool has_short_sums(const sb_adamw *p)
{
    return is_fp32(p->dtype_param) && p->dtype_grad == SB_BF16;
}

template <typename P, typename G>
sb_status launch_moments(const sb_adamw *p, cudaStream_t stream)
{
    if (p->stochastic)
        return launch_master<ADAMW_STOCHASTIC, P, G, __nv_bfloat16>(p, stream);
    return is_fp32(p->dtype_moments) ? launch_master<ADAMW_NEAREST, P, G, float>(p, stream)
                                     : launch_master<ADAMW_NEAREST, P, G, P>(p, stream);
}

/* Gradients and moments are in the dtype of the parameters or in fp32, or moments in bf16 that are rounded by chance. */
sb_status check_cuda(const sb_adamw *p)
{
    if (!is_fp32(p->dtype_grad) && p->dtype_grad != p->dtype_param && !has_short_sums(p))
        return sb_error(SB_UNSUPPORTED, "adamw: on CUDA dtype_grad %d must be fp32 or dtype_param %d",
                        (int)p->dtype_grad, (int)p->dtype_param);
    if (!p->stochastic && !is_fp32(p->dtype_moments) && p->dtype_moments != p->dtype_param)
        return sb_error(SB_UNSUPPORTED, "adamw: on CUDA dtype_moments %d must be fp32 or dtype_param %d",
                        (int)p->dtype_moments, (int)p->dtype_param);
    if (p->stochastic && p->first % SB_STOCHASTIC_GROUP)
        return sb_error(SB_INVALID, "adamw: on CUDA `first` must be a multiple of %d, not %llu", SB_STOCHASTIC_GROUP,
                        (unsigned long long)p->first);
    if (((uintptr_t)p->param | (uintptr_t)p->master | (uintptr_t)p->grad | (uintptr_t)p->m | (uintptr_t)p->v) % 16)
        return sb_error(SB_INVALID, "adamw: param, master, grad, m and v must be aligned to 16 bytes");
    return SB_OK;
}

} // namespace

extern "C" sb_status sb_cuda_optimizer_begin(sb_context *ctx, const sb_optimizer_begin *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_optimizer_begin_check(p));
    optimizer_begin_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(*p);
    return sb_cuda_launched("optimizer_begin kernel");
}

extern "C" sb_status sb_cuda_adamw(sb_context *ctx, const sb_adamw *p, void *stream)
{
    (void)ctx;
    sb_status status = sb_adamw_check(p);
    if (status == SB_OK)
        status = check_cuda(p);
    if (status != SB_OK || p->n == 0)
        return status;
    const cudaStream_t on = (cudaStream_t)stream;
    if (has_short_sums(p))
        return launch_moments<float, __nv_bfloat16>(p, on);
    return with_element_type(p->dtype_param, [&](auto param) {
        using P = decltype(param);
        return is_fp32(p->dtype_grad) ? launch_moments<P, float>(p, on) : launch_moments<P, P>(p, on);
    });
}
