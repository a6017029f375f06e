/* SPDX-License-Identifier: MIT */
/* The flash_portable kernels for fp16. */
#include "kernels/cuda/attention/portable/launch.cuh"

namespace flash_portable
{
const launchers fp16_launchers = {forward_any<half16<__half>>, backward_any<half16<__half>>};
}
