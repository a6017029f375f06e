/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for fp16 with head_dim above 128. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers fp16_wide_launchers = {forward_wide<half16<__half>>, backward_wide<half16<__half>>};
}
