# SPDX-License-Identifier: MIT
# How far each GPU or link is ahead of (above 0) or behind its reference. The lines with #: say which rows are drawn.
W = 760; H = 420
load folder."/style.gp"
set tmargin at screen top_of_panels
set bmargin at screen 0.2
set xrange [0.4 : words(metrics) + 0.6]
set xtics () rotate by 20 right noenhanced
do for [i = 1:words(metrics)] { set xtics add (word(metrics, i) i) }
set ylabel "%"
set xzeroaxis linecolor rgb grey
position(name) = sum [k = 1:words(metrics)] (word(metrics, k) eq name ? k : 0)
ahead_of(kind) = (strcol("against") eq "reference" && ((strcol("verdict") eq "ok") == kind)) ? -column("behind_pct") : NaN
text = "ok"; style = 3; @add_key
text = "missed its bound"; style = 2; @add_key
@draw_key
plot data using (position(strcol("metric"))):(ahead_of(1)) with points pointtype point_of(3) pointsize 0.7 linecolor rgb colour_of(3), \
     data using (position(strcol("metric"))):(ahead_of(0)) with points pointtype point_of(2) pointsize 0.9 linecolor rgb colour_of(2)
