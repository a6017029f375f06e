-- SPDX-License-Identifier: MIT
@use flash_figure latency latency fwd_ms bwd_ms
