# SPDX-License-Identifier: MIT
# What a step holds after each of its ops, by kind: forward alone, above the parameters of
# which it would be one solid block, and a whole step. Reads one timeline per panel:
# files and panels, lists of names and of titles; alike: whether all panels have one axis.
W = 900; H = 460
load folder."/style.gp"
n = words(files)
kinds = "parameters moments gradients activations temporaries scratch"
# Bytes of all kinds up to number k, from the bottom of the stack.
weights(i) = column("param_bytes") + column("master_bytes")
bare = 0 # whether the parameters are left out
up_to(k) = (bare ? 0 : weights(0)) \
         + (k > 1 ? column("moment1_bytes") + column("moment2_bytes") : 0) + (k > 2 ? column("grad_bytes") : 0) \
         + (k > 3 ? column("activation_bytes") : 0) + (k > 4 ? column("temporary_bytes") : 0) \
         + (k > 5 ? column("workspace_bytes") + column("other_bytes") : 0)
never = 1e9
begins(phase) = strcol("phase") eq phase ? column("op") : never
set style fill solid noborder
do for [k = 1:words(kinds)] { text = word(kinds, k); style = k; @add_key }
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point pointtype 5 pointsize 1.4 \
             linecolor rgb colour_of(key_style[i])"
key_place = "set label 100 + i key_text[i] at screen from_left(key_x(i) + 32),from_top(71) left noenhanced"
@draw_key
@begin_panels
set xlabel "ops of the step"
most = 0
do for [p = 1:(exists("alike") ? n : 0)] {
    stats [*:*] [*:*] word(files, p) using "live_bytes" name "live" nooutput
    most = live_max > most ? live_max : most
}
do for [p = 1:n] {
    file = word(files, p)
    bare = word(panels, p) eq "forward"
    stats [*:*] [*:*] file using (column("live_bytes") - (bare ? weights(0) : 0)) name "live" nooutput
    stats [*:*] [*:*] file using "op" name "op" nooutput
    unit = live_max > 0.5 * GIB ? GIB : MIB
    panel = word(panels, p).(bare ? ", beside the parameters" : "")
    @panel_title
    set ylabel unit == GIB ? "held (GiB)" : "held (MiB)"
    set xrange [0 : op_max]
    set yrange [0 : 1.12 * (most > 0 ? most : live_max) / unit]
    set lmargin at screen 0.075 + (p - 1.0) / n
    set rmargin at screen (p + 0.0) / n - 0.012
    do for [phase in "forward backward optimizer"] {
        stats [*:*] [*:*] file using (begins(phase)) name "phase" nooutput
        if (phase_min < never) {
            set arrow from first phase_min,graph 0 to first phase_min,graph 1 nohead front linecolor rgb grey \
                dashtype (3,3)
            if (phase ne "optimizer") {
                set label phase at first phase_min,graph 0.96 left offset 0.5,0 front font font_of(12) \
                    textcolor rgb grey
            }
        }
    }
    plot for [k = 6:1:-1] file using "op":(up_to(k) / unit) with filledcurves y1=0 linecolor rgb colour_of(k), \
         file using "op":((column("live_bytes") - (bare ? weights(0) : 0)) / unit) with lines linecolor rgb "#333333" linewidth 0.8
    @first_panel_done
}
