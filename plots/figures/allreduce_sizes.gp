# SPDX-License-Identifier: MIT
# A collective against its size: the time of a call and the bus bandwidth. One colour per series (a number of ranks,
# or an op); solid is eager, dashed a replayed graph. The column `by` tells series apart; `series` has its values.
W = 900; H = 460
load folder."/style.gp"
bytes_of(k, mode) = (strcol(by) eq word(series, k) && strcol("mode") eq mode && index_of(sizes, column("bytes")) > 0) \
                  ? column("bytes") : NaN
size_text(b) = b < 2**10 ? sprintf("%.4g", b) : b < 2**20 ? sprintf("%.4gK", b / 2**10) \
             : b < 2**30 ? sprintf("%.4gM", b / 2**20) : sprintf("%.4gG", b / 2**30)
stats data using "median_ms" name "time" nooutput
stats data using "busbw_gb_s" name "rate" nooutput
least = word(sizes, 1) + 0; most = word(sizes, words(sizes)) + 0
do for [i = 1:words(series)] { text = word(series, i).suffix; style = i; @add_key }
if (words(modes) > 1) { text = "eager"; style = 42; @add_key; text = "graph"; style = 41; @add_key }
@draw_key
set logscale x 2
set xrange [0.8 * least : 1.25 * most]
set xtics ()
first = ceil(log(least) / log(2) - 1e-9); last = floor(log(most) / log(2) + 1e-9)
every_nth = 1 + (last - first) / 7
do for [e = first:last:every_nth] { set xtics add (size_text(2.0**e) 2.0**e) }
set xlabel "size (bytes; K, M, G are 1024^n)"
@begin_panels
do for [p = 1:2] {
    panel = p == 1 ? "time of a call" : "bus bandwidth"
    shown = p == 1 ? "median_ms" : "busbw_gb_s"
    @panel_title
    set lmargin at screen (p == 1 ? 0.085 : 0.585)
    set rmargin at screen (p == 1 ? 0.485 : 0.985)
    set ylabel p == 1 ? "median (ms)" : "GB/s"
    if (p == 1) { lo = 0.7 * time_min; hi = 1.4 * time_max; @log_y } \
    else { unset logscale y; set ytics autofreq; set yrange [0 : 1.12 * rate_max] }
    plot for [m = 1:words(modes)] for [i = 1:words(series)] data \
         using (bytes_of(i, word(modes, m))):(column(shown)) with linespoints linestyle (m == 1 ? i : 20 + i)
    @first_panel_done
}
