/* SPDX-License-Identifier: MIT */
/* Instances of the Hopper forward: fp32 in memory, as two parts of bf16. */
#include "kernels/cuda/attention/hopper/forward/kernel.cuh"

namespace flash_hopper
{

static const forward_instance items[] = {
    make_forward_instance<__nv_bfloat16, 2, 64, 128, 2, true>(),
    make_forward_instance<__nv_bfloat16, 2, 64, 128, 1, true>(),
    make_forward_instance<__nv_bfloat16, 2, 128, 64, 2, true>(),
    make_forward_instance<__nv_bfloat16, 2, 128, 64, 1, true>(),
};
const forward_list forward_bf16x3 = {items, sizeof items / sizeof *items};

} // namespace flash_hopper
