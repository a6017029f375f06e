# SPDX-License-Identifier: MIT
# What a step takes against what a rank needs for it, a point for each variant: what lies further to the left and lower is
# better.
W = 700; H = 460
load folder."/style.gp"
set tmargin at screen top_of_panels
stats data using "peak_bytes" name "peak" nooutput
stats data using "step_ms" name "step" nooutput
unit = peak_max > 0.1 * GIB ? GIB : MIB
set xlabel (unit == GIB ? "GiB that a rank needs at its worst moment" : "MiB that a rank needs at its worst moment")
set ylabel "ms a step"
set xrange [0 : 1.25 * peak_max / unit]
set yrange [0 : 1.15 * step_max]
below(x) = strcol("variant") eq "zero2" # its right neighbour is fsdp-keep
peak(x) = column("peak_bytes") / unit
plot data using (peak(0)):"step_ms" with points linestyle 1 pointtype 7 pointsize 1.2, \
     data using (below(0) ? NaN : peak(0)):"step_ms":(strcol("variant")) \
         with labels left offset 0.9,0.4 font font_of(11) noenhanced, \
     data using (below(0) ? peak(0) : NaN):"step_ms":(strcol("variant")) \
         with labels left offset 0.9,-0.6 font font_of(11) noenhanced
