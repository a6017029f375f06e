# SPDX-License-Identifier: MIT
# How many times faster than fp32 the forward, the backward and the step are, by model size: one line per precision, its points
# joined in the order of sizes.
panels = "forward backward step"; units = "'time of fp32 / time'"; x_label = ""; scale = "zero"; shared = 1
x_axis = "set xrange [0.7 : words(list) + 0.3]; @ticks_of_words"
marks = "1 2 3 4 "; marks = marks[1:2 * words(names)]."43"; names = names." fp32"
before = "1 with lines linestyle 43,"; least_top = "1"
load folder."/shared/curves.gp"
