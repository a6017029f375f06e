-- SPDX-License-Identifier: MIT
-- A figure for each model, dtypes, number of ranks, batch and context; a bar for each strategy.
@use ddp_drawn

@each SELECT grp, size, ranks, precision, gradients, batch, seq, count(*) AS bars FROM ddp_drawn GROUP BY grp
    HAVING count(*) > 1 ORDER BY grp

@draw ddp_steps_{:ranks}_{:precision}_{:gradients}_b{:batch}_{:seq}: A step on {:ranks} ranks, S {:seq}, {:precision}, gradients {:gradients} ({:size}, batch {:batch})
SELECT bar AS place, label, variant, step_ms, exposed_ms, forward_end_ms, backward_end_ms, tail_end_ms, updates_end_ms,
    pytorch_step_ms, machine, gpu, utc FROM ddp_drawn WHERE grp = :grp ORDER BY bar

@end
