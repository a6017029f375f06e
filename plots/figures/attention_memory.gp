# SPDX-License-Identifier: MIT
# Memory of unfused, fused and flash attention against sequence length: peak, and what is held before the backward for
# each score (a level line grows with S squared, a falling one with S). One panel per D.
W = 900; H = 600; tics_fit = 5
load folder."/style.gp"
n = words(dims)
stats data using (column("peak_bytes") / GIB) name "peak" nooutput
stats data using (column("mem_before_bwd_bytes") / (column("batch") * column("seq")**2)) name "score" nooutput
do for [v = 1:words(variants)] { text = word(variants, v); style = v % 2 ? v : 20 + v; @add_key }
@draw_key
set multiplot
do for [k = 1:2] {
    set tmargin at screen (k == 1 ? top_of_panels : 0.415)
    set bmargin at screen (k == 1 ? 0.475 : 0.105)
    set xlabel k == 1 ? "" : "S (tokens)"
    lo = 0.7 * (k == 1 ? peak_min : score_min)
    hi = 1.4 * (k == 1 ? peak_max : score_max)
    @log_y
    shown(i) = k == 1 ? column("peak_bytes") / GIB \
                      : column("mem_before_bwd_bytes") / (column("batch") * column("seq")**2)
    do for [d = 1:n] {
        panel = k == 1 ? "D ".word(dims, d) : ""
        @panel_title
        set ylabel d > 1 ? "" : (k == 1 ? "peak (GiB)" : "held / (B S²) (bytes)")
        set lmargin at screen 0.095 + 0.9 * (d - 1) / n
        set rmargin at screen 0.095 + 0.9 * d / n - 0.025
        if (d > 1) { set format y "" } else { set format y "%g" }
        plot for [v = 1:words(variants)] data using (seq_of(word(variants, v), word(dims, d) + 0)):(shown(0)) \
                 with linespoints linestyle (v % 2 ? v : 20 + v)
        @first_panel_done
    }
}
