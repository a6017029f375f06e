# SPDX-License-Identifier: MIT
# Overhead of gradients over the backward by bucket size: the handout's model, and collectives that only slow down the
# compute beside them by a share kappa. One panel per number of ranks; the best bucket of each curve is a point.
W = 900; H = 460
caption = "computed on paper, not measured"
load folder."/style.gp"
n = words(ranks)
of_rank(rank) = column("ranks") == rank ? column("bucket_used_bytes") / 1e6 : NaN
of(rank, kappa) = (column("ranks") == rank && column("kappa") == kappa) ? column("bucket_used_bytes") / 1e6 : NaN
best(rank, kappa) = (column("ranks") == rank && column("kappa") == kappa) \
                  ? column("best_contention_bytes") / 1e6 : NaN
at_best(name) = abs(column("bucket_used_bytes") / column("best_contention_bytes") - 1) < 1e-6 ? column(name) / 1e3 : NaN
set logscale x 10
stats data using (column("bucket_used_bytes") / 1e6) name "b" nooutput
stats data using (column("overhead_us") / 1e3) name "plain" nooutput
stats data using (column("overhead_contention_us") / 1e3) name "slow" nooutput
lo = 0.35 * (plain_min < slow_min ? plain_min : slow_min); hi = 1.4 * (plain_max > slow_max ? plain_max : slow_max)
@log_y
set xrange [0.8 * b_min : 1.25 * b_max]
set xlabel "bucket (MB)"
text = "handout"; style = 41; @add_key
do for [i = 1:words(kappas)] { text = "kappa ".word(kappas, i); style = i; @add_key }
key_point = "" # curves are lines here
set style textbox opaque noborder margins 1,1
below(i) = i % 2 # the lowest curve's label is below it, the next one's above
@draw_key
@begin_panels
do for [p = 1:n] {
    rank = word(ranks, p) + 0
    panel = sprintf("%d ranks", rank)
    @panel_title
    set ylabel p == 1 ? "over backward (ms)" : ""
    if (p > 1) { set format y "" }
    set lmargin at screen 0.085 + 0.905 * (p - 1.0) / n
    set rmargin at screen 0.085 + 0.905 * p / n - 0.025
    plot data using (of_rank(rank)):(column("overhead_us") / 1e3) smooth unique with lines linestyle 41, \
         for [i = 1:words(kappas)] data using (of(rank, word(kappas, i) + 0)):(column("overhead_contention_us") / 1e3) \
             smooth unique with lines linestyle i, \
         for [i = 1:words(kappas)] data using (best(rank, word(kappas, i) + 0)):(at_best("overhead_contention_us")) \
             with points pointtype 7 pointsize 1 linecolor rgb colour_of(i), \
         for [i = 1:words(kappas)] data using (best(rank, word(kappas, i) + 0)):(at_best("overhead_contention_us")):\
             (sprintf("%.0f MB", column("best_contention_bytes") / 1e6)) with labels offset 0,(below(i) ? -1.1 : 1.1) \
             boxed font font_of(12)
    @first_panel_done
}
