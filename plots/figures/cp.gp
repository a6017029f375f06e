# SPDX-License-Identifier: MIT
# Attention over ranks against the length of the sequence: how many times as fast as one rank (dashed: as many as there are
# ranks), and the share of the time in which moves are exposed. One colour per way.
panels = "'time of one rank over theirs' 'exposed share of forward and backward'"; units = "times %"; tics_fit = 6
x_label = "sequence length S (tokens)"; scale = "zero"; shared = 0
marks = "1 2 3 "; marks = marks[1:2 * words(names)]."41"; names = names." 'as many times as ranks'"
least_top = sprintf("%g 0", ranks); before = "(p == 1 ? ranks : NaN) with lines linestyle 41,"
load folder."/shared/curves.gp"
