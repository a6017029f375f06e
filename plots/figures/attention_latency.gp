# SPDX-License-Identifier: MIT
# Latency of unfused, fused and flash attention against sequence length: one row each for forward and backward, one
# panel per D.
W = 900; H = 600; tics_fit = 5
load folder."/style.gp"
stats data using "fwd_ms" name "fwd" nooutput
stats data using "bwd_ms" name "bwd" nooutput
n = words(dims)
lo = 0.7 * (fwd_min < bwd_min ? fwd_min : bwd_min)
hi = 1.4 * (fwd_max > bwd_max ? fwd_max : bwd_max)
@log_y
do for [v = 1:words(variants)] { text = word(variants, v); style = v % 2 ? v : 20 + v; @add_key }
@draw_key
set multiplot
do for [k = 1:2] {
    time = word("fwd_ms bwd_ms", k)
    set tmargin at screen (k == 1 ? top_of_panels : 0.415)
    set bmargin at screen (k == 1 ? 0.475 : 0.105)
    set xlabel k == 1 ? "" : "S (tokens)"
    do for [d = 1:n] {
        panel = k == 1 ? "D ".word(dims, d) : ""
        @panel_title
        set ylabel d > 1 ? "" : (k == 1 ? "forward, median (ms)" : "backward, median (ms)")
        set lmargin at screen 0.085 + 0.91 * (d - 1) / n
        set rmargin at screen 0.085 + 0.91 * d / n - 0.025
        if (d > 1) { set format y "" } else { set format y "%g" }
        plot for [v = 1:words(variants)] data using (seq_of(word(variants, v), word(dims, d) + 0)):(column(time)) \
                 with linespoints linestyle (v % 2 ? v : 20 + v)
        @first_panel_done
    }
}
