# SPDX-License-Identifier: MIT
# A training step against the context length: its time, and its tokens per second. One colour per size.
W = 900; H = 460; tics_fit = 11
load folder."/style.gp"
size_is(name) = strcol("size") eq name ? column("seq") : NaN
stats data using "step_ms" name "step" nooutput
stats data using "tokens_per_s" name "tokens" nooutput
set xlabel "context length S (tokens)"
do for [i = 1:words(sizes)] { text = word(sizes, i); style = i; @add_key }
@draw_key
@begin_panels
do for [k = 1:2] {
    panel = word("step tokens/s", k)
    shown = word("step_ms tokens_per_s", k)
    @panel_title
    lo = 0.7 * (k == 1 ? step_min : tokens_min); hi = 1.4 * (k == 1 ? step_max : tokens_max)
    @log_y
    set ylabel k == 1 ? "median time (ms)" : "tokens a second"
    set lmargin at screen (k == 1 ? 0.085 : 0.6)
    set rmargin at screen (k == 1 ? 0.485 : 0.985)
    plot for [i = 1:words(sizes)] data using (size_is(word(sizes, i))):(column(shown)) with linespoints linestyle i
    @first_panel_done
}
