# SPDX-License-Identifier: MIT
# A bar for each way: compute of a step and what communication it does not hide; the mark is one rank over the ranks, and all that
# is sent alone.
W = 700; H = 420
load folder."/style.gp"
set datafile columnheaders
set tmargin at screen top_of_panels
stats data using "predicted_ms" name "predicted" nooutput
stats data using "step_ms" name "step" nooutput
most = predicted_max > step_max ? predicted_max : step_max
text = "compute"; style = 1; @add_key
text = "exposed"; style = 2; @add_key
text = "predicted, nothing hidden"; style = 3; @add_key
@draw_key
set style fill solid noborder
set ylabel "ms a step"
set yrange [0 : 1.15 * most]
set xtics scale 0 noenhanced
set boxwidth 0.5
set xrange [-0.6 : step_records - 0.4]
compute(x) = column("compute_ms") < column("step_ms") ? column("compute_ms") : column("step_ms")
plot data using 0:"step_ms":xtic(strcol("name")) with boxes linecolor rgb colour_of(2), \
     data using 0:(compute(0)) with boxes linecolor rgb colour_of(1), \
     data using 0:"predicted_ms" with points pointtype 9 pointsize 1.6 linecolor rgb colour_of(3), \
     data using 0:(0.05 * most):(sprintf("%.3g", column("step_ms"))) with labels textcolor rgb "white"
