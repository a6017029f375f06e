/* SPDX-License-Identifier: MIT */
/* Schedules: the bubble rates of the zero-bubble paper, tables that are right for any shape, and wrong ones that are refused. */
#include "tests/support/test.h"

#include "common/pipeline/simulate.h"

static pipeline_shape shape_of(const char *name, int ranks, int chunks, int micros)
{
    return (pipeline_shape){pipeline_schedule_find(name), ranks, chunks, micros};
}

/* The table of a shape with equal stages; f, b and w are of all chunks of a rank together. */
static pipeline_times run(pipeline_shape s, double f, double b, double w, double hop)
{
    double t[3][256];
    const pipeline_costs costs = {.f = t[0], .b = t[1], .w = t[2], .hop = hop};
    for (int i = 0; i < pipeline_stages(&s); i++) {
        t[0][i] = f / s.chunks;
        t[1][i] = b / s.chunks;
        t[2][i] = w / s.chunks;
    }
    pipeline_table *table = pipeline_table_create(&s, &costs);
    const pipeline_times out = pipeline_simulate(table, &costs, NULL);
    pipeline_table_free(table);
    return out;
}

/* ---- arXiv 2401.10241: times in ms of table 9, and bubble rates of 1F1B and ZB-H1 in table 5 ---- */

static const struct {
    int p, m;
    double f, b, w, hop, plain, h1;
} paper[] = {
    {8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585},   {8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242},
    {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674},   {8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323},
    {8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045},  {8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554},
    {16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397},  {16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.1088},
    {16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0576}, {32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1421},
    {32, 128, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1106}, {32, 256, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0594},
};
enum { PAPER_ROWS = sizeof paper / sizeof *paper };

TEST(bubbles_of_the_paper)
{
    for (int n = 0; n < 2 * PAPER_ROWS; n++) {
        const int i = n / 2, h1 = n % 2;
        const char *schedule = h1 ? "zb-h1" : "1f1b";
        const pipeline_times t =
            run(shape_of(schedule, paper[i].p, 1, paper[i].m), paper[i].f, paper[i].b, paper[i].w, paper[i].hop);
        const double wanted = h1 ? paper[i].h1 : paper[i].plain;
        if (!(fabs(t.bubble - wanted) <= 0.5001e-4))
            fail_msg("row %d, %s, p %d, m %d: %.6f is not %.4f", i, schedule, paper[i].p, paper[i].m, t.bubble, wanted);
    }
}

/* ---- all shapes ---- */

TEST(tables_are_valid)
{
    char why[256];
    int tables = 0;
    for (const pipeline_schedule *row = pipeline_schedules; row->name; row++)
        for (int p = 1; p <= 9; p++)
            for (int v = row->chunks_least; v <= row->chunks_most && v <= 4; v++)
                for (int m = 1; m <= 20; m++) {
                    const pipeline_shape s = {row, p, v, m};
                    if (pipeline_problem(&s, why, sizeof why))
                        continue;
                    pipeline_table *t = pipeline_table_create(&s, NULL);
                    if (pipeline_invalid(t, why, sizeof why))
                        fail_msg("%s, p %d, v %d, m %d: %s", row->name, p, v, m, why);
                    pipeline_table_free(t);
                    tables++;
                }
    assert_true(tables > 700);
}

/* A step of p stages in units of m (F + B + W), with W = 0.92 F and a hop of 0.02 F. */
TEST(known_makespans)
{
    static const struct {
        const char *name;
        int v;
        double p2_m8, p4_m8, p4_m16;
    } rows[] = {{"gpipe", 1, 1.127, 1.380, 1.190},
                {"1f1b", 1, 1.132, 1.389, 1.199},
                {"interleaved", 2, 1.068, 1.199, 1.100},
                {"zb-h1", 1, 1.050, 1.149, 1.074},
                {"zb-v", 2, 1.026, 1.077, 1.039}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double got[] = {run(shape_of(rows[i].name, 2, rows[i].v, 8), 1, 1, 0.92, 0.02).makespan / (8 * 2.92),
                              run(shape_of(rows[i].name, 4, rows[i].v, 8), 1, 1, 0.92, 0.02).makespan / (8 * 2.92),
                              run(shape_of(rows[i].name, 4, rows[i].v, 16), 1, 1, 0.92, 0.02).makespan / (16 * 2.92)};
        const double wanted[] = {rows[i].p2_m8, rows[i].p4_m8, rows[i].p4_m16};
        for (int k = 0; k < 3; k++)
            if (!(fabs(got[k] - wanted[k]) <= 0.00051))
                fail_msg("%s, %d: %.4f is not %.3f", rows[i].name, k, got[k], wanted[k]);
    }
}

/* Two unequal stages and one micro-batch: F 0-1, then 1-2; B 2-3, then 3-4; W 3-13 and 4-5. */
TEST(starts_of_actions)
{
    static const double one[] = {1, 1}, w[] = {1, 10}, wanted[] = {0, 3, 4, 1, 2, 3};
    const pipeline_shape s = shape_of("zb-h1", 2, 1, 1);
    const pipeline_costs costs = {.f = one, .b = one, .w = w};
    double starts[6];
    pipeline_table *t = pipeline_table_create(&s, &costs);
    const pipeline_times times = pipeline_simulate(t, &costs, starts);
    pipeline_table_free(t);
    assert_memory_equal(starts, wanted, sizeof wanted);
    assert_true(times.makespan == 13 && times.longest == 12 && times.busy == 7.5 && times.bubble == 1 - 7.5 / 12);
}

/* Two stages, one micro-batch, all times 1, a B with its W: the first stage's begins when the second one's has ended, or before W. */
TEST(gradients_leave_before_their_w)
{
    static const double one[] = {1, 1};
    const pipeline_shape s = shape_of("1f1b", 2, 1, 1);
    pipeline_table *t = pipeline_table_create(&s, NULL);
    for (int early = 0; early < 2; early++) {
        const pipeline_costs costs = {.f = one, .b = one, .w = one, .early = early};
        assert_true(pipeline_simulate(t, &costs, NULL).makespan == 6 - early);
    }
    pipeline_table_free(t);
}

/* Two stages, two micro-batches, all times 1: the last B takes 3 more in the second stage, for which the first one waits, and 2 there. If
 * W is apart, W does, and nobody waits: the second stage is busy from 1 on, for 6 and 3. */
TEST(last_gradients_take_longer)
{
    static const double one[] = {1, 1}, last[] = {2, 3};
    static const double wanted[] = {14, 10};
    for (int split = 0; split < 2; split++) {
        const pipeline_shape s = shape_of(split ? "zb-h1" : "1f1b", 2, 1, 2);
        const pipeline_costs costs = {.f = one, .b = one, .w = one, .last = last};
        pipeline_table *t = pipeline_table_create(&s, NULL);
        assert_true(pipeline_simulate(t, &costs, NULL).makespan == wanted[split]);
        pipeline_table_free(t);
    }
}

/* What the schedules hold at most, and where the loss is. */
TEST(bounds_and_places)
{
    const pipeline_shape plain = shape_of("1f1b", 4, 1, 16), v = shape_of("zb-v", 4, 2, 16),
                         chunks = shape_of("interleaved", 4, 2, 16), all = shape_of("gpipe", 4, 1, 16),
                         h1 = shape_of("zb-h1", 4, 1, 16);
    assert_int_equal(pipeline_bound(&plain, 0), 4);
    assert_int_equal(pipeline_bound(&plain, 3), 1);
    assert_int_equal(pipeline_bound(&all, 2), 16);
    assert_int_equal(pipeline_bound(&chunks, 0), 11);
    assert_int_equal(pipeline_bound(&chunks, 3), 5);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(pipeline_bound(&h1, r), 4);
        assert_int_equal(pipeline_bound(&v, r), 8);
    }
    assert_int_equal(run(plain, 1, 1, 1, 0).peak, 4);
    assert_int_equal(pipeline_loss_rank(&plain), 3);
    assert_int_equal(pipeline_loss_rank(&v), 0);
    assert_int_equal(pipeline_stage(&v, 1, 1), 6);
    assert_int_equal(pipeline_rank(&v, 6), 1);
    assert_int_equal(pipeline_stage(&chunks, 1, 1), 5);
}

/* The closed forms are what the simulator says without hops; where they bound it, from below. */
TEST(closed_forms)
{
    for (int p = 1; p <= 8; p *= 2)
        for (int m = 8; m <= 64; m *= 2) {
            static const char *const exact[] = {"gpipe", "1f1b", "interleaved"};
            for (int i = 0; i < 3; i++) {
                const pipeline_shape s = shape_of(exact[i], p, i == 2 ? 4 : 1, m);
                const double form = pipeline_closed_form(&s, 3, 4, 2, 0), ran = run(s, 3, 4, 2, 0).makespan;
                if (!(fabs(form - ran) <= 1e-9 * ran))
                    fail_msg("%s, p %d, m %d: %g is not %g", exact[i], p, m, form, ran);
            }
            const pipeline_shape h1 = shape_of("zb-h1", p, 1, m), v = shape_of("zb-v", p, 2, m);
            assert_true(pipeline_closed_form(&h1, 3, 4, 2, 0) <= run(h1, 3, 4, 2, 0).makespan + 1e-9);
            assert_true(pipeline_closed_form(&v, 3, 4, 2, 0) <= run(v, 3, 4, 2, 0).makespan + 1e-9);
        }
}

TEST(refused_shapes)
{
    char why[256];
    const pipeline_shape odd = shape_of("interleaved", 4, 2, 10), one = shape_of("zb-v", 4, 1, 8),
                         none = shape_of("1f1b", 4, 1, 0);
    assert_string_equal(pipeline_problem(&odd, why, sizeof why),
                        "micro-batches 10 are not a multiple of 4 pipeline ranks, as interleaved needs");
    assert_string_equal(pipeline_problem(&one, why, sizeof why), "zb-v has 2 chunks per rank, not 1");
    assert_string_equal(pipeline_problem(&none, why, sizeof why), "a pipeline has at least 1 stage and 1 micro-batch");
    assert_null(pipeline_schedule_find("2f2b"));
}

/* ---- tables that must be refused ---- */

static void refused(pipeline_table *t, const char *because)
{
    char why[256] = "";
    if (!pipeline_invalid(t, why, sizeof why) || !strstr(why, because))
        fail_msg("found \"%s\", wanted \"%s\"", why, because);
    pipeline_table_free(t);
}

static pipeline_table *table_of(const char *name, int ranks, int chunks, int micros)
{
    const pipeline_shape s = shape_of(name, ranks, chunks, micros);
    return pipeline_table_create(&s, NULL);
}

static pipeline_action *find(pipeline_table *t, int rank, pipeline_kind kind, int micro, int chunk)
{
    pipeline_action *a = t->actions + rank * t->count;
    while (a->kind != kind || a->micro != micro || a->chunk != chunk)
        a++;
    return a;
}

static void swap(pipeline_action *a, pipeline_action *b)
{
    const pipeline_action kept = *a;
    *a = *b;
    *b = kept;
}

TEST(wrong_tables)
{
    pipeline_table *t = table_of("1f1b", 4, 1, 8);
    swap(find(t, 1, PIPELINE_B, 0, 0), find(t, 1, PIPELINE_B, 1, 0));
    refused(t, "adds the weight gradients of micro-batch 1 before those of 0");

    t = table_of("zb-h1", 4, 1, 8); /* W keep their order; the neighbours see the gradients swapped */
    swap(find(t, 3, PIPELINE_B, 2, 0), find(t, 3, PIPELINE_B, 3, 0));
    refused(t, "receives gradients from rank 3 in another order");

    t = table_of("gpipe", 3, 1, 4);
    swap(find(t, 2, PIPELINE_F, 1, 0), find(t, 2, PIPELINE_F, 2, 0));
    refused(t, "receives activations from rank 1 in another order than they are sent, first at message 1");

    t = table_of("zb-h1", 4, 1, 8); /* a W missing is another one twice */
    find(t, 2, PIPELINE_W, 5, 0)->micro = 4;
    refused(t, "comes twice");

    t = table_of("1f1b", 4, 1, 8);
    find(t, 2, PIPELINE_B, 5, 0)->chunk = 1;
    refused(t, "does not exist");

    t = table_of("1f1b", 4, 1, 8); /* received a slot early: before the backward that frees one */
    swap(find(t, 2, PIPELINE_F, 2, 0), find(t, 2, PIPELINE_B, 0, 0));
    refused(t, "rank 2 holds 3 micro-batches of a chunk at action 2; its bound is 2");

    t = table_of("interleaved", 2, 2, 4); /* the last B of chunk 1 behind those of chunk 0 */
    swap(find(t, 1, PIPELINE_B, 3, 1), find(t, 1, PIPELINE_B, 2, 0));
    swap(find(t, 1, PIPELINE_B, 3, 1), find(t, 1, PIPELINE_B, 3, 0));
    refused(t, "rank 1: the weight gradients of chunk 0 are complete before those of chunk 1");

    t = table_of("gpipe", 2, 1, 2); /* a backward before its forward: both ranks wait */
    swap(find(t, 1, PIPELINE_F, 1, 0), find(t, 1, PIPELINE_B, 0, 0));
    swap(find(t, 1, PIPELINE_F, 0, 0), find(t, 1, PIPELINE_B, 0, 0));
    refused(t, "the run stands still");

    t = table_of("zb-h1", 2, 1, 4); /* a W before its B */
    swap(find(t, 0, PIPELINE_W, 1, 0), find(t, 0, PIPELINE_B, 1, 0));
    refused(t, "the run stands still");
}

/* The second rank runs as 1f1b does, the first one as gpipe: rank 1 waits with its second gradient until rank 0 has a place
 * for the first, rank 0 with its fifth activation until rank 1 has one for the fourth. */
static pipeline_table *forwards_against_turns(int micros)
{
    pipeline_table *t = table_of("gpipe", 2, 1, micros);
    for (int i = 0; i < t->count; i++)
        t->actions[t->count + i] = (pipeline_action){i % 2 ? PIPELINE_B : PIPELINE_F, i / 2, 0};
    return t;
}

TEST(places_come_one_action_ahead)
{
    char why[256];
    pipeline_table *t = forwards_against_turns(5);
    assert_null(pipeline_invalid(t, why, sizeof why));
    pipeline_table_free(t);
    refused(forwards_against_turns(6), "rank 0 stands still at action 4: tensors have a place one action ahead");
}

/* A V whose bound leaves nothing for the second chunk: p micro-batches of the first fill it. */
TEST(a_v_without_room)
{
    pipeline_table *t = table_of("zb-v", 4, 2, 8);
    pipeline_action *a = t->actions; /* rank 0: all F of the first chunk first */
    int at = 0;
    for (int i = 0; i < t->count; i++)
        if (a[i].kind == PIPELINE_F && a[i].chunk == 0) {
            const pipeline_action f = a[i];
            memmove(a + at + 1, a + at, (size_t)(i - at) * sizeof *a);
            a[at++] = f;
        }
    refused(t, "rank 0 holds 9 micro-batches of a chunk");
}
