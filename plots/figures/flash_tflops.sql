-- SPDX-License-Identifier: MIT
@use flash_figure tflops throughput fwd_tflops bwd_tflops
