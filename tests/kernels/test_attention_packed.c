/* SPDX-License-Identifier: MIT */
/* Packed documents on the CPU: the reference of them together is that of each alone, bit by bit; every op against it; documents
 * without queries or keys; arrays that are refused. */
#include "tests/support/attention_problem.h"
#include "tests/support/test.h"

/* Some documents are longer than a tile, some have no queries, no keys or neither, one has more queries than keys. */
static const int some_q[] = {0, 0, 70, 71, 71, 100, 230, 230}, some_k[] = {0, 5, 75, 140, 140, 140, 170, 170};
enum { DOCUMENTS = sizeof some_q / sizeof *some_q - 1, Q_TOKENS = 230, K_TOKENS = 170 };

static const sb_attention shape_of_some = {.batch = 1,
                                           .heads = 4,
                                           .heads_kv = 2,
                                           .seq_q = Q_TOKENS,
                                           .seq_k = K_TOKENS,
                                           .head_dim = 24,
                                           .dtype = SB_FP32,
                                           .packed = true,
                                           .documents = DOCUMENTS,
                                           .cu_seqlens_q = some_q,
                                           .cu_seqlens_k = some_k};

static void advance(sb_tensor *t, int rows)
{
    t->data = (float *)t->data + rows * t->stride_s;
}

/* Document i of the packed problem as a problem of its own. */
static sb_attention document(const sb_attention *a, int i)
{
    sb_attention one = *a;
    const int q = a->cu_seqlens_q[i], k = a->cu_seqlens_k[i];
    one.packed = false;
    one.seq_q = a->cu_seqlens_q[i + 1] - q, one.seq_k = a->cu_seqlens_k[i + 1] - k;
    advance(&one.q, q), advance(&one.d_o, q), advance(&one.k, k), advance(&one.v, k);
    return one;
}

/* One query row and one key row of a document alone, against those of all documents together. */
static void compare_row(const problem *p, sb_attention *one, sb_context *ctx, int i, int bh, int row)
{
    enum { D = 24 };
    const int bh_kv = bh / 2, q_row = row % one->seq_q, k_row = row % one->seq_k;
    double o[D], dq[D], dk[D], dv[D], lse;
    const sb_attention_rows rows = {1, &bh, &q_row, &bh_kv, &k_row, o, dq, dk, dv, &lse, NULL, NULL};
    assert_int_equal(sb_kernels_cpu()->reference(ctx, one, &rows, NULL), SB_OK);
    const size_t query = (size_t)bh * Q_TOKENS + (size_t)(some_q[i] + q_row),
                 key = (size_t)bh_kv * K_TOKENS + (size_t)(some_k[i] + k_row);
    assert_true(lse == p->expected_lse[query]);
    assert_memory_equal(o, p->expected[OUTPUT_O] + query * D, sizeof o);
    assert_memory_equal(dq, p->expected[OUTPUT_DQ] + query * D, sizeof dq);
    assert_memory_equal(dk, p->expected[OUTPUT_DK] + key * D, sizeof dk);
    assert_memory_equal(dv, p->expected[OUTPUT_DV] + key * D, sizeof dv);
}

/* Where either side of a document is empty, the other gives zeros. */
static void expect_zeros(const problem *p, int i)
{
    for (int h = 0; h < 4; h++)
        for (int row = some_q[i]; row < some_q[i + 1]; row++) {
            assert_true(p->expected_lse[h * Q_TOKENS + row] == -INFINITY);
            for (int c = 0; c < 24; c++)
                assert_true(p->expected[OUTPUT_O][(h * Q_TOKENS + row) * 24 + c] == 0 &&
                            p->expected[OUTPUT_DQ][(h * Q_TOKENS + row) * 24 + c] == 0);
        }
    for (int h = 0; h < 2; h++)
        for (int row = some_k[i]; row < some_k[i + 1]; row++)
            for (int c = 0; c < 24; c++)
                assert_true(p->expected[OUTPUT_DK][(h * K_TOKENS + row) * 24 + c] == 0 &&
                            p->expected[OUTPUT_DV][(h * K_TOKENS + row) * 24 + c] == 0);
}

static void compare_with_each_alone(problem *p)
{
    sb_context *ctx = NULL;
    assert_int_equal(sb_kernels_cpu()->create(0, &ctx), SB_OK);
    for (int i = 0; i < DOCUMENTS; i++) {
        sb_attention one = document(&p->a, i);
        if (one.seq_q == 0 || one.seq_k == 0) {
            expect_zeros(p, i);
            continue;
        }
        one.workspace_bytes = sb_kernels_cpu()->reference_workspace(ctx, &one, true);
        one.workspace = xmalloc(one.workspace_bytes);
        for (int bh = 0; bh < 4; bh++)
            for (int row = 0; row < one.seq_q || row < one.seq_k; row += row < 3 ? 1 : 5)
                compare_row(p, &one, ctx, i, bh, row);
        free(one.workspace);
    }
    sb_kernels_cpu()->destroy(ctx);
}

static const int masks[][3] = {{0, -1, -1}, {1, -1, -1}, {1, 20, -1}, {0, 7, 33}, {0, -1, 0}}; /* causal, left, right */
enum { MASKS = sizeof masks / sizeof *masks };

static void with_mask(sb_attention *a, int i)
{
    a->causal = masks[i][0];
    a->windowed = masks[i][1] >= 0 || masks[i][2] >= 0;
    a->window_left = masks[i][1], a->window_right = masks[i][2];
}

TEST(test_each_alone)
{
    for (int i = 0; i < MASKS; i++) {
        sb_attention shape = shape_of_some;
        with_mask(&shape, i);
        OWNED_PROBLEM problem *p = problem_create(&shape, i % LAYOUT_COUNT, 50 + (uint64_t)i);
        problem_reference(p);
        compare_with_each_alone(p);
    }
}

TEST(test_every_op)
{
    static const int heads[][2] = {{4, 2}, {3, 3}, {6, 1}};
    for (int i = 0; i < MASKS; i++)
        for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++) {
            sb_attention shape = shape_of_some;
            with_mask(&shape, i);
            shape.dtype = dtype, shape.head_dim = dtype % 2 ? 64 : 16;
            shape.heads = heads[(i + dtype) % 3][0], shape.heads_kv = heads[(i + dtype) % 3][1];
            OWNED_PROBLEM problem *p = problem_create(&shape, (i + dtype) % LAYOUT_COUNT, 70 + (uint64_t)i);
            problem_reference(p);
            for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
                problem_run(p, op);
                problem_check(p, op->name);
            }
        }
}

/* One document is the same as none, bit by bit. */
TEST(test_one_document)
{
    static const int begin[] = {0, 130};
    for (int causal = 0; causal < 2; causal++) {
        sb_attention shape = {
            .batch = 1, .heads = 2, .heads_kv = 1, .seq_q = 130, .seq_k = 130, .head_dim = 32, .causal = causal};
        OWNED_PROBLEM problem *plain = problem_create(&shape, LAYOUT_BSHD, 9);
        shape.packed = true, shape.documents = 1, shape.cu_seqlens_q = shape.cu_seqlens_k = begin;
        OWNED_PROBLEM problem *packed = problem_create(&shape, LAYOUT_BSHD, 9);
        for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
            problem_run(plain, op);
            problem_run(packed, op);
            assert_memory_equal(plain->lse, packed->lse, plain->lse_count * sizeof *plain->lse);
            for (int id = OUTPUT_O; id < TENSOR_COUNT; id++)
                assert_memory_equal(plain->tensor[id].bytes, packed->tensor[id].bytes, plain->tensor[id].buffer_bytes);
        }
    }
}

TEST(test_refusals)
{
    static const struct {
        int q[4];
        const char *says;
    } bad[] = {{{1, 5, 10, 230}, "cu_seqlens_q goes from 1"},
               {{0, 5, 10, 229}, "cu_seqlens_q goes from 0 to 229, not from 0 to 230"},
               {{0, 15, 10, 230}, "cu_seqlens_q falls from 15 to 10 behind document 1"}};
    static const int good[] = {0, 5, 10, 170};
    char saved[64];
    for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
        sb_attention a = shape_of_some;
        a.documents = 3, a.cu_seqlens_k = good, a.saved = saved;
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            a.cu_seqlens_q = bad[i].q;
            assert_int_equal(op->supported(NULL, &a), SB_OK); /* looks at no pointer */
            assert_int_equal(op->forward(NULL, &a, NULL), SB_INVALID);
            assert_non_null(strstr(sb_last_message(), bad[i].says));
            assert_int_equal(op->backward(NULL, &a, NULL), SB_INVALID);
        }
        a.cu_seqlens_q = NULL;
        assert_int_equal(op->forward(NULL, &a, NULL), SB_INVALID);
        assert_non_null(strstr(sb_last_message(), "cu_seqlens_q is NULL"));
        a = shape_of_some, a.saved = saved, a.cu_seqlens_k = some_q;
        assert_int_equal(op->forward(NULL, &a, NULL), SB_INVALID);
        assert_non_null(strstr(sb_last_message(), "cu_seqlens_k goes from 0 to 230, not from 0 to 170"));
        a = shape_of_some, a.batch = 2;
        assert_int_equal(op->supported(NULL, &a), SB_INVALID);
        assert_non_null(strstr(sb_last_message(), "one batch entry"));
        a.batch = 1, a.documents = 0;
        assert_int_equal(op->supported(NULL, &a), SB_INVALID);
    }
    sb_attention a = shape_of_some;
    const sb_attention_rows none = {0};
    a.cu_seqlens_k = NULL;
    assert_int_equal(sb_kernels_cpu()->reference(NULL, &a, &none, NULL), SB_INVALID);
}
