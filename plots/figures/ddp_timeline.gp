# SPDX-License-Identifier: MIT
# What ran when in a recorded step of data parallelism: compute above communication, which is drawn again in another colour where no
# compute ran at the same time.
panel_pixels = 104
texts = "'communication, hidden' - exposed"
shades = "5 5 2"
lows = "1.1 1.1 1.1 1.1 0.1 0.1 0.1"
highs = "1.9 1.9 1.9 1.9 0.9 0.9 0.9"
y_from = 0; y_to = 2; y_names = "compute communication"
load folder."/shared/timeline.gp"
