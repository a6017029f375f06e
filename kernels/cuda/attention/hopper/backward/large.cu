/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward's main kernels above head_dim 128: launch. */
#include "kernels/cuda/attention/hopper/backward/large.cuh"
#include "kernels/cuda/attention/hopper/backward/latent.cuh"
#include "kernels/cuda/attention/hopper/backward/tall.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/hopper/launch.cuh"

namespace flash_hopper
{

using kernel = void (*)(backward_params);

/* What a problem may ask for: the kernel of each, by the memory that they have. */
struct kernels {
    kernel full, causal, full_ordered, causal_ordered, window, packed;
};

template <class T, int D>
static kernels kernels_of(large_memory<D>)
{
    return {flash_backward_large<T, D, false, false>,      flash_backward_large<T, D, true, false>,
            flash_backward_large<T, D, false, true>,       flash_backward_large<T, D, true, true>,
            flash_backward_large<T, D, true, false, true>, flash_backward_large<T, D, true, false, true, true>};
}

template <class T>
static kernels kernels_of(tall_memory) /* see flash_backward_tall_takes */
{
    return {flash_backward_tall<T, false, false>, flash_backward_tall<T, true, false>,
            flash_backward_tall<T, false, true>, flash_backward_tall<T, true, true>};
}

template <class T>
static kernels kernels_of(latent_memory)
{
    const kernel full = flash_backward_latent<T, false>,
                 causal = flash_backward_latent<T, true>; /* in any order or not */
    return {
        full, causal, full, causal, flash_backward_latent<T, true, true>, flash_backward_latent<T, true, true, true>};
}

template <class T, class MEM>
sb_status backward_alone_launch(const backward_params &p, const sb_attention *a, cudaStream_t stream)
{
    const kernels of = kernels_of<T>(MEM());
    const kernel chosen = a->packed          ? of.packed
                          : a->windowed      ? of.window
                          : a->deterministic ? (a->causal ? of.causal_ordered : of.full_ordered)
                          : a->causal        ? of.causal
                                             : of.full;
    const int tiles = a->packed ? documents::tile_numbers(a->seq_k, a->documents, MEM::tile_kv::ROWS) : p.key_tiles;
    return launch_hopper("flash backward (Hopper, above 128)", chosen,
                         (unsigned)((int64_t)a->batch * a->heads_kv * tiles), BACKWARD_THREADS, MEM::PACKED_BYTES, 1,
                         stream, p);
}

#define OF_MEMORY(MEM)                                                                                                 \
    template sb_status backward_alone_launch<__nv_bfloat16, MEM>(const backward_params &, const sb_attention *,        \
                                                                 cudaStream_t);                                        \
    template sb_status backward_alone_launch<__half, MEM>(const backward_params &, const sb_attention *, cudaStream_t)
OF_MEMORY(large_memory<192>);
OF_MEMORY(large_memory<256>);
OF_MEMORY(tall_memory);
OF_MEMORY(latent_memory);

} // namespace flash_hopper
