# SPDX-License-Identifier: MIT
# The machine's ceilings: GEMM by size and dtype, copy bandwidth by size; dashed, what the data sheet says. Rates that differ
# by more than a decade (fp32 beside bf16) are still drawn from 0: the share of the highest is what counts.
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
# Without a data sheet gnuplot still looks at the first of no lines.
sheet(i) = i <= words(sheets) ? word(sheets, i) + 0 : NaN
set tmargin at screen top_of_panels
set bmargin at screen 0.13
set logscale x 2
sheet_most = 0
do for [i = 1:words(sheets)] { if (word(sheets, i) > sheet_most) { sheet_most = word(sheets, i) + 0 } }
set multiplot

if (words(dtypes) > 0) {
    do for [i = 1:words(dtypes)] { text = word(dtypes, i); style = i % 2 ? i : 20 + i; @add_key }
    if (sheet_most > 0) { text = "data sheet"; style = 43; @add_key }
    key_middle = 0.25 * W + 20
    @draw_key
    panel = "matrix products"
    @panel_title
    set lmargin at screen 0.08
    set rmargin at screen 0.475
    set xlabel "n of the n x n matrices"
    set ylabel "TFLOP/s"
    set yrange [0 : 1.08 * (sheet_most > gemm_max ? sheet_most : gemm_max)]
    set xrange [0.85 * word(sizes, 1) : 1.18 * word(sizes, words(sizes))]
    set xtics ()
    do for [i = 1:words(sizes)] { set xtics add (word(sizes, i) word(sizes, i) + 0) }
    plot for [i = 1:words(dtypes)] data using (gemm_of(word(dtypes, i))):(column("tflops")) \
             with linespoints linestyle (i % 2 ? i : 20 + i), \
         for [i = 1:words(sheets)] sheet(i) with lines linestyle 43
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
    set yrange [0 : 1.08 * (sheet_gb_s > copy_max ? sheet_gb_s : copy_max)]
    set xrange [0.85 * word(bytes, 1) : 1.18 * word(bytes, words(bytes))]
    set xtics ()
    do for [i = 1:words(bytes)] { set xtics add (size_text(word(bytes, i) + 0) word(bytes, i) + 0) }
    plot for [i = 1:words(copies)] data using (copy_of(word(copies, i))):(column("gb_s")) with linespoints linestyle i, \
         for [i = 1:(sheet_gb_s > 0)] sheet_gb_s with lines linestyle 43
    @first_panel_done
}
