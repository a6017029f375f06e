/* SPDX-License-Identifier: MIT */
/* Which head_dim the CUDA flash ops say they take, on devices that are only described: no GPU is needed to refuse. */
#include "tests/support/test.h"

#include "kernels/kernels.h"

#ifdef HAVE_CUDA
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/hopper/backward/choice.h"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
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

TEST(test_narrow_heads)
{
    static const char *const ops[] = {"flash", "flash_portable", "unfused", "fused"};
    for (int i = 0; i < 4; i++)
        for (int dtype = SB_BF16; dtype <= (i < 2 ? SB_BF16X3 : SB_FP32); dtype++)
            for (int d = 16; d <= 128; d += 8)
                for (int alone = 0; alone < 2; alone++) {
                    assert_int_equal(answer(ops[i], 9, 0, of_width(d, dtype, alone)), SB_OK);
                    assert_int_equal(answer(ops[i], 8, 0, of_width(d, dtype, alone)), SB_OK);
                }
}

/* 16 bits, both ways, with every mask and on every device. */
TEST(test_wide_heads)
{
    static const char *const ops[] = {"flash", "flash_portable"};
    static const int devices[][2] = {{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {12, 0}};
    static const int borders[] = {0, 4, 9}; /* not looked at */
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof devices / sizeof *devices; k++)
            for (int d = 136; d <= 256; d += 8)
                for (int dtype = SB_BF16; dtype <= SB_FP16; dtype++)
                    for (int kind = 0; kind < 8; kind++) {
                        sb_attention a = of_width(d, dtype, kind & 1);
                        a.windowed = kind & 2, a.window_left = 3, a.window_right = -1;
                        a.packed = kind & 4, a.documents = 2, a.cu_seqlens_q = a.cu_seqlens_k = borders;
                        assert_int_equal(answer(ops[i], devices[k][0], devices[k][1], a), SB_OK);
                    }
}

/* Above 128 columns the fast backward is the large one, with sums of 192 or 256 columns, for windows and documents, and in order, but
 * not for both: that is portable. */
TEST(test_wide_backward)
{
    sb_context ctx = {.cc_major = 9, .sm_count = 132};
    for (int d = 136; d <= 256; d += 8)
        for (int kind = 0; kind < 12; kind++) {
            sb_attention a = of_width(d, kind % 2 ? SB_BF16 : SB_FP16, false);
            const int asks = kind / 2;
            const bool fast = asks < 4;
            a.deterministic = asks == 1 || asks > 3, a.windowed = asks == 2 || asks == 4;
            a.packed = asks == 3 || asks == 5;
            a.documents = a.packed ? 1 : 0;
            const size_t bytes = sb_flash_op.backward_workspace(&ctx, &a),
                         portable = sb_flash_portable_op.backward_workspace(&ctx, &a);
            const int sums = flash_backward_choose(&a, FLASH_BACKWARD_CHOSEN, ctx.sm_count, NULL).sums;
            if (fast)
                assert_true(bytes >= (size_t)2 * 64 * sums * (d > 192 ? 256 : 192) * 4 &&
                            bytes < (size_t)2 * 64 * sums * 320 * 4);
            else
                assert_int_equal(bytes, portable);
            assert_int_equal(flash_hopper_backward_takes(&a, FLASH_BACKWARD_WIDE), SB_UNSUPPORTED);
            assert_int_equal(flash_hopper_backward_takes(&a, FLASH_BACKWARD_PAIR), SB_UNSUPPORTED);
            assert_int_equal(flash_hopper_backward_takes(&a, FLASH_BACKWARD_LARGE), fast ? SB_OK : SB_UNSUPPORTED);
            assert_int_equal(flash_hopper_backward_takes(&a, FLASH_BACKWARD_TALL),
                             d <= 192 && asks < 2 ? SB_OK : SB_UNSUPPORTED);
        }
    const sb_attention narrower = of_width(128, SB_BF16, false);
    assert_int_equal(flash_hopper_backward_takes(&narrower, FLASH_BACKWARD_LARGE), SB_UNSUPPORTED);
    assert_int_equal(flash_hopper_backward_takes(&narrower, FLASH_BACKWARD_TALL), SB_UNSUPPORTED);
}

/* Values of another width: the large backward of 16 bits takes them where either width is above 128, and computes as many columns of
 * each; all else is portable, but the forward of 16 bits. */
TEST(test_value_widths)
{
    static const struct {
        int head_dim, head_dim_v;
        bool fast_backward;
        int columns; /* of the sums of dQ */
    } cases[] = {{192, 128, true, 192}, {192, 64, true, 192}, {136, 192, true, 192}, {128, 256, true, 256},
                 {256, 128, true, 256}, {128, 64, false, 0},  {64, 128, false, 0},   {96, 64, false, 0}};
    sb_context ctx = {.cc_major = 9, .sm_count = 132};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = 0; kind < 5; kind++) {
            sb_attention a = of_width(cases[i].head_dim, SB_BF16, false);
            a.head_dim_v = cases[i].head_dim_v;
            a.deterministic = kind == 1, a.windowed = kind == 2, a.packed = kind == 3;
            a.documents = a.packed ? 1 : 0;
            if (kind == 4)
                a.dtype = SB_FP32;
            const bool above = cases[i].head_dim > 128 || cases[i].head_dim_v > 128;
            assert_int_equal(answer("flash", 9, 0, a), kind == 4 && above ? SB_UNSUPPORTED : SB_OK);
            assert_int_equal(answer("flash_portable", 8, 0, a), kind == 4 && above ? SB_UNSUPPORTED : SB_OK);
            const size_t bytes = sb_flash_op.backward_workspace(&ctx, &a);
            if (kind == 3 && cases[i].fast_backward) /* its query blocks are numbered with gaps */
                assert_true(bytes >= 512 * 2 + (size_t)2 * 64 * cases[i].columns * 4 + 256 + 256);
            else if (kind < 3 && cases[i].fast_backward) /* lse2, delta, sums, a counter, orders */
                assert_int_equal(bytes, 512 * 2 + (size_t)2 * 64 * cases[i].columns * 4 + 256 + 256);
            else
                assert_int_equal(bytes, sb_flash_portable_op.backward_workspace(&ctx, &a));
        }
    sb_attention a = of_width(64, SB_FP32, false);
    a.head_dim_v = 136;
    assert_int_equal(answer("flash", 9, 0, a), SB_UNSUPPORTED);
    assert_string_equal(sb_last_message(), "head_dim_v 136 is above 128, the most that flash takes of 32-bit elements");
}

/* Both passes refuse, too, before they look at the device. */
TEST(test_calls_refuse)
{
    static const char *const ops[] = {"flash", "flash_portable"};
    sb_context ctx = {.cc_major = 9};
    for (int i = 0; i < 2; i++) {
        const sb_attention_op *flash = sb_attention_find(sb_kernels_cuda(), ops[i]);
        const sb_attention fp32 = of_width(136, SB_FP32, false), bf16 = of_width(136, SB_BF16, false);
        assert_int_equal(flash->forward(&ctx, &fp32, NULL), SB_UNSUPPORTED);
        assert_int_equal(flash->backward(&ctx, &fp32, NULL), SB_UNSUPPORTED);
        assert_string_equal(sb_last_message(),
                            "head_dim 136 is above 128, the most that flash takes of 32-bit elements");
        assert_int_equal(flash->forward(&ctx, &bf16, NULL), SB_INVALID); /* the width is right, and q is NULL */
        assert_int_equal(flash->backward(&ctx, &bf16, NULL), SB_INVALID);
        assert_string_equal(sb_last_message(), "q is NULL");
    }
}

TEST(test_too_wide)
{
    static const struct {
        const char *op;
        int major, minor, head_dim;
        sb_dtype dtype;
    } none[] = {{"flash", 9, 0, 256, SB_FP32},          {"flash", 9, 0, 256, SB_TF32},
                {"flash", 8, 0, 136, SB_BF16X3},        {"flash_portable", 9, 0, 136, SB_TF32},
                {"flash_portable", 8, 9, 136, SB_FP32}, {"flash", 9, 0, 264, SB_BF16},
                {"flash", 9, 0, 140, SB_BF16},          {"unfused", 9, 0, 264, SB_BF16}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        for (int alone = 0; alone < 2; alone++) {
            const sb_attention a = of_width(none[i].head_dim, none[i].dtype, alone);
            assert_int_equal(answer(none[i].op, none[i].major, none[i].minor, a), SB_UNSUPPORTED);
            assert_non_null(strstr(sb_last_message(), "head_dim"));
        }
}

/* The products of unfused and fused take every width both ways. */
TEST(test_matrices)
{
    for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++) {
        assert_int_equal(answer("unfused", 9, 0, of_width(256, dtype, false)), SB_OK);
        assert_int_equal(answer("fused", 8, 0, of_width(256, dtype, false)), SB_OK);
    }
    assert_int_equal(answer("unfused", 9, 0, of_width(64, SB_BF16X3, false)), SB_UNSUPPORTED);
    assert_int_equal(answer("fused", 9, 0, of_width(64, SB_BF16X3, false)), SB_UNSUPPORTED);
}

#else
int main(void)
{
    return skip_program();
}
#endif
