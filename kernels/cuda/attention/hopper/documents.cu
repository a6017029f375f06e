/* SPDX-License-Identifier: MIT */
/* See documents.h. One block sorts by counting: tiles of equally many key blocks share a bin, and so do neighbours where there are
 * more numbers of blocks than bins. */
#include "kernels/cuda/attention/hopper/documents.h"

#include "kernels/cuda/primitives/documents.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/shared/internal.h"

namespace
{

constexpr int BINS = 1024; /* one a thread */

struct list_params {
    const int *cu_seqlens_q, *cu_seqlens_k;
    document_tiles *list;
    int documents, numbers; /* numbers of tiles, including numbers without a tile */
    int rows, keys, most_blocks, window_left, window_right;
};

/* The tile of this number and its bin, the first of which has the longest tiles; negative: there is no such tile. */
__device__ __forceinline__ int bin_of(const list_params &p, int number, document_tile &tile)
{
    const int i = documents::find(p.cu_seqlens_q, p.documents, p.rows, number);
    const int q = p.cu_seqlens_q[i], k = p.cu_seqlens_k[i];
    const int seq_q = p.cu_seqlens_q[i + 1] - q, seq_k = p.cu_seqlens_k[i + 1] - k;
    tile = {q, seq_q, k, seq_k, (number - q / p.rows - i) * p.rows};
    if (tile.first >= seq_q)
        return -1;
    const int position = tile.first + seq_k - seq_q; /* key of the first query's */
    const int end = min(seq_k, max(0, position + p.rows + p.window_right));
    const int blocks = max(0, (end + p.keys - 1) / p.keys - max(0, position - p.window_left) / p.keys);
    const int shorter = p.most_blocks - min(blocks, p.most_blocks);
    return p.most_blocks < BINS ? shorter : (int)((int64_t)shorter * (BINS - 1) / p.most_blocks);
}

__global__ void __launch_bounds__(BINS) list_kernel(const list_params p)
{
    __shared__ int place[BINS]; /* how many tiles a bin has; then where its next one goes */
    const int thread = threadIdx.x;
    document_tile tile;
    place[thread] = 0;
    __syncthreads();
    for (int number = thread; number < p.numbers; number += BINS) {
        const int bin = bin_of(p, number, tile);
        if (bin >= 0)
            atomicAdd(&place[bin], 1);
    }
    __syncthreads();
    const int own = place[thread];
    for (int distance = 1; distance < BINS; distance *= 2) { /* sums up to each bin */
        const int before = thread >= distance ? place[thread - distance] : 0;
        __syncthreads();
        place[thread] += before;
        __syncthreads();
    }
    if (thread == BINS - 1)
        p.list->count = place[thread];
    __syncthreads();
    place[thread] -= own;
    __syncthreads();
    for (int number = thread; number < p.numbers; number += BINS) {
        const int bin = bin_of(p, number, tile);
        if (bin >= 0)
            p.list->items[atomicAdd(&place[bin], 1)] = tile;
    }
}

} // namespace

int document_tiles_most(const sb_attention *a, int rows)
{
    return documents::tile_numbers(a->seq_q, a->documents, rows);
}

size_t document_tiles_bytes(const sb_attention *a, int rows)
{
    const size_t bytes = sizeof(document_tiles) + (size_t)document_tiles_most(a, rows) * sizeof(document_tile);
    return (bytes + 255) / 256 * 256;
}

sb_status document_tiles_list(const sb_attention *a, int rows, int keys, document_tiles *list, cudaStream_t stream)
{
    list_params p = {};
    p.cu_seqlens_q = a->cu_seqlens_q, p.cu_seqlens_k = a->cu_seqlens_k, p.list = list;
    p.documents = a->documents, p.numbers = document_tiles_most(a, rows);
    p.rows = rows, p.keys = keys, p.most_blocks = (a->seq_k + keys - 1) / keys;
    p.window_left = sb_window_left(a), p.window_right = sb_window_right(a);
    list_kernel<<<1, BINS, 0, stream>>>(p);
    return sb_cuda_launched("flash, tiles of documents");
}
