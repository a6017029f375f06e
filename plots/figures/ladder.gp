# SPDX-License-Identifier: MIT
# A step and its memory with one feature after the other; lines that only stand beside the last one are pale.
set datafile separator ","
stats data using (column("place")) name "line" nooutput
drawn = int(line_max)
W = 1000; H = 150 + 34 * drawn
load folder."/style.gp"
stats data using "peak_bytes" name "peak" nooutput
unit = peak_max > 0.5 * GIB ? GIB : MIB
set xrange [0 : *]
set offsets graph 0, graph 0.12, 0, 0
set multiplot
set tmargin at screen from_top(90)
set bmargin at screen 0.12
set yrange [drawn + 0.6 : 0.4]
shown(k) = k == 1 ? column("step_ms") : column("peak_bytes") / unit
among(main) = column("main") == main ? column("place") : NaN
name_of(i) = k == 1 ? strcol("feature") : ""
do for [k = 1:2] {
    set ytics scale 0 noenhanced
    set xlabel k == 1 ? "ms a step" : (unit == GIB ? "peak, GiB" : "peak, MiB")
    set lmargin at screen (k == 1 ? 0.31 : 0.68)
    set rmargin at screen (k == 1 ? 0.64 : 0.985)
    set style fill solid 0.85 noborder
    plot data using (0.5 * shown(k)):(among(1)):(0.5 * shown(k)):(0.33) with boxxyerror linestyle k, \
         data using (0.5 * shown(k)):(among(0)):(0.5 * shown(k)):(0.33) with boxxyerror linestyle k \
             fillstyle solid 0.35, \
         data using (shown(k)):"place":(sprintf("%.3g", shown(k))):ytic(name_of(0)) with labels left offset 0.5,0 \
             font font_of(11)
    @first_panel_done
}
