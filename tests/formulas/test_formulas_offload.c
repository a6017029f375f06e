/* SPDX-License-Identifier: MIT */
/* Offloaded blocks: where they lie, how long a step waits for their copies, and plans that mix them with recomputation. */
#include "tests/support/test.h"

#include "common/formulas/recompute_plan.h"

static const offload_costs slow_link = {.kinds = OFFLOAD_BLOCK,
                                        .what = RECOMPUTE_SELECTIVE,
                                        .forward_ms = 10,
                                        .backward_ms = 20,
                                        .bytes = {15e6, 15e6, 15e6, 15e6, 6e6, 3e6, 0},
                                        .out_gb_s = 1,
                                        .in_gb_s = 0.5};

static double exposed(double out_gb_s, double in_gb_s, int behind, int ahead)
{
    offload_costs c = slow_link;
    recompute_schedule s = recompute_uniform(3, RECOMPUTE_NONE, 1);
    c.out_gb_s = out_gb_s, c.in_gb_s = in_gb_s;
    offload_every(&s, OFFLOAD_BLOCK, 1);
    assert_int_equal(offload_count(&s), 2);
    s.behind = behind, s.ahead = ahead;
    return offload_exposed_ms(&c, &s, NULL);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) < 1e-9))
        fail_msg("%.9g, want %.9g", got, want);
}

/* Three blocks, of which two leave; every time by hand. */
TEST(waits)
{
    near(exposed(3, 3, 1, 1), 0);    /* 5 ms each way, behind 10 and 20 */
    near(exposed(1, 3, 1, 1), 10);   /* 15 ms out: done at 25 and 40; wanted at 20 and 35 */
    near(exposed(1, 3, 2, 1), 10);   /* wanted at 30 and, by the head, at 30 */
    near(exposed(3, 0.5, 1, 1), 20); /* 30 ms back: done at 30 and 60; wanted at 20 and 50 */
    near(exposed(3, 0.5, 1, 2), 20); /* the link is busy all the time anyway */
    near(exposed(1, 0.5, 0, 0), 30); /* 0 is as 1 */
    const recompute_schedule none = recompute_uniform(3, RECOMPUTE_NONE, 1);
    near(offload_exposed_ms(&slow_link, &none, NULL), 0);
    recompute_schedule again = recompute_uniform(3, RECOMPUTE_BLOCK, 1);
    const double again_ms[RECOMPUTE_KINDS] = {[RECOMPUTE_BLOCK] = 40};
    offload_every(&again, OFFLOAD_RESIDUAL, 1);
    offload_costs slow = slow_link;
    slow.out_gb_s = 1, slow.in_gb_s = 0.05; /* 3 ms out, 60 back: hidden by what is computed again */
    near(offload_exposed_ms(&slow, &again, again_ms), 0);
    near(offload_exposed_ms(&slow, &again, NULL), 80);
}

TEST(every_kth)
{
    for (int layers = 1; layers < 20; layers++)
        for (int every = 1; every < 9; every++) {
            recompute_schedule s = recompute_uniform(layers, RECOMPUTE_NONE, 1);
            offload_every(&s, OFFLOAD_MLP, every);
            for (int l = 0; l < layers; l++)
                assert_int_equal(s.away[l], l % every == 0 && l + every < layers ? OFFLOAD_MLP : 0);
            assert_true(s.behind == every && s.ahead == every);
        }
}

TEST(even_distances)
{
    for (int layers = 1; layers < 70; layers++)
        for (int count = 0; count <= offload_most(layers); count++) {
            recompute_schedule s = recompute_uniform(layers, RECOMPUTE_MLP, 1);
            offload_spread(&s, &slow_link, count);
            assert_int_equal(offload_count(&s), count);
            assert_true(!count || s.away[0] == OFFLOAD_BLOCK);
            assert_int_equal(s.away[layers - 1], 0);
            for (int l = 0, last = 0; l < layers; l++) {
                assert_int_equal(s.what[l], s.away[l] ? RECOMPUTE_SELECTIVE : RECOMPUTE_MLP);
                if (s.away[l] && l) {
                    assert_true(l - last <= (layers + count - 1) / (count - 1));
                    last = l;
                }
            }
        }
}

TEST(names)
{
    char text[100];
    recompute_schedule s = recompute_uniform(8, RECOMPUTE_MLP, 1);
    recompute_set(&s, 5, 3, RECOMPUTE_NONE, 1);
    offload_spread(&s, &slow_link, 2);
    recompute_describe(&s, text, sizeof text);
    assert_string_equal(text, "3 mlp, 3 none, 2 selective offloaded");
    s.away[7] = OFFLOAD_MLP;
    recompute_describe(&s, text, sizeof text);
    assert_string_equal(text, "3 mlp, 2 none, 1 none offloaded, 2 selective offloaded");
    recompute_set(&s, 0, 8, RECOMPUTE_NONE, 1); /* nothing stays away */
    recompute_describe(&s, text, sizeof text);
    assert_string_equal(text, "none");
    assert_int_equal(offload_parse("none"), 0);
    assert_int_equal(offload_parse("block"), OFFLOAD_RESIDUAL | OFFLOAD_ATTN | OFFLOAD_MLP);
}

TEST(what_cannot_leave)
{
    recompute_schedule s = recompute_uniform(6, RECOMPUTE_BLOCK, 2);
    assert_null(offload_problem(&s));
    for (int l = 0; l < 6; l++) {
        s.away[l] = OFFLOAD_RESIDUAL;
        assert_non_null(offload_problem(&s));
        s.away[l] = 0;
    }
    s = recompute_uniform(6, RECOMPUTE_BLOCK, 1);
    offload_every(&s, OFFLOAD_RESIDUAL, 1);
    assert_null(offload_problem(&s));
    s = recompute_uniform(6, RECOMPUTE_NESTED, 1);
    offload_every(&s, OFFLOAD_RESIDUAL, 1);
    assert_non_null(offload_problem(&s));
}

/* ---- plans ---- */

static const int64_t kept[RECOMPUTE_KINDS] = {100, 80, 60, 50, 30, 10, 10};

/* What an offloaded block would keep is there twice while it is on its way. */
static int64_t bytes_of(void *user, const recompute_schedule *s)
{
    int64_t bytes = 1000, way = 0;
    (*(int *)user)++;
    for (int l = 0; l < s->layers; l++) {
        const int64_t own = recompute_whole(s, l) ? kept[s->what[l]] * s->input[l] : kept[s->what[l]];
        bytes += s->away[l] ? 0 : own;
        way = s->away[l] && own > way ? own : way;
    }
    return bytes + way;
}

TEST(plans)
{
    enum { LAYERS = 24 };
    recompute_costs costs = {.again_ms = {0, 0.1, 1.5, 1, 1.4, 2, 2}, .pass_ms = 2};
    double sums[4] = {0};
    for (int64_t budget = 1010; budget <= 1000 + LAYERS * 105; budget += 7) {
        double last = INFINITY;
        for (int rate = 0; rate < 4; rate++) { /* none; a slow link, a faster one, one without end */
            static const double gb_s[] = {0, 0.05, 1, 1e6};
            int asked = 0;
            costs.offload = slow_link;
            costs.offload.kinds = rate ? OFFLOAD_BLOCK : 0;
            costs.offload.forward_ms = 2, costs.offload.backward_ms = 4;
            costs.offload.out_gb_s = costs.offload.in_gb_s = gb_s[rate];
            for (int k = 0; k < RECOMPUTE_KINDS; k++)
                costs.offload.bytes[k] = 1e5 * (double)kept[k];
            const recompute_plan p = recompute_plan_for(LAYERS, &costs, budget, bytes_of, &asked);
            assert_true(asked < (rate ? 600 : 40));
            assert_null(offload_problem(&p.schedule));
            assert_true(p.bytes == bytes_of(&asked, &p.schedule) && p.fits == (p.bytes <= budget));
            assert_true(fabs(p.ms - recompute_cost_ms(&costs, &p.schedule)) < 1e-9);
            if (!rate)
                last = p.fits ? p.ms : INFINITY;
            if (rate && isfinite(last))
                assert_true(p.fits && p.ms <= last + 1e-9); /* to offload is never worse than not to */
            if (isfinite(last))
                sums[rate] += p.ms;
            if (rate == 3 && budget > 1110) /* anything leaves for nothing */
                assert_true(p.fits && p.ms < 7);
        }
    }
    assert_true(sums[3] < sums[2] && sums[2] < sums[1] && sums[1] <= sums[0]);
}
