/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for fp32: products of split bf16, fp32-level error. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers fp32_launchers = {forward_any<split3>, backward_any<split3>};
}
