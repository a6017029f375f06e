/* SPDX-License-Identifier: MIT */
/* Arguments that the training ops refuse, each with its sentence. Every check starts from arguments that are accepted,
 * with one of them made wrong. */
#include "tests/support/train_problem.h"

#include <math.h>

static float buffer[64];
static int32_t ids[4];

/* Sets one field of a copy of `valid`, calls the op, and expects the refusal. */
#define REFUSED(op, valid, change, part)                                                                               \
    do {                                                                                                               \
        __typeof__(valid) p = (valid);                                                                                 \
        p.change;                                                                                                      \
        expect_refused(train_ops()->op(NULL, &p, NULL), SB_INVALID, part);                                             \
    } while (0)

TEST(test_matmul)
{
    sb_matmul valid = {.dtype = SB_BF16,
                       .dtype_out = SB_FP32,
                       .m = 2,
                       .n = 3,
                       .k = 4,
                       .lda = 4,
                       .ldb = 3,
                       .ldc = 3,
                       .ldd = 3,
                       .a = buffer,
                       .b = buffer + 16,
                       .c = buffer + 32,
                       .d = buffer + 32};
    expect_ok(train_ops()->matmul(NULL, &valid, NULL));
    REFUSED(matmul, valid, dtype = 4, "dtype 4");
    REFUSED(matmul, valid, dtype_out = SB_FP16, "dtype_out 1");
    REFUSED(matmul, valid, split = SB_FP16X3, "split");
    REFUSED(matmul, valid, split = (sb_fp32_products)3, "split 3 is none of");
    REFUSED(matmul, valid, m = 0, "at least 1");
    REFUSED(matmul, valid, k = -1, "at least 1");
    REFUSED(matmul, valid, lda = 3, "lda 3");
    REFUSED(matmul, valid, ldb = 2, "ldb 2");
    REFUSED(matmul, valid, transpose_b = true, "ldb 3 is less than the 4");
    REFUSED(matmul, valid, ldd = 2, "ldd 2");
    REFUSED(matmul, valid, ldc = 2, "ldc 2");
    REFUSED(matmul, valid, ldc = 4, "must be equal");
    REFUSED(matmul, valid, a = NULL, "a is missing");
    REFUSED(matmul, valid, b = NULL, "b is missing");
    REFUSED(matmul, valid, d = NULL, "d is missing");
}

TEST(test_float8_matmul)
{
    sb_matmul valid = {.dtype = SB_E4M3,
                       .dtype_b = SB_E5M2,
                       .dtype_out = SB_BF16,
                       .transpose_b = true,
                       .m = 2,
                       .n = 3,
                       .k = 4,
                       .lda = 4,
                       .ldb = 4,
                       .ldd = 3,
                       .a = buffer,
                       .b = buffer + 16,
                       .d = buffer + 32,
                       .scaling_a = SB_SCALE_ROW,
                       .scaling_b = SB_SCALE_ROW,
                       .scale_a = buffer + 40,
                       .scale_b = buffer + 44,
                       .sums = SB_SUMS_FAST};
    expect_ok(train_ops()->matmul(NULL, &valid, NULL));
    REFUSED(matmul, valid, dtype = SB_E5M2, "one of them e4m3");
    REFUSED(matmul, valid, dtype_b = SB_BF16, "dtype_b 0");
    REFUSED(matmul, valid, dtype_out = SB_E4M3, "dtype_out 5");
    REFUSED(matmul, valid, transpose_b = false, "only transpose_b");
    REFUSED(matmul, valid, transpose_a = true, "only transpose_b");
    REFUSED(matmul, valid, scaling_b = SB_SCALE_TENSOR, "do not go together");
    REFUSED(matmul, valid, scaling_a = SB_SCALE_NONE, "do not go together");
    REFUSED(matmul, valid, sums = (sb_float8_sums)2, "sums 2");
    REFUSED(matmul, valid, scale_b = NULL, "scale_b is missing");
    valid.scaling_a = SB_SCALE_1X128, valid.scaling_b = SB_SCALE_128X128, valid.sums = SB_SUMS_EXACT;
    expect_ok(train_ops()->matmul(NULL, &valid, NULL));
    REFUSED(matmul, valid, sums = SB_SUMS_FAST, "sums are exact");
    REFUSED(matmul, valid, scaling_a = SB_SCALE_128X128, "do not go together");
}

TEST(test_casts)
{
    uint32_t words[8];
    sb_amax largest = {.dtype = SB_FP32, .rows = 2, .columns = 4, .ld = 4, .x = buffer, .of_all = words};
    expect_ok(train_ops()->amax(NULL, &largest, NULL));
    REFUSED(amax, largest, dtype = SB_TF32, "dtype 2");
    REFUSED(amax, largest, ld = 3, "ld 3");
    REFUSED(amax, largest, x = NULL, "x is missing");
    sb_quantize valid = {.dtype = SB_FP32,
                         .format = SB_E4M3,
                         .scaling = SB_SCALE_TENSOR,
                         .rows = 2,
                         .columns = 4,
                         .ld = 4,
                         .x = buffer,
                         .amax = words,
                         .y = buffer + 16,
                         .ld_y = 4,
                         .scales = buffer + 24,
                         .y_t = buffer + 32,
                         .ld_t = 2,
                         .scales_t = buffer + 40};
    expect_ok(train_ops()->quantize(NULL, &valid, NULL));
    REFUSED(quantize, valid, format = SB_BF16, "format 0");
    REFUSED(quantize, valid, scaling = SB_SCALE_NONE, "scaling 0");
    REFUSED(quantize, valid, ld_y = 3, "ld_y 3");
    REFUSED(quantize, valid, ld_t = 1, "ld_t 1");
    REFUSED(quantize, valid, scales_t = NULL, "scales_t is missing");
    REFUSED(quantize, valid, amax = NULL, "amax is missing");
    REFUSED(quantize, valid, scaling = SB_SCALE_ROW, "amax_t is missing");
    REFUSED(quantize, valid, y = p.y_t = NULL, "nothing to write");
    sb_codes codes = {SB_SCALE_128X128, 16, 32, buffer, buffer, buffer, buffer};
    REFUSED(transpose_codes, codes, scaling = SB_SCALE_ROW, "scaling 2");
    REFUSED(transpose_codes, codes, columns = 24, "columns 24");
    REFUSED(transpose_codes, codes, scales_t = NULL, "scales_t is missing");
}

TEST(test_rmsnorm)
{
    sb_rmsnorm valid = {.dtype = SB_FP32,
                        .dtype_param = SB_FP32,
                        .dtype_grad = SB_FP32,
                        .rows = 2,
                        .d = 4,
                        .eps = 1e-5f,
                        .x = buffer,
                        .weight = buffer + 8,
                        .y = buffer + 16,
                        .rstd = buffer + 24,
                        .dy = buffer + 32,
                        .dx = buffer + 40,
                        .dweight = buffer + 48};
    expect_ok(train_ops()->rmsnorm_forward(NULL, &valid, NULL));
    expect_ok(train_ops()->rmsnorm_backward(NULL, &valid, NULL));
    REFUSED(rmsnorm_forward, valid, rows = 0, "rows 0");
    REFUSED(rmsnorm_forward, valid, dtype = -1, "dtype -1");
    REFUSED(rmsnorm_forward, valid, dtype_param = 7, "dtype_param 7");
    REFUSED(rmsnorm_forward, valid, eps = -1, "eps");
    REFUSED(rmsnorm_forward, valid, eps = NAN, "eps");
    REFUSED(rmsnorm_forward, valid, x = NULL, "x is missing");
    REFUSED(rmsnorm_forward, valid, rstd = NULL, "rstd is missing");
    REFUSED(rmsnorm_forward, valid, residual = buffer, "needs sum");
    REFUSED(rmsnorm_backward, valid, d = 0, "d 0");
    REFUSED(rmsnorm_backward, valid, dtype_grad = 9, "dtype_grad 9");
    REFUSED(rmsnorm_backward, valid, rstd = NULL, "rstd is missing");
    REFUSED(rmsnorm_backward, valid, dy = NULL, "dy is missing");
    REFUSED(rmsnorm_backward, valid, dweight = NULL, "dweight is missing");
}

TEST(test_rope_and_swiglu)
{
    sb_rope rope = {
        .dtype = SB_FP32, .batch = 1, .seq = 1, .heads = 1, .head_dim = 4, .x = {buffer, 4, 4, 4}, .table = buffer + 8};
    sb_swiglu swiglu = {.dtype = SB_FP32,
                        .rows = 2,
                        .f = 3,
                        .gate_up = buffer,
                        .h = buffer + 16,
                        .dh = buffer + 24,
                        .d_gate_up = buffer + 32};
    expect_ok(train_ops()->rope(NULL, &rope, NULL));
    expect_ok(train_ops()->swiglu_backward(NULL, &swiglu, NULL));
    REFUSED(rope, rope, head_dim = 3, "odd");
    REFUSED(rope, rope, batch = 0, "batch 0");
    REFUSED(rope, rope, heads = 0, "heads 0");
    REFUSED(rope, rope, dtype = 5, "dtype 5");
    REFUSED(rope, rope, x.data = NULL, "x.data is missing");
    REFUSED(rope, rope, table = NULL, "table is missing");
    REFUSED(swiglu_forward, swiglu, f = 0, "f 0");
    REFUSED(swiglu_forward, swiglu, h = NULL, "h is missing");
    REFUSED(swiglu_forward, swiglu, gate_up = NULL, "gate_up is missing");
    REFUSED(swiglu_backward, swiglu, dtype = 4, "dtype 4");
    REFUSED(swiglu_backward, swiglu, dh = NULL, "dh is missing");
    REFUSED(swiglu_backward, swiglu, d_gate_up = NULL, "d_gate_up is missing");
}

TEST(test_tokens)
{
    sb_embedding embedding = {.dtype = SB_FP32,
                              .dtype_grad = SB_FP32,
                              .rows = 2,
                              .vocab = 3,
                              .d = 2,
                              .ids = ids,
                              .table = buffer,
                              .out = buffer + 8,
                              .d_out = buffer + 16,
                              .d_table = buffer + 24,
                              .workspace = buffer + 32,
                              .workspace_bytes = 64};
    sb_cross_entropy loss = {.dtype = SB_FP32,
                             .rows = 2,
                             .vocab = 3,
                             .logits = buffer,
                             .targets = ids,
                             .row_loss = buffer + 8,
                             .loss = buffer + 16};
    expect_ok(train_ops()->embedding_backward(NULL, &embedding, NULL));
    expect_ok(train_ops()->cross_entropy(NULL, &loss, NULL));
    REFUSED(embedding_forward, embedding, vocab = 0, "vocab 0");
    REFUSED(embedding_forward, embedding, ids = NULL, "ids is missing");
    REFUSED(embedding_forward, embedding, out = NULL, "out is missing");
    REFUSED(embedding_backward, embedding, dtype_grad = 4, "dtype_grad 4");
    REFUSED(embedding_backward, embedding, d_table = NULL, "d_table is missing");
    REFUSED(cross_entropy, loss, rows = 0, "rows 0");
    REFUSED(cross_entropy, loss, dtype = 8, "dtype 8");
    REFUSED(cross_entropy, loss, targets = NULL, "targets is missing");
    REFUSED(cross_entropy, loss, row_loss = NULL, "row_loss is missing");
}

TEST(test_optimizer)
{
    sb_optimizer_state o = {.loss_scale = 1, .correction1 = 1, .correction2 = 1, .grad_factor = 1};
    sb_grad_stats stats = {.state = &o, .dtype = SB_FP32, .n = 2, .grad = buffer};
    sb_optimizer_begin begin = {
        .state = &o, .beta1 = 0.9, .beta2 = 0.95, .clip_norm = 1, .dynamic_scale = true, .growth_interval = 1};
    sb_adamw adamw = {.state = &o,
                      .dtype_param = SB_FP32,
                      .dtype_grad = SB_FP32,
                      .dtype_moments = SB_FP32,
                      .n = 2,
                      .param = buffer,
                      .grad = buffer + 8,
                      .m = buffer + 16,
                      .v = buffer + 24,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8};
    expect_ok(train_ops()->adamw(NULL, &adamw, NULL));
    REFUSED(grad_stats, stats, state = NULL, "state is missing");
    REFUSED(grad_stats, stats, grad = NULL, "grad is missing");
    REFUSED(grad_stats, stats, dtype = 4, "dtype 4");
    REFUSED(optimizer_begin, begin, state = NULL, "state is missing");
    REFUSED(optimizer_begin, begin, beta1 = 1, "beta1 1");
    REFUSED(optimizer_begin, begin, clip_norm = -1, "clip_norm");
    REFUSED(optimizer_begin, begin, growth_interval = 0, "growth_interval 0");
    REFUSED(optimizer_begin, begin, rates = buffer, "tables of 0 updates");
    REFUSED(optimizer_begin, begin, norms = buffer, "tables of 0 updates");
    REFUSED(adamw, adamw, state = NULL, "state is missing");
    REFUSED(adamw, adamw, dtype_param = 4, "dtype_param 4");
    REFUSED(adamw, adamw, dtype_grad = 4, "dtype_grad 4");
    REFUSED(adamw, adamw, dtype_moments = 4, "dtype_moments 4");
    REFUSED(adamw, adamw, stochastic = true, "stochastic rounding is for moments in bf16");
    REFUSED(adamw, adamw, master_kind = 3, "master_kind 3");
    REFUSED(adamw, adamw, master_kind = SB_MASTER_SPLIT, "split master");
    REFUSED(adamw, adamw, master_kind = SB_MASTER_FP32, "master is missing");
    REFUSED(adamw, adamw, master = buffer, "a master copy is given");
    REFUSED(adamw, adamw, beta2 = -0.5, "beta2");
    REFUSED(adamw, adamw, eps = NAN, "eps");
    REFUSED(adamw, adamw, weight_decay = INFINITY, "weight_decay");
    REFUSED(adamw, adamw, max_blocks = -1, "max_blocks");
    REFUSED(adamw, adamw, v = NULL, "v is missing");
    sb_adamw nothing = adamw; /* an empty range, as a rank without parameters has */
    nothing.n = 0, nothing.param = NULL;
    expect_ok(train_ops()->adamw(NULL, &nothing, NULL));
}

TEST(test_pieces)
{
    sb_pointwise point = {.op = SB_POINT_ADD,
                          .dtype_a = SB_FP32,
                          .dtype_b = SB_FP32,
                          .dtype_out = SB_FP32,
                          .rows = 2,
                          .columns = 3,
                          .lda = 3,
                          .ldb = 4,
                          .ld_out = 3,
                          .a = buffer,
                          .b = buffer + 16,
                          .out = buffer + 32};
    sb_reduce reduce = {
        .dtype = SB_FP32, .dtype_out = SB_FP32, .rows = 2, .columns = 3, .ld = 3, .x = buffer, .out = buffer + 8};
    expect_ok(train_ops()->pointwise(NULL, &point, NULL));
    expect_ok(train_ops()->reduce(NULL, &reduce, NULL));
    REFUSED(pointwise, point, op = SB_POINT_LOG + 1, "no op");
    REFUSED(pointwise, point, columns = 0, "columns 0");
    REFUSED(pointwise, point, dtype_a = 4, "dtype_a 4");
    REFUSED(pointwise, point, dtype_b = 4, "dtype_b 4");
    REFUSED(pointwise, point, lda = 2, "lda 2");
    REFUSED(pointwise, point, ldb = 2, "ldb 2");
    REFUSED(pointwise, point, ld_out = 2, "ld_out 2");
    REFUSED(pointwise, point, spread_b = 4, "spread_b 4");
    REFUSED(pointwise, point, b = NULL, "b is missing");
    REFUSED(pointwise, point, out = NULL, "out is missing");
    REFUSED(pointwise, point, out = buffer + 16, "out is b");
    sb_pointwise in_place = point;
    in_place.out = buffer;
    REFUSED(pointwise, in_place, lda = 5, "out is a");
    REFUSED(pointwise, in_place, dtype_out = SB_BF16, "out is a");
    in_place.out = buffer + 16;
    REFUSED(pointwise, in_place, spread_b = SB_SPREAD_ROW, "out may be b only");
    REFUSED(reduce, reduce, rows = 0, "rows 0");
    REFUSED(reduce, reduce, ld = 2, "ld 2");
    REFUSED(reduce, reduce, dtype_out = 4, "dtype_out 4");
    REFUSED(reduce, reduce, x = NULL, "x is missing");
}
