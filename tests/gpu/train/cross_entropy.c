/* SPDX-License-Identifier: MIT */
/* Cross-entropy: vocabularies on both sides of every way in which a row is held, most of them of no whole vectors, so
 * that rows begin at every alignment; hard logits, and such as are not finite. */
#include "tests/gpu/train/ops.h"

#include "common/core/rng.h"

#include <math.h>

enum { SLOT_LOGITS, SLOT_TARGETS, SLOT_ROW_LOSS, SLOT_LOSS, SLOT_SCALE };
enum { KIND, SCALED };
typedef enum logits_kind {
    LOGITS_NORMAL,
    LOGITS_LARGE,  /* +-1e4 */
    LOGITS_EQUAL,  /* every one 1e4 */
    LOGITS_LOW,    /* near -200: an exponential of the opposite number is infinite */
    LOGITS_MASKED, /* some are -inf */
    LOGITS_BAD,    /* one row has a NaN, one an inf: these rows alone are lost, and the mean */
    LOGITS_KINDS
} logits_kind;
static const float loss_scale = 1024;

static void list(case_list *l, const train_op *op)
{
    static const char *const kinds[] = {"normal", "large", "equal", "low", "masked", "bad"};
    static const int vocabs[] = {1, 7, 61, 255, 1003, 2049, 10000, 16411, 30001, 50257, 151936};
    int nth = 0;
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++)
        for (int rows = 1; rows <= (vocabs[v] < 20000 ? 257 : 9); rows = rows == 1 ? 9 : rows == 9 ? 257 : 1000)
            for (int kind = 0; kind < LOGITS_KINDS; kind++)
                for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++, nth++) {
                    if ((kind == LOGITS_BAD && rows == 1) || (rows == 257 && kind > LOGITS_LARGE) ||
                        (dtype == SB_TF32 && (v != 4 || rows != 9)))
                        continue;
                    const bool scaled = nth / 4 % 2, backward = (nth + kind) % 5 != 0;
                    train_case *c = case_add(l, op, case_dtype_names[dtype], "%dx%d-%s%s%s", rows, vocabs[v],
                                             kinds[kind], scaled ? "-scaled" : "", backward ? "" : "-forward");
                    c->p.cross_entropy = (sb_cross_entropy){
                        .dtype = (sb_dtype)dtype, .rows = rows, .vocab = vocabs[v], .backward = backward};
                    c->variant[KIND] = kind;
                    c->variant[SCALED] = scaled;
                    c->small = dtype != SB_TF32 && rows == 9 && (v == 0 || v == 2 || v == 4 || v == 5) &&
                               (kind == LOGITS_NORMAL || kind == LOGITS_MASKED);
                    c->elements = (size_t)rows * (size_t)vocabs[v] * 4;
                }
}

static void fill_logits(train_case *c, slot *x, const int32_t *targets)
{
    const sb_cross_entropy *p = &c->p.cross_entropy;
    const size_t vocab = (size_t)p->vocab;
    slot_fill(c, x, 0, 1, x->n, x->n, 3);
    for (size_t i = 0; i < x->n; i++) {
        const int random = (int)(rng_uniform(5, 0, i) * 4);
        if (c->variant[KIND] == LOGITS_LARGE)
            slot_set(x, i, (random % 2 ? 1e4f : -1e4f) + (random == 3 ? slot_get(x, i) : 0));
        else if (c->variant[KIND] == LOGITS_EQUAL)
            slot_set(x, i, 1e4f);
        else if (c->variant[KIND] == LOGITS_LOW)
            slot_set(x, i, slot_get(x, i) - 200);
        else if (c->variant[KIND] == LOGITS_MASKED && random == 0 && i % vocab != (size_t)targets[i / vocab])
            slot_set(x, i, -INFINITY);
    }
    if (c->variant[KIND] == LOGITS_BAD) {
        slot_set(x, 2 * vocab + vocab / 3, NAN);
        slot_set(x, 4 * vocab + vocab - 1, INFINITY);
    }
}

static void fill(train_case *c)
{
    const sb_cross_entropy *p = &c->p.cross_entropy;
    const size_t rows = (size_t)p->rows;
    const double probability = (c->variant[SCALED] ? loss_scale : 1) / p->rows; /* the gradient of 1 */
    const slot_bound loss_bound = {.relative = 2e-6, .absolute = 4e-6, .scale = 1};
    slot *logits = slot_add(c, "logits", p->backward ? SLOT_INOUT : SLOT_IN, p->dtype, rows * (size_t)p->vocab);
    logits->bound = (slot_bound){.units = 1, .relative = 1e-5, .absolute = 1e-6, .scale = probability, .rel_l2 = 4e-6};
    int32_t *targets = (int32_t *)slot_add_content(c, "targets", SLOT_IN, SLOT_INTEGERS, rows)->before;
    for (size_t i = 0; i < rows; i++) /* the first and the last id among them */
        targets[i] = i == 0 ? p->vocab - 1 : i == 1 ? 0 : (int32_t)(rng_uniform(4, 0, i) * p->vocab);
    fill_logits(c, logits, targets);
    slot_output(c, "row_loss", SB_FP32, rows, loss_bound);
    slot_output(c, "loss", SB_FP32, 1, loss_bound);
    if (c->variant[SCALED])
        slot_set(slot_add(c, "scale", SLOT_IN, SB_FP32, 1), 0, loss_scale);
}

static sb_status run(const train_case *c, const train_call *x)
{
    sb_cross_entropy p = c->p.cross_entropy;
    p.logits = x->at[SLOT_LOGITS];
    p.targets = x->at[SLOT_TARGETS];
    p.row_loss = x->at[SLOT_ROW_LOSS];
    p.loss = x->at[SLOT_LOSS];
    p.scale = c->variant[SCALED] ? x->at[SLOT_SCALE] : NULL;
    return x->kernels->train->cross_entropy(x->ctx, &p, x->stream);
}

const train_op train_cross_entropy = {"cross_entropy", list, fill, NULL, run, NULL};
