# SPDX-License-Identifier: MIT
# How time and memory of a step grow when one dimension does: blocks, width, batch, context or key and value
# heads. One colour per precision, of the context per way of recomputation.
W = 900; H = 460
load folder."/style.gp"
of(line) = strcol(by) eq line ? column(axis) : NaN
first = word(points, 1) + 0; last = word(points, words(points)) + 0
set logscale x 2
set xrange [0.85 * first : 1.18 * last]
every_nth = (words(points) + 8) / 9
set xtics ()
do for [i = 1:words(points):every_nth] { set xtics add (length_text(int(word(points, i))) int(word(points, i))) }
set xlabel axis_text
stats data using "step_ms" name "step" nooutput
stats data using (column("peak_bytes") / GIB) name "peak" nooutput
widest = step_max / step_min > peak_max / peak_min ? step_max / step_min : peak_max / peak_min # few times: from 0
do for [i = 1:words(lines)] { text = (by eq "recompute" ? "recompute " : "").word(lines, i); style = i; @add_key }
@draw_key
@begin_panels
do for [k = 1:2] {
    panel = k == 1 ? "step" : "peak memory"
    @panel_title
    lo = 0.7 * (k == 1 ? step_min : peak_min); hi = 1.4 * (k == 1 ? step_max : peak_max)
    if (widest > 3) { @log_y } else { unset logscale y; set ytics autofreq; set yrange [0 : 0.8 * hi] }
    set ylabel k == 1 ? "median time (ms)" : "GiB"
    set lmargin at screen (k == 1 ? 0.085 : 0.585)
    set rmargin at screen (k == 1 ? 0.485 : 0.985)
    shown(i) = k == 1 ? column("step_ms") : column("peak_bytes") / GIB
    plot for [i = 1:words(lines)] data using (of(word(lines, i))):(shown(0)) with linespoints linestyle i
    @first_panel_done
}
