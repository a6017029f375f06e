/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward's main kernel for pairs of blocks: launch. */
#include "kernels/cuda/attention/hopper/backward/pair.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/hopper/launch.cuh"

using namespace flash_hopper;

template <int D>
static sb_status launch_kernel(const backward_params &p, const sb_attention *a, void (*kernel)(backward_params),
                               cudaStream_t stream)
{
    const unsigned pairs = (unsigned)((int64_t)a->batch * a->heads_kv * ((p.key_tiles + 1) / 2));
    return launch_hopper("flash backward (Hopper, pairs)", kernel, 2 * pairs, BACKWARD_THREADS, pair_memory<D>::BYTES,
                         2, stream, p);
}

template <class T, int D, bool ORDERED>
static sb_status launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return launch_kernel<D>(
        p, a, a->causal ? flash_backward_pair<T, D, true, ORDERED> : flash_backward_pair<T, D, false, ORDERED>, stream);
}

template <class T, bool ORDERED>
static sb_status dispatch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return a->head_dim <= 80   ? launch<T, 80, ORDERED>(p, a, stream)
           : a->head_dim <= 96 ? launch<T, 96, ORDERED>(p, a, stream)
                               : launch<T, 128, ORDERED>(p, a, stream);
}

template <class T>
static sb_status dispatch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    if (a->packed) { /* in any order; with the masks of windows */
        const unsigned pairs =
            (unsigned)(a->heads_kv * documents::tile_numbers(a->seq_k, a->documents, 2 * BACKWARD_KEYS));
        return launch_hopper("flash backward (Hopper, pairs of documents)",
                             flash_backward_pair<T, 128, true, false, true, true>, 2 * pairs, BACKWARD_THREADS,
                             pair_memory<128>::PACKED_BYTES, 2, stream, p);
    }
    if (a->windowed) /* narrower heads as 128 columns: see flash_backward_padded_dim */
        return launch_kernel<128>(p, a,
                                  a->deterministic ? flash_backward_pair<T, 128, true, true, true>
                                                   : flash_backward_pair<T, 128, true, false, true>,
                                  stream);
    return a->deterministic ? dispatch<T, true>(p, a, stream) : dispatch<T, false>(p, a, stream);
}

sb_status flash_backward_pair_launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16>(p, a, stream) : dispatch<__half>(p, a, stream);
}
