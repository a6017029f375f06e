# SPDX-License-Identifier: MIT
# A loss curve, with what a token costs who knows two, one or none of the tokens before it. Reads curve and peer (files; peer may
# be empty), floor_loss, one_loss, none_loss (0: not known).
W = 760; H = 460
load folder."/style.gp"
text = "loss"; style = 1; @add_key
if (strlen(peer)) { text = "PyTorch"; style = 22; @add_key }
if (floor_loss > 0) { text = "entropy of the source"; style = 43; @add_key }
@draw_key
set tmargin at screen from_top(96)
set bmargin at screen 0.12
set lmargin at screen 0.09
set rmargin at screen 0.84
set xlabel "step"
set ylabel "nats a token"
stats curve using "step":"loss" name "curve" nooutput
top = curve_max_y > 1.3 * none_loss && none_loss > 0 ? 1.3 * none_loss : 1.05 * curve_max_y
set yrange [0 : top]
set xrange [0 : curve_max_x]
if (floor_loss > 0) {
    set arrow 1 from graph 0,first floor_loss to graph 1,first floor_loss nohead linestyle 43
    set arrow 2 from graph 0,first one_loss to graph 1,first one_loss nohead linestyle 41
    set arrow 3 from graph 0,first none_loss to graph 1,first none_loss nohead linestyle 41
    set label 5 "knows the source" at graph 1,first floor_loss left offset 0.6,0 font font_of(11)
    set label 6 "knows one token" at graph 1,first one_loss left offset 0.6,-0.4 font font_of(11)
    set label 7 "knows none" at graph 1,first none_loss left offset 0.6,0.4 font font_of(11)
}
plot curve using "step":"loss" with lines linestyle 1, \
     (strlen(peer) ? peer : "/dev/null") using (strlen(peer) ? column("step") : NaN):(strlen(peer) ? column("loss") : NaN) \
         with lines linestyle 22
