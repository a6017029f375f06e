/* SPDX-License-Identifier: MIT */
/* Context parallelism on paper: who has which chunk, who computes how much, and times that can be counted by hand. */
#include "tests/support/test.h"

#include "common/formulas/ranks/context.h"

static void near(double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%g instead of %g", got, want);
}

TEST(every_chunk_has_one_owner)
{
    for (int contiguous = 0; contiguous < 2; contiguous++)
        for (int n = 1; n <= 5; n++) {
            const context_shape s = {n, contiguous, true, 4 * n};
            for (int chunk = 0; chunk < 2 * n; chunk++) {
                int which;
                const int owner = context_owner(&s, chunk, &which);
                assert_true(owner >= 0 && owner < n);
                assert_int_equal(context_chunk(&s, owner, which), chunk);
            }
            for (int r = 0; r < n; r++)
                assert_true(context_chunk(&s, r, 0) < context_chunk(&s, r, 1));
        }
}

/* 8 tokens on 2 ranks: 36 pairs, 18 on each; in a row 10 and 26. */
TEST(head_tail_is_balanced)
{
    context_shape s = {2, false, true, 8};
    assert_true(context_pairs(&s, 0) == 18 && context_pairs(&s, 1) == 18);
    assert_true(context_balance_pct(&s, CONTEXT_GATHER) == 100);
    assert_int_equal(context_seen(&s, 0), 4);
    assert_int_equal(context_seen(&s, 1), 3);
    s.contiguous = true;
    assert_true(context_pairs(&s, 0) == 10 && context_pairs(&s, 1) == 26);
    near(context_balance_pct(&s, CONTEXT_RING), 100 * 18.0 / 26, 1e-9);
    assert_true(context_balance_pct(&s, CONTEXT_ALL_TO_ALL) == 100);
    s.causal = false;
    assert_true(context_pairs(&s, 0) == 32 && context_balance_pct(&s, CONTEXT_RING) == 100);
}

/* A token of 3 elements of q and o and 1 of k and v, 2 bytes each; chunks of 2 tokens. */
TEST(moved)
{
    const context_widths w = {3, 1, 2};
    context_shape s = {3, false, false, 12};
    assert_true(context_moved_bytes(&s, CONTEXT_GATHER, &w) == (2 * 4 + 2 * 2) * 4); /* 4 chunks twice, 2 shares of 2 */
    assert_true(context_moved_bytes(&s, CONTEXT_RING, &w) == (2 * 2 * 2 + 3 * 2 * 2) * 4);
    near(context_moved_bytes(&s, CONTEXT_ALL_TO_ALL, &w), 2 * 4 * (12 + 4) / 3.0, 1e-9);
    s.causal = true; /* rank 0 sees all of 6 chunks; of its own two, two others see the head and none the tail */
    assert_true(context_moved_bytes(&s, CONTEXT_GATHER, &w) == (2 * 4 + 2) * 4);
}

/* Two ranks: chunks 0 and 1 come first, of which each rank has one; the first rank sees chunk 2 of the other one, too. */
TEST(what_comes_first)
{
    context_shape s = {2, false, true, 16};
    assert_int_equal(context_first_chunks(&s), 2);
    near(context_first_share(&s), 0.5, 0);
    s.causal = false;
    assert_int_equal(context_first_chunks(&s), 4);
    near(context_first_share(&s), 1, 0);
    s = (context_shape){3, true, true, 18};
    assert_int_equal(context_first_chunks(&s), 5);
    near(context_first_share(&s), 1, 0);
}

TEST(predicted)
{
    context_load l = {CONTEXT_ALL_TO_ALL, 2, 4, 1, 1, 100, 200, 8, 16};
    near(context_predicted_ms(&l), 50 + 100 + 6, 1e-9);
    l.groups = 1;
    near(context_predicted_ms(&l), 50 + 100 + 24, 1e-9);
    l.groups = 4;
    l.way = CONTEXT_GATHER; /* a quarter of the moves, and what the rest can't hide: nothing */
    near(context_predicted_ms(&l), 150 + 6, 1e-9);
    l.first = 0.5; /* half of its keys are there before the first group's first call */
    near(context_predicted_ms(&l), 150 + 4, 1e-9);
    l.moves_fwd = 80, l.moves_bwd = 96; /* 20 beside 12.5, three times */
    near(context_predicted_ms(&l), 150 + 20 + 4 + 3 * 7.5, 1e-9);
    l = (context_load){CONTEXT_RING, 2,   1,   0.5, 1,
                       100,          200, 110, 16}; /* one hop beside half of 100; the sums' last hop */
    near(context_predicted_ms(&l), 300 + 8 + 60, 1e-9);
    l.ranks = 1;
    near(context_predicted_ms(&l), 600, 1e-9);
}
