-- SPDX-License-Identifier: MIT
-- The README's table of machines: the fixed cases of the first screen, with their share of the limit.

@use machines_table

Newest rows: {group_concat(code(name) || ' (' || title || ', ' || date || ', stepbench ' || version || ')', ', ')}.
@from (SELECT * FROM folder ORDER BY place) HAVING count(*)
