/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward's main kernel above head_dim 128: launch. */
#include "kernels/cuda/attention/hopper/backward/large.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/attention/hopper/backward/sizes.h"
#include "kernels/cuda/hopper/launch.cuh"

using namespace flash_hopper;

template <class T, int D, int DV>
static sb_status launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return launch_hopper("flash backward (Hopper, large)",
                         a->causal ? flash_backward_large<T, D, DV, true> : flash_backward_large<T, D, DV, false>,
                         (unsigned)((int64_t)a->batch * a->heads_kv * p.key_tiles), BACKWARD_THREADS,
                         large_memory<D, DV>::BYTES, 1, stream, p);
}

template <class T>
static sb_status dispatch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    const flash_backward_columns columns = flash_backward_large_columns(a);
    return columns.qk == 256  ? launch<T, 256, 256>(p, a, stream)
           : columns.v == 192 ? launch<T, 192, 192>(p, a, stream)
                              : launch<T, 192, 128>(p, a, stream);
}

sb_status flash_backward_large_launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16>(p, a, stream) : dispatch<__half>(p, a, stream);
}
