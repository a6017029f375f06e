# SPDX-License-Identifier: MIT
# What ran when in a recorded step of sharded training: a row each for gathers, compute and reductions. A red line below them: no
# compute ran while there was communication.
panel_pixels = 136
texts = "gather reduction exposed"
shades = "5 4 2"
lows = "1.1 1.1 1.1 1.1 2.1 0.1 -0.3"
highs = "1.9 1.9 1.9 1.9 2.9 0.9 0"
y_from = -0.4; y_to = 3; y_names = "gathers compute reductions"
load folder."/shared/timeline.gp"
