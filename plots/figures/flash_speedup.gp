# SPDX-License-Identifier: MIT
# Time of unfused / time of flash as a heat map of S by D. Grey: unfused has no time, as when it is out of memory.
W = 900; H = 160 + 38 * words(dims)
lengths = seqs
undefine seqs # the x axis here counts cells
complete = strstrt(" ".speedups." ", " nan ") == 0
caption = caption.(complete ? "" : "; grey: unfused has no time")
load folder."/style.gp"
unset grid
set border 0
set tics scale 0
set xrange [0.5 : words(lengths) + 0.5]
set yrange [0.5 : words(dims) + 0.5]
set xtics ()
do for [i = 1:words(lengths)] { set xtics add (length_text(int(word(lengths, i))) i) }
set ytics ()
# White at 1, blue where flash is faster (full at 32 times), vermillion where it is slower (full at 1/4).
strength(x) = x >= 1 ? (x < 32 ? log(x) / log(32) : 1) : (x > 0.25 ? log(1 / x) / log(4) : 1)
mix(full, x) = int(255 + (full - 255) * strength(x))
cell_colour(x) = x >= 1 ? 65536 * mix(0, x) + 256 * mix(114, x) + mix(178, x) \
                        : 65536 * mix(213, x) + 256 * mix(94, x) + mix(0, x)
text_colour(x) = strength(x) > 0.6 ? 0xFFFFFF : 0x000000
cell_text(x) = x >= 9.95 ? sprintf("%.0f", x) : sprintf("%.1f", x)
x_of(i) = index_of(lengths, column("seq"))
y_of(i) = index_of(dims, column("head_dim"))
set style fill solid border linecolor rgb "white"
set xlabel "sequence length S (tokens)"
set multiplot
set tmargin at screen from_top(90)
set bmargin at screen 62.0 / H
do for [k = 1:2] {
    panel = word("forward backward", k)
    speedup = word("speedup_fwd speedup_bwd", k)
    @panel_title
    set ylabel k == 1 ? "head dimension D" : ""
    do for [i = 1:words(dims)] { set ytics add ((k == 1 ? word(dims, i) : "") i) }
    set lmargin at screen (k == 1 ? 0.075 : 0.54)
    set rmargin at screen (k == 1 ? 0.525 : 0.99)
    plot data using (x_of(0)):(y_of(0)):(0.5):(0.5) with boxxyerror linecolor rgb "#D0D0D0", \
         data using (x_of(0)):(y_of(0)):(0.5):(0.5):(cell_colour(column(speedup))) \
             with boxxyerror linecolor rgb variable, \
         data using (x_of(0)):(y_of(0)):(cell_text(column(speedup))):(text_colour(column(speedup))) \
             with labels font font_of(12) textcolor rgb variable
    @first_panel_done
}
