# SPDX-License-Identifier: MIT
# Left: error of the product against its own operands, by k, where all are positive: fast sums lose what the tensor core cuts.
# Right: rate of the product of N(0,1) by shape.
W = 900; H = 460
load folder."/style.gp"
set tmargin at screen top_of_panels
set bmargin at screen 0.24
do for [i = 1:words(products)] { text = word(products, i); style = i; @add_key }
@draw_key
error_of(product) = strcol("kind") eq "positive" && strcol("product") eq product ? column("k") : NaN
place_of(shape) = sum [j = 1:words(shapes)] (word(shapes, j) eq shape ? j : 0)
rate_of(product) = strcol("kind") eq "normal" && strcol("product") eq product && place_of(strcol("shape")) > 0 \
                   ? place_of(strcol("shape")) : NaN
set multiplot
panel = "error, all positive"
@panel_title
set lmargin at screen 0.09
set rmargin at screen 0.42
set logscale xy
set format y "%.0e"
set xlabel "k"
set xrange [0.85 * word(ks, 1) : 1.18 * word(ks, words(ks))]
list = ks; @ticks_of_values
plot for [i = 1:words(products)] data using (error_of(word(products, i))):(column("err_exact")) with linespoints linestyle i
@first_panel_done
panel = "TFLOP/s, N(0,1)"
@panel_title
set lmargin at screen 0.52
set rmargin at screen 0.98
unset logscale
set format y "%g"
set yrange [0 : *]
set xlabel ""
set xrange [0.6 : words(shapes) + 0.4]
set xtics () rotate by -35
do for [i = 1:words(shapes)] { set xtics add (word(shapes, i) i) }
plot for [i = 1:words(products)] data using (rate_of(word(products, i))):(column("product_tflops")) with linespoints linestyle i
