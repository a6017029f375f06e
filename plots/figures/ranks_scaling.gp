# SPDX-License-Identifier: MIT
# Steps over numbers of ranks: on the left each rank's batch stays, and a step should take no longer; on the right the
# batch of all stays, and a step should take as much less as there are ranks (dashed: from the first variant's first row).
W = 900; H = 460
load folder."/style.gp"

of(name, by, value) = strcol("variant") eq name && column(by) == value ? column("ranks") : NaN
do for [i = 1:words(variants)] { text = word(variants, i); style = i; @add_key }
@draw_key
first = word(ranks, 1) + 0; last = word(ranks, words(ranks)) + 0
set logscale x 2
list = ranks; @ticks_of_values
set xrange [0.85 * first : 1.18 * last]
set xlabel "ranks"
highest = 0
do for [by in "batch global_batch"] { # one scale for both panels
    value = by eq "batch" ? weak : strong
    stats [*:*] [*:*] data using (value > 0 && column(by) == value && column("step_ms") > highest ? \
        (highest = column("step_ms"), 0) : 0) nooutput
}
@begin_panels
do for [k = 1:2] {
    by = k == 1 ? "batch" : "global_batch"
    value = k == 1 ? weak : strong
    if (value == 0) { continue }
    panel = k == 1 ? sprintf("batch %g on each rank", weak) : sprintf("batch %g on all ranks", strong)
    @panel_title
    stats [*:*] [*:*] data using (column(by) == value ? column("step_ms") : NaN) name "step" nooutput
    set yrange [0 : 1.1 * highest]
    set ylabel "ms a step"
    set lmargin at screen (k == 1 ? 0.085 : 0.585)
    set rmargin at screen (k == 1 ? 0.485 : 0.985)
    plot (k == 1 ? NaN : step_max * first / x) with lines linestyle 41, \
         for [i = 1:words(variants)] data using (of(word(variants, i), by, value)):"step_ms" with linespoints linestyle i
    @first_panel_done
}
