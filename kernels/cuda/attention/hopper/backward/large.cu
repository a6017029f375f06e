/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward's main kernels above head_dim 128: launch. */
#include "kernels/cuda/attention/hopper/backward/latent.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/attention/hopper/backward/sizes.h"
#include "kernels/cuda/hopper/launch.cuh"

using namespace flash_hopper;

template <class T, int D, bool ORDERED>
static sb_status launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return launch_hopper("flash backward (Hopper, large)",
                         a->causal ? flash_backward_large<T, D, true, ORDERED>
                                   : flash_backward_large<T, D, false, ORDERED>,
                         (unsigned)((int64_t)a->batch * a->heads_kv * p.key_tiles), BACKWARD_THREADS,
                         large_memory<D>::BYTES, 1, stream, p);
}

template <class T, int D>
static sb_status launch_large(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return a->deterministic ? launch<T, D, true>(p, a, stream) : launch<T, D, false>(p, a, stream);
}

template <class T>
static sb_status launch_latent(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return launch_hopper("flash backward (Hopper, latent)",
                         a->causal ? flash_backward_latent<T, true> : flash_backward_latent<T, false>,
                         (unsigned)((int64_t)a->batch * a->heads_kv * p.key_tiles), BACKWARD_THREADS,
                         latent_memory::BYTES, 1, stream, p);
}

template <class T>
static sb_status dispatch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    const flash_backward_columns columns = flash_backward_large_columns(a);
    return columns.qk == 256  ? launch_large<T, 256>(p, a, stream)
           : columns.v == 192 ? launch_large<T, 192>(p, a, stream)
                              : launch_latent<T>(p, a, stream);
}

sb_status flash_backward_large_launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16>(p, a, stream) : dispatch<__half>(p, a, stream);
}
