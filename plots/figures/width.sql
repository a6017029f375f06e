-- SPDX-License-Identifier: MIT
@use transformer_warm

@slice rows FROM warm ALONG d_model, heads WHERE status = 'ok' AND mode = 'train-step' AND layers = 4
    AND variant = (SELECT variant FROM level)

@if (SELECT count(DISTINCT d_model) FROM rows) > 2

@draw width: Rate over width ({max(layers)} blocks, S {max(seq)}, batch {max(batch)}, {max(precision)})
top := SELECT max(tflops) FROM drawn
SELECT * FROM rows ORDER BY d_model, id
