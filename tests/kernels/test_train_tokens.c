/* SPDX-License-Identifier: MIT */
/* Embedding and cross-entropy of the CPU against formulas in double and finite differences. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"
#include "common/core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t *random_ids(int n, int vocab, uint64_t seed)
{
    int32_t *ids = xmalloc(n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_uniform(seed, 0, i) * vocab);
    return ids;
}

/* ---- embedding ---- */

static void one_embedding(sb_dtype t, sb_dtype grad, int rows, int vocab, int d)
{
    const size_t n = (size_t)rows * d;
    OWNED_ARRAY array *table = array_random(t, (size_t)vocab * d, 1, 1), *out = array_poison(t, n),
                      *picked = array_poison(t, n);
    OWNED_ARRAY array *d_out = array_random(t, n, 2, 1), *d_table = array_poison(grad, (size_t)vocab * d);
    OWNED int32_t *ids = random_ids(rows, vocab, 3);
    OWNED double *want = xcalloc((size_t)vocab * d, sizeof *want);
    sb_embedding p = {.dtype = t,
                      .dtype_grad = grad,
                      .rows = rows,
                      .vocab = vocab,
                      .d = d,
                      .ids = ids,
                      .table = table->data,
                      .out = out->data,
                      .d_out = d_out->data,
                      .d_table = d_table->data};
    for (size_t i = 0; i < n; i++) {
        array_set(picked, i, array_get(table, (size_t)ids[i / d] * d + i % d));
        want[(size_t)ids[i / d] * d + i % d] += array_get(d_out, i);
    }
    expect_ok(train_ops()->embedding_forward(NULL, &p, NULL));
    expect_same("embedding", out, picked);

    p.workspace_bytes = train_ops()->embedding_workspace(NULL, &p);
    OWNED_ARRAY array *workspace = array_poison(SB_BF16, p.workspace_bytes / 2),
                      *again = array_poison(grad, d_table->n);
    p.workspace = workspace->data;
    expect_ok(train_ops()->embedding_backward(NULL, &p, NULL));
    expect_rounded("d_table", d_table, want, 1e-7);
    p.d_table = again->data;
    expect_ok(train_ops()->embedding_backward(NULL, &p, NULL));
    expect_same("d_table again", again, d_table);
    OWNED_ARRAY array *onto = array_random(grad, d_table->n, 5, 1);
    for (size_t i = 0; i < d_table->n; i++)
        want[i] += array_get(onto, i);
    p.accumulate = true, p.d_table = onto->data;
    expect_ok(train_ops()->embedding_backward(NULL, &p, NULL));
    expect_rounded("d_table added to", onto, want, 1e-7);
    p.workspace_bytes--;
    expect_refused(train_ops()->embedding_backward(NULL, &p, NULL), SB_NO_MEMORY, "workspace");
}

TEST(test_embedding)
{
    static const int shapes[][3] = {{1, 1, 1}, {40, 7, 33}, {9, 200, 256}, {300, 3, 301}}; /* rows, vocab, d */
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (int grad = SB_BF16; grad <= SB_FP32; grad++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                one_embedding(t, grad, shapes[s][0], shapes[s][1], shapes[s][2]);
}

TEST(test_bad_ids)
{
    int32_t ids[] = {0, 3, 4};
    float table[4 * 2] = {0}, out[3 * 2] = {5}, loss;
    char workspace[64];
    sb_embedding p = {.dtype = SB_FP32,
                      .dtype_grad = SB_FP32,
                      .rows = 3,
                      .vocab = 4,
                      .d = 2,
                      .ids = ids,
                      .table = table,
                      .out = out,
                      .d_out = out,
                      .d_table = table,
                      .workspace = workspace,
                      .workspace_bytes = sizeof workspace};
    expect_refused(train_ops()->embedding_forward(NULL, &p, NULL), SB_INVALID, "id 4 of row 2");
    ids[2] = -1;
    expect_refused(train_ops()->embedding_backward(NULL, &p, NULL), SB_INVALID, "id -1 of row 2");
    sb_cross_entropy c = {.dtype = SB_FP32,
                          .rows = 3,
                          .vocab = 2,
                          .logits = out,
                          .targets = ids,
                          .row_loss = table,
                          .loss = &loss,
                          .backward = true};
    expect_refused(train_ops()->cross_entropy(NULL, &c, NULL), SB_INVALID, "target 3 of row 1");
    assert_true(out[0] == 5); /* refused before anything was written */
}

/* ---- cross-entropy ---- */

/* The loss of one row; probability receives the softmax. */
static double row_loss(const double *x, int vocab, int target, double *probability)
{
    double maximum = -INFINITY, sum = 0;
    for (int i = 0; i < vocab; i++)
        maximum = fmax(maximum, x[i]);
    for (int i = 0; i < vocab; i++)
        sum += exp(x[i] - maximum);
    for (int i = 0; i < vocab; i++)
        probability[i] = exp(x[i] - maximum) / sum;
    return log(sum) + maximum - x[target];
}

static void one_cross_entropy(sb_dtype t, int rows, int vocab, double size, const float *scale)
{
    const size_t n = (size_t)rows * vocab;
    OWNED_ARRAY array *logits = array_random(t, n, 1, size), *before = array_copy(logits);
    OWNED_ARRAY array *losses = array_poison(SB_FP32, rows), *loss = array_poison(SB_FP32, 1);
    OWNED int32_t *targets = random_ids(rows, vocab, 2);
    OWNED double *x = xmalloc(n * sizeof *x), *want = xmalloc(n * sizeof *want), *want_rows = xmalloc(rows * sizeof *x);
    double mean = 0;
    for (size_t i = 0; i < n; i++)
        x[i] = array_get(logits, i);
    for (int r = 0; r < rows; r++) {
        double *row = want + (size_t)r * vocab;
        want_rows[r] = row_loss(x + (size_t)r * vocab, vocab, targets[r], row);
        mean += want_rows[r] / rows;
        row[targets[r]] -= 1;
        for (int i = 0; i < vocab; i++)
            row[i] *= (scale ? *scale : 1.0) / rows;
    }
    sb_cross_entropy p = {.dtype = t,
                          .rows = rows,
                          .vocab = vocab,
                          .logits = logits->data,
                          .targets = targets,
                          .row_loss = losses->data,
                          .loss = loss->data,
                          .scale = scale};
    expect_ok(train_ops()->cross_entropy(NULL, &p, NULL));
    expect_rounded("row_loss", losses, want_rows, 1e-6);
    expect_near("loss", array_get(loss, 0), mean, 1e-6);
    expect_same("logits that are only read", logits, before);
    p.backward = true;
    expect_ok(train_ops()->cross_entropy(NULL, &p, NULL));
    expect_rounded("row_loss", losses, want_rows, 1e-6);
    expect_near("loss", array_get(loss, 0), mean, 1e-6);
    expect_rounded("d_logits", logits, want, 1e-6);
}

TEST(test_cross_entropy)
{
    static const int sizes[] = {1, 2, 37, 256, 1003};
    static const float scale = 1024;
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            one_cross_entropy(t, 7, sizes[s], 2, NULL);
            one_cross_entropy(t, 1, sizes[s], 2, &scale);
            one_cross_entropy(t, 3, sizes[s], 3000, &scale); /* exp of a logit would overflow */
        }
}

enum { ROWS = 2, VOCAB = 5 };
typedef struct loss_problem {
    double x[ROWS * VOCAB];
    int32_t targets[ROWS];
} loss_problem;

static double mean_loss(const void *problem)
{
    const loss_problem *p = problem;
    double mean = 0, probability[VOCAB];
    for (int r = 0; r < ROWS; r++)
        mean += row_loss(p->x + r * VOCAB, VOCAB, p->targets[r], probability) / ROWS;
    return mean;
}

TEST(test_cross_entropy_differences)
{
    loss_problem q = {.targets = {4, 1}};
    float losses[ROWS], loss;
    OWNED_ARRAY array *logits = array_random(SB_FP32, ROWS * VOCAB, 5, 1);
    for (int i = 0; i < ROWS * VOCAB; i++)
        q.x[i] = array_get(logits, i);
    sb_cross_entropy p = {.dtype = SB_FP32,
                          .rows = ROWS,
                          .vocab = VOCAB,
                          .logits = logits->data,
                          .targets = q.targets,
                          .row_loss = losses,
                          .loss = &loss,
                          .backward = true};
    expect_ok(train_ops()->cross_entropy(NULL, &p, NULL));
    for (int i = 0; i < ROWS * VOCAB; i++)
        expect_near("d_logits", array_get(logits, i), slope(mean_loss, &q, &q.x[i]), 1e-6);
}

/* A logit that is not finite shows in the loss and the gradient, where the loss scaling looks for it. */
TEST(test_cross_entropy_nonfinite)
{
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        float logits[3] = {1, bad[i], 2}, row, loss;
        int32_t target = 0;
        sb_cross_entropy p = {.dtype = SB_FP32,
                              .rows = 1,
                              .vocab = 3,
                              .logits = logits,
                              .targets = &target,
                              .row_loss = &row,
                              .loss = &loss,
                              .backward = true};
        expect_ok(train_ops()->cross_entropy(NULL, &p, NULL));
        assert_true(!isfinite(loss) && isnan(logits[0] + logits[1] + logits[2]));
    }
}
