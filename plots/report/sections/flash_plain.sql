-- SPDX-License-Identifier: MIT
-- Plain attention, as `plain`: no window, no documents, values as wide as keys; the most rows that differ in nothing
-- but S, D and dtype.

@slice plain FROM bench_flash ALONG seq, head_dim, dtype WHERE "window" < 0 AND window_right < 0 AND documents = 0
    AND head_dim_v IN (0, head_dim)
