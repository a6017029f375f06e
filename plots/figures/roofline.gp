# SPDX-License-Identifier: MIT
# The machine's ceilings: GEMM by size and dtype, copy bandwidth by size.
W = 900; H = 460
load folder."/style.gp"
copies = ""
do for [variant in variants] { if (variant[1:4] eq "copy") { copies = copies." ".variant } }
size_text(bytes) = bytes < 2**20 ? sprintf("%dK", bytes / 1024) : bytes < 2**30 ? sprintf("%dM", bytes / 2**20) \
                                                              : sprintf("%dG", bytes / 2**30)
gemm_of(dtype) = (strcol("variant") eq "gemm" && strcol("dtype") eq dtype) ? column("size") : NaN
copy_of(variant) = strcol("variant") eq variant ? column("bytes") : NaN
if (words(dtypes) > 0) { stats data using "tflops" name "gemm" nooutput }
if (words(copies) > 0) {
    stats data using (strcol("variant")[1:4] eq "copy" ? column("gb_s") : NaN) name "copy" nooutput
}
set tmargin at screen top_of_panels
set bmargin at screen 0.13
set logscale x 2
set multiplot

if (words(dtypes) > 0) {
    do for [i = 1:words(dtypes)] { text = word(dtypes, i); style = i % 2 ? i : 20 + i; @add_key }
    key_middle = 0.25 * W + 20
    @draw_key
    panel = "matrix products"
    @panel_title
    set lmargin at screen 0.08
    set rmargin at screen 0.475
    set xlabel "n of the n x n matrices"
    set ylabel "TFLOP/s"
    lo = 0.7 * gemm_min; hi = 1.4 * gemm_max
    @log_y
    set xrange [0.85 * word(sizes, 1) : 1.18 * word(sizes, words(sizes))]
    set xtics ()
    do for [i = 1:words(sizes)] { set xtics add (word(sizes, i) word(sizes, i) + 0) }
    plot for [i = 1:words(dtypes)] data using (gemm_of(word(dtypes, i))):(column("tflops")) \
             with linespoints linestyle (i % 2 ? i : 20 + i)
    @first_panel_done
}

if (words(copies) > 0) {
    keys = 0
    do for [i = 1:words(copies)] { text = word(copies, i); style = i; @add_key }
    key_middle = 0.77 * W
    @draw_key
    panel = "copies, read + written"
    @panel_title
    set lmargin at screen 0.575
    set rmargin at screen 0.985
    set xlabel "bytes copied"
    set ylabel "GB/s"
    unset logscale y
    set ytics autofreq
    set yrange [0 : 1.12 * copy_max]
    set xrange [0.85 * word(bytes, 1) : 1.18 * word(bytes, words(bytes))]
    set xtics ()
    do for [i = 1:words(bytes)] { set xtics add (size_text(word(bytes, i) + 0) word(bytes, i) + 0) }
    plot for [i = 1:words(copies)] data using (copy_of(word(copies, i))):(column("gb_s")) with linespoints linestyle i
    @first_panel_done
}
unset multiplot
