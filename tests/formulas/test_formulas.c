/* SPDX-License-Identifier: MIT */
/* FLOPs and bytes: known values, and the pair count against counting. */
#include "tests/support/test.h"

#include "common/formulas/attention.h"

static double counted_pairs(const attention_shape *s)
{
    double pairs = 0;
    for (int64_t i = 0; i < s->seq_q; i++)
        for (int64_t j = 0; j < s->seq_k; j++)
            pairs += !s->causal || j <= i + s->seq_k - s->seq_q;
    return pairs;
}

static void pairs(void **state)
{
    (void)state;
    for (int64_t sq = 1; sq <= 40; sq++)
        for (int64_t sk = 1; sk <= 40; sk++)
            for (int causal = 0; causal < 2; causal++) {
                attention_shape s = {1, 1, 1, sq, sk, 16, causal};
                assert_true(attention_pairs(&s) == counted_pairs(&s));
            }
}

static void flops(void **state)
{
    (void)state;
    attention_shape s = {.batch = 1, .heads = 16, .heads_kv = 16, .seq_q = 16384, .seq_k = 16384, .head_dim = 128};
    assert_true(attention_forward_flops(&s) == 4.0 * 16 * 16384 * 16384 * 128);
    s.causal = true;
    assert_true(attention_forward_flops(&s) == 2.0 * 16 * 16384 * 16384 * 128);
    assert_true(attention_backward_flops(&s) == 5.0 * 16 * 16384 * 16384 * 128);
    s.heads_kv = 2; /* grouped heads share memory, not work */
    assert_true(attention_forward_flops(&s) == 2.0 * 16 * 16384 * 16384 * 128);
    assert_true(gemm_flops(2, 3, 5) == 60);
    assert_true(gemm_flops(1 << 20, 1 << 20, 1 << 20) == 0x1p61); /* no 32-bit products on the way */
}

static void bytes(void **state)
{
    (void)state;
    attention_shape s = {.batch = 2, .heads = 6, .heads_kv = 3, .seq_q = 10, .seq_k = 20, .head_dim = 8};
    double q = 2 * 6 * 10 * 8, k = 2 * 3 * 20 * 8, lse = 4 * 2 * 6 * 10;
    assert_true(attention_forward_bytes(&s, 2) == 2 * (2 * q + 2 * k) + lse);
    assert_true(attention_backward_bytes(&s, 4) == 4 * (4 * q + 4 * k) + lse);
    assert_true(attention_matrix_bytes(&s, 2) == 2.0 * 2 * 6 * 10 * 20);
    s = (attention_shape){1, 1, 1, 65536, 65536, 128, true};
    assert_true(attention_matrix_bytes(&s, 4) == 0x1p34);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs), cmocka_unit_test(flops), cmocka_unit_test(bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
