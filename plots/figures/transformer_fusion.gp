# SPDX-License-Identifier: MIT
# Time of a step by fusion level, over the longest of the group: an eager framework's ops, fused kernels, one CUDA graph.
# The number on a bar is the time in ms. One panel per context length, one group of bars per size.
W = 900; H = 460
load folder."/style.gp"
n = words(lengths)
index_of_word(list, name) = sum [k = 1:words(list)] (word(list, k) eq name ? k : 0)
place(v, seq) = (strcol("variant") eq word(variants, v) && column("seq") == seq) \
              ? index_of_word(sizes, strcol("size")) + 0.26 * (v - 0.5 * (words(variants) + 1)) : NaN
is(size, seq) = strcol("size") eq size && column("seq") == seq
longest = NaN
length_here = NaN
longest_of = "longest = 0; stats data using (is(name, length_here) && column('step_ms') > longest ? \
              (longest = column('step_ms'), 0) : 0) nooutput"
set yrange [0 : 1.12]
@grid_of_y
set style fill solid
set boxwidth 0.24
set xrange [0.5 : words(sizes) + 0.5]
set xtics () scale 0
do for [i = 1:words(sizes)] { set xtics add (word(sizes, i) i) }
do for [v = 1:words(variants)] { text = word(variants, v); style = v; @add_key }
@draw_key
bottom = 0.1; @begin_panels
do for [k = 1:n] {
    panel = "S ".word(lengths, k)
    @panel_title
    set ylabel k > 1 ? "" : "step / the longest of its size (ms on the bars)"
    set lmargin at screen 0.085 + 0.91 * (k - 1) / n
    set rmargin at screen 0.085 + 0.91 * k / n - 0.025
    if (k > 1) { set format y "" }
    length_here = word(lengths, k) + 0
    array over[words(sizes)]
    do for [i = 1:words(sizes)] {
        name = word(sizes, i)
        @longest_of
        over[i] = longest
    }
    over_of(i) = i > 0 ? over[i] : NaN
    share(v) = column("step_ms") / over_of(index_of_word(sizes, strcol("size")))
    plot for [v = 1:words(variants)] data using (place(v, length_here)):(share(v)) with boxes linecolor rgb colour_of(v), \
         for [v = 1:words(variants)] data using (place(v, length_here)):(share(v)):\
             (sprintf("%.3g", column("step_ms"))) with labels offset 0,0.7 font font_of(10)
    @first_panel_done
}
