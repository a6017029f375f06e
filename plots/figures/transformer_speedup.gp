# SPDX-License-Identifier: MIT
# Time of a step in fp32 / its time in bf16, within one run on one GPU, against the context length. One colour per size.
panels = "-"; units = "'time of fp32 / time of bf16'"; x_label = "context length S (tokens)"; scale = "zero"; shared = 1
least_top = "1"; before = "1 with lines linestyle 43,"; tics_fit = 14
load folder."/shared/curves.gp"
