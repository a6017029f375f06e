/* SPDX-License-Identifier: MIT */
/* SwiGLU of one element: h = silu(gate) up, silu(x) = x sigmoid(x), and its gradients. Every kernel that makes h uses
 * these, so that h made again has the same bits. */
#pragma once

#include <type_traits>

namespace swiglu_math
{

/* exp(-x) for x >= 0, to fp32 accuracy for fp32 tensors. */
template <typename T>
__device__ __forceinline__ float exp_negative(float x)
{
    if constexpr (std::is_same_v<T, float>)
        return expf(-x);
    else
        return __expf(-x);
}

/* sigmoid(x) and 1 - sigmoid(x), each with its full relative accuracy: from exp(-|x|), which can't overflow. The fast
 * division is good to 2 units in the last place for a divisor between 1 and 2. */
struct sigmoids {
    float value, complement;
};

template <typename T>
__device__ __forceinline__ sigmoids sigmoid(float x)
{
    const float e = exp_negative<T>(fabsf(x)), large = __fdividef(1.0f, 1.0f + e), small = e * large;
    return x < 0 ? sigmoids{small, large} : sigmoids{large, small};
}

template <typename T>
__device__ __forceinline__ float product(float gate, float up)
{
    return gate * sigmoid<T>(gate).value * up;
}

struct gradient {
    float gate, up, h;
};

template <typename T>
__device__ __forceinline__ gradient gradients(float gate, float up, float dh)
{
    const sigmoids s = sigmoid<T>(gate);
    const float silu = gate * s.value;
    return {dh * up * (s.value + silu * s.complement), dh * silu, silu * up};
}

} // namespace swiglu_math
