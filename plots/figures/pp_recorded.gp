# SPDX-License-Identifier: MIT
# What each rank of a pipeline does when: of each schedule as it was predicted, and below as it was recorded.
load folder."/figures/pp_timeline.gp"
