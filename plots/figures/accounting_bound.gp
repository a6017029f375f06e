# SPDX-License-Identifier: MIT
# The batch from which a block is bound by compute: its times by batch, and the tokens per device that each way to
# lower the bound needs.
W = 900; H = 460
caption = "computed on paper, not measured"
load folder."/style.gp"
ways_n = words(ways)
time_of(name) = strcol("variant") eq "compute_bound" ? column(name) / 1e3 : NaN
stats data using (time_of("at_tokens")):(time_of("math_us")) name "times" nooutput
stats data using (time_of("tokens_least")):(time_of("comm_us")) name "bound" nooutput
stats data using (strcol("variant") eq "batch" ? column("tokens_per_device") : NaN) name "per" nooutput
names = "math_us comm_us fsdp_us tp_us"
do for [i = 1:4] {
    text = word("T_math T_FSDP+T_TP T_FSDP T_TP", i)
    style = i
    @add_key
}
key_middle = 0.27 * W
@draw_key
@begin_panels
panel = "forward of a block"
@panel_title
set lmargin at screen 0.075
set rmargin at screen 0.485
set xlabel "B (thousand tokens)"
set ylabel "ms"
set xrange [0 : 1.03 * times_max_x]
set yrange [0 : 1.08 * (times_max_y > bound_max_y ? times_max_y : bound_max_y)]
set arrow from first bound_min_x,graph 0 to first bound_min_x,graph 1 nohead back linestyle 43
set label sprintf("B = %.0f", ceil(1e3 * bound_min_x)) at first bound_min_x,graph 0.93 left offset 0.6,0 front \
    font font_of(12)
plot for [i = 1:4] data using (time_of("at_tokens")):(time_of(word(names, i))) smooth unique with linespoints linestyle i
@first_panel_done

panel = "ways to a smaller batch"
@panel_title
set lmargin at screen 0.64
set rmargin at screen 0.975
place(way) = sum [k = 1:ways_n] (word(ways, k) eq way ? ways_n - k + 1 : 0)
way_of(row) = strcol("variant") eq "batch" ? place(strcol("way")) : NaN
unset ylabel
set xlabel "tokens per device"
set xrange [0 : 1.18 * per_max]
set xtics autofreq
set yrange [0.4 : ways_n + 0.6]
@grid_of_x
set ytics () scale 0
do for [k = 1:ways_n] { set ytics add (word(ways, k) ways_n - k + 1) }
set style fill solid noborder
half = 0.32
plot data using (column("tokens_per_device") / 2):(way_of(0)):(column("tokens_per_device") / 2):(half) with boxxyerror \
         linecolor rgb colour_of(1), \
     data using "tokens_per_device":(way_of(0)):(sprintf("%.1f", column("tokens_per_device"))) with labels left \
         offset 0.5,0 font font_of(12)
@first_panel_done
