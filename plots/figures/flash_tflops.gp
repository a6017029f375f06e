# SPDX-License-Identifier: MIT
# TFLOP/s of flash and unfused against sequence length, below the machine's measured GEMM ceiling where it is known (0: it is not).
panels = "forward backward"; units = "TFLOP/s"; scale = "zero"
least_top = sprintf("%g", ceiling)
if (ceiling > 0) { line_text = sprintf("GEMM ceiling %.3g", ceiling) }
before = "for [i = 1:ceiling > 0] ceiling with lines linestyle 43,"
load folder."/shared/flash.gp"
