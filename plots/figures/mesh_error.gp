# SPDX-License-Identifier: MIT
# The speed that the planner predicts over that which was reported, or measured on this machine, by the number of GPUs. The band is
# 10 %. Runs whose sequences are split over 4 ranks and more are hollow; those to which the planner was fitted are not drawn.
W = 900; H = 460
caption = "hollow: sequences split over 4 ranks and more; runs that were fitted are left out"
load folder."/style.gp"
spaced(name) = (at = strstrt(name, "_")) ? name[1:at - 1]." ".spaced(name[at + 1:*]) : name
do for [i = 1:words(sources)] { text = spaced(word(sources, i)); style = i; @add_key }
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 24),from_top(71) left noenhanced"
@draw_key
set logscale x 2
set xlabel "GPUs"
set ylabel "predicted / reported or measured"
set tmargin at screen top_of_panels
set bmargin at screen 0.13
stats data using "world" name "g" nooutput
set xrange [0.7 * g_min : 1.5 * g_max]
set format x "%g"
stats data using (1 + column("err_pct") / 100) name "r" nooutput
set yrange [0.95 * r_min : 1.04 * r_max]
set object 1 rectangle from graph 0,first 0.9 to graph 1,first 1.1 behind fillcolor rgb "#E8EEF4" fillstyle solid noborder
of(who, long) = (strcol("who") eq who && column("left_out") == 0 && (column("cp") >= 4) == long) ? column("world") : NaN
ratio(x) = 1 + column("err_pct") / 100
hollow(i) = word("6 4 8 10 12 14", (i - 1) % 6 + 1) + 0
plot 1 with lines linestyle 43, \
     for [i = 1:words(sources)] data using (of(word(sources, i), 0)):(ratio(0)) with points pointtype point_of(i) pointsize 0.9 \
         linecolor rgb colour_of(i), \
     for [i = 1:words(sources)] data using (of(word(sources, i), 1)):(ratio(0)) with points pointtype hollow(i) pointsize 1.1 \
         linewidth 1.6 linecolor rgb colour_of(i)
