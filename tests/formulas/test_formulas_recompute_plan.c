/* SPDX-License-Identifier: MIT */
/* Plans of recomputation against every mixture of two kinds, tried out. */
#include "tests/support/test.h"

#include "common/formulas/recompute_plan.h"

/* Made-up blocks: what each kind keeps, and something fixed on top. */
typedef struct made_up {
    int64_t kept[RECOMPUTE_KINDS], fixed;
    int asked;
} made_up;

static int64_t bytes_of(void *user, const recompute_schedule *s)
{
    made_up *m = user;
    int64_t bytes = m->fixed;
    m->asked++;
    for (int l = 0; l < s->layers; l++)
        bytes += recompute_whole(s, l) ? m->kept[s->what[l]] * s->input[l] : m->kept[s->what[l]];
    return bytes;
}

static const recompute_costs costs = {.again_ms = {0, 0.1, 1.5, 1, 1.4, 2, 2}, .pass_ms = 2};
static const made_up blocks = {.kept = {100, 80, 60, 50, 30, 10, 10}, .fixed = 1000};

/* The cheapest of all splits of the blocks between two kinds that fits. */
static double cheapest(int layers, int64_t budget)
{
    made_up m = blocks;
    double best = INFINITY;
    for (int less = RECOMPUTE_NONE; less <= RECOMPUTE_BLOCK; less++)
        for (int more = RECOMPUTE_NONE; more <= RECOMPUTE_BLOCK; more++)
            for (int moved = 0; moved <= layers; moved++) {
                recompute_schedule s = recompute_uniform(layers, (recompute)less, 1);
                if (moved)
                    recompute_set(&s, 0, moved, (recompute)more, 1);
                if (bytes_of(&m, &s) <= budget)
                    best = fmin(best, recompute_cost_ms(&costs, &s));
            }
    return best;
}

TEST(plans_fit_and_are_cheap)
{
    enum { LAYERS = 24 };
    for (int64_t budget = 1000 + LAYERS * 10; budget <= 1000 + LAYERS * 105; budget += 7) {
        made_up m = blocks;
        const recompute_plan p = recompute_plan_for(LAYERS, &costs, budget, bytes_of, &m);
        assert_true(p.fits && p.bytes <= budget && p.bytes == bytes_of(&m, &p.schedule));
        assert_true(fabs(p.ms - recompute_cost_ms(&costs, &p.schedule)) < 1e-9);
        assert_true(p.ms <= cheapest(LAYERS, budget) + 2); /* the cost of one block */
        assert_true(m.asked < 40);
    }
}

/* attn keeps more than mlp and costs more: no plan has it. */
TEST(what_is_beaten_is_left_out)
{
    for (int64_t budget = 1200; budget <= 3400; budget += 50) {
        made_up m = blocks;
        const recompute_plan p = recompute_plan_for(24, &costs, budget, bytes_of, &m);
        assert_int_equal(recompute_count(&p.schedule, RECOMPUTE_ATTN), 0);
    }
}

TEST(ends)
{
    made_up m = blocks;
    const recompute_plan rich = recompute_plan_for(24, &costs, 1 << 20, bytes_of, &m);
    assert_true(rich.fits && rich.ms == 0 && recompute_count(&rich.schedule, RECOMPUTE_NONE) == 24);
    const recompute_plan nested = recompute_plan_for(24, &costs, 1070, bytes_of, &m);
    assert_true(nested.fits && recompute_count(&nested.schedule, RECOMPUTE_NESTED) == 24);
    const recompute_plan poor = recompute_plan_for(24, &costs, 900, bytes_of, &m);
    assert_false(poor.fits);
    assert_true(poor.bytes > 900);
}

/* L / k inputs and k blocks: least at sqrt(L kept / input). */
static int64_t bytes_of_groups(void *user, const recompute_schedule *s)
{
    (void)user;
    int inputs = 0;
    for (int l = 0; l < s->layers; l++)
        inputs += s->input[l];
    return 10 * inputs + 40 * ((s->layers + inputs - 1) / inputs);
}

TEST(best_group)
{
    assert_int_equal(recompute_best_group(36, bytes_of_groups, NULL), 3);
    assert_int_equal(recompute_best_group(1, bytes_of_groups, NULL), 1);
}
