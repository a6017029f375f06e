# SPDX-License-Identifier: MIT
# A peer's time over ours with its interval, a line for each shape, those of a single head below the rest. Left of the line at
# 1 the peer is faster. A ratio beyond the axis is a number at its end; a peer without a ratio is named with the reason. See
# peers_flash.sql.
W = 900; H = 200 + 24 * shapes
load folder."/style.gp"
set datafile columnheaders
@grid_of_x
left = 0.8; right = 1.6
set xrange [left : right]
set xtics 0.2
set yrange [shapes - 0.4 : -0.6]
set ytics font "sans-serif,11"
set xlabel "time of the peer / time of ours"
text = "FlashAttention-4"; style = 2; @add_key
if (three) { text = "FlashAttention-3"; style = 4; @add_key }
text = "cuDNN"; style = 1; @add_key
text = "FlashAttention-2"; style = 3; @add_key
@draw_key
impls = three ? "fa4 fa3 cudnn fa2" : "fa4 cudnn fa2"
n = words(impls)
gap = 0.66 / n
style_of(i) = word(three ? "2 4 1 3" : "2 1 3", i) + 0
inside(x) = x >= left && x <= right ? x : NaN
clipped(x) = x < left ? left : x > right ? right : x
beyond(i, suffix) = column(word(impls, i).suffix) > right ? sprintf("%.1f", column(word(impls, i).suffix)) : ""
short(i, suffix) = column(word(impls, i).suffix) < left ? sprintf("< %.2f", column(word(impls, i).suffix)) : ""
set multiplot
set tmargin at screen top_of_panels
set bmargin at screen 62.0 / H
do for [k = 1:2] {
    panel = word("forward backward", k)
    suffix = word("_fwd _bwd", k)
    @panel_title
    set arrow 50 from 1,graph 0 to 1,graph 1 nohead linecolor rgb "black" linewidth 1.2
    if (single > 0 && single < shapes) {
        set arrow 51 from graph 0,first shapes - single - 0.5 to graph 1,first shapes - single - 0.5 nohead linecolor rgb grey \
            dashtype (3,3)
    }
    set lmargin at screen (k == 1 ? 0.215 : 0.605)
    set rmargin at screen (k == 1 ? 0.51 : 0.9)
    set ytics scale 0
    if (k == 2) { set ytics () }
    said(text) = text eq "-" ? "" : text
    name_of(i) = k == 1 ? strcol("shape") : ""
    plot data using (left):0:ytic(name_of(0)) with dots linecolor rgb "white", \
         for [i = 1:n] data using (inside(column(word(impls, i).suffix))):(column(0) + gap * (i - 0.5 * (n + 1))):\
             (clipped(column(word(impls, i).suffix."_lo"))):(clipped(column(word(impls, i).suffix."_hi"))) \
             with xerrorbars linestyle style_of(i) linewidth 1.2 pointsize 0.7, \
         for [i = 1:n] data using (right):0:(beyond(i, suffix)) with labels left offset 9.6 / n * i - 9.0 / n,0 font font_of(10) \
             textcolor rgb colour_of(style_of(i)), \
         for [i = 1:n] data using (left):(column(0) + gap * (i - 0.5 * (n + 1))):(short(i, suffix)) with labels left offset 0.3,0 \
             font font_of(10) textcolor rgb colour_of(style_of(i)), \
         data using (right - 0.01):0:(said(strcol("refused".suffix))) with labels right offset 0,0.5 font font_of(10)
    @first_panel_done
}
