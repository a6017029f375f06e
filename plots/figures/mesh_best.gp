# SPDX-License-Identifier: MIT
# MFU of the best mesh by the number of GPUs, a line for each model; and where the time of the largest model's step goes.
W = 900; H = 460
caption = "predicted, not measured"
load folder."/style.gp"
n = words(gpus)
place(model) = strcol("model") eq model ? index_of(gpus, column("gpus")) : NaN
parts = "products attention passes tp cp bubble data update"
up_to(k) = sum [i = 1:k] column(word(parts, i)."_pct")
part_colour(k) = k <= 6 ? colour_of(k) : k == 7 ? "#999999" : "#333333"
every = n > 8 ? 2 : 1
gpus_text(i) = word(gpus, i) + 0 < 1024 ? word(gpus, i) : sprintf("%gk", (word(gpus, i) + 0) / 1024)
do for [i = 1:words(models)] { text = word(models, i); style = i; @add_key }
key_middle = 0.25 * W
@draw_key
do for [k = 1:8] {
    set label 200 + k word(parts, k) at screen from_left(470 + 104 * ((k - 1) % 4) + 14),from_top(64 + 18 * ((k - 1) / 4)) left \
        noenhanced font font_of(12)
    set label 240 + k '' at screen from_left(470 + 104 * ((k - 1) % 4)),from_top(64 + 18 * ((k - 1) / 4)) point pointtype 5 \
        pointsize 1.2 linecolor rgb part_colour(k)
}
set xtics () scale 0
do for [i = 1:n:every] { set xtics add (gpus_text(i) i) }
set xrange [0.4 : n + 0.6]
set xlabel "GPUs"
@begin_panels
panel = "model FLOPs utilization (%)"
@panel_title
set lmargin at screen 0.065
set rmargin at screen 0.475
set yrange [0 : *]
plot for [i = 1:words(models)] data using (place(word(models, i))):"mfu_pct" smooth unique with linespoints linestyle i
@first_panel_done
panel = "share of the step (%): ".word(largest, 1)
@panel_title
set lmargin at screen 0.55
set rmargin at screen 0.985
set yrange [0 : 100]
set style fill solid noborder
set boxwidth 0.8
plot for [k = 8:1:-1] data using (place(word(largest, 1))):(up_to(k)) with boxes linecolor rgb part_colour(k)
