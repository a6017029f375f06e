/* SPDX-License-Identifier: MIT */
/* Instances of the Hopper forward: fp16, head_dim up to 64. */
#include "kernels/cuda/attention/hopper/forward/kernel.cuh"

namespace flash_hopper
{

static const forward_instance items[] = {
    make_forward_instance<__half, 1, 16, 128, 3, false>(), make_forward_instance<__half, 1, 32, 128, 3, false>(),
    make_forward_instance<__half, 1, 64, 128, 3, true>(),  make_forward_instance<__half, 1, 64, 128, 2, true>(),
    make_forward_instance<__half, 1, 64, 128, 1, true>(),
};
const forward_list forward_fp16_small = {items, sizeof items / sizeof *items};

} // namespace flash_hopper
