# SPDX-License-Identifier: MIT
# MFU (causal) of a training step against the context length: one panel per precision, one colour per size. Where the
# GPU's peak is not known, the share of its measured GEMM ceiling instead.
W = 900; H = 460; tics_fit = 11
ceiling = share eq "ceiling_pct"
peak = "the GPU's peak"
at = strstrt(title, peak)
if (ceiling && at > 0) { title = title[1:at - 1]."the measured GEMM ceiling".title[at + strlen(peak):*] }
load folder."/style.gp"
shown = ""
do for [k = 1:words(precisions)] { # those with numbers: a panel without any says nothing
    precision = word(precisions, k)
    any = 0
    stats data using (strcol("precision") eq precision && column(share) > 0 ? (any = 1, 0) : 0) nooutput
    if (any) { shown = shown." ".word(precisions, k) }
}
precisions = shown
n = words(precisions)
of(name, precision) = (strcol("size") eq name && strcol("precision") eq precision) ? column("seq") : NaN
set xlabel "context length S (tokens)"
stats data using share name "share" nooutput
set yrange [0 : 1.1 * share_max]
do for [i = 1:words(sizes)] { text = word(sizes, i); style = i; @add_key }
@draw_key
@begin_panels
do for [k = 1:n] {
    panel = word(precisions, k)
    @panel_title
    set ylabel k > 1 ? "" : (ceiling ? "% of the measured GEMM ceiling" : "MFU (%), causal")
    set lmargin at screen 0.08 + 0.915 * (k - 1) / n
    set rmargin at screen 0.08 + 0.915 * k / n - 0.025
    if (k > 1) { set format y "" }
    plot for [i = 1:words(sizes)] data using (of(word(sizes, i), panel)):(column(share)) with linespoints linestyle i
    @first_panel_done
}
