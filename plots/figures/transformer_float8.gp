# SPDX-License-Identifier: MIT
# Left: how many times as fast as in bf16 a step is, a row per recipe and a bar per model. Right: by how much the recipe's
# loss ends above that of bf16, in percent, on average of its runs.
recipes = words(list); models = words(sizes)
W = 860; H = 118 + recipes * (14 * models + 14) + 62
load folder."/style.gp"
do for [k = 1:models] { text = word(sizes, k).", S ".word(contexts, k); style = k; @add_key }
@draw_key
set style fill solid noborder
@grid_of_x
set border 1
set yrange [recipes + 0.6 : 0.4]
set ytics scale 0 noenhanced
set multiplot
set tmargin at screen top_of_panels
set bmargin at screen from_top(H - 56)
high = 0.8 / models
middle(k) = column("place") - 0.4 + high * (k - 0.5)
panel = "times as fast as in bf16"
@panel_title
set lmargin at screen 0.17
set rmargin at screen 0.58
set xrange [0 : *]
set arrow 200 from 1, graph 0 to 1, graph 1 nohead linestyle 43
of(k) = column("style") == k ? column("speedup_bf16") : NaN
plot for [k = 1:models] data using (of(k) / 2):(middle(k)):(of(k) / 2):(0.42 * high) with boxxyerror linestyle k, \
     data using (NaN):"place":ytic(strcol("precision")), \
     for [k = 1:models] data using (of(k)):(middle(k)):(sprintf("%.2f", of(k))) with labels left offset 0.4,0 font font_of(11)
unset arrow 200
@first_panel_done
panel = "loss above bf16, %, mean of runs"
@panel_title
set lmargin at screen 0.64
set rmargin at screen 0.96
set format y ""
set xrange [* : *]
set yzeroaxis linetype 1 linecolor rgb grey
first(x) = column("style") == 1 ? x : NaN
plot data using (first(column("gap") / 2)):"place":(first(abs(column("gap")) / 2)):(0.3) with boxxyerror linecolor rgb grey, \
     data using (first(column("gap") > 0 ? column("gap") : 0)):"place":(sprintf("%.2f", column("gap"))) with labels left offset 0.4,0 font font_of(11)
