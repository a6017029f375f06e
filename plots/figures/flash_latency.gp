# SPDX-License-Identifier: MIT
# Latency against sequence length: forward and backward, unfused dashed, flash solid, one colour per head dimension.
W = 900; H = 460; tics_fit = 11
load folder."/style.gp"
stats data using "fwd_ms" name "fwd" nooutput
stats data using "bwd_ms" name "bwd" nooutput
lo = 0.7 * (fwd_min < bwd_min ? fwd_min : bwd_min)
hi = 1.4 * (fwd_max > bwd_max ? fwd_max : bwd_max)
@log_y
set xlabel "sequence length S (tokens)"
do for [i = 1:words(dims)] { text = "D ".word(dims, i); style = i; @add_key }
text = "unfused"; style = 41; @add_key
text = "flash"; style = 42; @add_key
@draw_key
@begin_panels
do for [k = 1:2] {
    panel = word("forward backward", k)
    time = word("fwd_ms bwd_ms", k)
    @panel_title
    set ylabel k == 1 ? "median time (ms)" : ""
    set lmargin at screen (k == 1 ? 0.08 : 0.565)
    set rmargin at screen (k == 1 ? 0.5 : 0.985)
    plot for [i = 1:words(dims)] data using (seq_of("unfused", word(dims, i) + 0)):(column(time)) \
             with linespoints linestyle 20 + i, \
         for [i = 1:words(dims)] data using (seq_of("flash", word(dims, i) + 0)):(column(time)) \
             with linespoints linestyle i
    @first_panel_done
}
