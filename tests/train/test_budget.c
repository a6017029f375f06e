/* SPDX-License-Identifier: MIT */
/* How long a row waits for choices made in whole steps, with a made-up clock, and the order of races. */
#include "tests/support/test.h"

#include "common/train/tune/budget.h"
#include "common/train/tune/internal.h"

static const int64_t small = 128000000, xl = 1998000000, b27 = 3407000000, b8 = 8000000000;

static double first_row(int64_t parameters, double since_start, double step_s)
{
    return tune_budget(parameters, true, false, since_start, 0, step_s);
}

/* What a first row has waited for before, these choices and its own 30 steps and half a second end by the target. */
TEST(a_first_row_ends_by_its_target)
{
    static const struct {
        double parameters, target_s, step_s;
    } cases[] = {{128e6, 4, 0.003}, {1998e6, 8, 0.1}, {3407e6, 15, 0.16}, {8e9, 30, 0.34}};
    for (int i = 0; i < 4; i++)
        for (double gone = 0; gone < 30; gone += 0.7) {
            const double left = first_row((int64_t)cases[i].parameters, gone, cases[i].step_s);
            assert_true(gone + left + 0.5 + 30 * cases[i].step_s <= cases[i].target_s + 1e-9);
            assert_true(left <= 5);
        }
    assert_true(first_row(small, 1.5, 0.003) > 1.5);
    assert_true(first_row(xl, 3, 0.1) > 1);
    assert_true(first_row(xl, 5, 0.1) < 0);
    assert_true(first_row(b27, 4, 0.16) > 5 - 1e-9);
    assert_true(first_row(b8, 28, 0.34) < 0);
}

TEST(later_rows_and_retune_have_their_time)
{
    assert_true(tune_budget(xl, false, false, 1000, 1, 0.1) == 4);
    assert_true(tune_budget(xl, false, false, 1000, 6, 0.1) < 0);
    assert_true(tune_budget(xl, true, true, 20, 2, 0.1) == 10);
}

TEST(a_block_is_lost_when_every_step_is)
{
    samples s = {0};
    assert_false(tune_lost(&s, 100));
    samples_add(&s, 110);
    assert_false(tune_lost(&s, 100)); /* the first step of a graph is slower */
    samples_add(&s, 104);
    assert_true(tune_lost(&s, 100));
    assert_false(tune_lost(&s, INFINITY));
    samples_add(&s, 102);
    assert_false(tune_lost(&s, 100)); /* within what the clock explains */
    samples_free(&s);
    assert_true(tune_block_s(100) == 0.3 && tune_block_s(1000) == 1 && tune_block_s(2) < 0.1);
    assert_true(tune_race_s(100) >= 5 * 0.3 - 1e-9);
}

static tuned_product product(int n, float ms, int uses, int rivals)
{
    tuned_product p = {.shape = {.m = 2048, .n = n, .k = 8192, .dtype = SB_BF16, .dtype_out = SB_BF16},
                       .choice = {.ms = ms, .tried = 9},
                       .uses = uses};
    for (int i = 0; i < rivals; i++)
        p.rivals[i].tried = 1;
    return p;
}

TEST(races_are_in_the_order_of_what_they_are_worth)
{
    static step_products p = {.count = 5};
    p.list[0] = product(1600, 0.1f, 48, 2); /* 4.8 ms */
    p.list[1] = product(6400, 0.3f, 48, 1); /* 14.4 ms */
    p.list[2] = product(6400, 0.5f, 48, 0); /* settled */
    p.list[3] = product(16, 0.9f, 48, 2);   /* too small to heat a GPU */
    p.list[4] = product(1600, 1.9f, 1, 2);  /* under 2 % of the step */
    assert_int_equal(race_next(&p, 100), 1);
    p.list[1].rivals[0].tried = 0;
    assert_int_equal(race_next(&p, 100), 0);
    p.list[0].rivals[0].tried = 0;
    assert_int_equal(race_next(&p, 100), -1);
    assert_int_equal(race_next(&p, 90), 4);
    p.list[4].shape.dtype = SB_FP32;
    assert_int_equal(race_next(&p, 90), -1);
}
