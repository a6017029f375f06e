# SPDX-License-Identifier: MIT
# Peak memory of a step by kind, one bar per context length, and what the closed form says (a cross). One panel per
# mode; that of the forward begins above the parameters, of which it would be one solid bar.
W = 900; H = 460
load folder."/style.gp"
n = words(modes)
kinds = "parameters moments gradients activations temporaries scratch"
weights(i) = column("param_bytes") + column("master_bytes")
below(i) = strcol("mode") eq "forward" ? weights(0) : 0
up_to(k) = weights(0) - below(0) \
         + (k > 1 ? column("moment1_bytes") + column("moment2_bytes") : 0) + (k > 2 ? column("grad_bytes") : 0) \
         + (k > 3 ? column("activation_bytes") : 0) + (k > 4 ? column("temporary_bytes") : 0) \
         + (k > 5 ? column("workspace_bytes") + column("other_bytes") : 0)
place(mode) = strcol("mode") eq mode ? index_of(lengths, column("seq")) : NaN
of_mode(mode) = strcol("mode") eq mode ? column("peak_bytes") - below(0) : NaN
set style fill solid noborder
set boxwidth 0.6
@grid_of_y
set xrange [0.5 : words(lengths) + 0.5]
set xtics () scale 0
do for [i = 1:words(lengths)] { set xtics add (length_text(int(word(lengths, i))) i) }
set xlabel "S (tokens)"
do for [k = 1:words(kinds)] { text = word(kinds, k); style = k; @add_key }
text = "predicted"; style = 7; @add_key
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point \
             pointtype (key_style[i] == 7 ? 2 : 5) pointsize 1.4 \
             linecolor rgb (key_style[i] == 7 ? 'black' : colour_of(key_style[i]))"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 32),from_top(71) left noenhanced"
@draw_key
@begin_panels
do for [p = 1:n] {
    mode = word(modes, p)
    panel = mode eq "forward" ? "forward, beside the parameters" : mode
    stats [*:*] [*:*] data using (of_mode(mode)) name "peak" nooutput
    unit = peak_max > 0.5 * GIB ? GIB : MIB
    @panel_title
    set ylabel unit == GIB ? "peak (GiB)" : "peak (MiB)"
    set yrange [0 : 1.15 * peak_max / unit]
    set lmargin at screen 0.075 + (p - 1.0) / n
    set rmargin at screen (p + 0.0) / n - 0.012
    plot for [k = 6:1:-1] data using (place(mode)):(up_to(k) / unit) with boxes linecolor rgb colour_of(k), \
         data using (place(mode)):((column("predicted_bytes") - below(0)) / unit) with points pointtype 2 pointsize 1.4 \
             linecolor rgb "black", \
         data using (place(mode)):(of_mode(mode) / unit):(sprintf("%.4g", of_mode(mode) / unit)) \
             with labels offset 0,1 font font_of(12)
    @first_panel_done
}
