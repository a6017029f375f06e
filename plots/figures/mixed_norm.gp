# SPDX-License-Identifier: MIT
# Error of the norms against width: one panel per dtype of x, one colour per kind of statistics; RMSNorm solid,
# LayerNorm dashed.
marks = "1 2 3 4 "; marks = marks[1:2 * words(names)]."42 41"
if (norms > 1) { names = names." RMSNorm LayerNorm" }
units = "'relative error of y'"; y_format = "'%.0e'"; x_label = "width of a row"; scale = "log"; shared = 1
x_axis = "set logscale x 2; @ticks_of_values; set xrange [0.85 * word(list, 1) : 1.18 * word(list, words(list))]"
load folder."/shared/curves.gp"
