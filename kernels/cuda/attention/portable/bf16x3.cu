/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for fp32 in memory: products of two bf16 parts. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers bf16x3_launchers = {forward_any<split<2>>, backward_any<split<2>>};
}
