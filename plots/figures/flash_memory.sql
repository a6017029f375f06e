-- SPDX-License-Identifier: MIT
@use flash_figure memory memory peak_bytes/1073741824.0 NULL
