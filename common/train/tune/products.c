/* SPDX-License-Identifier: MIT */
/* The matrix products of a step: noted while it is planned, each timed once unless its choice is known. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/train/tune/internal.h"
#include "common/train/tune/tune.h"

typedef struct operands {
    size_t a, b, c, d; /* bytes */
} operands;

static operands operands_of(const sb_matmul *p)
{
    const size_t in = (size_t)sb_dtype_bytes(p->dtype), out = (size_t)sb_dtype_bytes(p->dtype_out);
    const bool in_place = p->c == p->d;
    return (operands){(size_t)p->lda * (size_t)(p->transpose_a ? p->k : p->m) * in,
                      (size_t)p->ldb * (size_t)(p->transpose_b ? p->n : p->k) * in,
                      p->c && !in_place ? (size_t)p->ldc * (size_t)p->m * out : 0, (size_t)p->ldd * (size_t)p->m * out};
}

static sb_dtype stored(sb_dtype t)
{
    return t == SB_TF32 ? SB_FP32 : t;
}

static bool is_float8(const sb_matmul *p)
{
    return p->dtype == SB_E4M3 || p->dtype == SB_E5M2;
}

/* Random codes for operand a or b of a product in float8, and scales of 1, which the time does not depend on. */
static sb_status fill_float8(trainer *t, const sb_matmul *p, bool b, void *codes, float *scales)
{
    const step *s = &t->step;
    const int rows = b ? p->n : p->m;
    const size_t n = (size_t)rows * (size_t)p->k, count = sb_scale_count(b ? p->scaling_b : p->scaling_a, rows, p->k);
    void *x = memory_alloc(t->mem, 2 * n, "operands of tuning");
    uint32_t *word = memory_alloc(t->mem, sizeof *word, "operands of tuning");
    sb_status done = x && word ? SB_OK : SB_NO_MEMORY;
    if (done == SB_OK)
        done = s->k->fill_normal(s->ctx, SB_BF16, x, n, s->o.seed, 1000 + b, 1, s->main);
    const sb_amax largest = {.dtype = SB_BF16, .rows = rows, .columns = p->k, .ld = p->k, .x = x, .of_all = word};
    if (done == SB_OK)
        done = s->k->train->amax(s->ctx, &largest, s->main);
    const sb_quantize cast = {.dtype = SB_BF16,
                              .format = b ? p->dtype_b : p->dtype,
                              .scaling = SB_SCALE_TENSOR,
                              .rows = rows,
                              .columns = p->k,
                              .ld = p->k,
                              .x = x,
                              .amax = word,
                              .y = codes,
                              .ld_y = p->k,
                              .scales = scales};
    if (done == SB_OK)
        done = s->k->train->quantize(s->ctx, &cast, s->main);
    device_sync(s->dev);
    OWNED float *ones = xmalloc(count * sizeof *ones);
    for (size_t i = 0; i < count; i++)
        ones[i] = 1;
    if (done == SB_OK)
        device_upload(s->dev, scales, ones, count * sizeof *ones);
    memory_release(t->mem, x);
    memory_release(t->mem, word);
    return done;
}

/* Random operands of its own for one product: those of the step may not fit beside each other, or be zeros. */
static sb_status tune(trainer *t, const sb_matmul *shape, kept_choice *out)
{
    const step *of = &t->step;
    sb_matmul p = *shape;
    const operands o = operands_of(&p);
    const bool float8 = is_float8(&p);
    const size_t bytes[7] = {o.a,
                             o.b,
                             o.c,
                             o.d,
                             p.workspace_bytes,
                             float8 ? sb_scale_count(p.scaling_a, p.m, p.k) * sizeof(float) : 0,
                             float8 ? sb_scale_count(p.scaling_b, p.n, p.k) * sizeof(float) : 0};
    void *memory[7] = {0};
    sb_status s = SB_OK;
    for (int i = 0; i < 7 && s == SB_OK; i++)
        if (bytes[i] && !(memory[i] = memory_alloc(t->mem, bytes[i], "operands of tuning")))
            s = SB_NO_MEMORY;
    const bool in_place = p.c && p.c == p.d;
    for (int i = 0; i < 4 && s == SB_OK; i++) {
        const sb_dtype dtype = stored(i < 2 ? p.dtype : p.dtype_out);
        if (float8 && i < 2)
            s = fill_float8(t, &p, i == 1, memory[i], memory[5 + i]);
        else if (bytes[i] && (i < 3 || in_place))
            s = of->k->fill_normal(of->ctx, dtype, memory[i], bytes[i] / (size_t)sb_dtype_bytes(dtype), of->o.seed,
                                   (uint32_t)(1000 + i), 1, of->main);
    }
    p.a = memory[0], p.b = memory[1], p.c = memory[in_place ? 3 : 2], p.d = memory[3], p.workspace = memory[4];
    p.scale_a = memory[5], p.scale_b = memory[6];
    if (s == SB_OK)
        s = of->k->train->matmul_tune(of->ctx, &p, &out->choice, out->rivals, CHOICE_RIVALS, of->main);
    device_sync(of->dev);
    for (int i = 0; i < 7; i++)
        memory_release(t->mem, memory[i]);
    return s;
}

/* Installs the newest known choice that runs here. */
static bool take_known(trainer *t, tuned_product *n, const choices *known)
{
    for (int i = choices_find(known, &n->shape, INT_MAX); i >= 0; i = choices_find(known, &n->shape, i)) {
        const kept_choice *k = choices_at(known, i);
        if (t->step.k->train->matmul_choose(t->step.ctx, &n->shape, &k->choice) != SB_OK)
            continue;
        n->choice = k->choice;
        n->source = k->source;
        memcpy(n->rivals, k->rivals, sizeof n->rivals);
        return true;
    }
    return false;
}

/* False on an error other than a lack of memory; then the library's own proposal serves. */
static bool tune_one(trainer *t, tuned_product *n, choices *known)
{
    kept_choice new = {.shape = n->shape, .source = CHOICE_TIMED};
    if (known && take_known(t, n, known))
        return true;
    phase_set("tuning product %d of %d, %s: %d x %d x %d", (int)(n - t->step.products.list) + 1, t->step.products.count,
              n->name, n->shape.m, n->shape.n, n->shape.k);
    const sb_status s = tune(t, &n->shape, &new);
    if (!race_matters(&n->shape))
        memset(new.rivals, 0, sizeof new.rivals);
    if (s == SB_OK) {
        n->choice = new.choice;
        n->source = CHOICE_TIMED;
        memcpy(n->rivals, new.rivals, sizeof n->rivals);
        if (known)
            choices_add(known, n->name, &new);
    } else if (s == SB_NO_MEMORY) {
        memory_failed_clear(t->mem);
    }
    return s == SB_OK || s == SB_NO_MEMORY;
}

bool trainer_tune_products(trainer *t, choices *known)
{
    step *s = &t->step;
    bool ok = true;
    OWNED char *before = xstrdup(phase_get());
    for (int i = 0; i < s->products.count && ok; i++)
        if (!s->products.list[i].choice.tried)
            ok = tune_one(t, &s->products.list[i], known);
    memory_trim(t->mem); /* the operands */
    phase_set("%s", before);
    return ok;
}

bool trainer_tune(trainer *t, choices *known)
{
    OWNED char *before = xstrdup(phase_get());
    bool ok = trainer_tune_products(t, known);
    tune_wait wait = {.known = known,
                      .first = known && choices_trained(known) == 0,
                      .anew = known && choices_anew(known),
                      .began = host_seconds()};
    ok = ok && overlap_tune(t, &wait) && products_race(t, &wait);
    phase_set("%s", before); /* what follows is none of it */
    return ok;
}
