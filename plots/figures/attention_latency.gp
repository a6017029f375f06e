# SPDX-License-Identifier: MIT
# Latency of unfused, fused and flash attention: forward above backward.
units = "'forward, median (ms)' 'backward, median (ms)'"
load folder."/shared/attention.gp"
