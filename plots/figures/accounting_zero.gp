# SPDX-License-Identifier: MIT
# What a rank holds from the first update on, by kind: DDP, ZeRO-1 to -3 and the number of ranks. One panel per
# precision recipe. Slots are for gathered weights and for gradients not yet reduced.
W = 900; H = 460
caption = "computed on paper, not measured"
load folder."/style.gp"
n = words(recipes)
of_stage = words(ranks) + 0.8 # width of a group of bars
stage_of(name) = sum [k = 1:words(stages)] (word(stages, k) eq name ? k : 0)
place(recipe) = (strcol("recipe") eq recipe && stage_of(strcol("strategy")) > 0) \
              ? of_stage * (stage_of(strcol("strategy")) - 1) + index_of(ranks, column("ranks")) : NaN
up_to(k) = (k == 1 ? column("init_bytes") : k == 2 ? column("before_step_bytes") : column("after_step_bytes")) / GIB \
         + (k == 4 ? column("slots_bytes") / GIB : 0)
stats data using (up_to(4)) name "held" nooutput
set yrange [0 : 1.12 * held_max]
set xrange [0 : of_stage * words(stages) + 0.2]
set style fill solid noborder
set boxwidth 0.85
@grid_of_y
set xtics () scale 0
do for [k = 1:words(stages)] {
    set xtics add (word(stages, k) of_stage * (k - 1) + 0.5 * (words(ranks) + 1))
}
do for [k = 1:4] { text = word("weights gradients moments slots", k); style = k; @add_key }
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point pointtype 5 pointsize 1.4 \
             linecolor rgb colour_of(key_style[i])"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 32),from_top(71) left noenhanced"
@draw_key
bottom = 0.1; @begin_panels
do for [p = 1:n] {
    recipe = word(recipes, p)
    panel = recipe
    @panel_title
    set ylabel p == 1 ? "GiB on a rank" : ""
    if (p > 1) { set format y "" }
    set lmargin at screen 0.075 + 0.915 * (p - 1.0) / n
    set rmargin at screen 0.075 + 0.915 * p / n - 0.02
    plot for [k = 4:1:-1] data using (place(recipe)):(up_to(k)) with boxes linecolor rgb colour_of(k), \
         data using (place(recipe)):(up_to(4)):(sprintf("%d", column("ranks"))) with labels offset 0,0.6 \
             font font_of(11) textcolor rgb grey
    @first_panel_done
}
