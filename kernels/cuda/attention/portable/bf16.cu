/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for bf16. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers bf16_launchers = {forward_any<half16<__nv_bfloat16>>, backward_any<half16<__nv_bfloat16>>};
}
