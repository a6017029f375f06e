/* SPDX-License-Identifier: MIT */
/* Schedules of recomputation: what forward keeps, the forwards that backward runs, and their number. */
#include "tests/support/test.h"

#include "common/formulas/recompute.h"

TEST(groups_keep_their_first_input)
{
    const recompute_schedule s = recompute_uniform(8, RECOMPUTE_BLOCK, 3);
    for (int l = 0; l < 8; l++)
        assert_int_equal(s.input[l], l % 3 == 0);
    const recompute_work work = recompute_work_of(&s);
    assert_int_equal(work.kept, 8);
    assert_int_equal(work.passed, 0);
    const transformer_repeats r = recompute_repeats(&s, true), want = {8, 8, 8, 8, 5, 8};
    assert_memory_equal(&r, &want, sizeof r); /* w2 not of the 3rd, 6th and 8th block */
}

TEST(parts_of_blocks)
{
    recompute_schedule s = recompute_uniform(6, RECOMPUTE_NONE, 1);
    recompute_set(&s, 0, 2, RECOMPUTE_ATTN, 1);
    recompute_set(&s, 2, 1, RECOMPUTE_MLP, 1);
    recompute_set(&s, 3, 1, RECOMPUTE_SELECTIVE, 1);
    recompute_set(&s, 4, 1, RECOMPUTE_BUT_ATTENTION, 1);
    const transformer_repeats r = recompute_repeats(&s, false), want = {3, 2, 0, 2, 0, 0};
    assert_memory_equal(&r, &want, sizeof r);
    char text[100];
    recompute_describe(&s, text, sizeof text);
    assert_string_equal(text, "2 attn, 1 mlp, 1 selective, 1 but-attention, 1 none");
    recompute_describe(&s, text, 8); /* cut, not overrun */
    assert_string_equal(text, "2 attn,");
    assert_int_equal(recompute_count(&s, RECOMPUTE_ATTN), 2);
}

/* Keeps ceil(log2 L) + 1 inputs at most, and L/2 log2 L forwards are enough, for any number of blocks. */
TEST(nested_is_logarithmic)
{
    for (int layers = 1, log = 0; layers <= RECOMPUTE_LAYERS; layers++) {
        while (1 << log < layers)
            log++;
        const recompute_schedule s = recompute_uniform(layers, RECOMPUTE_NESTED, 1);
        bool held[RECOMPUTE_LAYERS];
        memcpy(held, s.input, sizeof held);
        int passed = 0;
        for (int l = layers - 1; l >= 0; l--) {
            recompute_forwards f;
            do {
                f = recompute_next(&s, held, l);
                assert_true(held[f.first] && f.first <= f.advance && f.advance <= l);
                passed += f.advance - f.first;
                held[f.advance] = true;
            } while (f.keep < f.advance);
            assert_int_equal(f.keep, l);
            int inputs = 0;
            for (int i = 0; i < layers; i++)
                inputs += held[i];
            assert_true(inputs <= log + 1);
            held[l] = false; /* its backward is done */
        }
        const recompute_work work = recompute_work_of(&s);
        assert_int_equal(work.kept, layers);
        assert_int_equal(work.passed, passed);
        assert_true(2 * passed <= layers * log);
    }
}

/* A group does not reach into blocks that keep their own. */
TEST(neighbours)
{
    recompute_schedule s = recompute_uniform(7, RECOMPUTE_BLOCK, 7);
    recompute_set(&s, 2, 2, RECOMPUTE_NONE, 1);
    bool held[RECOMPUTE_LAYERS];
    memcpy(held, s.input, sizeof held);
    const recompute_forwards above = recompute_next(&s, held, 6), below = recompute_next(&s, held, 1);
    assert_true(above.first == 4 && above.advance == 4 && above.keep == 6);
    assert_true(below.first == 0 && below.advance == 0 && below.keep == 1);
}
