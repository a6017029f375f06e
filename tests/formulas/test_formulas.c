/* SPDX-License-Identifier: MIT */
/* FLOPs and bytes: known values, and the pair count against counting. */
#include "tests/support/test.h"

#include "common/formulas/attention.h"

static double counted_pairs(const sb_attention *s)
{
    double pairs = 0;
    for (int64_t i = 0; i < s->seq_q; i++)
        for (int64_t j = 0; j < s->seq_k; j++)
            pairs += !s->causal || j <= i + s->seq_k - s->seq_q;
    return pairs;
}

static double counted_in_window(const sb_attention *s)
{
    double pairs = 0;
    for (int64_t i = 0; i < s->seq_q; i++)
        for (int64_t j = 0; j < s->seq_k; j++) {
            const int64_t after = j - (i + s->seq_k - s->seq_q); /* the position of i: negative where it is before */
            pairs += (!s->causal || after <= 0) && (s->window_left < 0 || -after <= s->window_left) &&
                     (s->window_right < 0 || after <= s->window_right);
        }
    return pairs;
}

TEST(pairs)
{
    for (int64_t sq = 1; sq <= 40; sq++)
        for (int64_t sk = 1; sk <= 40; sk++)
            for (int causal = 0; causal < 2; causal++) {
                sb_attention s = {
                    .batch = 1, .heads = 1, .heads_kv = 1, .seq_q = sq, .seq_k = sk, .head_dim = 16, .causal = causal};
                assert_true(attention_pairs(&s) == counted_pairs(&s));
            }
}

TEST(pairs_in_windows)
{
    static const int64_t lengths[] = {1, 2, 7, 16, 33}, sides[] = {-1, 0, 1, 5, 15, 40};
    for (int n = 0; n < 5 * 5 * 6 * 6 * 2; n++) {
        sb_attention s = {.batch = 3,
                          .heads = 4,
                          .heads_kv = 2,
                          .seq_q = lengths[n % 5],
                          .seq_k = lengths[n / 5 % 5],
                          .head_dim = 16,
                          .causal = n / 900,
                          .windowed = true,
                          .window_left = sides[n / 25 % 6],
                          .window_right = sides[n / 150 % 6]};
        if (s.causal && s.window_right > 0)
            continue;
        assert_true(attention_pairs(&s) == counted_in_window(&s));
        assert_true(attention_forward_flops(&s) == 4 * 3 * 4 * 16 * counted_in_window(&s));
        assert_true(attention_backward_flops(&s) == 10 * 3 * 4 * 16 * counted_in_window(&s));
    }
}

TEST(flops)
{
    sb_attention s = {.batch = 1, .heads = 16, .heads_kv = 16, .seq_q = 16384, .seq_k = 16384, .head_dim = 128};
    assert_true(attention_forward_flops(&s) == 4.0 * 16 * 16384 * 16384 * 128);
    s.causal = true;
    assert_true(attention_forward_flops(&s) == 2.0 * 16 * 16384 * 16384 * 128);
    assert_true(attention_backward_flops(&s) == 5.0 * 16 * 16384 * 16384 * 128);
    s.heads_kv = 2; /* grouped heads share memory, not work */
    assert_true(attention_forward_flops(&s) == 2.0 * 16 * 16384 * 16384 * 128);
    assert_true(gemm_flops(2, 3, 5) == 60);
    assert_true(gemm_flops(1 << 20, 1 << 20, 1 << 20) == 0x1p61); /* no 32-bit products on the way */
}

/* Values of another width, product by product: each is some rows times columns, over a length of its own. */
TEST(flops_of_wide_values)
{
    static const int widths[][2] = {{192, 128}, {24, 16}, {64, 256}, {128, 128}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int d = widths[i][0], dv = widths[i][1], heads = 3 * 5, sq = 48, sk = 80;
        sb_attention s = {
            .batch = 3, .heads = 5, .heads_kv = 1, .seq_q = sq, .seq_k = sk, .head_dim = d, .head_dim_v = dv};
        const double scores = gemm_flops(sq, sk, d), o = gemm_flops(sq, dv, sk);
        const double dp = gemm_flops(sq, sk, dv), dq = gemm_flops(sq, d, sk), dk = gemm_flops(sk, d, sq);
        const double d_v = gemm_flops(sk, dv, sq);
        assert_int_equal(attention_head_dim_v(&s), dv);
        assert_true(attention_forward_flops(&s) == heads * (scores + o));
        assert_true(attention_backward_flops(&s) == heads * (scores + dp + dq + dk + d_v));
        s.windowed = true, s.window_left = 7, s.window_right = 3;
        assert_true(attention_forward_flops(&s) == heads * counted_in_window(&s) * 2 * (d + dv));
        s.windowed = false, s.causal = true;
        assert_true(attention_backward_flops(&s) == heads * (scores + dp + dq + dk + d_v) / 2);
        const double q = 3 * 5 * sq, k = 3 * sk, lse = 4 * q;
        assert_true(attention_forward_bytes(&s, 2) == 2 * (q * d + q * dv + k * d + k * dv) + lse);
        assert_true(attention_backward_bytes(&s, 4) == 4 * (2 * q * d + 2 * q * dv + 2 * k * d + 2 * k * dv) + lse);
    }
    sb_attention same = {.batch = 1, .heads = 1, .heads_kv = 1, .seq_q = 8, .seq_k = 8, .head_dim = 72};
    assert_int_equal(attention_head_dim_v(&same), 72);
}

TEST(bytes)
{
    sb_attention s = {.batch = 2, .heads = 6, .heads_kv = 3, .seq_q = 10, .seq_k = 20, .head_dim = 8};
    double q = 2 * 6 * 10 * 8, k = 2 * 3 * 20 * 8, lse = 4 * 2 * 6 * 10;
    assert_true(attention_forward_bytes(&s, 2) == 2 * (2 * q + 2 * k) + lse);
    assert_true(attention_backward_bytes(&s, 4) == 4 * (4 * q + 4 * k) + lse);
    assert_true(attention_matrix_bytes(&s, 2) == 2.0 * 2 * 6 * 10 * 20);
    s = (sb_attention){.batch = 1, .heads = 1, .heads_kv = 1, .seq_q = 65536, .seq_k = 65536, .head_dim = 128};
    assert_true(attention_matrix_bytes(&s, 4) == 0x1p34);
}

/* Packed documents, some of which have no queries or no keys: their sum, by the rule of each. */
TEST(documents)
{
    static const int q[] = {0, 3, 3, 10, 30}, k[] = {0, 3, 8, 8, 41};
    for (int causal = 0; causal < 2; causal++) {
        sb_attention s = {.batch = 1,
                          .heads = 2,
                          .heads_kv = 1,
                          .seq_q = 30,
                          .seq_k = 41,
                          .head_dim = 8,
                          .causal = causal,
                          .packed = true,
                          .documents = 4,
                          .cu_seqlens_q = q,
                          .cu_seqlens_k = k};
        assert_true(attention_forward_flops(&s) == 4 * 2 * 8 * (3 * 3 + 20 * 33) / (causal ? 2.0 : 1));
        assert_true(attention_pairs(&s) == (causal ? 6 + 20 * 33 - 20 * 19 / 2 : 3 * 3 + 20 * 33));
        s.windowed = true, s.window_left = 2, s.window_right = -1;
        double pairs = 0;
        for (int i = 0; i < 4; i++) {
            sb_attention one = s;
            one.seq_q = q[i + 1] - q[i], one.seq_k = k[i + 1] - k[i];
            pairs += counted_in_window(&one);
        }
        assert_true(attention_backward_flops(&s) == 10 * 2 * 8 * pairs);
    }
}
