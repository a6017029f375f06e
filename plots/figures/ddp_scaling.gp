# SPDX-License-Identifier: MIT
# Tokens per second of all ranks together against their number, one line per strategy (bucketed with its best size),
# at a constant batch per rank. Dashed: the first strategy's step without communication. One panel per context length.
W = 900; H = 460
load folder."/style.gp"
n = words(seqs_shown)
of(name, seq) = (strcol("variant") eq name && column("seq") == seq) ? column("ranks") : NaN
text = word(variants, 1)." without communication"; style = 41; @add_key
do for [i = 1:words(variants)] { text = word(variants, i); style = i; @add_key }
@draw_key
set logscale x 2
list = ranks; @ticks_of_values
set xrange [0.9 * word(ranks, 1) : 1.1 * word(ranks, words(ranks))]
set xlabel "ranks"
@begin_panels
do for [p = 1:n] {
    seq = word(seqs_shown, p) + 0
    panel = sprintf("S %d", seq)
    @panel_title
    stats [*:*] [*:*] data using (column("seq") == seq ? column("tokens_per_s") * column("step_ms") / column("compute_ms") : NaN) \
        name "rate" nooutput
    set yrange [0 : 1.08 * rate_max]
    set ylabel p == 1 ? "tokens a second" : ""
    set lmargin at screen 0.1 + 0.96 * (p - 1.0) / n
    set rmargin at screen 0.1 + 0.96 * p / n - 0.085
    plot data using (of(word(variants, 1), seq)):(column("tokens_per_s") * column("step_ms") / column("compute_ms")) \
             with lines linestyle 41, \
         for [i = 1:words(variants)] data using (of(word(variants, i), seq)):(column("tokens_per_s")) \
             with linespoints linestyle i
    @first_panel_done
}
