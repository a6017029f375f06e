# SPDX-License-Identifier: MIT
# Saving by strategy and way: what it adds to a step, beside what the law says (a cross), and how fast the checkpoint is
# durable, beside what plain files reach (a cross). Both axes begin at 0.
set datafile separator "," # H wants to know the number of rows before style.gp is read
stats data using "stall_ms" name "stall" nooutput
stats data using "law_ms" name "law" nooutput
stats data using "durable_gb_s" name "durable" nooutput
stats data using "write_gb_s" name "top" nooutput
n = int(stall_records)
row_pixels = 26
W = 900; H = 88 + n * row_pixels + 62
load folder."/style.gp"
set datafile columnheaders
larger(a, b) = a > b ? a : b
set style fill solid noborder
@grid_of_x
set border 1
set yrange [n - 0.4 : -0.6]
set ytics scale 0 noenhanced
set multiplot
set tmargin at screen from_top(88)
set bmargin at screen from_top(88 + n * row_pixels)
do for [k = 1:2] {
    panel = k == 1 ? "stall; cross: by the law" : "durable; cross: plain files"
    @panel_title
    set xlabel k == 1 ? "ms" : "GB/s"
    most = k == 1 ? larger(stall_max, law_max) : larger(durable_max, top_max)
    set xrange [0 : most > 0 ? 1.15 * most : 1]
    set lmargin at screen (k == 1 ? 0.17 : 0.585)
    set rmargin at screen (k == 1 ? 0.5 : 0.93)
    of(i) = larger(0, column(k == 1 ? "stall_ms" : "durable_gb_s"))
    by(i) = column(k == 1 ? "law_ms" : "write_gb_s")
    said(i) = sprintf("%.3g", column(k == 1 ? "stall_ms" : "durable_gb_s"))
    label_of(i) = k == 1 ? strcol("label") : ""
    plot data using (of(0) / 2):0:(0):(of(0)):($0 - 0.36):($0 + 0.36):yticlabel(label_of(0)) with boxxyerror \
             linecolor rgb colour_of(k), \
         data using (by(0)):0 with points pointtype 2 pointsize 1.2 linewidth 2 linecolor rgb "black", \
         data using (larger(of(0), by(0))):0:(said(0)) with labels left offset 1,0 font font_of(12) noenhanced
    @first_panel_done
}
