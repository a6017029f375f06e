/* SPDX-License-Identifier: MIT */
/* The arithmetic of AdamW and the ways a parameter is stored, for all kernels that update: one source, so the same bits. */
#pragma once

#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/shared/stochastic.h"
#include "kernels/train.h"

#include <type_traits>

/* The constants of a call, rounded once on the host. */
struct adamw_constants {
    float new1, beta2, new2, eps, weight_decay; /* new: 1 - beta */
};

inline adamw_constants adamw_constants_of(const sb_adamw *p)
{
    return {(float)(1 - p->beta1), (float)p->beta2, (float)(1 - p->beta2), (float)p->eps, (float)p->weight_decay};
}

struct adamw_scalars {
    float decay, step_size, inverse_correction2, grad_factor;
    bool skip;
    uint32_t key; /* key of the random numbers; not read where nothing is rounded stochastically */
};

__device__ __forceinline__ adamw_scalars adamw_read(const sb_optimizer_state *s, const adamw_constants &c)
{
    const uint32_t key = sb_chance_key(s->step);
    const float lr = s->lr, correction1 = s->correction1, correction2 = s->correction2, factor = s->grad_factor;
    const int skip = s->skip;
    return {fmaf(-lr, c.weight_decay, 1.0f), lr / correction1, 1.0f / correction2, factor, skip != 0, key};
}

/* How moments are kept. STOCHASTIC: in bf16, v by chance; both are computed with the operations that the CPU's take. */
enum adamw_rounding { ADAMW_NEAREST, ADAMW_STOCHASTIC };

/* sqrt and the division are the hardware's approximations: together at most about 5e-7 of the update, and free of the
 * branches for extreme values that would keep a thread from working on its eight parameters at once. What is fused is
 * said, since a compiler may choose either of two products, and does not choose the same in every kernel. */
template <adamw_rounding ROUNDING>
__device__ __forceinline__ void adamw_update(float &p, float g, float &m, float &v, const adamw_scalars &s,
                                             const adamw_constants &c)
{
    float root;
    g = __fmul_rn(g, s.grad_factor);
    m = __fmaf_rn(c.new1, __fsub_rn(g, m), m);
    v = ROUNDING == ADAMW_STOCHASTIC ? __fmaf_rn(v, c.beta2, __fmul_rn(__fmul_rn(c.new2, g), g))
                                     : __fmaf_rn(g, __fmul_rn(c.new2, g), __fmul_rn(v, c.beta2));
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
    const float ratio = __fdividef(m, __fmaf_rn(root, s.inverse_correction2, c.eps));
    p = __fmaf_rn(p, s.decay, -__fmul_rn(s.step_size, ratio));
}

/* fp32 bits = (bf16 bits << 16) + remainder, modulo 2^32. */
__device__ __forceinline__ float adamw_join(unsigned bf16, unsigned remainder)
{
    return __uint_as_float((bf16 << 16) + (unsigned)(int)(short)remainder);
}

/* The nearest bf16; ties go away from zero, since an even bf16 would otherwise stand for 2^16 + 1 values. The remainder
 * is then the low half as it is, and no bit is lost. A NaN becomes the quiet one of its sign, lest it round to zero. */
__device__ __forceinline__ void adamw_split(float x, unsigned &bf16, unsigned &remainder)
{
    unsigned bits = __float_as_uint(x);
    if (isnan(x))
        bits = (bits & 0x80000000u) | 0x7fc00000u;
    bf16 = (bits + 0x8000u) >> 16;
    remainder = bits & 0xffffu;
}

/* Four parameters as they are stored. With a master in fp32 the parameter itself is only written. */
template <typename P, sb_master KIND>
struct adamw_parameters {
    static constexpr bool SPLIT = KIND == SB_MASTER_SPLIT, FP32 = KIND == SB_MASTER_FP32;
    using master_type = std::conditional_t<FP32, float, P>; /* for a remainder only the size of P matters */
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
                x[2 * i] = adamw_join(param.w[i], master.w[i]);
                x[2 * i + 1] = adamw_join(param.w[i] >> 16, master.w[i] >> 16);
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
                adamw_split(x[2 * i], low, low_rest);
                adamw_split(x[2 * i + 1], high, high_rest);
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

/* Four second moments of elements from 4 group on. */
template <adamw_rounding ROUNDING, typename M>
__device__ __forceinline__ void adamw_pack_squares(packed<M, 4> &out, const float (&v)[4], uint64_t group,
                                                   const adamw_scalars &s)
{
    if constexpr (ROUNDING == ADAMW_STOCHASTIC) {
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
