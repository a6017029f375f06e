# SPDX-License-Identifier: MIT
# What communication costs by bucket size: measured, with its 95 % interval, what the handout's model says and
# what ours, with contention, predicts from the first size (docs/formulas.md). The vertical line is the best bucket of the handout's model. One panel per context
# length.
W = 900; H = 460
load folder."/style.gp"
n = words(seqs_shown)
mb_of(seq) = column("seq") == seq ? column("bucket_mb") : NaN
larger(a, b) = b > a ? b : a # a where b is NaN
stats data using "bucket_mb" name "mb" nooutput
least = mb_min; most = mb_max
text = "measured"; style = 1; @add_key
text = "handout: n o + s / (n w)"; style = 41; @add_key
text = "its best bucket"; style = 43; @add_key
predicted = 0
stats data using (column("predicted_exposed_ms") > 0 ? (predicted = 1, 0) : 0) nooutput
if (predicted) { text = "predicted from the first, with contention"; style = 22; @add_key }
key_point = "if (key_style[i] < 20) { set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point \
             pointtype 7 pointsize 0.8 linecolor rgb colour_of(1) }"
@draw_key
set logscale x 10
if (words(buckets) <= 8) { # every size has its tick
    set xtics ()
    do for [i = 1:words(buckets)] { set xtics add (word(buckets, i) word(buckets, i) + 0) }
}
set xlabel "bucket (MB of 2^{20} bytes)"
@begin_panels
do for [p = 1:n] {
    seq = word(seqs_shown, p) + 0
    panel = sprintf("S %d", seq)
    @panel_title
    top = 0; bottom = 0; best = NaN
    stats [*:*] [*:*] data using (here = column("seq") == seq, \
        top = here ? larger(larger(larger(top, column("exposed_ms")), column("exposed_hi_ms")), \
                            column("predicted_ms")) : top, \
        bottom = (here && column("exposed_lo_ms") < bottom) ? column("exposed_lo_ms") : bottom, \
        best = (here && column("predicted_best_mb") > 0) ? column("predicted_best_mb") : best, top) nooutput
    set yrange [1.1 * bottom : 1.12 * top] # an interval may go below 0
    set xrange [0.7 * (best < least ? best : least) : 1.4 * (best > most ? best : most)]
    set ylabel p == 1 ? "exposed (ms)" : ""
    set lmargin at screen 0.075 + 0.915 * (p - 1.0) / n
    set rmargin at screen 0.075 + 0.915 * p / n - 0.035
    if (best == best) {
        set arrow 50 from best, graph 0 to best, graph 0.93 nohead linestyle 43
        set label 50 sprintf("%.3g MB", best) at best, graph 0.96 center font font_of(12)
    }
    plot data using (mb_of(seq)):(column("predicted_ms")) smooth unique with lines linestyle 41, \
         data using (mb_of(seq)):(column("predicted_exposed_ms")) smooth unique with lines linestyle 22, \
         data using (mb_of(seq)):(column("exposed_ms")) smooth unique with lines linestyle 1 linewidth 1, \
         data using (mb_of(seq)):(column("exposed_ms")):(column("exposed_lo_ms")):(column("exposed_hi_ms")) \
             with yerrorbars linestyle 1 pointtype 7 pointsize 0.8
    @first_panel_done
}
