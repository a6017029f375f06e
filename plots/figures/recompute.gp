# SPDX-License-Identifier: MIT
# Time of a step against the memory it takes, one point per way of recomputation.
W = 900; H = 480
load folder."/style.gp"
GIB = 1073741824.0
MIB = 1048576.0
set tmargin at screen top_of_panels
stats data using "peak_bytes" name "peak" nooutput
stats data using "step_ms" name "step" nooutput
unit = peak_max > 0.5 * GIB ? GIB : MIB
set xlabel unit == GIB ? "peak memory (GiB)" : "peak memory (MiB)"
set ylabel "step (ms)"
wide = (peak_max - peak_min) / unit + 1e-9
set xrange [peak_min / unit - 0.06 * wide : peak_max / unit + 0.16 * wide]
set yrange [step_min - 0.1 * (step_max - step_min + 1e-9) : step_max + 0.12 * (step_max - step_min + 1e-9)]
name(i) = strcol("variant") eq "group" ? "group of ".strcol("group") : strcol("variant")
plot data using (column("peak_bytes") / unit):"step_ms" with points linestyle 1 pointtype 7 pointsize 1.2, \
     data using (column("peak_bytes") / unit):"step_ms":(name(0)) with labels left offset 0.8,0.5 noenhanced \
         font font_of(12)
