# SPDX-License-Identifier: MIT
# Recorded steps: a panel for each, one time axis for all. Reads `files`, a list of names, whose rows are a kind of work from 1 to 7
# and a start and an end in ms (timeline.sh), and label_1, sum_1 and so on, what to say about each. The figure gives panel_pixels,
# y_from, y_to, y_names, for each kind lows and highs in the panel, and for kinds 5 to 7 texts (-: not in the key) and shades.
n = words(files)
W = 900; H = 118 + n * panel_pixels + 22
load folder."/style.gp"
texts = "'matrix products' attention optimizer 'other compute' ".texts
shades = "1 6 3 0 ".shades
shade(k) = word(shades, k) == 0 ? "#8A8A8A" : colour[int(word(shades, k))]
from(k) = column("kind") == k ? column("start") : NaN
last = 0
array seen[7]
do for [k = 1:7] { seen[k] = k > 4 }
do for [p = 1:n] {
    stats word(files, p) using (last = column("end") > last ? column("end") : last, seen[int(column("kind"))] = 1) nooutput
}
do for [k = 1:7] { if (seen[k] && word(texts, k) ne "-") { text = word(texts, k); style = k; @add_key } }
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point pointtype 5 pointsize 1.4 \
             linecolor rgb shade(key_style[i])"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 26),from_top(71) left noenhanced"
@draw_key

set style fill solid noborder
set border 1
@grid_of_x
set xrange [0 : 1.005 * last]
set yrange [y_from : y_to]
set ytics scale 0 ()
do for [i = 1:words(y_names)] { set ytics add (word(y_names, i) words(y_names) - i + 0.5) }
set lmargin at screen from_left(118)
set rmargin at screen 0.985
set multiplot
do for [p = 1:n] {
    file = word(files, p)
    top = 118 + (p - 1) * panel_pixels
    set tmargin at screen from_top(top)
    set bmargin at screen from_top(top + panel_pixels - 34)
    set label 3 value(sprintf("label_%d", p)) at graph 0,graph 1 left offset 0,0.7 font font_of(14) noenhanced
    set label 4 value(sprintf("sum_%d", p)) at graph 1,graph 1 right offset 0,0.7 font font_of(12) textcolor rgb grey noenhanced
    if (p == n) { set format x "%g"; set xlabel "time (ms)" } else { set format x ""; unset xlabel }
    plot for [k = 1:7] file using (from(k)):(1):(from(k)):"end":(real(word(lows, k))):(real(word(highs, k))) \
        with boxxyerror linecolor rgb shade(k)
    @first_panel_done
}
