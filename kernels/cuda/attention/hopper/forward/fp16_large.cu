/* SPDX-License-Identifier: MIT */
/* Instances of the Hopper forward: fp16, head_dim above 64. */
#include "kernels/cuda/attention/hopper/forward/kernel.cuh"

namespace flash_hopper
{

static const forward_instance items[] = {
    make_forward_instance<__half, 1, 80, 96, 3, false>(),
    make_forward_instance<__half, 1, 96, 96, 3, false>(),
    make_forward_instance<__half, 1, 80, 128, 2, false>(),
    make_forward_instance<__half, 1, 96, 128, 2, false>(),
    make_forward_instance<__half, 1, 128, 128, 2, true>(),
    make_forward_instance<__half, 1, 128, 128, 1, true>(),
    make_forward_instance<__half, 1, 192, 96, 2, false, 128>(),
    make_forward_instance<__half, 1, 192, 128, 2, true, 128>(),
    make_forward_instance<__half, 1, 192, 80, 2, false>(),
    make_forward_instance<__half, 1, 256, 64, 2, false>(),
};
const forward_list forward_fp16_large = {items, sizeof items / sizeof *items};

} // namespace flash_hopper
