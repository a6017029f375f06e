/* SPDX-License-Identifier: MIT */
/* Tiles of packed documents, found without a table: tile t of document d has number begin[d] / ROWS + d + t. There is room for
 * every tile, for floor((b + n) / R) + 1 >= floor(b / R) + ceil(n / R); the numbers that are left over have none.
 * begin (documents + 1) is cu_seqlens_q or cu_seqlens_k of sb_attention. */
#pragma once

namespace documents
{

/* How many numbers tiles of `rows` rows need when all documents together have `total` rows. */
__host__ __device__ __forceinline__ int tile_numbers(int total, int documents, int rows)
{
    return total / rows + documents;
}

/* The last document whose tiles begin at this number or before it; with rows = 0, whose rows do. */
__device__ __forceinline__ int find(const int *begin, int documents, int rows, int number)
{
    int first = 0, end = documents;
    while (end - first > 1) {
        const int middle = first + (end - first) / 2;
        if ((rows ? begin[middle] / rows + middle : begin[middle]) <= number)
            first = middle;
        else
            end = middle;
    }
    return first;
}

} // namespace documents
