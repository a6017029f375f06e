# SPDX-License-Identifier: MIT
# What the curves of bench_flash share: unfused dashed, flash solid, one colour per head dimension.
names = "unfused flash"; marks = "41 42 43"
if (exists("line_text")) { names = names." '".line_text."'" }
do for [i = words(dims):1:-1] { names = "'D ".word(dims, i)."' ".names; marks = sprintf("%d ", i).marks }
x_label = "sequence length S (tokens)"
shared = 1
load folder."/shared/curves.gp"
