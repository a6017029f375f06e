# SPDX-License-Identifier: MIT
# MFU (causal) of a training step against the context length: one panel per precision, one colour per size.
units = ceiling ? "'% of the measured GEMM ceiling'" : "'MFU (%), causal'"
x_label = "context length S (tokens)"; scale = "zero"; shared = 1
load folder."/shared/curves.gp"
