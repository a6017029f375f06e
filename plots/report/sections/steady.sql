-- SPDX-License-Identifier: MIT
-- @use steady UNIT: the steady state and the energy of the rows in `steady`: place, name, burst and sustained (ms),
-- mhz, watts, joules, per_j.

Bursts are few samples, on a GPU that has not been busy for long. The steady state is the second half of `--sustain`, at
the clock that the power limit allows.
@from (SELECT 1 FROM steady WHERE sustained IS NOT NULL LIMIT 1)

@table
SELECT name AS "case", burst AS "burst ms:", sustained AS "steady ms:", sustained / burst AS "steady / burst:",
    mhz AS "SM MHz:", watts AS "W:" FROM steady WHERE sustained IS NOT NULL ORDER BY place

Energy, by the GPU's counter while samples were taken, of the cases that took long enough
@from (SELECT 1 FROM steady WHERE joules IS NOT NULL LIMIT 1)

@table
SELECT name AS "case", burst AS "ms:", joules AS "J:", per_j AS "$1/J:" FROM steady WHERE joules IS NOT NULL
    ORDER BY place
