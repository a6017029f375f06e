# SPDX-License-Identifier: MIT
# A training step against the context length: its time, and its tokens per second. One colour per size.
panels = "step tokens/s"; units = "'median time (ms)' 'tokens a second'"; x_label = "context length S (tokens)"; scale = "log"; shared = 0
load folder."/shared/curves.gp"
