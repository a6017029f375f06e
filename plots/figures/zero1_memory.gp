# SPDX-License-Identifier: MIT
# What a rank holds after an update by kind, without activations: the whole state on every rank, and the state in
# parts, one group of bars per number of ranks. A cross is what the formula says. One panel per precision and dtype of
# gradients.
W = 900; H = 460
load folder."/style.gp"
n = words(panels)
way_of(name) = sum [k = 1:words(ways)] (word(ways, k) eq name ? k : 0)
of_ranks = words(ways) + 0.8 # width of a group of bars
is_panel(name) = strcol("precision")."/".strcol("gradients") eq name
place(name) = (is_panel(name) && way_of(strcol("variant")) > 0) ? of_ranks * (index_of(ranks, column("ranks")) - 1) + way_of(strcol("variant")) : NaN
up_to(k) = column("param_bytes") + (k > 1 ? column("grad_bytes") : 0) + (k > 2 ? column("state_bytes") : 0)
stats data using (way_of(strcol("variant")) > 0 ? up_to(3) : NaN) name "held" nooutput
unit = held_max > 0.1 * GIB ? GIB : MIB
set yrange [0 : 1.15 * held_max / unit]
set xrange [0.2 : of_ranks * words(ranks) + 0.0]
set style fill solid noborder
set boxwidth 0.85
bar = 0.9 * W / n / (of_ranks * words(ranks)) # pixels of a bar and its gap
steep = bar < 60                              # names of neighbours would meet
@grid_of_y
set xtics () scale 0
do for [r = 1:words(ranks)] {
    set xtics add (sprintf("%s ranks", word(ranks, r)) of_ranks * (r - 1) + 0.5 * (words(ways) + 1))
}
do for [k = 1:3] { text = word("parameters gradients state", k); style = k; @add_key }
text = "predicted"; style = 7; @add_key
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point \
             pointtype (key_style[i] == 7 ? 2 : 5) pointsize 1.4 \
             linecolor rgb (key_style[i] == 7 ? 'black' : colour_of(key_style[i]))"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 28),from_top(71) left noenhanced"
@draw_key
set multiplot
set tmargin at screen top_of_panels
set bmargin at screen from_top(H - (steep ? 128 : 88))
do for [p = 1:n] {
    name = word(panels, p)
    slash = strstrt(name, "/")
    panel = sprintf("%s, gradients %s", name[1:slash - 1], name[slash + 1:*])
    @panel_title
    set ylabel p == 1 ? (unit == GIB ? "GiB on a rank" : "MiB on a rank") : ""
    if (p > 1) { set format y "" }
    set lmargin at screen 0.075 + 0.915 * (p - 1.0) / n
    set rmargin at screen 0.075 + 0.915 * p / n - 0.02
    set xtics offset 0,(steep ? -4.6 : -2.6)
    plot for [k = 3:1:-1] data using (place(name)):(up_to(k) / unit) with boxes linecolor rgb colour_of(k), \
         data using (place(name)):(column("predicted_after_bytes") / unit) with points pointtype 2 pointsize 1.2 \
             linecolor rgb "black", \
         data using (place(name)):(up_to(3) / unit):(sprintf("%.3g", up_to(3) / unit)) with labels offset 0,0.9 \
             font font_of(bar < 30 ? 9 : 11), \
         data using (place(name)):(0):(strcol("variant")) with labels rotate by (steep ? 60 : 30) right offset 0.6,-0.5 \
             font font_of(10) textcolor rgb grey noenhanced
    @first_panel_done
}
