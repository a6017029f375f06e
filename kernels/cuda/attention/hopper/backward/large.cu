/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward's main kernels above head_dim 128: launch. */
#include "kernels/cuda/attention/hopper/backward/large.cuh"
#include "kernels/cuda/attention/hopper/backward/latent.cuh"
#include "kernels/cuda/attention/hopper/backward/tall.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/attention/hopper/backward/sizes.h"
#include "kernels/cuda/hopper/launch.cuh"

using namespace flash_hopper;

using kernel = void (*)(backward_params);

/* What a problem may ask for: the kernel of each. */
struct kernels {
    kernel full, causal, full_ordered, causal_ordered, window, packed;
};

/* `keys` of a tile. */
static sb_status launch(const backward_params &p, const sb_attention *a, const kernels &of, int keys, int bytes,
                        cudaStream_t stream)
{
    const kernel chosen = a->packed          ? of.packed
                          : a->windowed      ? of.window
                          : a->deterministic ? (a->causal ? of.causal_ordered : of.full_ordered)
                          : a->causal        ? of.causal
                                             : of.full;
    const int tiles = a->packed ? documents::tile_numbers(a->seq_k, a->documents, keys) : p.key_tiles;
    return launch_hopper("flash backward (Hopper, above 128)", chosen,
                         (unsigned)((int64_t)a->batch * a->heads_kv * tiles), BACKWARD_THREADS, bytes, 1, stream, p);
}

template <class T, int D>
static sb_status launch_large(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    const kernels of = {
        flash_backward_large<T, D, false, false>,      flash_backward_large<T, D, true, false>,
        flash_backward_large<T, D, false, true>,       flash_backward_large<T, D, true, true>,
        flash_backward_large<T, D, true, false, true>, flash_backward_large<T, D, true, false, true, true>};
    return launch(p, a, of, LARGE_KEYS, large_memory<D>::PACKED_BYTES, stream);
}

template <class T>
static sb_status launch_tall(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    kernels of = {};
    of.full = flash_backward_tall<T, false>, of.causal = flash_backward_tall<T, true>;
    return launch(p, a, of, tall_memory::KEYS, tall_memory::BYTES, stream);
}

template <class T>
static sb_status launch_latent(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    const kernel full = flash_backward_latent<T, false>,
                 causal = flash_backward_latent<T, true>; /* in any order or not */
    const kernels of = {
        full, causal, full, causal, flash_backward_latent<T, true, true>, flash_backward_latent<T, true, true, true>};
    return launch(p, a, of, BACKWARD_KEYS, latent_memory::PACKED_BYTES, stream);
}

template <class T>
static sb_status dispatch(const backward_params &p, const sb_attention *a, flash_backward_kernel kernel,
                          cudaStream_t stream)
{
    const flash_backward_columns columns = flash_backward_large_columns(a);
    if (kernel == FLASH_BACKWARD_TALL)
        return launch_tall<T>(p, a, stream);
    return columns.qk == 256  ? launch_large<T, 256>(p, a, stream)
           : columns.v == 192 ? launch_large<T, 192>(p, a, stream)
                              : launch_latent<T>(p, a, stream);
}

sb_status flash_backward_large_launch(const backward_params &p, const sb_attention *a, flash_backward_kernel kernel,
                                      cudaStream_t stream)
{
    return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16>(p, a, kernel, stream) : dispatch<__half>(p, a, kernel, stream);
}
