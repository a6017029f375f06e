/* SPDX-License-Identifier: MIT */
/* Layers to stages: evenly, and by what they cost; and a rank's share of a table. */
#include "tests/support/test.h"

#include "common/replica/stages.h"

static pipeline_shape shape_of(const char *name, int ranks, int chunks)
{
    return (pipeline_shape){pipeline_schedule_find(name), ranks, chunks, 6};
}

static void cut_is(const pipeline_shape *s, const int *ends, const int *wanted)
{
    for (int i = 0; i < pipeline_stages(s); i++)
        if (ends[i] != wanted[i])
            fail_msg("stage %d of %s ends behind block %d, not %d", i, s->schedule->name, ends[i], wanted[i]);
}

TEST(even)
{
    int ends[8];
    pipeline_shape s = shape_of("1f1b", 3, 1);
    stages_even(&s, 10, ends);
    cut_is(&s, ends, (const int[]){3, 6, 10});
    s = shape_of("zb-v", 2, 2);
    stages_even(&s, 32, ends);
    cut_is(&s, ends, (const int[]){8, 16, 24, 32});
}

/* The head is worth two blocks: of 1f1b the last rank has two blocks less, of a V the first one. */
TEST(balanced)
{
    int ends[8];
    const stage_costs costs = {.block = 10, .embedding = 0, .head = 20};
    pipeline_shape s = shape_of("1f1b", 2, 1);
    stages_balanced(&s, 10, &costs, ends);
    cut_is(&s, ends, (const int[]){6, 10});
    s = shape_of("zb-v", 2, 2);
    stages_balanced(&s, 10, &costs, ends);
    cut_is(&s, ends, (const int[]){2, 5, 8, 10});
}

/* No other cut leaves less to the rank with most to do. */
TEST(balanced_is_best)
{
    enum { LAYERS = 11 };
    const stage_costs costs = {.block = 3, .embedding = 2, .head = 7.5};
    const pipeline_shape s = shape_of("1f1b", 3, 1);
    int ends[3];
    double best = INFINITY;
    for (int a = 1; a < LAYERS - 1; a++)
        for (int b = a + 1; b < LAYERS; b++)
            best = fmin(best, fmax(3 * a + 2, fmax(3 * (b - a), 3 * (LAYERS - b) + 7.5)));
    stages_balanced(&s, LAYERS, &costs, ends);
    assert_int_equal(ends[2], LAYERS);
    assert_true(fmax(3 * ends[0] + 2, fmax(3 * (ends[1] - ends[0]), 3 * (LAYERS - ends[1]) + 7.5)) == best);
}

TEST(tables)
{
    const int ends[] = {2, 3, 5, 6};
    const pipeline_shape s = shape_of("zb-v", 2, 2);
    pipeline_table *all = pipeline_table_create(&s, NULL);
    step_table *t = stages_table(all, ends, 0);
    assert_int_equal(t->part_count, 2);
    assert_int_equal(t->action_count, 3 * 2 * 6);
    assert_true(t->parts[0].first == 0 && t->parts[0].end == 2 && t->parts[0].embedding && !t->parts[0].head);
    assert_true(t->parts[1].first == 5 && t->parts[1].end == 6 && !t->parts[1].embedding && t->parts[1].head);
    for (int i = 0; i < t->action_count; i++) {
        const pipeline_action a = pipeline_actions(all, 0)[i];
        assert_int_equal(t->actions[i].work, a.kind == PIPELINE_F ? STEP_F : a.kind == PIPELINE_B ? STEP_B : STEP_W);
        assert_true(t->actions[i].micro == a.micro && t->actions[i].part == a.chunk);
    }
    stages_table_free(t);
    t = stages_table(all, ends, 1);
    assert_true(t->parts[0].first == 2 && t->parts[0].end == 3 && t->parts[1].first == 3 && t->parts[1].end == 5);
    stages_table_free(t);
    pipeline_table_free(all);
}
