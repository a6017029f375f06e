/* SPDX-License-Identifier: MIT */
/* How each dtype uses the tensor cores: half16 (bf16, fp16), tf32, and split (fp32 in bf16 parts). The kernels are
 * written once over these policies.
 *
 * A policy has: element (in memory and in shared tiles), kstep (depth of one multiply), fragments a_frag (16 x kstep)
 * and b_frag (kstep x 8), and
 *   load_a      A from a row-major tile
 *   load_b_nk   two neighbouring b_frag (16 columns n) from a tile stored [n][k]
 *   load_b_kn   two neighbouring b_frag from a tile stored [k][n]
 *   acc_to_a    A from kstep / 8 neighbouring 16x8 accumulators
 * and whether sums are separate (see product_kn) and errors, also in exponents, are as small as in fp32 (fp32_level).
 * The order of k inside a kstep is the policy's own: load_a agrees with load_b_nk, acc_to_a with load_b_kn. */
#pragma once

#include "kernels/cuda/primitives/mma.cuh"

namespace flash_portable
{

/* Shared tiles are row-major with 16 bytes of padding a row: 8 neighbouring rows then start in different banks, and so
 * do the single words that load_b_kn of the fp32 tiles reads. */
template <class E, int COLUMNS>
constexpr int tile_stride = COLUMNS + 16 / (int)sizeof(E);

/* The 16-byte piece that this lane names to ldmatrix in a box of 16 rows x 32 bytes at `box`. by_rows gives the
 * matrices in the order (rows 0-7, left) (rows 8-15, left) (0-7, right) (8-15, right); by_columns swaps the middle. */
template <class E>
__device__ __forceinline__ const E *piece_by_rows(const E *box, int stride)
{
    const int lane = threadIdx.x % 32;
    return box + (lane % 16) * stride + lane / 16 * (16 / (int)sizeof(E));
}
template <class E>
__device__ __forceinline__ const E *piece_by_columns(const E *box, int stride)
{
    const int lane = threadIdx.x % 32;
    return box + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * (16 / (int)sizeof(E));
}

/* T: __nv_bfloat16 or __half. */
template <class T>
struct half16 {
    using element = T;
    static constexpr int kstep = 16;
    static constexpr bool separate_sums = false, fp32_level = false;
    struct a_frag {
        uint32_t x[4];
    };
    struct b_frag {
        uint32_t x[2];
    };

    static __device__ __forceinline__ void load_a(a_frag &a, const T *box, int stride)
    {
        mma::ldmatrix(a.x, piece_by_rows(box, stride));
    }
    static __device__ __forceinline__ void load_b_nk(b_frag (&b)[2], const T *box, int stride)
    {
        uint32_t r[4];
        mma::ldmatrix(r, piece_by_columns(box, stride));
        b[0] = {r[0], r[1]};
        b[1] = {r[2], r[3]};
    }
    static __device__ __forceinline__ void load_b_kn(b_frag (&b)[2], const T *box, int stride)
    {
        uint32_t r[4];
        mma::ldmatrix_trans(r, piece_by_rows(box, stride));
        b[0] = {r[0], r[1]};
        b[1] = {r[2], r[3]};
    }
    static __device__ __forceinline__ void acc_to_a(a_frag &a, const float (*c)[4])
    {
        a.x[0] = mma::pack(c[0][0], c[0][1], T());
        a.x[1] = mma::pack(c[0][2], c[0][3], T());
        a.x[2] = mma::pack(c[1][0], c[1][1], T());
        a.x[3] = mma::pack(c[1][2], c[1][3], T());
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const a_frag &a, const b_frag &b)
    {
        mma::multiply(c, a.x, b.x, T());
    }
};

/* fp32 tiles, every operand rounded to tf32 when it is loaded. An accumulator has the columns 2q, 2q+1 where A wants q,
 * q+4: the products with acc_to_a take k in the order 0 2 4 6 1 3 5 7. */
struct tf32 {
    using element = float;
    static constexpr int kstep = 8;
    static constexpr bool separate_sums = true, fp32_level = false;
    struct a_frag {
        uint32_t x[4];
    };
    struct b_frag {
        uint32_t x[2];
    };

    static __device__ __forceinline__ uint32_t round_bits(uint32_t fp32) { return mma::to_tf32(__uint_as_float(fp32)); }
    static __device__ __forceinline__ void load_a(a_frag &a, const float *box, int stride)
    {
        uint32_t r[4];
        mma::ldmatrix(r, piece_by_rows(box, stride));
        a = {{round_bits(r[0]), round_bits(r[1]), round_bits(r[2]), round_bits(r[3])}};
    }
    static __device__ __forceinline__ void load_b_nk(b_frag (&b)[2], const float *box, int stride)
    {
        uint32_t r[4];
        mma::ldmatrix(r, piece_by_columns(box, stride));
        b[0] = {round_bits(r[0]), round_bits(r[1])};
        b[1] = {round_bits(r[2]), round_bits(r[3])};
    }
    static __device__ __forceinline__ void load_b_kn(b_frag (&b)[2], const float *box, int stride)
    {
        const int lane = threadIdx.x % 32;
        const float *even = box + lane % 4 * 2 * stride + lane / 4, *odd = even + stride;
        b[0] = {mma::to_tf32(even[0]), mma::to_tf32(odd[0])};
        b[1] = {mma::to_tf32(even[8]), mma::to_tf32(odd[8])};
    }
    static __device__ __forceinline__ void acc_to_a(a_frag &a, const float (*c)[4])
    {
        a = {{mma::to_tf32(c[0][0]), mma::to_tf32(c[0][2]), mma::to_tf32(c[0][1]), mma::to_tf32(c[0][3])}};
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const a_frag &a, const b_frag &b)
    {
        mma::multiply_tf32(c, a.x, b.x);
    }
};

/* fp32 tiles; every element is the sum of PARTS bf16 numbers, each rounded to nearest. Two: a product is hi hi + hi lo + lo hi,
 * and 2^-16 of it is dropped. Three hold every bit of an fp32 number, and of the nine products the six above 2^-24 are made, the
 * smallest first (Henry, Tang and Heinecke, arXiv 1904.06376). load_a and load_b_nk take k in the order 0 4 1 5 2 6 3 7,
 * 8 12 9 13 ..., which is how ldmatrix hands out 32-bit elements. */
template <int PARTS>
struct split {
    using element = float;
    static constexpr int kstep = 16;
    static constexpr bool separate_sums = true, fp32_level = PARTS == 3;
    struct a_frag {
        uint32_t part[PARTS][4];
    };
    struct b_frag {
        uint32_t part[PARTS][2];
    };

    /* The i-th words of all parts: x in the low halves, y in the high ones. */
    template <class FRAG>
    static __device__ __forceinline__ void put(FRAG &f, int i, float x, float y)
    {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            f.part[p][i] = mma::pack(x, y, __nv_bfloat16());
            x -= __uint_as_float(f.part[p][i] << 16), y -= __uint_as_float(f.part[p][i] & 0xffff0000u);
        }
    }
    template <class FRAG>
    static __device__ __forceinline__ void put_bits(FRAG &f, int i, uint32_t x, uint32_t y)
    {
        put(f, i, __uint_as_float(x), __uint_as_float(y));
    }
    static __device__ __forceinline__ void load_a(a_frag &a, const float *box, int stride)
    {
        uint32_t left[4], right[4];
        mma::ldmatrix(left, piece_by_rows(box, stride));
        mma::ldmatrix(right, piece_by_rows(box + 8, stride));
        put_bits(a, 0, left[0], left[2]);
        put_bits(a, 1, left[1], left[3]);
        put_bits(a, 2, right[0], right[2]);
        put_bits(a, 3, right[1], right[3]);
    }
    static __device__ __forceinline__ void load_b_nk(b_frag (&b)[2], const float *box, int stride)
    {
        uint32_t left[4], right[4];
        mma::ldmatrix(left, piece_by_columns(box, stride));
        mma::ldmatrix(right, piece_by_columns(box + 8, stride));
        put_bits(b[0], 0, left[0], left[1]);
        put_bits(b[0], 1, right[0], right[1]);
        put_bits(b[1], 0, left[2], left[3]);
        put_bits(b[1], 1, right[2], right[3]);
    }
    static __device__ __forceinline__ void load_b_kn(b_frag (&b)[2], const float *box, int stride)
    {
        const int lane = threadIdx.x % 32;
        const float *top = box + lane % 4 * 2 * stride + lane / 4, *bottom = top + 8 * stride;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            put(b[i], 0, top[8 * i], top[stride + 8 * i]);
            put(b[i], 1, bottom[8 * i], bottom[stride + 8 * i]);
        }
    }
    static __device__ __forceinline__ void acc_to_a(a_frag &a, const float (*c)[4])
    {
        put(a, 0, c[0][0], c[0][1]);
        put(a, 1, c[0][2], c[0][3]);
        put(a, 2, c[1][0], c[1][1]);
        put(a, 3, c[1][2], c[1][3]);
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const a_frag &a, const b_frag &b)
    {
#pragma unroll
        for (int sum = PARTS - 1; sum >= 0;
             sum--) /* sum of the two parts' numbers: the larger it is, the smaller the product */
#pragma unroll
            for (int p = sum; p >= 0; p--)
                mma::multiply(c, a.part[p], b.part[sum - p], __nv_bfloat16());
    }
};

} // namespace flash_portable
