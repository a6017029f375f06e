# SPDX-License-Identifier: MIT
# Memory of unfused, fused and flash attention: peak, and what is held before the backward for each score (a level line grows with S
# squared, a falling one with S).
units = "'peak (GiB)' 'held / (B S²) (bytes)'"
load folder."/shared/attention.gp"
