/* Launching one instance of the Hopper forward. */
#ifndef STEPBENCH_FLASH_FORWARD_LAUNCH_SM90_CUH
#define STEPBENCH_FLASH_FORWARD_LAUNCH_SM90_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/flash_forward_layout_sm90.cuh"
#include "kernels/kernels.h"

namespace flash_sm90
{

/* in: q, k and v, or their planes. split: blocks that share a tile, 1 unless the instance has clusters. section: heads
 * walked together, 0: as many as L2 holds. */
sb_status forward_launch(sb_context *ctx, const sb_attention *a, const forward_instance *x, int split, int section,
                         const sb_tensor (&in)[3], cudaStream_t stream);

} // namespace flash_sm90

#endif
