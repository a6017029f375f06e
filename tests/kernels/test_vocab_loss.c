/* SPDX-License-Identifier: MIT */
/* Slices of a vocabulary on the CPU: the embedding's are zero where another has the row, and the loss that ranks make of
 * their columns is that of all columns, padding left out. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"
#include "common/core/rng.h"

#include <stdlib.h>

enum { NUMBERS = 3 };

static int32_t *random_ids(int n, int vocab)
{
    int32_t *ids = xmalloc((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_uniform(7, 0, (uint64_t)i) * vocab);
    return ids;
}

/* Columns [first, first + width) of a, those past its end poison: what a rank has in rows of `width`. */
static array *slice_of(const array *a, int rows, int vocab, int first, int width)
{
    array *s = array_poison(a->dtype, (size_t)rows * (size_t)width);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < width && first + j < vocab; j++)
            array_set(s, (size_t)r * width + j, array_get(a, (size_t)r * vocab + first + j));
    return s;
}

static sb_vocab_loss loss_of(const array *logits, int rows, int vocab, int first, int width, const int32_t *targets)
{
    const int left = vocab - first;
    return (sb_vocab_loss){.dtype = logits->dtype,
                           .rows = rows,
                           .columns = left < 0       ? 0
                                      : left < width ? left
                                                     : width,
                           .ld = width,
                           .first_id = first,
                           .logits = logits->data,
                           .targets = targets};
}

static void one_loss(sb_dtype t, int rows, int vocab, int ranks, double size)
{
    const int width = (vocab + 8 * ranks - 1) / (8 * ranks) * 8 + 8;
    const float scale = 128;
    OWNED_ARRAY array *whole = array_random(t, (size_t)rows * vocab, 3, size);
    OWNED int32_t *targets = random_ids(rows, vocab);
    float *partials = xcalloc((size_t)ranks * rows * NUMBERS, sizeof *partials), loss, part;
    OWNED float *row_loss = xcalloc((size_t)rows, sizeof *row_loss),
                *row_part = xcalloc((size_t)rows, sizeof *row_part);
    OWNED array **own = xcalloc((size_t)ranks, sizeof *own);
    for (int k = 0; k < ranks; k++) {
        own[k] = slice_of(whole, rows, vocab, k * width, width);
        sb_vocab_loss p = loss_of(own[k], rows, vocab, k * width, width, targets);
        p.partial = partials + (size_t)k * rows * NUMBERS;
        expect_ok(train_ops()->vocab_loss_partial(NULL, &p, NULL));
    }
    const sb_cross_entropy want = {.dtype = t,
                                   .rows = rows,
                                   .total_rows = 2 * rows,
                                   .vocab = vocab,
                                   .logits = whole->data,
                                   .targets = targets,
                                   .row_loss = row_loss,
                                   .loss = &loss,
                                   .scale = &scale,
                                   .backward = true};
    expect_ok(train_ops()->cross_entropy(NULL, &want, NULL));
    for (int k = 0; k < ranks; k++) {
        sb_vocab_loss p = loss_of(own[k], rows, vocab, k * width, width, targets);
        p.ranks = ranks, p.partials = partials, p.row_loss = row_part, p.loss = &part, p.scale = &scale;
        p.total_rows = 2 * rows, p.backward = true;
        expect_ok(train_ops()->vocab_loss_finish(NULL, &p, NULL));
        expect_near("loss", part, loss, 2e-6);
        for (int r = 0; r < rows; r++) {
            expect_near("row loss", row_part[r], row_loss[r], 2e-6);
            for (int j = 0; j < width; j++) {
                const int id = k * width + j;
                const double x = id < vocab ? array_get(whole, (size_t)r * vocab + id) : 0;
                expect_near("gradient", array_get(own[k], (size_t)r * width + j), x,
                            id < vocab ? t == SB_FP32 ? 1e-5 : 8e-3 : 0);
            }
        }
        array_free(own[k]);
    }
    free(partials);
}

TEST(loss_of_slices)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        one_loss(SB_FP32, 5, 23, ranks, 3);
        one_loss(SB_BF16, 9, 700, ranks, 3);
        one_loss(SB_FP32, 3, 9, ranks, 3000); /* the last ranks have no column; an exponential would overflow */
    }
}

static void one_embedding(int first, int vocab, int whole_vocab)
{
    enum { ROWS = 40, WIDTH = 33 };
    OWNED_ARRAY array *table = array_random(SB_FP32, (size_t)vocab * WIDTH, 1, 1),
                      *out = array_poison(SB_FP32, ROWS * WIDTH);
    OWNED_ARRAY array *d_out = array_random(SB_FP32, ROWS * WIDTH, 2, 1),
                      *d_table = array_poison(SB_FP32, (size_t)vocab * WIDTH);
    OWNED int32_t *ids = random_ids(ROWS, whole_vocab);
    OWNED double *want = xcalloc((size_t)vocab * WIDTH, sizeof *want);
    sb_embedding p = {.dtype = SB_FP32,
                      .dtype_grad = SB_FP32,
                      .rows = ROWS,
                      .vocab = vocab,
                      .d = WIDTH,
                      .ids = ids,
                      .table = table->data,
                      .out = out->data,
                      .d_out = d_out->data,
                      .d_table = d_table->data,
                      .slice = true,
                      .first_id = first};
    p.workspace_bytes = train_ops()->embedding_workspace(NULL, &p);
    p.workspace = xmalloc(p.workspace_bytes);
    expect_ok(train_ops()->embedding_forward(NULL, &p, NULL));
    expect_ok(train_ops()->embedding_backward(NULL, &p, NULL));
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        const int row = ids[i / WIDTH] - first;
        const bool held = row >= 0 && row < vocab;
        expect_near("embedding", array_get(out, i), held ? array_get(table, (size_t)row * WIDTH + i % WIDTH) : 0, 0);
        if (held)
            want[(size_t)row * WIDTH + i % WIDTH] += array_get(d_out, i);
    }
    expect_rounded("d_table", d_table, want, 1e-7);
    free(p.workspace);
}

TEST(embedding_of_slices)
{
    one_embedding(0, 10, 30);
    one_embedding(10, 10, 30);
    one_embedding(20, 64, 30);
    one_embedding(64, 64, 30); /* none of them */
}

TEST(refused)
{
    float x[16] = {0};
    int32_t target = 0;
    sb_vocab_loss p = {.dtype = SB_FP32, .rows = 1, .columns = 8, .ld = 8, .logits = x, .targets = &target};
    expect_refused(train_ops()->vocab_loss_partial(NULL, &p, NULL), SB_INVALID, "partial is missing");
    expect_refused(train_ops()->vocab_loss_finish(NULL, &p, NULL), SB_INVALID, "ranks 0");
    p.ld = 7, p.columns = 7;
    expect_refused(train_ops()->vocab_loss_partial(NULL, &p, NULL), SB_INVALID, "multiple of 8");
    p.ld = 8, p.columns = 9;
    expect_refused(train_ops()->vocab_loss_partial(NULL, &p, NULL), SB_INVALID, "9 columns");
}
