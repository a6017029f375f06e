/* SPDX-License-Identifier: MIT */
/* Parts of attention over different keys, merged, are attention over all of them: by hand in double, with rows of which a part
 * or both see no key, scores that would overflow, and strides of a fused row. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"

#include <math.h>
#include <stdlib.h>

enum { B = 2, H = 3, S = 5, D = 8, ROWS = B * H * S };

/* What merging makes of row r, whose two parts have these lse. */
static double wanted(double o_sum, double lse_sum, double o, double lse, double *lse_out)
{
    const double most = fmax(lse_sum, lse);
    if (most == -INFINITY) {
        *lse_out = most;
        return 0;
    }
    *lse_out = most + log(exp(lse_sum - most) + exp(lse - most));
    return o_sum * exp(lse_sum - *lse_out) + o * exp(lse - *lse_out);
}

/* lse of a part by row: ordinary, blind, huge. */
static void fill_lse(array *lse, int shift)
{
    static const double values[] = {0.5, -INFINITY, 200, -3, 190, 1};
    for (size_t i = 0; i < lse->n; i++)
        array_set(lse, i, values[(i + (size_t)shift * (i / 6 + 1)) % 6]);
}

static void clear_blind(array *o, const array *lse)
{
    for (size_t i = 0; i < o->n; i++)
        if (array_get(lse, i / D) == -INFINITY)
            array_set(o, i, 0);
}

/* Both parts are (B, H, S, D); the sum is (S, B, H, D). */
static void merge(sb_dtype dtype)
{
    OWNED_ARRAY array *one = array_random(dtype, ROWS * D, 1, 1), *two = array_random(dtype, ROWS * D, 2, 1);
    OWNED_ARRAY array *lse1 = array_poison(SB_FP32, ROWS), *lse2 = array_poison(SB_FP32, ROWS);
    OWNED_ARRAY array *sum = array_poison(SB_FP32, ROWS * D), *lse_sum = array_poison(SB_FP32, ROWS);
    OWNED double *want = xmalloc(ROWS * D * sizeof *want), *want_lse = xmalloc(ROWS * sizeof *want_lse);
    fill_lse(lse1, 0);
    fill_lse(lse2, 1);
    clear_blind(one, lse1);
    clear_blind(two, lse2);
    sb_attention_merge p = {.dtype = dtype,
                            .batch = B,
                            .heads = H,
                            .seq = S,
                            .columns = D,
                            .first = true,
                            .o = {one->data, H * S * D, S * D, D},
                            .lse = lse1->data,
                            .o_sum = {sum->data, H * D, D, B * H * D},
                            .lse_sum = lse_sum->data};
    expect_ok(train_ops()->attention_merge(NULL, &p, NULL));
    p.first = false;
    p.o.data = two->data;
    p.lse = lse2->data;
    expect_ok(train_ops()->attention_merge(NULL, &p, NULL));
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < D; i++) {
            const int b = r / S / H, h = r / S % H, s = r % S, from = r * D + i;
            want[((s * B + b) * H + h) * D + i] =
                wanted(array_get(one, (size_t)from), array_get(lse1, (size_t)r), array_get(two, (size_t)from),
                       array_get(lse2, (size_t)r), &want_lse[r]);
        }
    expect_rounded("o", sum, want, 1e-6);
    for (int r = 0; r < ROWS; r++)
        if (want_lse[r] == -INFINITY)
            assert_true(array_get(lse_sum, (size_t)r) == -INFINITY);
        else
            expect_near("lse", array_get(lse_sum, (size_t)r), want_lse[r], 1e-6);
}

TEST(test_merge)
{
    for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
        merge((sb_dtype)dtype);
}

TEST(test_refused)
{
    float x[64] = {0};
    const sb_attention_merge right = {.dtype = SB_FP32,
                                      .batch = 1,
                                      .heads = 1,
                                      .seq = 1,
                                      .columns = 8,
                                      .o = {x, 8, 8, 8},
                                      .lse = x,
                                      .o_sum = {x + 8, 8, 8, 8},
                                      .lse_sum = x + 16};
    expect_ok(train_ops()->attention_merge(NULL, &right, NULL));
    sb_attention_merge p = right;
    p.lse_sum = NULL;
    expect_refused(train_ops()->attention_merge(NULL, &p, NULL), SB_INVALID, "lse_sum is missing");
    p = right;
    p.seq = 0;
    expect_refused(train_ops()->attention_merge(NULL, &p, NULL), SB_INVALID, "seq 0");
    p = right;
    p.dtype = 5;
    expect_refused(train_ops()->attention_merge(NULL, &p, NULL), SB_INVALID, "dtype 5");
}
