/* SPDX-License-Identifier: MIT */
/* Instances of the Hopper forward: fp32, as two parts of fp16. */
#include "kernels/cuda/attention/hopper/forward/kernel.cuh"

namespace flash_hopper
{

static const forward_instance items[] = {
    make_forward_instance<__half, 2, 64, 128, 2, true>(),
    make_forward_instance<__half, 2, 64, 128, 1, true>(),
    make_forward_instance<__half, 2, 128, 64, 2, true>(),
    make_forward_instance<__half, 2, 128, 64, 1, true>(),
};
const forward_list forward_fp32 = {items, sizeof items / sizeof *items};

} // namespace flash_hopper
