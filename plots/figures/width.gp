# SPDX-License-Identifier: MIT
# Rate of a step over the width of the model. Joined: widths that are multiples of 128; the others stand apart.
W = 700; H = 460
load folder."/style.gp"
if (top == 0) { exit status 3 }
good(x) = int(column("d_model")) % 128 == 0
text = "multiples of 128"; style = 1; @add_key
text = "other widths"; style = 2; @add_key
@draw_key
set tmargin at screen top_of_panels
set logscale x 2
set xtics ()
do for [i = 8:14] { set xtics add (sprintf("%d", 2**i) 2**i) }
set xlabel "width (d-model)"
set ylabel "TFLOP/s"
set yrange [0 : 1.12 * top]
plot data using (good(0) ? column("d_model") : NaN):"tflops" with linespoints linestyle 1, \
     data using (!good(0) ? column("d_model") : NaN):"tflops" with points linestyle 2 pointsize 1, \
     data using (!good(0) ? column("d_model") : NaN):"tflops":(strcol("d_model")) \
         with labels offset 0,-0.9 font font_of(11)
