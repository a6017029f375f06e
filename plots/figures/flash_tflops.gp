# SPDX-License-Identifier: MIT
# TFLOP/s of flash and unfused against sequence length, below the machine's measured GEMM ceiling where it is known.
W = 900; H = 460; tics_fit = 11
load folder."/style.gp"
stats data using "fwd_tflops" name "fwd" nooutput
stats data using "bwd_tflops" name "bwd" nooutput
most = fwd_max > bwd_max ? fwd_max : bwd_max
has_ceiling = ceiling > 0 # 0: not measured
if (ceiling > most) { most = ceiling }
set yrange [0 : 1.05 * most] # from 0: a share of the ceiling is a length
set xlabel "sequence length S (tokens)"
do for [i = 1:words(dims)] { text = "D ".word(dims, i); style = i; @add_key }
text = "unfused"; style = 41; @add_key
text = "flash"; style = 42; @add_key
if (has_ceiling) { text = sprintf("GEMM ceiling %.3g", ceiling); style = 43; @add_key }
@draw_key
@begin_panels
do for [k = 1:2] {
    panel = word("forward backward", k)
    rate = word("fwd_tflops bwd_tflops", k)
    @panel_title
    set ylabel k == 1 ? "TFLOP/s" : ""
    set lmargin at screen (k == 1 ? 0.08 : 0.565)
    set rmargin at screen (k == 1 ? 0.5 : 0.985)
    plot for [i = 1:words(dims)] data using (seq_of("unfused", word(dims, i) + 0)):(column(rate)) \
             with linespoints linestyle 20 + i, \
         for [i = 1:words(dims)] data using (seq_of("flash", word(dims, i) + 0)):(column(rate)) \
             with linespoints linestyle i, \
         for [i = 1:has_ceiling] ceiling with lines linestyle 43
    @first_panel_done
}
