# SPDX-License-Identifier: MIT
# What each way of recomputation costs and saves: time of a step and peak memory, a row per way, that with the most memory
# first. Both axes begin at 0. A step longer than the axis, which ends at twice the shortest, ends in a mark.
set datafile separator "," # H wants to know the number of rows before style.gp is read
stats data using "step_ms" name "step" nooutput
stats data using "peak_bytes" name "peak" nooutput
n = int(step_records)
row_pixels = 26
W = 900; H = 88 + n * row_pixels + 62
load folder."/style.gp"
set datafile columnheaders
unit = peak_max > 0.5 * 2**30 ? 2.0**30 : 2.0**20
name(i) = strcol("variant") eq "group" ? "group of ".strcol("group") : strcol("variant")
most = step_max < 2 * step_min ? 1.04 * step_max : 2 * step_min
set style fill solid noborder
@grid_of_x
set border 1
set yrange [n - 0.4 : -0.6]
set ytics scale 0 noenhanced
set multiplot
set tmargin at screen from_top(88)
set bmargin at screen from_top(88 + n * row_pixels)
do for [k = 1:2] {
    panel = k == 1 ? "step" : "peak memory"
    @panel_title
    set xlabel k == 1 ? "ms" : unit == 2.0**30 ? "GiB" : "MiB"
    set xrange [0 : k == 1 ? most : 1.04 * peak_max / unit]
    set lmargin at screen (k == 1 ? 0.145 : 0.565)
    set rmargin at screen (k == 1 ? 0.48 : 0.9)
    of(i) = k == 1 ? column("step_ms") : column("peak_bytes") / unit
    shown(i) = k == 1 && of(0) > most ? most : of(0)
    said(i) = k == 2 ? sprintf("%.2f", of(0)) : sprintf(of(0) < 10 ? "%.2f%s" : "%.1f%s", of(0), of(0) > most ? " >" : "")
    label_of(i) = k == 1 ? name(0) : ""
    plot data using (shown(0) / 2):0:(0):(shown(0)):($0 - 0.36):($0 + 0.36):yticlabel(label_of(0)) with boxxyerror \
             linecolor rgb colour_of(k), \
         data using (shown(0)):0:(said(0)) with labels left offset 0.5,0 font font_of(12) noenhanced
    @first_panel_done
}
