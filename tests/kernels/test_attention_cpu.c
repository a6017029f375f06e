/* SPDX-License-Identifier: MIT */
/* The CPU backend: every attention op against the fp64 reference over odd shapes, the reference against finite
 * differences, fully masked rows, refused arguments, and the small ops. */
#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "kernels/shared/internal.h"
#include "tests/support/attention_problem.h"
#include "tests/support/test.h"

static void every_op(const sb_attention *shape, problem_layout layout, uint64_t seed)
{
    OWNED_PROBLEM problem *p = problem_create(shape, layout, seed);
    problem_reference(p);
    for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
        problem_run(p, op);
        problem_check(p, op->name);
    }
}

/* Every sequence pair, mask and dtype; head_dim, heads, layout and scale alternate. */
TEST(test_odd_shapes)
{
    static const int sequences[][2] = {{1, 1},  {17, 17}, {63, 63},  {64, 64},  {65, 65},  {129, 129},
                                       {1, 65}, {64, 65}, {17, 129}, {63, 130}, {129, 17}, {65, 1}};
    static const int head_dims[] = {16, 24, 80, 128};
    static const int heads[][3] = {{2, 1, 1}, {1, 6, 2}, {1, 8, 1}, {2, 4, 2}, {1, 3, 3}}; /* B, H, Hkv */
    uint64_t seed = 0;
    for (size_t s = 0; s < sizeof sequences / sizeof *sequences; s++)
        for (int causal = 0; causal < 2; causal++)
            for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
                for (int nth = 0; nth < 2; nth++, seed++) {
                    const int *head = heads[seed % 5];
                    sb_attention shape = {.batch = head[0],
                                          .heads = head[1],
                                          .heads_kv = head[2],
                                          .seq_q = sequences[s][0],
                                          .seq_k = sequences[s][1],
                                          .head_dim = head_dims[(dtype + s + 2 * nth) % 4],
                                          .dtype = dtype,
                                          .causal = causal,
                                          .scale = seed % 7 == 6 ? 0.1f : 0};
                    every_op(&shape, seed % LAYOUT_COUNT, seed);
                }
}

/* Sliding windows of every op, and the reference against sums over the pairs that the definition leaves. */
static void window_reference(problem *p)
{
    const sb_attention *a = &p->a;
    const int d = a->head_dim, d_v = sb_head_dim_v(a);
    const double scale = 1 / sqrt(d);
    OWNED double *weight = xcalloc((size_t)a->seq_k, sizeof *weight);
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->seq_q; i++) {
                const size_t row = ((size_t)b * a->heads + h) * a->seq_q + i;
                const size_t keys = ((size_t)b * a->heads_kv + h / (a->heads / a->heads_kv)) * a->seq_k;
                double sum = 0, o[SB_HEAD_DIM_MAX] = {0};
                for (int j = 0; j < a->seq_k; j++) {
                    const int after = j - (i + a->seq_k - a->seq_q); /* the position of i */
                    const bool seen = (!a->causal || after <= 0) && (a->window_left < 0 || -after <= a->window_left) &&
                                      (a->window_right < 0 || after <= a->window_right);
                    double score = 0;
                    for (int c = 0; c < d; c++)
                        score += p->tensor[INPUT_Q].values[row * d + c] * p->tensor[INPUT_K].values[(keys + j) * d + c];
                    weight[j] = seen ? exp(scale * score) : 0;
                    sum += weight[j];
                    for (int c = 0; c < d_v; c++)
                        o[c] += weight[j] * p->tensor[INPUT_V].values[(keys + j) * d_v + c];
                }
                assert_true(sum > 0 ? fabs(p->expected_lse[row] - log(sum)) < 1e-9 : p->expected_lse[row] == -INFINITY);
                for (int c = 0; c < d_v; c++)
                    assert_true(fabs(p->expected[OUTPUT_O][row * d_v + c] - (sum > 0 ? o[c] / sum : 0)) < 1e-9);
            }
}

TEST(test_windows)
{
    static const int sequences[][2] = {{65, 65}, {130, 130}, {17, 129}, {129, 17}, {63, 200}, {200, 200}};
    static const int windows[][3] = {
        {0, 0, 1},   {0, 0, 0},   {1, -1, 1},  {63, -1, 1}, {64, 0, 1},   {20, 7, 0},
        {70, 90, 0}, {-1, 30, 0}, {30, -1, 0}, {3, 3, 0},   {500, 500, 0}}; /* causal last */
    uint64_t seed = 400;
    for (size_t s = 0; s < sizeof sequences / sizeof *sequences; s++)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++, seed++) {
            sb_attention shape = {.batch = 1 + (int)w % 2,
                                  .heads = 2,
                                  .heads_kv = 1 + (int)s % 2,
                                  .seq_q = sequences[s][0],
                                  .seq_k = sequences[s][1],
                                  .head_dim = w % 3 ? 16 : 40,
                                  .dtype = seed % 2 ? SB_FP32 : SB_BF16,
                                  .causal = windows[w][2],
                                  .windowed = true,
                                  .window_left = windows[w][0],
                                  .window_right = windows[w][1]};
            problem *p = problem_create(&shape, seed % LAYOUT_COUNT, seed);
            problem_reference(p);
            window_reference(p);
            problem_free(p);
            every_op(&shape, seed % LAYOUT_COUNT, seed);
        }
}

TEST(test_wide_heads)
{
    static const int head_dims[] = {136, 192, 256};
    for (int i = 0; i < 12; i++) {
        sb_attention shape = {.batch = 1 + i % 2,
                              .heads = 4,
                              .heads_kv = 2,
                              .seq_q = 65,
                              .seq_k = i % 2 ? 65 : 131,
                              .head_dim = head_dims[i % 3],
                              .dtype = i / 3,
                              .causal = i % 4 < 2};
        every_op(&shape, i % LAYOUT_COUNT, 100 + (uint64_t)i);
    }
}

/* Values narrower and wider than queries and keys, against the reference, which is held against the definition. */
TEST(test_value_widths)
{
    static const int widths[][2] = {{192, 128}, {64, 128}, {24, 16}, {16, 72}, {96, 64}, {40, 256}};
    for (int i = 0; i < 24; i++) {
        const int seq_k = i % 2 ? 65 : 131;
        const int ends[] = {0, 20, 20, 65}, ends_k[] = {0, 30, 40, seq_k};
        sb_attention shape = {.batch = i / 6 == 3 ? 1 : 1 + i % 2,
                              .heads = 4,
                              .heads_kv = i % 3 ? 2 : 4,
                              .seq_q = 65,
                              .seq_k = seq_k,
                              .head_dim = widths[i % 6][0],
                              .head_dim_v = widths[i % 6][1],
                              .dtype = i % 4,
                              .causal = i % 4 < 2,
                              .windowed = i / 6 == 2,
                              .window_left = 17,
                              .window_right = -1,
                              .packed = i / 6 == 3,
                              .documents = 3,
                              .cu_seqlens_q = ends,
                              .cu_seqlens_k = ends_k};
        if (!shape.packed) {
            shape.windowed = true; /* of all keys, where no other is meant */
            if (i / 6 != 2)
                shape.window_left = -1;
            OWNED_PROBLEM problem *p = problem_create(&shape, i % LAYOUT_COUNT, 200 + (uint64_t)i);
            problem_reference(p);
            window_reference(p);
        }
        every_op(&shape, i % LAYOUT_COUNT, 200 + (uint64_t)i);
    }
}

/* Scores far from zero: softmax must subtract the maximum, also when it grows from tile to tile. */
TEST(test_large_scores)
{
    sb_attention shape = {
        .batch = 1, .heads = 1, .heads_kv = 1, .seq_q = 70, .seq_k = 200, .head_dim = 64, .dtype = SB_FP32, .scale = 1};
    OWNED_PROBLEM problem *p = problem_create(&shape, LAYOUT_BHSD, 7);
    OWNED float *k = xmalloc(p->tensor[INPUT_K].count * sizeof *k);
    for (size_t i = 0; i < p->tensor[INPUT_K].count; i++) /* rows grow to 8 times their size */
        k[i] = (float)p->tensor[INPUT_K].values[i] * (1 + 7 * (float)(i / 64) / 200);
    problem_set(p, INPUT_K, k);
    problem_reference(p);
    for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
        problem_run(p, op);
        /* A score of size s carries an absolute error of about 1e-7 s into the exponent. */
        check_bound bound = check_attention_bound("fp32", true);
        double largest = 0;
        for (size_t i = 0; i < p->lse_count; i++)
            largest = fmax(largest, fabs(p->expected_lse[i]));
        assert_true(largest > 100);
        bound.rel_l2 *= 4;
        bound.rel_row *= 4;
        bound.max_abs *= 4;
        for (int id = OUTPUT_O; id < TENSOR_COUNT; id++)
            expect_close(p->expected[id], p->tensor[id].values, p->tensor[id].count, 64, bound, op->name, p->name);
    }
}

TEST(test_blind_rows)
{
    enum { SEQ_Q = 70, SEQ_K = 3, D = 16, BLIND = SEQ_Q - SEQ_K };
    for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++) {
        sb_attention shape = {.batch = 1,
                              .heads = 2,
                              .heads_kv = 1,
                              .seq_q = SEQ_Q,
                              .seq_k = SEQ_K,
                              .head_dim = D,
                              .dtype = dtype,
                              .causal = true};
        OWNED_PROBLEM problem *p = problem_create(&shape, LAYOUT_BSHD, 11);
        problem_reference(p);
        for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
            problem_run(p, op);
            problem_check(p, op->name);
            for (int h = 0; h < 2; h++)
                for (int i = 0; i < BLIND; i++) {
                    assert_true(p->lse[h * SEQ_Q + i] == -INFINITY);
                    for (int j = 0; j < D; j++) {
                        size_t at = ((size_t)h * SEQ_Q + i) * D + j;
                        assert_true(p->tensor[OUTPUT_O].values[at] == 0);
                        assert_true(p->tensor[OUTPUT_DQ].values[at] == 0);
                    }
                }
        }
    }
}

/* Sum of O * dO by the reference: the loss whose gradients backward gives. */
static double loss(problem *p)
{
    double sum = 0;
    problem_reference(p);
    for (size_t i = 0; i < p->tensor[OUTPUT_O].count; i++)
        sum += p->expected[OUTPUT_O][i] * p->tensor[INPUT_D_O].values[i];
    return sum;
}

/* Central differences of the loss in every element of an input. */
static double *numeric_gradient(problem *p, int input)
{
    size_t n = p->tensor[input].count;
    OWNED float *x = xmalloc(n * sizeof *x);
    double *gradient = xmalloc(n * sizeof *gradient);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)p->tensor[input].values[i];
    for (size_t i = 0; i < n; i++) {
        const float middle = x[i], above = middle + 0x1p-9f, below = middle - 0x1p-9f;
        x[i] = above;
        problem_set(p, input, x);
        gradient[i] = loss(p);
        x[i] = below;
        problem_set(p, input, x);
        gradient[i] = (gradient[i] - loss(p)) / ((double)above - below);
        x[i] = middle;
    }
    problem_set(p, input, x);
    return gradient;
}

TEST(test_finite_differences)
{
    static const struct {
        int heads, heads_kv, seq_q, seq_k, causal, windowed, left, right;
    } shapes[] = {{1, 1, 3, 3, 0, 0, 0, 0},
                  {2, 1, 3, 5, 1, 0, 0, 0},
                  {2, 2, 5, 3, 1, 0, 0, 0},
                  {2, 1, 5, 6, 1, 1, 2, -1},
                  {1, 1, 6, 5, 0, 1, 1, 1}};
    static const int pairs[][2] = {{INPUT_Q, OUTPUT_DQ}, {INPUT_K, OUTPUT_DK}, {INPUT_V, OUTPUT_DV}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        sb_attention shape = {.batch = 1,
                              .heads = shapes[s].heads,
                              .heads_kv = shapes[s].heads_kv,
                              .seq_q = shapes[s].seq_q,
                              .seq_k = shapes[s].seq_k,
                              .head_dim = 16,
                              .head_dim_v = s % 2 ? 24 : 0,
                              .dtype = SB_FP32,
                              .causal = shapes[s].causal,
                              .windowed = shapes[s].windowed,
                              .window_left = shapes[s].left,
                              .window_right = shapes[s].right};
        problem *p = problem_create(&shape, LAYOUT_BHSD, 20 + s);
        for (int i = 0; i < 3; i++) {
            OWNED double *gradient = numeric_gradient(p, pairs[i][0]);
            problem_reference(p);
            for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
                problem_run(p, op);
                /* A gradient that is exactly zero comes out of the differences as rounding of the loss. */
                check_bound bound = check_attention_bound("fp32", true);
                const problem_tensor *t = &p->tensor[pairs[i][1]];
                expect_close(gradient, t->values, t->count, t->count, bound, op->name, p->name);
                expect_close(gradient, p->expected[pairs[i][1]], t->count, t->count, bound, "reference", p->name);
            }
        }
        problem_free(p);
    }
}

/* The terms of dq and dk, written out product by product: head h of a batch of one reads keys of head h / 2. */
TEST(test_reference_terms)
{
    enum { D = 16, DV = 24, SEQ = 3, HEADS = 4, ROWS = HEADS * SEQ };
    const sb_attention shape = {.batch = 1,
                                .heads = HEADS,
                                .heads_kv = HEADS / 2,
                                .seq_q = SEQ,
                                .seq_k = SEQ,
                                .head_dim = D,
                                .head_dim_v = DV,
                                .dtype = SB_FP32,
                                .causal = true};
    problem *p = problem_create(&shape, LAYOUT_BHSD, 7);
    const double *q = p->tensor[INPUT_Q].values, *k = p->tensor[INPUT_K].values, *v = p->tensor[INPUT_V].values,
                 *d_o = p->tensor[INPUT_D_O].values;
    double of_query[ROWS] = {0}, of_key[ROWS / 2] = {0};
    problem_reference(p);
    for (int row = 0; row < ROWS; row++)
        for (int key = 0; key <= row % SEQ; key++) {
            const int at = row / SEQ / 2 * SEQ + key;
            double score = 0;
            for (int i = 0; i < D; i++)
                score += q[row * D + i] * k[at * D + i] / sqrt(D);
            const double weight = exp(score - p->expected_lse[row]) / sqrt(D);
            for (int c = 0; c < DV; c++)
                for (int i = 0; i < D; i++) {
                    const double ds = weight * d_o[row * DV + c] * v[at * DV + c];
                    of_query[row] += ds * ds * k[at * D + i] * k[at * D + i];
                    of_key[at] += ds * ds * q[row * D + i] * q[row * D + i];
                }
        }

    int bh[ROWS], q_row[ROWS];
    double dq[ROWS * D], dk[ROWS / 2 * D], dq_terms[ROWS], dk_terms[ROWS / 2];
    for (int row = 0; row < ROWS; row++)
        bh[row] = row / SEQ, q_row[row] = row % SEQ;
    const sb_kernels *cpu = sb_kernels_cpu();
    sb_context *ctx;
    assert_int_equal(cpu->create(0, &ctx), SB_OK);
    p->a.workspace_bytes = cpu->reference_workspace(ctx, &p->a, true);
    p->a.workspace = xmalloc(p->a.workspace_bytes);
    const sb_attention_rows queries = {.n = ROWS, .bh = bh, .q_row = q_row, .dq = dq, .dq_terms = dq_terms},
                            keys = {.n = ROWS / 2, .bh_kv = bh, .k_row = q_row, .dk = dk, .dk_terms = dk_terms};
    assert_int_equal(cpu->reference(ctx, &p->a, &queries, NULL), SB_OK);
    assert_int_equal(cpu->reference(ctx, &p->a, &keys, NULL), SB_OK);
    for (int row = 0; row < ROWS; row++)
        assert_true(fabs(dq_terms[row] - sqrt(of_query[row])) <= 1e-12 * dq_terms[row]);
    for (int row = 0; row < ROWS / 2; row++)
        assert_true(fabs(dk_terms[row] - sqrt(of_key[row])) <= 1e-12 * dk_terms[row]);
    cpu->destroy(ctx);
    free(p->a.workspace);
    problem_free(p);
}

/* Rows asked for one by one, in any order and more than once, are the rows of the whole. */
TEST(test_reference_rows)
{
    enum { D = 24, DV = 16, SEQ_Q = 9, SEQ_K = 14, N = 5 };
    static const int bh[N] = {5, 0, 5, 11, 0}, q_row[N] = {8, 0, 0, 3, 0};
    static const int bh_kv[N] = {3, 0, 1, 0, 3}, k_row[N] = {0, 13, 6, 13, 0};
    double o[N * DV], dq[N * D], dk[N * D], dv[N * DV], lse[N];
    const sb_kernels *cpu = sb_kernels_cpu();
    sb_context *ctx;
    sb_attention shape = {.batch = 2,
                          .heads = 6,
                          .heads_kv = 2,
                          .seq_q = SEQ_Q,
                          .seq_k = SEQ_K,
                          .head_dim = D,
                          .head_dim_v = DV,
                          .dtype = SB_FP16,
                          .causal = true};
    problem *p = problem_create(&shape, LAYOUT_PADDED, 31);
    problem_reference(p);
    assert_int_equal(cpu->create(0, &ctx), SB_OK);
    p->a.workspace_bytes = cpu->reference_workspace(ctx, &p->a, true);
    p->a.workspace = xmalloc(p->a.workspace_bytes);

    sb_attention_rows rows = {N, bh, q_row, bh_kv, k_row, o, dq, dk, dv, lse, NULL, NULL};
    assert_int_equal(cpu->reference(ctx, &p->a, &rows, NULL), SB_OK);
    for (int i = 0; i < N; i++) {
        int query = bh[i] * SEQ_Q + q_row[i], key = bh_kv[i] * SEQ_K + k_row[i];
        assert_true(lse[i] == p->expected_lse[query]);
        assert_memory_equal(o + i * DV, p->expected[OUTPUT_O] + query * DV, DV * sizeof(double));
        assert_memory_equal(dq + i * D, p->expected[OUTPUT_DQ] + query * D, D * sizeof(double));
        assert_memory_equal(dk + i * D, p->expected[OUTPUT_DK] + key * D, D * sizeof(double));
        assert_memory_equal(dv + i * DV, p->expected[OUTPUT_DV] + key * DV, DV * sizeof(double));
    }
    p->a.workspace_bytes--;
    assert_int_equal(cpu->reference(ctx, &p->a, &rows, NULL), SB_NO_MEMORY);
    p->a.workspace_bytes++;
    rows.q_row = k_row; /* 13 is no query row */
    assert_int_equal(cpu->reference(ctx, &p->a, &rows, NULL), SB_INVALID);

    cpu->destroy(ctx);
    free(p->a.workspace);
    problem_free(p);
}

TEST(test_refusals)
{
    static const sb_attention good = {.batch = 1, .heads = 6, .heads_kv = 2, .seq_q = 1, .seq_k = 1, .head_dim = 16};
    static const struct {
        int heads_kv, seq_k, head_dim, dtype;
        float scale;
        sb_status status;
    } bad[] = {
        {4, 1, 16, SB_BF16, 0, SB_INVALID},       {0, 1, 16, SB_BF16, 0, SB_INVALID},
        {2, 0, 16, SB_BF16, 0, SB_INVALID},       {2, 1, 16, 5, 0, SB_INVALID},
        {2, 1, 16, SB_BF16, NAN, SB_INVALID},     {2, 1, 8, SB_BF16, 0, SB_UNSUPPORTED},
        {2, 1, 264, SB_BF16, 0, SB_UNSUPPORTED},  {2, 1, 20, SB_BF16, 0, SB_UNSUPPORTED},
        {2, 1, 16, SB_BF16X3, 0, SB_UNSUPPORTED},
    };
    const sb_kernels *cpu = sb_kernels_cpu();
    for (const sb_attention_op *op = cpu->attention; op->name; op++) {
        assert_ptr_equal(sb_attention_find(cpu, op->name), op);
        assert_int_equal(op->supported(NULL, &good), SB_OK);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            sb_attention a = good;
            a.heads_kv = bad[i].heads_kv;
            a.seq_k = bad[i].seq_k;
            a.head_dim = bad[i].head_dim;
            a.dtype = (sb_dtype)bad[i].dtype;
            a.scale = bad[i].scale;
            assert_int_equal(op->supported(NULL, &a), bad[i].status);
            assert_int_not_equal(strlen(sb_last_message()), 0);
            assert_int_equal(op->forward(NULL, &a, NULL), bad[i].status);
            assert_int_equal(op->backward(NULL, &a, NULL), bad[i].status);
        }
        static const int many[][3] = {{1 << 15, 1 << 14, 4},
                                      {1 << 26, 1, 32}}; /* batch, seq_q, seq_k: 2^31 rows and more */
        for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
            sb_attention a = good;
            a.batch = many[i][0], a.seq_q = many[i][1], a.seq_k = many[i][2];
            assert_int_equal(op->supported(NULL, &a), SB_UNSUPPORTED);
            assert_non_null(strstr(sb_last_message(), "rows"));
        }
        static const int widths[] = {8, 12, 264, -16};
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            sb_attention a = good;
            a.head_dim_v = widths[i];
            assert_int_equal(op->supported(NULL, &a), SB_UNSUPPORTED);
            assert_non_null(strstr(sb_last_message(), "head_dim_v"));
        }
        static const int windows[][3] = {{-2, 0, 0}, {0, -2, 0}, {4, 1, 1}}; /* left, right, causal */
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
            sb_attention a = good;
            a.windowed = true, a.window_left = windows[i][0], a.window_right = windows[i][1], a.causal = windows[i][2];
            assert_int_equal(op->supported(NULL, &a), SB_INVALID);
            assert_non_null(strstr(sb_last_message(), "window"));
            a.windowed = false; /* then nobody looks at the sides */
            assert_int_equal(op->supported(NULL, &a), SB_OK);
        }
        char saved[64];
        sb_attention a = good;
        a.saved = saved;
        assert_int_equal(op->forward(NULL, &a, NULL), SB_NO_MEMORY);
        assert_non_null(strstr(sb_last_message(), "workspace"));
    }
    assert_null(sb_attention_find(cpu, "no such op"));
    sb_context *ctx;
    assert_int_equal(cpu->create(1, &ctx), SB_INVALID);
}

TEST(test_gemm)
{
    static const int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {130, 129, 257}, {64, 200, 300}};
    static const char *const names[] = {"bf16", "fp16", "tf32", "fp32"};
    const sb_kernels *cpu = sb_kernels_cpu();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++) {
            const int m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            /* One tensor through fill_normal in the dtype, the same numbers in fp32 for the expected product. */
            void *a = xmalloc((size_t)m * k * 4), *b = xmalloc((size_t)n * k * 4), *c = xmalloc((size_t)m * n * 4);
            float *x = xmalloc((size_t)m * k * 4), *y = xmalloc((size_t)n * k * 4);
            double *want = xcalloc((size_t)m * n, sizeof *want), *got = xcalloc((size_t)m * n, sizeof *got);
            cpu->fill_normal(NULL, dtype, a, (size_t)m * k, 5, 0, 1, NULL);
            cpu->fill_normal(NULL, dtype, b, (size_t)n * k, 5, 1, 1, NULL);
            rng_normal(x, (size_t)m * k, 5, 0, 0, 1);
            rng_normal(y, (size_t)n * k, 5, 1, 0, 1);
            memset(c, 0xff, (size_t)m * n * 4);
            assert_int_equal(cpu->gemm(NULL, dtype, m, n, k, a, b, c, NULL), SB_OK);
            for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j++) {
                    size_t at = (size_t)i * n + j;
                    for (int l = 0; l < k; l++)
                        want[at] += (double)x[(size_t)i * k + l] * y[(size_t)j * k + l];
                    got[at] = dtype == SB_BF16   ? bf16_to_float(((uint16_t *)c)[at])
                              : dtype == SB_FP16 ? fp16_to_float(((uint16_t *)c)[at])
                                                 : ((float *)c)[at];
                }
            expect_close(want, got, (size_t)m * n, n, check_attention_bound(names[dtype], true), "gemm", names[dtype]);
            free(a), free(b), free(c), free(x), free(y), free(want), free(got);
        }
    assert_int_equal(cpu->gemm(NULL, SB_FP32, 0, 1, 1, NULL, NULL, NULL, NULL), SB_INVALID);
}

TEST(test_fill_and_copy)
{
    enum { N = 2500 };
    static float x[N];
    static uint16_t half[N + 1], other[N + 1];
    const sb_kernels *cpu = sb_kernels_cpu();
    half[N] = other[N] = 0xa5a5;
    rng_normal(x, N, 9, 3, 0, 0.5f);
    assert_int_equal(cpu->fill_normal(NULL, SB_BF16, half, N, 9, 3, 0.5f, NULL), SB_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(half[i], bf16_from_float(x[i]));
    assert_int_equal(cpu->fill_normal_from(NULL, SB_BF16, other, N - 1200, 9, 3, 1200, 0.5f, NULL), SB_OK);
    assert_memory_equal(other, half + 1200, (N - 1200) * sizeof *half);
    assert_int_equal(cpu->copy(NULL, other, half, N * sizeof *half, NULL), SB_OK);
    assert_memory_equal(other, half, sizeof half);
    assert_int_equal(half[N], 0xa5a5);
    assert_int_equal(cpu->nothing(NULL, NULL), SB_OK);
}
