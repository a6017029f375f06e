/* Which main kernel of the Hopper flash backward a problem gets, on an H200 that is only described, and that the cases of
 * test_gpu meet every one of them. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/cluster_split.h"
#include "kernels/cuda/flash_backward_choice.h"
#include "tests/gpu/cases.h"

static const int sms = 132, clusters[4] = {132, 66, 30, 15};

static sb_attention problem(int batch, int heads, int heads_kv, int seq, int head_dim, bool causal, sb_dtype dtype)
{
    return (sb_attention){.batch = batch,
                          .heads = heads,
                          .heads_kv = heads_kv,
                          .seq_q = seq,
                          .seq_k = seq,
                          .head_dim = head_dim,
                          .causal = causal,
                          .dtype = dtype};
}

static flash_backward_choice choice(sb_attention a, bool deterministic)
{
    a.deterministic = deterministic;
    return flash_backward_choose(&a, sms, clusters);
}

static void long_rows_of_many_heads(void **state)
{
    (void)state;
    const sb_attention wide = problem(1, 16, 16, 16384, 128, true, SB_BF16),
                       fp32 = problem(1, 16, 16, 16384, 128, true, SB_FP32),
                       narrow = problem(1, 16, 16, 16384, 64, true, SB_FP16);
    assert_int_equal(choice(wide, false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(wide, true).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(fp32, false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(narrow, false).kernel, FLASH_BACKWARD_NARROW);
    assert_int_equal(choice(narrow, true).kernel, FLASH_BACKWARD_NARROW);
    assert_int_equal(choice(wide, true).sums, 1);
}

/* A pair's start and its second tile's empty steps have to be worth it. */
static void short_rows_of_many_heads(void **state)
{
    (void)state;
    assert_int_equal(choice(problem(8, 16, 16, 2048, 128, true, SB_BF16), false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(problem(8, 16, 16, 4096, 128, true, SB_BF16), false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(problem(8, 16, 16, 2048, 96, false, SB_FP16), false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(problem(8, 16, 16, 8192, 80, true, SB_FP16), false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(problem(4, 25, 25, 1024, 64, true, SB_BF16), false).kernel, FLASH_BACKWARD_NARROW);
}

/* Few key tiles are shared by clusters, and by several sums of dQ in turns. */
static void one_head(void **state)
{
    (void)state;
    for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
        for (int seq = 1024; seq <= 16384; seq *= 2)
            for (int d = 64; d <= 128; d += 64) {
                const sb_attention a = problem(1, 1, 1, seq, d, true, (sb_dtype)dtype);
                for (int deterministic = 0; deterministic < 2; deterministic++) {
                    const flash_backward_choice c = choice(a, deterministic);
                    assert_int_equal(c.kernel, FLASH_BACKWARD_WIDE);
                    assert_true(c.split > 1);
                    assert_true(deterministic ? c.sums > 1 && c.sums <= seq / 128 : c.sums == 1);
                }
            }
}

/* The sum over rounds that split_time makes, and the average that it takes where there are many, meet. */
static void rounds_become_an_average(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++)
        for (int split = 1, i = 0; split <= 8; split *= 2, i++) {
            const int64_t many = 64 * (int64_t)clusters[i];
            const double sum = split_time(many, 100, causal, 4, 5, split, clusters[i]),
                         average = split_time(many + 1, 100, causal, 4, 5, split, clusters[i]);
            assert_true(fabs(average / sum - 1) < 0.02);
            assert_true(split_time(1, 100, causal, 4, 5, split, clusters[i]) == 4 + 100.0 / split);
        }
}

/* Every kernel, and the wide one whole, shared and with several sums, serves some case of test_gpu. */
static void cases_meet_every_kernel(void **state)
{
    (void)state;
    enum { ONE_BLOCK, SHARED, SUMS, NARROW, PAIR, KINDS };
    int met[KINDS][SB_FP32 + 1] = {0}, n;
    test_case *const cases = cases_create(&n);
    for (int i = 0; i < n; i++)
        for (int deterministic = 0; deterministic < 2; deterministic++) {
            const test_case *const t = &cases[i];
            sb_attention a = problem(t->batch, t->heads, t->heads_kv, t->seq_q, t->head_dim, t->causal, t->dtype);
            a.seq_k = t->seq_k;
            if (t->head_dim > 128 || t->dtype == SB_TF32)
                continue;
            const flash_backward_choice c = choice(a, deterministic);
            met[c.kernel == FLASH_BACKWARD_NARROW ? NARROW
                : c.kernel == FLASH_BACKWARD_PAIR ? PAIR
                : c.sums > 1                      ? SUMS
                : c.split > 1                     ? SHARED
                                                  : ONE_BLOCK][t->dtype]++;
        }
    free(cases);
    for (int kind = 0; kind < KINDS; kind++) {
        assert_true(met[kind][SB_BF16] > 0);
        assert_true(met[kind][SB_FP16] > 0);
        assert_true(kind == NARROW || kind == PAIR || met[kind][SB_FP32] > 0);
    }
    assert_true(met[PAIR][SB_BF16] >= 6); /* each width, causal or not */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_rows_of_many_heads),
                                       cmocka_unit_test(short_rows_of_many_heads), cmocka_unit_test(one_head),
                                       cmocka_unit_test(rounds_become_an_average),
                                       cmocka_unit_test(cases_meet_every_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return skip_program();
}
#endif
