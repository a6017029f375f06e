# SPDX-License-Identifier: MIT
# A bar for each rung: the bare step, what the rung adds to it, and the part of the run's wall time that neither explains.
set datafile separator ","
stats data using (column("wall_ms")) name "wall" nooutput
drawn = int(wall_records)
W = 760; H = 164 + 40 * drawn
load folder."/style.gp"
array part_text[3] = ["bare step", "what the rung adds", "rest of the run"]
do for [k = 1:3] { text = part_text[k]; style = k; @add_key }
@draw_key
set tmargin at screen from_top(96)
set bmargin at screen from_top(H - 60)
set lmargin at screen 0.13
set rmargin at screen 0.93
set xrange [0 : 1.12 * wall_max]
set yrange [drawn + 0.6 : 0.4]
set xlabel "ms a step"
set ytics scale 0 noenhanced
set style fill solid 0.85 noborder
box(low, width) = low + 0.5 * width
plot data using (box(0, column("bare_ms"))):"place":(0.5 * column("bare_ms")):(0.33):ytic(strcol("variant")) \
         with boxxyerror linestyle 1, \
     data using (box(column("bare_ms"), column("added_ms"))):"place":(0.5 * column("added_ms")):(0.33) \
         with boxxyerror linestyle 2, \
     data using (box(column("bare_ms") + column("added_ms"), column("left_ms"))):"place":(0.5 * column("left_ms")):(0.33) \
         with boxxyerror linestyle 3, \
     data using (column("bare_ms") + column("added_ms") + column("left_ms")):"place":(sprintf("%.4g", column("wall_ms"))) \
         with labels left offset 0.5,0 font font_of(11)
