/* SPDX-License-Identifier: MIT */
/* A run in each recipe of float8 learns what the same run in bf16 does, within what the recipe may cost. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

/* In percent of bf16's loss, by the mean of two seeds: one of them alone may be 0.3 off either way. */
static const struct {
    const char *precision;
    double most;
} recipes[] = {{"fp8-tensorwise", 0.75}, {"fp8-rowwise", 0.35},    {"fp8-rowwise-dw16", 0.25},
               {"fp8-block", 0.25},      {"fp8-block-dw2d", 0.25}, {"fp8-delayed", 0.75}};
enum { RECIPES = sizeof recipes / sizeof *recipes, SEEDS = 2 };

TEST(recipes_learn_what_bf16_does)
{
    OWNED_CSV csv *c =
        bench_rows(*state, "bench_run", "",
                   "--size tiny --layers 1 --d-model 32 --heads 2 --d-ff 96 --vocab 32 --seq 16 --batch 2 --lr 1e-2 "
                   "--steps 200 --iters 0 --variant log --draw 0,1 --precision bf16,fp8-tensorwise,fp8-rowwise,"
                   "fp8-rowwise-dw16,fp8-block,fp8-block-dw2d,fp8-delayed",
                   EXIT_CODE_OK);
    bench_all_ok(c, SEEDS * (1 + RECIPES));
    for (int i = 0; i < RECIPES; i++) {
        double gap = 0;
        for (size_t row = 0; row < c->rows; row++)
            if (csv_is(c, row, "precision", recipes[i].precision))
                gap += csv_real(c, row, "loss_gap_pct") / SEEDS;
        if (!(fabs(gap) <= recipes[i].most) || gap == 0)
            fail_msg("%s: a loss %.3f %% above bf16's, which may be %g", recipes[i].precision, gap, recipes[i].most);
    }
    for (size_t row = 0; row < c->rows; row++) /* losses agree, too, where nothing was learned of earlier tokens */
        if (!(csv_real(c, row, "loss_last") < 0.98 * csv_real(c, row, "entropy_none")))
            fail_msg("%s: a loss of %s is that of guesses", csv_cell(c, row, "precision"),
                     csv_cell(c, row, "loss_last"));
}

#ifdef __SANITIZE_ADDRESS__
TESTS_NEED(false) /* of numbers alone: the plain build is enough */
#endif

TESTS_WITH(folder_create, folder_remove)
