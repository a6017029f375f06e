# SPDX-License-Identifier: MIT
# Attention over ranks against the length of the sequence: how many times as fast as one rank (dashed: as many as there are
# ranks), and the share of the time in which moves are exposed. One colour per way.
W = 900; H = 460; tics_fit = 6
load folder."/style.gp"
of(name) = strcol("variant") eq name ? column("seq") : NaN
do for [i = 1:words(variants)] { text = word(variants, i); style = i; @add_key }
text = "as many times as ranks"; style = 41; @add_key
@draw_key
set xlabel "sequence length S (tokens)"
stats data using "speedup" name "fast" nooutput
stats data using "exposed_pct" name "cost" nooutput
@begin_panels
do for [p = 1:2] {
    panel = p == 1 ? "time of one rank over theirs" : "exposed share of forward and backward"
    shown = p == 1 ? "speedup" : "exposed_pct"
    @panel_title
    set lmargin at screen (p == 1 ? 0.085 : 0.585)
    set rmargin at screen (p == 1 ? 0.485 : 0.985)
    set ylabel p == 1 ? "times" : "%"
    low = p == 1 || cost_min > 0 ? 0 : 1.1 * cost_min
    high = p == 1 ? 1.12 * (fast_max > ranks ? fast_max : ranks) : cost_max > 0 ? 1.15 * cost_max : 1
    set yrange [low : high]
    plot (p == 1 ? ranks : NaN) with lines linestyle 41, \
         for [i = 1:words(variants)] data using (of(word(variants, i))):(column(shown)) with linespoints linestyle i
    @first_panel_done
}
