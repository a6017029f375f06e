/* SPDX-License-Identifier: MIT */
/* The tiles of packed documents, longest first, as a small kernel lists them in the workspace: the host does not know the lengths. */
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

struct alignas(16) document_tile {
    int q_begin, seq_q, k_begin, seq_k; /* the document's first rows and lengths */
    int first;                          /* row of the tile, counted in the document */
};

/* In memory, as many items follow as there are tiles. */
struct document_tiles {
    int count;
    document_tile items[1];
};

/* Room for the row tiles of `rows` queries that the documents of `a` may have, in number and in bytes (a multiple of 256). */
int document_tiles_most(const sb_attention *a, int rows);
size_t document_tiles_bytes(const sb_attention *a, int rows);

/* Lists them by the number of blocks of `keys` keys that they see; of equals in any order. Starts when all before it in the stream
 * has ended, so that it may write where kernels before it read. */
sb_status document_tiles_list(const sb_attention *a, int rows, int keys, document_tiles *list, cudaStream_t stream);
