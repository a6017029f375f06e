# SPDX-License-Identifier: MIT
# Latency against sequence length.
panels = "forward backward"; units = "'median time (ms)'"; scale = "log"
load folder."/shared/flash.gp"
