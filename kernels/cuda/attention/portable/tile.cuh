/* SPDX-License-Identifier: MIT */
/* What the three flash_portable kernels share: moving tiles between global and shared memory, the two matrix products
 * over tiles, and the mask.
 *
 * A warp owns MT x 16 rows of its block's A tile. Accumulators are acc[MT][N / 8][4], laid out as in primitives/mma.cuh. */
#pragma once

#include "kernels/cuda/attention/portable/policy.cuh"
#include "kernels/cuda/primitives/documents.cuh"
#include "kernels/kernels.h"

namespace flash_portable
{

constexpr float log2_e = 1.4426950408889634f;

/* What one load or store moves. */
template <class E>
struct alignas(16) piece {
    static constexpr int size = 16 / (int)sizeof(E);
    E x[size];
};

template <class E>
__device__ __forceinline__ E *head_rows(const sb_tensor &t, int b, int h)
{ /* (S, D), rows t.stride_s apart */
    return (E *)t.data + b * t.stride_b + h * t.stride_h;
}

/* A block's tile of queries (KEYS: of keys): number `tile` of head bh, of (B, H) or (B, Hkv); in a packed problem of `document`. */
struct tile_place {
    int bh, tile, document;
};

template <bool PACKED, bool KEYS>
__device__ __forceinline__ tile_place place_of(const sb_attention &a, unsigned block, int rows)
{
    const int seq = KEYS ? a.seq_k : a.seq_q;
    if constexpr (PACKED) {
        const int *const begin = KEYS ? a.cu_seqlens_k : a.cu_seqlens_q;
        const int tiles = documents::tile_numbers(seq, a.documents, rows), number = (int)block % tiles;
        const int document = documents::find(begin, a.documents, rows, number);
        return {(int)(block / tiles), number - begin[document] / rows - document, document};
    } else {
        const int tiles = (seq + rows - 1) / rows;
        const int tile = (int)block % tiles;
        return {(int)(block / tiles), tile, 0};
    }
}

/* The document as a problem of its own, but for `workspace`: rows of the tensors and of lse, where heads remain as far apart as
 * they are in `a`. KEYS: for a tile of keys. */
template <class E, bool KEYS>
__device__ __forceinline__ sb_attention document_of(const sb_attention &a, int document)
{
    sb_attention one = a;
    const int k = a.cu_seqlens_k[document];
    int q = a.cu_seqlens_q[document];
    one.seq_q = a.cu_seqlens_q[document + 1] - q, one.seq_k = a.cu_seqlens_k[document + 1] - k;
    if (KEYS) /* without queries there is no valid address, not even for copies of zero bytes */
        q = one.seq_q > 0 ? q : 0;
    one.q.data = (E *)a.q.data + q * a.q.stride_s, one.o.data = (E *)a.o.data + q * a.o.stride_s;
    one.d_o.data = (E *)a.d_o.data + q * a.d_o.stride_s, one.dq.data = (E *)a.dq.data + q * a.dq.stride_s;
    one.k.data = (E *)a.k.data + k * a.k.stride_s, one.v.data = (E *)a.v.data + k * a.v.stride_s;
    one.dk.data = (E *)a.dk.data + k * a.dk.stride_s, one.dv.data = (E *)a.dv.data + k * a.dv.stride_s;
    one.lse = a.lse + q;
    return one;
}

/* What a block works on: the problem itself, or a document of it. */
template <bool PACKED, class E, bool KEYS>
__device__ __forceinline__ decltype(auto) problem_of(const sb_attention &a, int document)
{
    if constexpr (PACKED)
        return document_of<E, KEYS>(a, document);
    else
        return (a);
}

/* Starts copying rows row0 .. row0+ROWS-1 of `rows` (S = n_rows, n_columns) into a tile of D columns; what is
 * outside becomes zero. */
template <class E, int D, int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(E *tile, const E *rows, int64_t stride_s, int row0, int n_rows, int n_columns)
{
    constexpr int pieces = D / piece<E>::size, stride = tile_stride<E, D>;
    constexpr int rows_at_once = THREADS / pieces; /* with D = 96 some threads have nothing to do */
    const int r0 = threadIdx.x / pieces, c = threadIdx.x % pieces * piece<E>::size;
    const E *source = rows + (row0 + r0) * stride_s + c;
    E *const target = tile + r0 * stride + c;
#pragma unroll
    for (int r = 0; r < ROWS; r += rows_at_once, source += rows_at_once * stride_s)
        if ((THREADS % pieces == 0 || r0 < rows_at_once) && (ROWS % rows_at_once == 0 || r + r0 < ROWS)) {
            const bool valid = row0 + r0 + r < n_rows && c < n_columns;
            mma::copy_async_16(target + r * stride, valid ? source : rows, valid);
        }
}

/* Writes this warp's rows of acc to global memory through `box`, its own rows of a shared tile that is no longer
 * read, so that every store is 16 bytes. */
template <class E, int D, int MT>
__device__ __forceinline__ void store_rows(E *box, const float (&acc)[MT][D / 8][4], E *rows, int64_t stride_s,
                                           int row0, int n_rows, int n_columns)
{
    constexpr int pieces = D / piece<E>::size, stride = tile_stride<E, D>;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                box[(mt * 16 + g + i / 2 * 8) * stride + j * 8 + 2 * q + i % 2] = (E)acc[mt][j][i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < MT * 16 * pieces / 32; i++) {
        const int index = lane + i * 32, r = index / pieces, c = index % pieces * piece<E>::size;
        if (row0 + r < n_rows && c < n_columns)
            *(piece<E> *)(rows + (row0 + r) * stride_s + c) = *(const piece<E> *)(box + r * stride + c);
    }
}

/* acc += A B^T: A is this warp's rows `a`, B a tile of N rows, both with K columns. At fp32 level each step of k has its own sum,
 * for the reason that product_kn gives. */
template <class P, int MT, int N, int K>
__device__ __forceinline__ void product_nk(float (&acc)[MT][N / 8][4], const typename P::element *a,
                                           const typename P::element *b)
{
    constexpr int stride = tile_stride<typename P::element, K>, at_once = P::fp32_level ? 1 : K / P::kstep;
#pragma unroll at_once /* no register is left for a second step's parts */
    for (int k = 0; k < K; k += P::kstep) {
        typename P::a_frag fa[MT];
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
            P::load_a(fa[mt], a + mt * 16 * stride + k, stride);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            typename P::b_frag fb[2];
            P::load_b_nk(fb, b + n * stride + k, stride);
#pragma unroll
            for (int mt = 0; mt < MT; mt++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if constexpr (P::fp32_level) {
                        float sum[4] = {};
                        P::multiply(sum, fa[mt], fb[j]);
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            acc[mt][n / 8 + j][i] += sum[i];
                    } else {
                        P::multiply(acc[mt][n / 8 + j], fa[mt], fb[j]);
                    }
                }
        }
    }
}

/* acc += A B: A is the accumulators p, B a tile of K rows and N columns.
 * Tensor cores round their sums toward zero, which over a long sequence of products biases acc by more than fp32 may
 * err; with separate_sums they only sum within the tile, and acc is added to in round-to-nearest. */
template <class P, int MT, int N, int K>
__device__ __forceinline__ void product_kn(float (&acc)[MT][N / 8][4], const float (&p)[MT][K / 8][4],
                                           const typename P::element *b)
{
    constexpr int stride = tile_stride<typename P::element, N>;
    typename P::a_frag fa[K / P::kstep][MT];
#pragma unroll
    for (int k = 0; k < K; k += P::kstep)
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
            P::acc_to_a(fa[k / P::kstep][mt], &p[mt][k / 8]);
    if constexpr (P::separate_sums) {
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            float sum[MT][2][4] = {};
#pragma unroll
            for (int k = 0; k < K; k += P::kstep) {
                typename P::b_frag fb[2];
                P::load_b_kn(fb, b + k * stride + n, stride);
#pragma unroll
                for (int mt = 0; mt < MT; mt++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        P::multiply(sum[mt][j], fa[k / P::kstep][mt], fb[j]);
            }
#pragma unroll
            for (int mt = 0; mt < MT; mt++)
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        acc[mt][n / 8 + j][i] += sum[mt][j][i];
        }
    } else {
#pragma unroll
        for (int k = 0; k < K; k += P::kstep)
#pragma unroll
            for (int n = 0; n < N; n += 16) {
                typename P::b_frag fb[2];
                P::load_b_kn(fb, b + k * stride + n, stride);
#pragma unroll
                for (int mt = 0; mt < MT; mt++) {
                    P::multiply(acc[mt][n / 8], fa[k / P::kstep][mt], fb[0]);
                    P::multiply(acc[mt][n / 8 + 1], fa[k / P::kstep][mt], fb[1]);
                }
            }
    }
}

/* Whether a window leaves out a key of N from column0 on for one of MT x 16 queries from row0 on. */
template <int MT, int N>
__device__ __forceinline__ bool at_edge(const sb_attention &a, int row0, int column0)
{
    const int past = a.seq_k - a.seq_q;
    return column0 + N - 1 > row0 + past + a.window_right || column0 < row0 + MT * 16 - 1 + past - a.window_left;
}

/* Sets to -inf the scores (rows: queries from row0, columns: keys from column0) of keys that don't exist or, if
 * causal or in a window, that their query does not see. */
template <bool WINDOW, int MT, int N>
__device__ __forceinline__ void mask_scores(float (&s)[MT][N / 8][4], const sb_attention &a, int row0, int column0)
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + mt * 16 + half * 8 + g;
            const int keys = WINDOW     ? min(a.seq_k, row + 1 + a.seq_k - a.seq_q + a.window_right)
                             : a.causal ? min(a.seq_k, row + 1 + a.seq_k - a.seq_q)
                                        : a.seq_k;
            const int first = WINDOW ? row + a.seq_k - a.seq_q - a.window_left : 0;
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (column0 + j * 8 + 2 * q + i >= keys || (WINDOW && column0 + j * 8 + 2 * q + i < first))
                        s[mt][j][half * 2 + i] = -INFINITY;
        }
}

} // namespace flash_portable
