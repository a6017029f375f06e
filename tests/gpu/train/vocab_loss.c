/* SPDX-License-Identifier: MIT */
/* The loss over columns that ranks share: slices with and without the target, padding, none of the columns. */
#include "tests/gpu/train/ops.h"

#include "common/core/rng.h"

enum { NUMBERS = 3, RANKS = 3 };
enum { SLOT_LOGITS, SLOT_TARGETS, SLOT_NUMBERS, SLOT_ROW_LOSS, SLOT_LOSS };

static void list(case_list *l, const train_op *op, bool finish)
{
    static const int columns[] = {0, 1, 61, 1003, 5000, 16384}, rows[] = {1, 9, 257};
    int nth = 0;
    for (int v = 0; v < 6; v++)
        for (int r = 0; r < 3; r++)
            for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++, nth++) {
                if (dtype == SB_TF32 && (v != 2 || r != 1))
                    continue;
                const int ld = (columns[v] + 63) / 64 * 64 + 64 * (nth % 2) + (columns[v] == 0 ? 64 : 0);
                train_case *c = case_add(l, op, case_dtype_names[dtype], "%dx%d-of-%d", rows[r], columns[v], ld);
                c->p.vocab_loss = (sb_vocab_loss){.dtype = (sb_dtype)dtype,
                                                  .rows = rows[r],
                                                  .columns = columns[v],
                                                  .ld = ld,
                                                  .first_id = nth % 3 * 100,
                                                  .ranks = RANKS,
                                                  .backward = finish && nth % 5 != 0};
                c->small = dtype != SB_TF32 && r == 1 && v < 4;
                c->elements = (size_t)rows[r] * (size_t)ld * 4;
            }
}

static void list_partial(case_list *l, const train_op *op)
{
    list(l, op, false);
}

static void list_finish(case_list *l, const train_op *op)
{
    list(l, op, true);
}

/* Some targets are other ranks'. */
static void fill_targets(train_case *c)
{
    const sb_vocab_loss *p = &c->p.vocab_loss;
    int32_t *targets = (int32_t *)slot_add_content(c, "targets", SLOT_IN, SLOT_INTEGERS, (size_t)p->rows)->before;
    for (int i = 0; i < p->rows; i++)
        targets[i] = (int32_t)(rng_uniform(4, 0, (uint64_t)i) * (p->first_id + p->columns + 100));
}

static void fill_partial(train_case *c)
{
    const sb_vocab_loss *p = &c->p.vocab_loss;
    slot_input(c, "logits", p->dtype, (size_t)p->rows * (size_t)p->ld, 3);
    fill_targets(c);
    slot_output(c, "partial", SB_FP32, (size_t)p->rows * NUMBERS, (slot_bound){.relative = 4e-6, .absolute = 1e-6});
}

static void fill_finish(train_case *c)
{
    const sb_vocab_loss *p = &c->p.vocab_loss;
    const slot_bound loss_bound = {.relative = 2e-6, .absolute = 4e-6, .scale = 1};
    slot *logits = slot_input(c, "logits", p->dtype, (size_t)p->rows * (size_t)p->ld, 3);
    if (p->backward) {
        logits->role = SLOT_INOUT;
        logits->bound =
            (slot_bound){.units = 1, .relative = 1e-5, .absolute = 1e-6, .scale = 1.0 / p->rows, .rel_l2 = 4e-6};
    }
    fill_targets(c);
    slot *numbers = slot_input(c, "partials", SB_FP32, (size_t)RANKS * (size_t)p->rows * NUMBERS, 3);
    for (size_t i = 1; i < numbers->n; i += NUMBERS) /* sums of exponentials */
        slot_set(numbers, i, 1 + (float)rng_uniform(6, 0, i) * 100);
    slot_output(c, "row_loss", SB_FP32, (size_t)p->rows, loss_bound);
    slot_output(c, "loss", SB_FP32, 1, loss_bound);
}

static sb_vocab_loss call_of(const train_case *c, const train_call *x)
{
    sb_vocab_loss p = c->p.vocab_loss;
    p.logits = x->at[SLOT_LOGITS];
    p.targets = x->at[SLOT_TARGETS];
    return p;
}

static sb_status run_partial(const train_case *c, const train_call *x)
{
    sb_vocab_loss p = call_of(c, x);
    p.partial = x->at[SLOT_NUMBERS];
    return x->kernels->train->vocab_loss_partial(x->ctx, &p, x->stream);
}

static sb_status run_finish(const train_case *c, const train_call *x)
{
    sb_vocab_loss p = call_of(c, x);
    p.partials = x->at[SLOT_NUMBERS];
    p.row_loss = x->at[SLOT_ROW_LOSS];
    p.loss = x->at[SLOT_LOSS];
    return x->kernels->train->vocab_loss_finish(x->ctx, &p, x->stream);
}

const train_op train_vocab_loss_partial = {"vocab_loss_partial", list_partial, fill_partial, NULL, run_partial, NULL};
const train_op train_vocab_loss_finish = {"vocab_loss_finish", list_finish, fill_finish, NULL, run_finish, NULL};
