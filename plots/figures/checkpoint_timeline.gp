# SPDX-License-Identifier: MIT
# From the begin of a save: until the state may change, until all is written, until a rank's files are synced, until the
# checkpoint is complete. Writing begins with the first block, beside the copy where there is one to wait for. Medians.
set datafile separator ","
stats data using (column("durable_ms")) name "durable" nooutput
drawn = int(durable_records)
W = 760; H = 164 + 34 * drawn
load folder."/style.gp"
array part_text[4] = ["state is copied", "written", "synced", "complete"]
do for [k = 1:4] { text = part_text[k]; style = k; @add_key }
@draw_key
set tmargin at screen from_top(96)
set bmargin at screen from_top(H - 60)
set lmargin at screen 0.2
set rmargin at screen 0.93
set xrange [0 : 1.12 * durable_max]
set yrange [drawn + 0.6 : 0.4]
set xlabel "ms since the begin of the save"
set ytics scale 0 noenhanced
set style fill solid 0.85 noborder
array part_end[5] = ["", "copied_ms", "written_ms", "synced_ms", "durable_ms"]
larger(a, b) = a > b ? a : b
from(k) = k == 1 ? 0 : column(part_end[k])
half(k) = 0.5 * larger(0, column(part_end[k + 1]) - from(k))
plot for [k = 1:4] data using (from(k) + half(k)):"place":(half(k)):(0.33):ytic(strcol("label")) \
         with boxxyerror linestyle k, \
     data using (column("durable_ms")):"place":(sprintf("%.4g", column("durable_ms"))) \
         with labels left offset 0.5,0 font font_of(11)
