# SPDX-License-Identifier: MIT
# Tokens per second of all ranks together against their number, one line per strategy (bucketed with its best size),
# at a constant batch per rank. Dashed: the first strategy's step without communication. One panel per context length.
marks = "41 1 2 3 4 5"; names = "'".word(names, 1)." without communication' ".names
units = "'tokens a second'"; x_label = "ranks"; scale = "zero"; shared = 0
x_axis = "set logscale x 2; @ticks_of_values; set xrange [0.9 * word(list, 1) : 1.1 * word(list, words(list))]"
load folder."/shared/curves.gp"
