-- SPDX-License-Identifier: MIT
@use attention_figure memory peak_bytes/1073741824.0 mem_before_bwd_bytes/(1.0*batch*seq*seq)
