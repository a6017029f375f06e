# SPDX-License-Identifier: MIT
# How far each GPU or link is ahead of its reference (right of 0) or behind it, a row for each metric, with the bound that
# it may not miss as a bar. What lies beyond the axis is a number at its end.
n = words(metrics)
row_pixels = 28
W = 760; H = 100 + n * row_pixels + 62
load folder."/style.gp"
set datafile columnheaders
left = -16.0; right = 8.0
set xrange [left : right]
set yrange [n + 0.5 : 0.5]
set ytics () scale 0 noenhanced
do for [i = 1:n] { set ytics add (word(metrics, i) i) }
set lmargin at screen 0.27
set rmargin at screen 0.92
set tmargin at screen from_top(96)
set bmargin at screen from_top(96 + n * row_pixels)
set xlabel "% ahead of the reference"
set arrow 50 from 0,graph 0 to 0,graph 1 nohead linecolor rgb "black" linewidth 1.2
position(i) = sum [k = 1:n] (word(metrics, k) eq strcol("metric") ? k : 0)
ahead(i) = -column("behind_pct")
bound(i) = -100 * abs(column("bound") / column("reference") - 1)
within(x) = x >= left && x <= right ? x : NaN
ok(i) = strcol("verdict") eq "ok"
over(x) = x > right ? sprintf("%+.1f", x) : ""
under(x) = x < left ? sprintf("< %.0f", x) : ""
text = "ok"; style = 3; @add_key
text = "missed its bound"; style = 2; @add_key
text = "bound"; style = 43; @add_key
@draw_key
plot data using (within(bound(0))):(position(0)):(0):(0.35) with vectors nohead linecolor rgb "black" linewidth 2, \
     data using (within(bound(0))):(position(0)):(0):(-0.35) with vectors nohead linecolor rgb "black" linewidth 2, \
     data using (ok(0) ? within(ahead(0)) : NaN):(position(0)) with points pointtype point_of(3) pointsize 0.7 linecolor rgb colour_of(3), \
     data using (ok(0) ? NaN : within(ahead(0))):(position(0)) with points pointtype point_of(2) pointsize 0.9 linecolor rgb colour_of(2), \
     data using (right):(position(0) + (column("rank") == 1 ? 0.22 : -0.22)):(over(ahead(0))) with labels left offset 0.3,0 font font_of(11) textcolor rgb colour_of(3), \
     data using (left):(position(0) - 0.15):(under(bound(0))) with labels left offset 0.3,0 font font_of(11), \
     data using (left):(position(0) + 0.25):(under(ahead(0))) with labels left offset 0.3,0 font font_of(11) textcolor rgb colour_of(2)
