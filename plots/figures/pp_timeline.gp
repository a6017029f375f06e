# SPDX-License-Identifier: MIT
# What each rank of a pipeline does when, a panel for each schedule: forwards, backwards and weight gradients in three colours, with the
# number of their micro-batch; idle time is white. Later chunks of a rank are darker.
if (!exists("time_label")) { time_label = "time (forwards of a rank)" }
n = words(files)
array lanes[n]
array ends[n]
set datafile separator ","
set datafile commentschars "#"
all_lanes = 0
longest = 0
do for [p = 1:n] {
    stats word(files, p) using "rank":"end" name "x" nooutput
    lanes[p] = int(x_max_x) + 1
    all_lanes = all_lanes + lanes[p]
    longest = x_max_y > longest ? x_max_y : longest
}
if (!exists("crowded")) { crowded = longest > 60 }
W = 900; H = 130 + 17 * all_lanes + 44 * n + 30
load folder."/style.gp"
kinds = "F B W"
light(k) = word("#7FB8DC #7FCBAF #EFC9DA", k)
dark(k) = word("#3D8EC2 #3FA883 #DFA0BF", k)
do for [k = 1:3] {
    set label 200 + k word("forward_(F) backward_(B) weights_(W)", k) at screen from_left(282 + 120 * (k - 1)),from_top(71) left noenhanced
    set label 240 + k '' at screen from_left(270 + 120 * (k - 1)),from_top(71) point pointtype 5 pointsize 1.5 linecolor rgb dark(k)
}
do for [k = 1:3] { set label 200 + k word("forward backward weights", k) }
set multiplot
unset grid
set border 0
set ytics scale 0
set xrange [0 : longest]
set style fill solid border rgb "white"
top = 100
do for [p = 1:n] {
    file = word(files, p)
    set tmargin at screen from_top(top + 24)
    set bmargin at screen from_top(top + 24 + 17 * lanes[p])
    set lmargin at screen from_left(56)
    set rmargin at screen from_left(W - 12)
    set label 3 value(sprintf("label_%d", p)) at graph 0,graph 1 left offset 0,0.7 font font_of(13) noenhanced
    set yrange [lanes[p] - 0.5 : -0.5]
    set ytics ()
    do for [r = 0:lanes[p] - 1] { set ytics add (sprintf("rank %d", r) r) }
    if (p == n) { set xtics nomirror; set xlabel time_label } else { unset xtics; unset xlabel }
    middle = "(0.5 * (column('start') + column('end')))"
    is(k, later) = strcol("kind") eq word(kinds, k) && (column("chunk") > 0) == later
    plot for [k = 1:3] for [later = 0:1] file using (is(k, later) ? 0.5 * (column("start") + column("end")) : NaN):"rank":\
             (0.5 * (column("end") - column("start"))):(0.45) with boxxyerror fillcolor rgb (later ? dark(k) : light(k)), \
         file using (0.5 * (column("start") + column("end"))):"rank":(sprintf("%d", column("micro") + 1)) with labels \
             font font_of(crowded ? 7 : 10) textcolor rgb "#222222"
    @first_panel_done
    top = top + 17 * lanes[p] + 44
}
