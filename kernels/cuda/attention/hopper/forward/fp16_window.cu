/* SPDX-License-Identifier: MIT */
/* Instances of the Hopper forward: fp16 with a sliding window. Narrower heads are computed as the least columns that have room. */
#include "kernels/cuda/attention/hopper/forward/kernel.cuh"

namespace flash_hopper
{

static const forward_instance items[] = {
    make_window_instance<__half, 64, 128, 3>(),      make_window_instance<__half, 128, 128, 2>(),
    make_window_instance<__half, 192, 96, 2, 128>(), make_window_instance<__half, 192, 64, 2>(),
    make_window_instance<__half, 256, 64, 2>(),
};
const forward_list forward_fp16_window = {items, sizeof items / sizeof *items};

} // namespace flash_hopper
