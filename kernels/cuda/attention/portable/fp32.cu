/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for fp32: products of three bf16 parts, fp32-level error. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers fp32_launchers = {forward_any<split<3>>, backward_any<split<3>>};
}
