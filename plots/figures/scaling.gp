# SPDX-License-Identifier: MIT
# How time and memory of a step grow when one dimension does: blocks, width, batch, context or key and value
# heads. One colour per precision, of the context per way of recomputation.
panels = "step 'peak memory'"; units = "'median time (ms)' GiB"; shared = 0
x_axis = "set logscale x 2; set xrange [0.85 * word(points, 1) : 1.18 * word(points, words(points))]; set xtics (); \
          do for [i = 1:words(points):(words(points) + 8) / 9] { \
              set xtics add (length_text(int(word(points, i))) int(word(points, i))) }"
load folder."/shared/curves.gp"
