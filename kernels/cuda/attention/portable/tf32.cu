/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for tf32: fp32 in memory, tf32 products. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers tf32_launchers = {forward_any<tf32>, backward_any<tf32>};
}
