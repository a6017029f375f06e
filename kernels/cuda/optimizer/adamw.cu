/* SPDX-License-Identifier: MIT */
/* AdamW in one pass over memory, and what has to be known before its first range.
 *
 * Bound: bytes. A parameter moves 28 (all fp32), 26 (bf16 with a split master) or 28 (16-bit with an fp32 master), and 8
 * less with moments in bf16. At 4.2 TB/s and 132 SMs of 1.7 GHz that leaves an SM 1.0 to 1.5 cycles a parameter: 130 to
 * 180 instructions of a thread, of which these kernels issue 35 to 60.
 * Work: a quad is four parameters, 8 bytes of each 16-bit stream and 16 of each fp32 stream, so that a warp reads whole
 * contiguous lines of every stream. A thread starts the loads of QUADS quads before it uses any. Blocks come and go, one
 * piece each, which evens out what far and near memory costs an SM; only where the caller bounds their number do they stay. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/cuda/train.h"
#include "kernels/stochastic.h"
#include "kernels/train_check.h"

#include <type_traits>

namespace
{

constexpr int THREADS = 256;
constexpr int QUADS = 2;         /* a thread has in flight */
constexpr int BLOCKS_PER_SM = 4; /* at least: bounds the registers of a thread by 64 */
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
    s->correction1 = (float)(1 - pow(p.beta1, step));
    s->correction2 = (float)sqrt(1 - pow(p.beta2, step));
    float factor = 1 / s->loss_scale;
    if (p.clip_norm > 0 && s->grad_norm > p.clip_norm)
        factor *= p.clip_norm / (s->grad_norm + CLIP_EPSILON);
    s->grad_factor = factor;
    s->good_steps++;
    /* The gradients of this step were made with the old scale, which is in grad_scale by now. */
    if (p.dynamic_scale && s->good_steps >= p.growth_interval) {
        s->loss_scale = fminf(s->loss_scale * 2, LARGEST_SCALE);
        s->good_steps = 0;
    }
}

/* The constants of a call, rounded once on the host. */
struct constants {
    float new1, beta2, new2, eps, weight_decay; /* new: 1 - beta */
};

struct scalars {
    float decay, step_size, inverse_correction2, grad_factor;
    bool skip;
    uint32_t key; /* of chances; not used, hence not read, where nothing is left to them */
};

__device__ __forceinline__ scalars read_scalars(const sb_optimizer_state *s, const constants &c)
{
    const uint32_t key = sb_chance_key(s->step);
    const float lr = s->lr, correction1 = s->correction1, correction2 = s->correction2, factor = s->grad_factor;
    const int skip = s->skip;
    return {fmaf(-lr, c.weight_decay, 1.0f), lr / correction1, 1.0f / correction2, factor, skip != 0, key};
}

/* How moments are kept. STOCHASTIC: in bf16, v by chance; both are computed with the operations that the CPU's take. */
enum rounding { NEAREST, STOCHASTIC };

/* sqrt and the division are the hardware's approximations: together at most about 5e-7 of the update, and free of the
 * branches for extreme values that would keep a thread from working on its eight parameters at once. */
template <rounding ROUNDING>
__device__ __forceinline__ void update(float &p, float g, float &m, float &v, const scalars &s, const constants &c)
{
    float root;
    g *= s.grad_factor;
    p *= s.decay;
    if constexpr (ROUNDING == STOCHASTIC) {
        m = __fmaf_rn(c.new1, __fsub_rn(g, m), m);
        v = __fmaf_rn(v, c.beta2, __fmul_rn(__fmul_rn(c.new2, g), g));
    } else {
        m += c.new1 * (g - m);
        v = v * c.beta2 + c.new2 * g * g;
    }
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
    p -= s.step_size * __fdividef(m, root * s.inverse_correction2 + c.eps);
}

/* fp32 bits = (bf16 bits << 16) + remainder, modulo 2^32. */
__device__ __forceinline__ float join(unsigned bf16, unsigned remainder)
{
    return __uint_as_float((bf16 << 16) + (unsigned)(int)(short)remainder);
}

/* The nearest bf16; ties go away from zero, since an even bf16 would otherwise stand for 2^16 + 1 values. The remainder
 * is then the low half as it is, and no bit is lost. A NaN becomes the quiet one of its sign, lest it round to zero. */
__device__ __forceinline__ void split(float x, unsigned &bf16, unsigned &remainder)
{
    unsigned bits = __float_as_uint(x);
    if (isnan(x))
        bits = (bits & 0x80000000u) | 0x7fc00000u;
    bf16 = (bits + 0x8000u) >> 16;
    remainder = bits & 0xffffu;
}

/* Four parameters as they lie in memory. With a master in fp32 the parameter itself is only written. */
template <typename P, sb_master KIND>
struct parameters {
    static constexpr bool SPLIT = KIND == SB_MASTER_SPLIT, FP32 = KIND == SB_MASTER_FP32;
    using master_type = std::conditional_t<FP32, float, P>; /* of a remainder only the size of P matters */
    packed<P, 4> param;
    packed<master_type, 4> master;

    __device__ __forceinline__ void load(const P *p, const master_type *rest)
    {
        if constexpr (!FP32)
            param.load_streaming(p);
        if constexpr (SPLIT || FP32)
            master.load_streaming(rest);
    }
    __device__ __forceinline__ void store(P *p, master_type *rest) const
    {
        param.store_streaming(p);
        if constexpr (SPLIT || FP32)
            master.store_streaming(rest);
    }
    __device__ __forceinline__ void unpack(float (&x)[4]) const
    {
        if constexpr (FP32) {
            master.unpack(x);
        } else if constexpr (SPLIT) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                x[2 * i] = join(param.w[i], master.w[i]);
                x[2 * i + 1] = join(param.w[i] >> 16, master.w[i] >> 16);
            }
        } else {
            param.unpack(x);
        }
    }
    __device__ __forceinline__ void pack(const float (&x)[4])
    {
        if constexpr (SPLIT) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                unsigned low, high, low_rest, high_rest;
                split(x[2 * i], low, low_rest);
                split(x[2 * i + 1], high, high_rest);
                param.w[i] = high << 16 | low;
                master.w[i] = high_rest << 16 | low_rest;
            }
        } else {
            param.pack(x);
            if constexpr (FP32)
                master.pack(x);
        }
    }
};

template <typename P, typename G, typename M, sb_master KIND>
struct streams {
    using master_type = typename parameters<P, KIND>::master_type;
    P *param;
    master_type *master;
    const G *grad;
    M *m, *v;
};

/* Four second moments of elements from 4 group on. */
template <rounding ROUNDING, typename M>
__device__ __forceinline__ void pack_squares(packed<M, 4> &out, const float (&v)[4], uint64_t group, const scalars &s)
{
    if constexpr (ROUNDING == STOCHASTIC) {
        const sb_chances chances = sb_chances_of(group, s.key);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned low = sb_round_stochastic(__float_as_uint(v[2 * i]), chances.word[i]);
            const unsigned high = sb_round_stochastic(__float_as_uint(v[2 * i + 1]), chances.word[i] >> 16);
            out.w[i] = high << 16 | low;
        }
    } else {
        out.pack(v);
    }
}

/* One parameter: the up to three behind the last quad. */
template <rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
__device__ __forceinline__ void update_one(const streams<P, G, M, KIND> &x, int64_t i, uint64_t first, const scalars &s,
                                           const constants &c)
{
    float p, m = to_float(x.m[i]), v = to_float(x.v[i]);
    if constexpr (KIND == SB_MASTER_FP32)
        p = x.master[i];
    else if constexpr (KIND == SB_MASTER_SPLIT)
        p = join(__bfloat16_as_ushort(x.param[i]), __bfloat16_as_ushort(x.master[i]));
    else
        p = to_float(x.param[i]);
    update<ROUNDING>(p, to_float(x.grad[i]), m, v, s, c);
    from_float(m, &x.m[i]);
    if constexpr (ROUNDING == STOCHASTIC) {
        const unsigned place = (unsigned)i % 4;
        const unsigned chance = sb_chances_of((first + (uint64_t)i) / 4, s.key).word[place / 2] >> 16 * (place % 2);
        x.v[i] = __ushort_as_bfloat16((unsigned short)sb_round_stochastic(__float_as_uint(v), chance));
    } else {
        from_float(v, &x.v[i]);
    }
    if constexpr (KIND == SB_MASTER_SPLIT) {
        unsigned bf16, remainder;
        split(p, bf16, remainder);
        x.param[i] = __ushort_as_bfloat16((unsigned short)bf16);
        x.master[i] = __ushort_as_bfloat16((unsigned short)remainder);
    } else {
        from_float(p, &x.param[i]);
        if constexpr (KIND == SB_MASTER_FP32)
            x.master[i] = p;
    }
}

/* `first_element`, of the range in the model, is a multiple of 4. */
template <rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    adamw_kernel(streams<P, G, M, KIND> x, int64_t n, uint64_t first_element, const sb_optimizer_state *state,
                 constants c)
{
    const int64_t quads = n / 4, stride = (int64_t)gridDim.x * (THREADS * QUADS);
    for (int64_t first = (int64_t)blockIdx.x * (THREADS * QUADS) + threadIdx.x; first < quads; first += stride) {
        parameters<P, KIND> p[QUADS];
        packed<G, 4> g[QUADS];
        packed<M, 4> m[QUADS], v[QUADS];
        int64_t at[QUADS];
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            /* Behind the end the last quad is read again and not written: no branch stands between the loads. */
            at[i] = 4 * (i == 0 ? first : min(first + i * THREADS, quads - 1));
            p[i].load(x.param + at[i], x.master + at[i]);
            g[i].load_streaming(x.grad + at[i]);
            m[i].load_streaming(x.m + at[i]);
            v[i].load_streaming(x.v + at[i]);
        }
        /* Read here, so that the loads above cover the time of these. */
        const scalars s = read_scalars(state, c);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            float pf[4], gf[4], mf[4], vf[4];
            p[i].unpack(pf);
            g[i].unpack(gf);
            m[i].unpack(mf);
            v[i].unpack(vf);
#pragma unroll
            for (int j = 0; j < 4; j++)
                update<ROUNDING>(pf[j], gf[j], mf[j], vf[j], s, c);
            p[i].pack(pf);
            m[i].pack(mf);
            pack_squares<ROUNDING>(v[i], vf, (first_element + (uint64_t)at[i]) / SB_STOCHASTIC_GROUP, s);
            if (first + i * THREADS < quads && !s.skip) {
                p[i].store(x.param + at[i], x.master + at[i]);
                m[i].store_streaming(x.m + at[i]);
                v[i].store_streaming(x.v + at[i]);
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < n % 4) {
        const scalars s = read_scalars(state, c);
        if (!s.skip)
            update_one<ROUNDING>(x, 4 * quads + threadIdx.x, first_element, s, c);
    }
}

template <rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
sb_status launch(const sb_adamw *p, cudaStream_t stream)
{
    using S = streams<P, G, M, KIND>;
    const S x = {(P *)p->param, (typename S::master_type *)p->master, (const G *)p->grad, (M *)p->m, (M *)p->v};
    const constants c = {(float)(1 - p->beta1), (float)p->beta2, (float)(1 - p->beta2), (float)p->eps,
                         (float)p->weight_decay};
    const int64_t n = (int64_t)p->n, per_block = 4 * THREADS * QUADS;
    const int64_t most = p->max_blocks ? p->max_blocks : MAX_GRID;
    const int64_t wanted = n / per_block + 1;
    const unsigned blocks = (unsigned)(wanted < most ? wanted : most);
    adamw_kernel<ROUNDING, P, G, M, KIND><<<blocks, THREADS, 0, stream>>>(x, n, p->first, p->state, c);
    return sb_cuda_launched("adamw kernel");
}

template <rounding ROUNDING, typename P, typename G, typename M>
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
        return launch_master<STOCHASTIC, P, G, __nv_bfloat16>(p, stream);
    return is_fp32(p->dtype_moments) ? launch_master<NEAREST, P, G, float>(p, stream)
                                     : launch_master<NEAREST, P, G, P>(p, stream);
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
    const sb_status status = sb_optimizer_begin_check(p);
    if (status != SB_OK)
        return status;
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
