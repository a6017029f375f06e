/* SPDX-License-Identifier: MIT */
/* Instances of the Hopper forward: fp16, head_dim above 80, two tiles that share K and V. */
#include "kernels/cuda/attention/hopper/forward/kernel.cuh"

namespace flash_hopper
{

static const forward_instance items[] = {
    make_paired_instance<__half, 96, 96, 3>(),       make_paired_instance<__half, 128, 128, 2>(),
    make_paired_instance<__half, 192, 96, 2, 128>(), make_paired_instance<__half, 192, 128, 2, 128>(),
    make_paired_instance<__half, 192, 80, 2>(),      make_paired_instance<__half, 256, 64, 2>(),
};
const forward_list forward_fp16_paired = {items, sizeof items / sizeof *items};

} // namespace flash_hopper
