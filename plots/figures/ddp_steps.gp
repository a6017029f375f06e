# SPDX-License-Identifier: MIT
# A step of data parallelism by strategy, one bar each from its start to its end: forward, backward, waiting for sums,
# what is left of updates. The line is the step as it was timed; the bar is another run, phase by phase. A diamond is
# PyTorch's step, and one far beyond our bars is named at the edge. Bars are in the order of the column place, from above.
set datafile separator "," # H wants to know the number of bars before style.gp is read
longest = 0
longer(text) = strlen(text) > longest ? strlen(text) : longest
stats data using (longest = longer(strcol("label")), column("place")) name "bar" nooutput
n = int(bar_max)
bar_pixels = 27
W = 900; H = 118 + n * bar_pixels + 62
load folder."/style.gp"
phases = 4
array phase_text[phases] = ["forward", "backward", "waiting for sums", "updates"]
array phase_colour[phases] = [colour[6], colour[1], colour[2], colour[3]]
end_of(k) = column(word("forward_end_ms backward_end_ms tail_end_ms updates_end_ms", k))
begin_of(k) = k > 1 ? end_of(k - 1) : 0
place = "(n + 1 - column('place'))"
ms(x) = sprintf(x >= 99.95 ? "%.1f" : x >= 9.995 ? "%.2f" : "%.3f", x)
exposed(x) = x == x ? sprintf("   exposed %s", ms(x)) : ""
larger(a, b) = b > a ? b : a # a where b is NaN
most = 0; theirs = 0
stats data using (most = larger(larger(most, column("step_ms")), end_of(4))) nooutput
stats data using (theirs = larger(theirs, column("pytorch_step_ms"))) nooutput
edge = 1.04 * (theirs > 1.3 * most ? 1.3 * most : larger(most, theirs)) # a PyTorch beyond is named at the edge

do for [k = 1:phases] { text = phase_text[k]; style = k; @add_key }
text = "timed step"; style = 5; @add_key
if (theirs > 0) { text = "PyTorch"; style = 6; @add_key }
key_colour(style) = style <= phases ? phase_colour[style] : style == 5 ? "#000000" : grey
# A point of size 0 is a matrix without an inverse, for which librsvg shows nothing at all: the bar of "timed step" is a text.
key_point = "if (key_style[i] == 5) { set label 140 + i '|' at screen from_left(key_x(i) + 10),from_top(71) } else { \
             set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point \
             pointtype (key_style[i] <= phases ? 5 : 12) pointsize 1.4 linecolor rgb key_colour(key_style[i]) }"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 28),from_top(71) left noenhanced"
@draw_key

within(x) = x <= edge ? x : NaN
beyond(x) = x > edge ? edge : NaN
set style fill solid noborder
set border 1
@grid_of_x
set xrange [0 : edge]
set yrange [0.4 : n + 0.6]
set y2range [0.4 : n + 0.6]
small = font_of(12) # of tics gnuplot takes no expression
set y2tics scale 0 font small noenhanced
set ytics scale 0 noenhanced
set lmargin at screen from_left(24 + 7.6 * longest)
set rmargin at screen from_left(W - 166)
set tmargin at screen from_top(100)
set bmargin at screen from_top(100 + n * bar_pixels)
set xlabel "time (ms)"
plot for [k = 1:phases] data using (begin_of(k)):(@place):(begin_of(k)):(end_of(k)):(@place - 0.34):(@place + 0.34) \
         with boxxyerror linecolor rgb phase_colour[k], \
     data using (column("step_ms")):(@place):(0):(0.43):yticlabels(strcol("label")) \
         with vectors nohead linecolor rgb "black" linewidth 2, \
     data using (column("step_ms")):(@place):(0):(-0.43):y2ticlabels(ms(column("step_ms")).exposed(column("exposed_ms"))) \
         with vectors nohead linecolor rgb "black" linewidth 2, \
     data using (within(column("pytorch_step_ms"))):(@place) with points pointtype 12 pointsize 1.2 linewidth 1.6 \
         linecolor rgb grey, \
     data using (beyond(column("pytorch_step_ms"))):(@place):(sprintf("PyTorch %s >", ms(column("pytorch_step_ms")))) \
         with labels right offset -0.3,0 font font_of(11) textcolor rgb grey
