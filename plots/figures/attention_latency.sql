-- SPDX-License-Identifier: MIT
@use attention_figure latency fwd_ms bwd_ms
