# SPDX-License-Identifier: MIT
# Peak memory of one forward and backward against sequence length.
W = 900; H = 440; tics_fit = 14
load folder."/style.gp"
stats data using (column("peak_bytes") / GIB) name "peak" nooutput
lo = 0.7 * peak_min; hi = 1.4 * peak_max
@log_y
set xlabel "sequence length S (tokens)"
set ylabel "peak memory (GiB)"
do for [i = 1:words(dims)] { text = "D ".word(dims, i); style = i; @add_key }
text = "unfused"; style = 41; @add_key
text = "flash"; style = 42; @add_key
@draw_key
set lmargin at screen 0.1
set rmargin at screen 0.985
set tmargin at screen from_top(92)
set bmargin at screen 0.13
plot for [i = 1:words(dims)] data using (seq_of("unfused", word(dims, i) + 0)):(column("peak_bytes") / GIB) \
         with linespoints linestyle 20 + i, \
     for [i = 1:words(dims)] data using (seq_of("flash", word(dims, i) + 0)):(column("peak_bytes") / GIB) \
         with linespoints linestyle i
