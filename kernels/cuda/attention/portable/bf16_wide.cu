/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for bf16 with head_dim above 128. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers bf16_wide_launchers = {forward_wide<half16<__nv_bfloat16>>, backward_wide<half16<__nv_bfloat16>>};
}
