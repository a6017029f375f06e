# SPDX-License-Identifier: MIT
# A peer's time over ours, a line for each shape. Left of the line at 1, the peer is faster. A peer without a ratio is named with the
# reason. See peers_flash.sql.
W = 900; H = 180 + 17 * shapes
load folder."/style.gp"
set datafile columnheaders
unset grid
set grid xtics linetype 1 linecolor rgb "#E4E4E4" linewidth 1
set logscale x 2
set xrange [0.95 * (least < 0.8 ? least : 0.8) : 1.05 * most]
set xtics ("0.8" 0.8, "1" 1, "1.5" 1.5, "2" 2, "3" 3, "4" 4, "6" 6, "8" 8)
set yrange [shapes - 0.5 : -0.5]
set xlabel "time of the peer / time of ours"
text = "FlashAttention-4"; style = 2; @add_key
text = "cuDNN"; style = 1; @add_key
text = "FlashAttention-2"; style = 3; @add_key
@draw_key
set multiplot
set tmargin at screen top_of_panels
set bmargin at screen 62.0 / H
do for [k = 1:2] {
    panel = word("forward backward", k)
    suffix = word("_fwd _bwd", k)
    @panel_title
    set arrow 50 from 1,graph 0 to 1,graph 1 nohead linecolor rgb "black" linewidth 1.2
    set lmargin at screen (k == 1 ? 0.27 : 0.645)
    set rmargin at screen (k == 1 ? 0.62 : 0.99)
    set ytics scale 0
    if (k == 2) { set ytics () }
    said(text) = text eq "-" ? "" : text
    name_of(i) = k == 1 ? strcol("shape") : ""
    plot data using (column("fa2".suffix)):0:ytic(name_of(0)) with points linestyle 3 pointsize 0.8, \
         data using (column("cudnn".suffix)):0 with points linestyle 1 pointsize 0.8, \
         data using (column("fa4".suffix)):0 with points linestyle 2 pointsize 0.9, \
         data using (1.04 * most):0:(said(strcol("refused".suffix))) with labels right offset 0,0.5 font ",8"
    @first_panel_done
}
unset multiplot
