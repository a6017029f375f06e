# SPDX-License-Identifier: MIT
# A collective against its size: the time of a call and the bus bandwidth. One colour per series (a number of ranks,
# or an op); solid is eager, dashed a replayed graph.
panels = "'time of a call' 'bus bandwidth'"; units = "'median (ms)' GB/s"; scale = "log zero"; shared = 0
x_label = "size (bytes; K, M, G are 1024^n)"
marks = "1 2 3 4 5 6 7 8 "; marks = marks[1:2 * words(names)]."42 41"
if (modes > 1) { names = names." eager graph" }
size_text(b) = b < 2**10 ? sprintf("%.4g", b) : b < 2**20 ? sprintf("%.4gK", b / 2**10) \
             : b < 2**30 ? sprintf("%.4gM", b / 2**20) : sprintf("%.4gG", b / 2**30)
first = ceil(log(word(list, 1)) / log(2) - 1e-9); last = floor(log(word(list, words(list))) / log(2) + 1e-9)
x_axis = "set logscale x 2; set xrange [0.8 * word(list, 1) : 1.25 * word(list, words(list))]; set xtics (); \
          do for [e = first:last:1 + (last - first) / 7] { set xtics add (size_text(2.0**e) 2.0**e) }"
load folder."/shared/curves.gp"
