# SPDX-License-Identifier: MIT
# What too little warm-up does to the mean: time of a step by the host's clock, mean and standard deviation over the
# measured steps, against the number of warm-up steps before them. One panel per size, up to twice the longest median: what is
# above it is a number.
W = 900; H = 420
load folder."/style.gp"
n = words(sizes)
count_of(name) = strcol("size") eq name ? index_of(counts, column("warmup")) : NaN
mean(i) = column("host_step_mean_ms")
std(i) = column("host_step_std_ms")
set xrange [0.5 : words(counts) + 0.5]
list = counts; @ticks_of_words
set xlabel "warm-up steps"
text = "mean and standard deviation"; style = 1; @add_key
text = "median"; style = 2; @add_key
@draw_key
bottom = 0.14; @begin_panels
do for [k = 1:n] {
    panel = word(sizes, k)
    @panel_title
    stats [*:*] [*:*] data using (strcol("size") eq panel ? column("host_step_ms") : NaN) name "median" nooutput
    top = 2 * median_max
    set yrange [0 : top]
    up(x) = x < top ? x : top
    set ylabel k > 1 ? "" : "time of a step (ms)"
    set lmargin at screen 0.07 + 0.925 * (k - 1) / n
    set rmargin at screen 0.07 + 0.925 * k / n - 0.04
    plot data using (count_of(panel)):(mean(0) < top ? mean(0) : NaN):(mean(0) > std(0) ? mean(0) - std(0) : 0):\
             (up(mean(0) + std(0))) with yerrorbars linestyle 1, \
         data using (count_of(panel)):(top):(mean(0) + std(0) > top ? sprintf("%.3g +- %.3g", mean(0), std(0)) : "") \
             with labels left offset 0.5,-0.6 font font_of(11) textcolor rgb colour_of(1), \
         data using (count_of(panel)):(column("host_step_ms")) with points linestyle 2
    @first_panel_done
}
