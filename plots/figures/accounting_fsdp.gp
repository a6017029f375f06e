# SPDX-License-Identifier: MIT
# How many devices a model takes by the tokens whose activations it keeps: all of them sharded, or half of them whole
# on every device (FSDP), which ends at a number of tokens that no number of devices can hold. One colour per device
# size.
W = 900; H = 440
caption = "computed on paper, not measured"
load folder."/style.gp"
device_text(bytes) = sprintf("%g GB", bytes / 1e9)
of(variant, bytes) = (strcol("variant") eq variant && column("device_memory") == bytes) ? column("tokens") : NaN
end_of(bytes) = (strcol("variant") eq "fsdp" && column("device_memory") == bytes) ? column("tokens_most") : NaN
most = word(tokens, words(tokens)) + 0
stats data using "devices" name "all" nooutput
lo = 0.7 * all_min; hi = 1.5 * all_max
@log_y
set xrange [-0.04 * most : 1.04 * most]
set xtics 0,most / 4
set format x "%g"
set xlabel "B (tokens)"
do for [i = 1:words(devices)] { text = device_text(word(devices, i)); style = i; @add_key }
@draw_key
@begin_panels
do for [k = 1:2] {
    panel = k == 1 ? "activations all sharded" : "FSDP, half of the activations whole"
    variant = k == 1 ? "memory" : "fsdp"
    @panel_title
    set ylabel k == 1 ? "devices" : ""
    set lmargin at screen (k == 1 ? 0.085 : 0.565)
    set rmargin at screen (k == 1 ? 0.505 : 0.985)
    if (k == 2) {
        do for [i = 1:words(devices)] {
            stats [*:*] [*:*] data using (end_of(word(devices, i) + 0)) name "end" nooutput
            set arrow from first end_max,graph 0 to first end_max,graph 1 nohead back linestyle 20 + i
        }
    }
    plot for [i = 1:words(devices)] data using (of(variant, word(devices, i) + 0)):"devices" \
         with linespoints linestyle i, \
         for [i = 1:words(devices)] data using (of(variant, word(devices, i) + 0)):"devices":"devices" \
         with labels offset 0,(i % 2 ? 0.9 : -0.9) font font_of(11) textcolor rgb colour_of(i)
    @first_panel_done
}
