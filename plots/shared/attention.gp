# SPDX-License-Identifier: MIT
# What the curves of bench_attention share: a column of two panels for each head dimension.
H = 600; W = 900; tics_fit = 5
panels = ""
do for [i = 1:words(dims)] { panels = panels." 'D ".word(dims, i)."'" }
panels = panels.panels
marks = "1 22 3 24 5 26"; x_label = "S (tokens)"; scale = "log"; shared = 1; grid_rows = 2
load folder."/shared/curves.gp"
