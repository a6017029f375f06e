/* SPDX-License-Identifier: MIT */
/* The accounting of data parallelism: tokens that hide gradients, buckets against a queue of them, and memory and
 * traffic of DDP, ZeRO and FSDP as papers have them. */
#include "tests/support/test.h"

#include "common/core/units.h"
#include "common/formulas/accounting.h"
#include "common/model/config.h"

/* The value must have these digits when it is printed with so many decimals. */
static void digits(double value, int decimals, const char *wanted)
{
    char text[64];
    snprintf(text, sizeof text, "%.*f", decimals, value);
    assert_string_equal(text, wanted);
}

static void near(double value, double wanted, double relative)
{
    if (!(fabs(value - wanted) <= relative * fabs(wanted)))
        fail_msg("%.17g is not %.17g", value, wanted);
}

static double xl_parameters(void)
{
    return (double)model_parameters(model_size_find("xl"));
}

TEST(tokens_that_hide_gradients)
{
    static const char *const wanted[2][3] = {{"829", "1243", "1450"}, {"1657", "2486", "2900"}};
    const double matmul = 1982080000; /* N_mm of xl, distinct from P = 1,998,235,200 */
    assert_true(xl_parameters() == 1998235200);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 3; i++)
            digits(data_parallel_tokens(xl_parameters(), matmul, 2 << g, 2 << i, 600e12, 365e9), 0, wanted[g][i]);
    assert_true(data_parallel_tokens(1e9, 1e9, 2, 1, 1e14, 1e11) == 0);
    digits(600e12 / 365e9, 0, "1644");
}

static bucket_model buckets_of_xl(double ranks, double overhead_us, double kappa)
{
    double w = all_reduce_rate(365e9, ranks);
    return (bucket_model){
        .bytes = 2 * xl_parameters(), .rate = w, .overhead_s = 1e-6 * overhead_us, .ready_rate = w, .kappa = kappa};
}

TEST(best_buckets)
{
    static const struct {
        double ranks, overhead_us, kappa;
        const char *mb;
    } known[] = {{2, 20, 1, "171"},
                 {2, 20, .12, "59"},
                 {2, 20, .05, "38"},
                 {8, 20, .12, "45"},
                 {8, 20, .05, "29"},
                 /* Twice the overhead, or twice the bytes as of fp32 gradients, makes that 183. */
                 {8, 20, 1, "129"},
                 {8, 40, 1, "183"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bucket_model m = buckets_of_xl(known[i].ranks, known[i].overhead_us, known[i].kappa);
        digits(bucket_best_contention(&m) / 1e6, 0, known[i].mb);
    }
    /* fp32 gradients over a slow link; s is 7.993 GB, and 8.0 GB would be 106.75 buckets. */
    bucket_model fp32 = {
        .bytes = 4 * xl_parameters(), .rate = 23.4e9, .overhead_s = 30e-6, .ready_rate = 23.4e9, .kappa = 1};
    digits(bucket_best_count(&fp32, false), 2, "106.70");
    assert_true(bucket_best_count(&fp32, true) == 107);
    near(bucket_overhead(&fp32, bucket_best(&fp32)), 2 * sqrt(fp32.bytes * 30e-6 / 23.4e9), 1e-14);
    fp32.bytes = 8e9;
    digits(bucket_best_count(&fp32, false), 2, "106.75");
}

/* Time between the end of backward and that of the last of n buckets, one after the other. */
static double queue(const bucket_model *m, int n)
{
    double each = m->bytes / n, free_at = 0;
    for (int i = 1; i <= n; i++)
        free_at = fmax(free_at, i * each / m->ready_rate) + m->overhead_s + each / m->rate;
    return free_at - m->bytes / m->ready_rate;
}

TEST(buckets_against_a_queue)
{
    for (int k = 0; k < 40; k++) {
        bucket_model m = buckets_of_xl(2 << k % 3, 5 + 7 * k, 1);
        m.ready_rate = m.rate * (0.2 + 0.05 * k);
        for (int n = 1; n < 3000; n += 1 + n / 7)
            near(bucket_overhead_fifo(&m, m.bytes / n), queue(&m, n), 1e-7);
        m.ready_rate = m.rate; /* the handout's case */
        int best = 1;
        for (int n = 1; n < 1000; n++) {
            near(bucket_overhead(&m, m.bytes / n), queue(&m, n), 1e-7);
            best = queue(&m, n) < queue(&m, best) ? n : best;
        }
        assert_true(bucket_best_count(&m, true) == best);
    }
}

TEST(best_bucket_of_slow_gradients)
{
    bucket_model m = buckets_of_xl(2, 20, 1);
    m.ready_rate = 295e9;
    double best = bucket_best_fifo(&m);
    near(best, 20e-6 * 295e9 * 365e9 / 70e9, 1e-12);
    near(m.overhead_s + best / m.rate, best / m.ready_rate, 1e-12); /* t = c */
    for (double b = best / 8; b < 8 * best; b *= 1.02)
        assert_true(bucket_overhead_fifo(&m, b) >= bucket_overhead_fifo(&m, best) * (1 - 1e-9));
    m.ready_rate = 365e9;
    assert_true(isinf(bucket_best_fifo(&m)));
    m.kappa = 0.12;
    best = bucket_best_contention(&m);
    for (double b = best / 8; b < 8 * best; b *= 1.02)
        assert_true(bucket_overhead_contention(&m, b) >= bucket_overhead_contention(&m, best) * (1 - 1e-12));
}

/* ---- memory and traffic by strategy ---- */

TEST(memory_by_strategy)
{
    static const struct {
        const char *recipe;
        zero_stage stage;
        double ranks;
        const char *after_step_gib;
    } known[] = {
        {"fp32", ZERO_DDP, 2, "29.78"},      {"fp32", ZERO_1, 2, "22.33"},        {"fp32", ZERO_1, 4, "18.61"},
        {"fp32", ZERO_1, 8, "16.75"},        {"fp32", ZERO_2, 2, "18.61"},        {"fp32", ZERO_3, 2, "14.89"},
        {"fp32", ZERO_2, 8, "10.24"},        {"fp32", ZERO_3, 8, "3.72"},         {"bf16-grad32", ZERO_DDP, 2, "33.50"},
        {"bf16-grad32", ZERO_1, 2, "22.33"}, {"bf16-grad32", ZERO_1, 8, "13.96"}, {"bf16", ZERO_DDP, 2, "29.78"},
        {"bf16", ZERO_1, 2, "18.61"},        {"bf16", ZERO_1, 8, "10.24"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        zero_bytes b =
            zero_memory(known[i].stage, zero_recipe_of(known[i].recipe), xl_parameters(), known[i].ranks, 0, 0);
        digits(b.after_step / GIB, 2, known[i].after_step_gib);
    }
    zero_bytes b = zero_memory(ZERO_DDP, zero_recipe_of("fp32"), xl_parameters(), 2, 2, 1e6);
    digits(b.init / GIB, 3, "7.444");
    digits(b.before_step / GIB, 2, "14.89");
    assert_true(b.slots == 0);
    /* FSDP saves (p + g) P (1 - 1/n) over ZeRO-1: 7.44 GiB at n = 2. */
    digits((zero_memory(ZERO_1, zero_recipe_of("fp32"), xl_parameters(), 2, 0, 0).after_step -
            zero_memory(ZERO_3, zero_recipe_of("fp32"), xl_parameters(), 2, 0, 0).after_step) /
               GIB,
           2, "7.44");
    assert_true(zero_memory(ZERO_3, zero_recipe_of("bf16"), 1e9, 8, 2, 40963200).slots == 2 * (2 + 2) * 40963200.0);
    assert_true(zero_memory(ZERO_2, zero_recipe_of("bf16-grad32"), 1e9, 8, 3, 1e6).slots == 3 * 4 * 1e6);
}

/* A parameter's bytes as papers write them, 16 P -> 4 P + 12 P / n -> ... */
TEST(bytes_of_a_parameter)
{
    static const struct {
        const char *recipe;
        double whole[4], shard[4]; /* of DDP and ZeRO-1, -2, -3 */
    } known[] = {{"bf16", {16, 4, 2, 0}, {0, 12, 14, 16}},
                 {"bf16-grad32", {18, 6, 2, 0}, {0, 12, 16, 18}},
                 {"fp32", {16, 8, 4, 0}, {0, 8, 12, 16}}};
    static const zero_stage stages[] = {ZERO_DDP, ZERO_1, ZERO_2, ZERO_3};
    for (int r = 0; r < 3; r++)
        for (int s = 0; s < 4; s++)
            for (double n = 1; n <= 8; n *= 2) {
                zero_bytes b = zero_memory(stages[s], zero_recipe_of(known[r].recipe), 1e6, n, 2, 0);
                near(b.after_step, 1e6 * (known[r].whole[s] + known[r].shard[s] / n), 1e-14);
                zero_bytes whole = zero_memory(ZERO_1, zero_recipe_of(known[r].recipe), 1e6, n, 2, 0);
                zero_bytes handout = zero_memory(ZERO_1_BROADCAST, zero_recipe_of(known[r].recipe), 1e6, n, 2, 0);
                assert_true(handout.after_step == whole.after_step && handout.init == whole.init);
            }
}

TEST(traffic_by_strategy)
{
    static const double times[] = {[ZERO_DDP] = 2, [ZERO_1_BROADCAST] = 3, [ZERO_1] = 2, [ZERO_2] = 2, [ZERO_3] = 3};
    for (int s = ZERO_DDP; s <= ZERO_3; s++)
        for (double n = 1; n <= 8; n *= 2) {
            zero_wire w = zero_wire_elements((zero_stage)s, 1e6, n);
            near(w.grads + w.params, times[s] * 1e6 * (n - 1) / n, 1e-14);
        }
}
