-- SPDX-License-Identifier: MIT
@use attention_figure memory
