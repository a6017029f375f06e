# SPDX-License-Identifier: MIT
# Error of the norms against width: one panel per dtype of x, one colour per kind of statistics; RMSNorm solid,
# LayerNorm dashed.
W = 900; H = 440
load folder."/style.gp"
stats data using "err_rel" name "err" nooutput
lo = 0.5 * err_min; hi = 2 * err_max
@log_y
set format y "%.0e"
n = words(dtypes)
set logscale x 2
set xrange [0.85 * word(widths, 1) : 1.18 * word(widths, words(widths))]
list = widths; @ticks_of_values
set xlabel "width of a row"
do for [i = 1:words(statistics)] { text = "statistics ".word(statistics, i); style = i; @add_key }
if (words(norms) > 1) { text = "RMSNorm"; style = 42; @add_key; text = "LayerNorm"; style = 41; @add_key }
@draw_key
width_of(norm, dtype, kind) = (strcol("norm") eq norm && strcol("dtype") eq dtype && strcol("statistics") eq kind) \
                              ? column("width") : NaN
bottom = 0.14; @begin_panels
do for [d = 1:n] {
    panel = "x in ".word(dtypes, d)
    @panel_title
    set ylabel d == 1 ? "relative error of y" : ""
    set lmargin at screen 0.095 + 0.9 * (d - 1) / n
    set rmargin at screen 0.095 + 0.9 * d / n - 0.025
    if (d > 1) { set format y "" }
    plot for [i = 1:words(statistics)] data using \
             (width_of("rms", word(dtypes, d), word(statistics, i))):(column("err_rel")) with linespoints linestyle i, \
         for [i = 1:words(statistics)] data using \
             (width_of("layer", word(dtypes, d), word(statistics, i))):(column("err_rel")) \
             with linespoints linestyle 20 + i
    @first_panel_done
}
