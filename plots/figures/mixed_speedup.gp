# SPDX-License-Identifier: MIT
# How many times faster than fp32 the forward, the backward and the step are, by model size: one line per precision, its points
# joined in the order of sizes, whatever the file's.
W = 900; H = 440
load folder."/style.gp"
place_of(size) = sum [k = 1:words(sizes)] (word(sizes, k) eq size ? k : 0)
most = 1
do for [k = 1:3] {
    stats data using (column(word("speedup_fwd speedup_bwd speedup_step", k))) name "part" nooutput
    if (part_records > 0 && part_max > most) { most = part_max }
}
set yrange [0 : 1.08 * most]
set xrange [0.7 : words(sizes) + 0.3]
list = sizes; @ticks_of_words
do for [i = 1:words(precisions)] { text = word(precisions, i); style = i; @add_key }
text = "fp32"; style = 43; @add_key
@draw_key
of(precision) = strcol("precision") eq precision ? place_of(strcol("size")) : NaN
bottom = 0.11; @begin_panels
do for [k = 1:3] {
    panel = word("forward backward step", k)
    speedup = word("speedup_fwd speedup_bwd speedup_step", k)
    @panel_title
    set ylabel k == 1 ? "time of fp32 / time" : ""
    set lmargin at screen 0.075 + 0.92 * (k - 1) / 3
    set rmargin at screen 0.075 + 0.92 * k / 3 - 0.03
    if (k > 1) { set format y "" }
    plot 1 with lines linestyle 43, \
         for [i = 1:words(precisions)] data using (of(word(precisions, i))):(column(speedup)) \
             smooth unique with linespoints linestyle i
    @first_panel_done
}
