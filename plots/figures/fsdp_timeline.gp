# SPDX-License-Identifier: MIT
# What ran when in a recorded step of sharded training: a panel for each recording with a row each for gathers, compute and
# reductions, one time axis for all. Where a row of communication is red, no compute ran. Reads files (a list of
# names), label_1, sum_1 and so on (what to say about each), rank (whose rows).
n = words(files)
panel_pixels = 136
W = 900; H = 118 + n * panel_pixels + 22
load folder."/style.gp"
kinds = 4
array kind_text[kinds] = ["matrix products", "attention", "optimizer", "other compute"]
array kind_colour[kinds] = [colour[1], colour[6], colour[3], "#8A8A8A"]
gather_colour = colour[5]; reduce_colour = colour[4]; exposed_colour = colour[2]
# Kernels of a GPU and ops of a CPU, by what they are for.
kind_of(name) = strstrt(name, "gemm") || strstrt(name, "matmul") ? 1 \
              : strstrt(name, "flash") || strstrt(name, "attention") || strstrt(name, "softmax") ? 2 \
              : name eq "adamw" || name eq "AdamW" || strstrt(name, "optimizer") ? 3 : 4
is_gather(name) = strstrt(name, "gather") || strstrt(name, "copy")
mine(lane) = column("rank") == rank && strcol("lane") eq lane
compute(k) = (mine("compute") && kind_of(strcol("name")) == k) ? column("start_us") / 1e3 : NaN
gathers(x) = (mine("communication") && is_gather(strcol("name"))) ? column("start_us") / 1e3 : NaN
reduces(x) = (mine("communication") && !is_gather(strcol("name"))) ? column("start_us") / 1e3 : NaN
exposed(x) = mine("exposed") ? column("start_us") / 1e3 : NaN

last = 0
array seen[kinds]
do for [k = 1:kinds] { seen[k] = 0 }
do for [p = 1:n] {
    stats word(files, p) using (last = column("rank") == rank && column("end_us") > last ? column("end_us") : last, \
        k = mine("compute") ? kind_of(strcol("name")) : 0, k > 0 ? (seen[k] = 1) : 0) nooutput
}
do for [k = 1:kinds] { if (seen[k]) { text = kind_text[k]; style = k; @add_key } }
text = "gather"; style = kinds + 1; @add_key
text = "reduction"; style = kinds + 2; @add_key
text = "exposed"; style = kinds + 3; @add_key
key_colour(style) = style <= kinds ? kind_colour[style] : style == kinds + 1 ? gather_colour \
                  : style == kinds + 2 ? reduce_colour : exposed_colour
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point pointtype 5 pointsize 1.4 \
             linecolor rgb key_colour(key_style[i])"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 26),from_top(71) left noenhanced"
@draw_key

set style fill solid noborder
set border 1
@grid_of_x
set xrange [0 : 1.005 * last / 1e3]
set yrange [-0.4 : 3]
set ytics ("gathers" 2.5, "compute" 1.5, "reductions" 0.5) scale 0
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
    plot for [k = 1:kinds] file using (compute(k)):(1.5):(compute(k)):(column("end_us") / 1e3):(1.1):(1.9) \
             with boxxyerror linecolor rgb kind_colour[k], \
         file using (gathers(0)):(2.5):(gathers(0)):(column("end_us") / 1e3):(2.1):(2.9) \
             with boxxyerror linecolor rgb gather_colour, \
         file using (reduces(0)):(0.5):(reduces(0)):(column("end_us") / 1e3):(0.1):(0.9) \
             with boxxyerror linecolor rgb reduce_colour, \
         file using (exposed(0)):(-0.15):(exposed(0)):(column("end_us") / 1e3):(-0.3):(0) \
             with boxxyerror linecolor rgb exposed_colour
    @first_panel_done
}
