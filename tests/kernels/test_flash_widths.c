/* SPDX-License-Identifier: MIT */
/* Which head_dim the CUDA flash ops say they take, on devices that are only described: no GPU is needed to refuse. */
#include "tests/support/test.h"

#include <string.h>

#include "kernels/kernels.h"

#ifdef HAVE_CUDA
#include "kernels/cuda/runtime/context.h"

static sb_attention of_width(int head_dim, sb_dtype dtype, bool forward_only)
{
    return (sb_attention){.batch = 1,
                          .heads = 2,
                          .heads_kv = 1,
                          .seq_q = 9,
                          .seq_k = 9,
                          .head_dim = head_dim,
                          .dtype = dtype,
                          .forward_only = forward_only};
}

static sb_status answer(const char *op, int major, int minor, sb_attention a)
{
    sb_context ctx = {.cc_major = major, .cc_minor = minor};
    return sb_attention_find(sb_kernels_cuda(), op)->supported(&ctx, &a);
}

static void test_narrow_heads(void **state)
{
    static const char *const ops[] = {"flash", "flash_portable", "unfused", "fused"};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int dtype = SB_BF16; dtype <= (i < 2 ? SB_BF16X3 : SB_FP32); dtype++)
            for (int d = 16; d <= 128; d += 8)
                for (int alone = 0; alone < 2; alone++) {
                    assert_int_equal(answer(ops[i], 9, 0, of_width(d, dtype, alone)), SB_OK);
                    assert_int_equal(answer(ops[i], 8, 0, of_width(d, dtype, alone)), SB_OK);
                }
}

static void test_forward_alone(void **state)
{
    (void)state;
    for (int d = 136; d <= 256; d += 8)
        for (int dtype = SB_BF16; dtype <= SB_FP16; dtype++) {
            assert_int_equal(answer("flash", 9, 0, of_width(d, dtype, true)), SB_OK);
            assert_int_equal(answer("flash", 9, 0, of_width(d, dtype, false)), SB_UNSUPPORTED);
            assert_non_null(strstr(sb_last_message(), "has a forward here, but no backward"));
        }
}

/* Backward itself refuses too, before it looks at the device. */
static void test_backward_refused(void **state)
{
    const sb_attention_op *flash = sb_attention_find(sb_kernels_cuda(), "flash");
    sb_context ctx = {.cc_major = 9};
    const sb_attention a = of_width(256, SB_BF16, true);
    (void)state;
    assert_int_equal(flash->backward(&ctx, &a, NULL), SB_UNSUPPORTED);
    assert_string_equal(sb_last_message(), "head_dim 256 has a forward here, but no backward");
    assert_int_equal(flash->forward(&ctx, &a, NULL), SB_INVALID); /* the width is right, and q is NULL */
    assert_string_equal(sb_last_message(), "q is NULL");
}

static void test_no_forward(void **state)
{
    static const struct {
        const char *op;
        int major, minor, head_dim;
        sb_dtype dtype;
    } none[] = {{"flash", 9, 0, 256, SB_FP32}, {"flash", 9, 0, 256, SB_TF32},          {"flash", 8, 0, 256, SB_BF16},
                {"flash", 8, 9, 136, SB_FP16}, {"flash_portable", 9, 0, 256, SB_BF16}, {"flash", 9, 0, 264, SB_BF16},
                {"flash", 9, 0, 140, SB_BF16}, {"unfused", 9, 0, 264, SB_BF16}};
    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        for (int alone = 0; alone < 2; alone++) {
            const sb_attention a = of_width(none[i].head_dim, none[i].dtype, alone);
            assert_int_equal(answer(none[i].op, none[i].major, none[i].minor, a), SB_UNSUPPORTED);
            assert_non_null(strstr(sb_last_message(), "head_dim"));
            assert_null(strstr(sb_last_message(), "no backward"));
        }
}

/* The products of unfused and fused take every width both ways. */
static void test_matrices(void **state)
{
    (void)state;
    for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++) {
        assert_int_equal(answer("unfused", 9, 0, of_width(256, dtype, false)), SB_OK);
        assert_int_equal(answer("fused", 8, 0, of_width(256, dtype, false)), SB_OK);
    }
    assert_int_equal(answer("unfused", 9, 0, of_width(64, SB_BF16X3, false)), SB_UNSUPPORTED);
    assert_int_equal(answer("fused", 9, 0, of_width(64, SB_BF16X3, false)), SB_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_narrow_heads), cmocka_unit_test(test_forward_alone),
                                       cmocka_unit_test(test_backward_refused), cmocka_unit_test(test_no_forward),
                                       cmocka_unit_test(test_matrices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return skip_program();
}
#endif
