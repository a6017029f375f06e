# SPDX-License-Identifier: MIT
# Peak memory of one forward and backward against sequence length.
panels = "-"; units = "'peak memory (GiB)'"; scale = "log"; tics_fit = 14
load folder."/shared/flash.gp"
