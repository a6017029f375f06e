/* SPDX-License-Identifier: MIT */
/* Tokens sorted by id, and within an id by position, by counting: the place of a token is the
 * number of tokens with a lesser key, or the same key and an earlier position. Up to SORT_DIRECT tokens each is
 * compared with all. More are first dealt into bins by the low bits of their ids, in any order, and compared only
 * within their bin. Either way the result depends on the ids only.
 *
 * `first` maps an id to the place of its first token. It is not initialized where no token has the id, so an entry
 * counts only if the token at that place has that id: the sparse set of Briggs and Torczon, "An efficient
 * representation for sparse sets" (1993). */
#pragma once

#include <limits.h>
#include <type_traits>

#include "kernels/cuda/runtime/context.h"

constexpr int SORT_DIRECT = 4096; /* up to here comparing all pairs takes less time than the launches that avoid it */
constexpr int SORT_BIN_BITS = 10, SORT_BINS = 1 << SORT_BIN_BITS;
constexpr int SORT_COMPARED = 2048; /* tokens in shared memory at a time */

/* The low bits of the id come first in the key, so that tokens sorted by key are sorted by bin. */
struct alignas(8) token {
    unsigned key;
    int position;
};

__device__ __forceinline__ token no_token()
{
    return {~0u, INT_MAX}; /* after all others, since ids are not negative */
}

__device__ __forceinline__ unsigned token_key(int id)
{
    return __funnelshift_r((unsigned)id, (unsigned)id, SORT_BIN_BITS);
}

__device__ __forceinline__ int token_bin(unsigned key)
{
    return (int)(key >> (32 - SORT_BIN_BITS));
}

/* The arrays of a sort, in the caller's workspace. */
struct token_sort {
    int *first;    /* (vocab + 1) */
    token *sorted; /* (rows) */
    token *binned; /* (rows) these four for more than SORT_DIRECT tokens */
    int *slot;     /* (rows) place in the bin */
    int *sizes;    /* (SORT_BINS) */
    int *starts;   /* (SORT_BINS + 1) */
    size_t bytes;  /* bytes of all of them together */
    int first_id, vocab;
};

/* Ids of a slice of a table count from its first row; all others are one: `vocab`. */
__device__ __forceinline__ unsigned sort_key(const token_sort &s, int id)
{
    const unsigned row = (unsigned)id - (unsigned)s.first_id;
    return token_key((int)(row < (unsigned)s.vocab ? row : (unsigned)s.vocab));
}

inline token_sort token_sort_at(void *workspace, int rows, int vocab, int first_id = 0)
{
    token_sort s = {};
    s.first_id = first_id, s.vocab = vocab;
    auto take = [&](auto *&array, size_t n) {
        array = (std::remove_reference_t<decltype(array)>)((uintptr_t)workspace + s.bytes);
        s.bytes += (n * sizeof *array + 255) / 256 * 256;
    };
    take(s.first, (size_t)vocab + 1);
    take(s.sorted, rows);
    if (rows > SORT_DIRECT) {
        take(s.binned, rows);
        take(s.slot, rows);
        take(s.sizes, SORT_BINS);
        take(s.starts, SORT_BINS + 1);
    }
    return s;
}

/* Gives each token a place in its bin. */
static __global__ void token_bin_kernel(const int *ids, int rows, token_sort s)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < rows)
        s.slot[i] = atomicAdd(&s.sizes[token_bin(sort_key(s, ids[i]))], 1);
}

/* Every block adds the sizes of the bins up to their starts, a bin a thread, then puts its tokens there. */
static __global__ void __launch_bounds__(SORT_BINS) token_deal_kernel(const int *ids, int rows, token_sort s)
{
    __shared__ int start[SORT_BINS], totals[32];
    const int bin = (int)threadIdx.x, lane = bin % 32, warp = bin / 32, size = s.sizes[bin];
    int end = size; /* end of the bin; counted from the warp's first bin, below from bin 0 */
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, end, d);
        end += lane >= d ? before : 0;
    }
    if (lane == 31)
        totals[warp] = end;
    __syncthreads();
    end += __reduce_add_sync(0xffffffffu, lane < warp ? totals[lane] : 0);
    start[bin] = end - size;
    __syncthreads();
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < rows) {
        const unsigned key = sort_key(s, ids[i]);
        s.binned[start[token_bin(key)] + s.slot[i]] = {key, i};
    }
    if (blockIdx.x == 0) {
        s.starts[bin] = end - size;
        if (bin == SORT_BINS - 1)
            s.starts[SORT_BINS] = end;
    }
}

/* Lane i of every warp has token i of the block and counts the tokens that come before it. The warps share the tokens
 * to compare with, which are the tokens of all bins that the block's tokens are in; bins before a token's own come before
 * it. Tokens not dealt into bins are in the order of their positions, so that on either side of the block one comparison is
 * enough. */
template <bool BINNED>
__global__ void token_place_kernel(const int *ids, int rows, token_sort s)
{
    __shared__ alignas(16) unsigned keys[SORT_COMPARED];
    __shared__ alignas(16) int positions[SORT_COMPARED];
    __shared__ int places[32], followers[32];
    auto fetch = [&](int i) { return BINNED ? s.binned[i] : token{sort_key(s, ids[i]), i}; };
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    const int first = (int)blockIdx.x * 32, last = min(rows, first + 32) - 1;
    const token own = first + lane < rows ? fetch(first + lane) : no_token();
    const int from = BINNED ? s.starts[token_bin(fetch(first).key)] : 0;
    const int to = BINNED ? s.starts[token_bin(fetch(last).key) + 1] : rows;
    if (warp == 0)
        places[lane] = followers[lane] = 0;
    int place = warp == 0 ? from : 0;
    bool follows = false; /* an earlier token of the same id */
    for (int base = from; base < to; base += SORT_COMPARED) {
        const int n = min(SORT_COMPARED, to - base),
                  share = (n + 4 * warps - 1) / (4 * warps) * 4; /* tokens of a warp */
        __syncthreads();
        for (int i = (int)threadIdx.x; i < share * warps; i += (int)blockDim.x) {
            const token t = i < n ? fetch(base + i) : no_token();
            keys[i] = t.key;
            positions[i] = t.position;
        }
        __syncthreads();
        const int start = warp * share, end = start + share;
        const bool before = base + end <= first, after = base + start > last;
        if (!BINNED && (before || after)) {
            const unsigned limit = own.key + before;
            bool seen = false;
#pragma unroll 4
            for (int i = start; i < end; i += 4) {
                const uint4 k = *reinterpret_cast<const uint4 *>(keys + i);
                place += (k.x < limit) + (k.y < limit) + (k.z < limit) + (k.w < limit);
                seen |= k.x == own.key | k.y == own.key | k.z == own.key | k.w == own.key;
            }
            follows |= seen && before;
        } else {
#pragma unroll 4
            for (int i = start; i < end; i++) {
                const bool twin = keys[i] == own.key && positions[i] < own.position;
                place += keys[i] < own.key || twin;
                follows |= twin;
            }
        }
    }
    atomicAdd(&places[lane], place);
    atomicAdd(&followers[lane], (int)follows);
    __syncthreads();
    if (warp > 0 || first + lane >= rows)
        return;
    s.sorted[places[lane]] = own;
    if (followers[lane] == 0)
        s.first[__funnelshift_l(own.key, own.key, SORT_BIN_BITS)] = places[lane];
}

inline sb_status sort_tokens(const int *ids, int rows, const token_sort &s, cudaStream_t stream)
{
    const unsigned places = (unsigned)(rows + 31) / 32;
    if (rows <= SORT_DIRECT) {
        token_place_kernel<false><<<places, 512, 0, stream>>>(ids, rows, s);
        return sb_cuda_launched("token place kernel");
    }
    sb_status status =
        sb_cuda_status(cudaMemsetAsync(s.sizes, 0, SORT_BINS * sizeof *s.sizes, stream), "sizes of the token bins");
    if (status != SB_OK)
        return status;
    token_bin_kernel<<<(unsigned)(rows + 255) / 256, 256, 0, stream>>>(ids, rows, s);
    token_deal_kernel<<<(unsigned)(rows + SORT_BINS - 1) / SORT_BINS, SORT_BINS, 0, stream>>>(ids, rows, s);
    token_place_kernel<true><<<places, 128, 0, stream>>>(ids, rows, s);
    return sb_cuda_launched("token place kernel");
}
