/* SPDX-License-Identifier: MIT */
/* Products of the blocks' linear layers in float8. Each operand is cast from 16 bits along the k of its product, by a scale that
 * is made of the operand itself, on the device: no host waits for one, a graph replays it, and what is computed again has the
 * same bits; or, with delayed scales, of the largest magnitudes of earlier steps. Where one scale serves a matrix, the cast
 * takes that of the same cast of the step before, and is made once more where that is not the matrix's own: scales are powers
 * of two, so that is rare, and no pass looks for largest magnitudes ahead of the cast. Head, embedding, norms, attention and the
 * residual stream stay in 16 bits.
 *
 * Weights are cast once a step, where the first micro-batch meets them, both ways at once, and the copies stay; gathered or eager
 * ones are cast where they are used, unless they are gathered as codes (train/codes.c). An input is cast both ways at once where
 * its forward keeps it for dw, and so is a gradient for dx and dw, unless a W makes dw later. Norms, SwiGLU and the
 * gradient of RoPE run within the casts of what they make, where nothing else reads that. */
#include "common/step/linear_float8.h"

#include <stdlib.h>

#include "common/core/error.h"
#include "common/model/float8.h"
#include "common/step/ops.h"
#include "common/step/streams.h"
#include "common/step/tensors.h"

enum {
    UNIT = 16 /* of sizes, in cuBLASLt */,
    ALIGNMENT = 256,
    BLOCK = 128,
    TURNED_UNIT = 8 /* of head_dim */,
    WINDOW = 16 /* steps of a history */
};
typedef enum operand { OF_X, OF_W, OF_DY, OPERANDS } operand;

/* A copy in memory: words of the largest magnitudes, scales, codes. */
typedef struct copy {
    sb_scaling scaling;
    int rows, columns;
    size_t scales, codes, bytes; /* where they begin, and the end */
} copy;

/* The copies of a layer's weight. */
typedef struct weight {
    size_t at[2]; /* in the resident memory: as it lies, and transposed */
    bool fresh;   /* they are those of the present weight */
} weight;

struct step_float8 {
    const float8_product *products[3]; /* by linear_pass; NULL: in 16 bits */
    weight *weights;                   /* [layers][LINEAR_HEAD]; NULL: they are cast where they are used */
    size_t bytes;                      /* of all */
    bool delayed, begun;               /* scales are made of earlier steps; one has begun */
    bool cold;              /* there are no earlier steps: the present one makes its scales as if not delayed */
    int window;             /* steps of a history; 0: scales are found otherwise */
    size_t words;           /* of histories, in the resident memory: largest, used, then `window` of history */
    int next;               /* word of the next cast of this step, unless operands have words of their own */
    int which, layer;       /* whose gradient is cast, */
    arena_slot gradient[2]; /* as it lies and transposed; -1: not, or read already */
    arena_slot input;       /* of the layer whose forward comes next; -1: not cast yet */
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static copy copy_of(sb_scaling scaling, int rows, int columns)
{
    const size_t words = scaling == SB_SCALE_TENSOR ? 1 : scaling == SB_SCALE_ROW ? (size_t)rows : 0;
    copy c = {scaling, rows, columns, aligned(words * sizeof(uint32_t)), 0, 0};
    c.codes = c.scales + aligned(sb_scale_count(scaling, rows, columns) * sizeof(float));
    c.bytes = c.codes + aligned((size_t)rows * (size_t)columns);
    return c;
}

/* ---- what is in float8 ---- */

bool float8_shape(const step *s, int which, linear_pass pass, sb_matmul *p)
{
    const float8_product *f = s->float8 ? s->float8->products[pass] : NULL;
    if (!f || which == LINEAR_HEAD || p->m % UNIT != 0 || p->n % UNIT != 0 || p->k % UNIT != 0)
        return false;
    p->dtype = f->a.format, p->dtype_b = f->b.format;
    p->scaling_a = f->a.scaling, p->scaling_b = f->b.scaling;
    p->sums = f->sums;
    p->transpose_a = false, p->transpose_b = true;
    p->lda = p->ldb = p->k;
    return true;
}

const param_kind float8_weight_kinds[LINEAR_HEAD] = {
    [LINEAR_QKV] = PARAM_Q, [LINEAR_O] = PARAM_O, [LINEAR_GATE_UP] = PARAM_W1, [LINEAR_W2] = PARAM_W2};

void float8_weight_shape(const step *s, int which, int *out, int *in)
{
    const int of[LINEAR_HEAD][2] = {[LINEAR_QKV] = {s->qkv, s->d},
                                    [LINEAR_O] = {s->d, s->width},
                                    [LINEAR_GATE_UP] = {2 * s->f, s->d},
                                    [LINEAR_W2] = {s->d, s->f}};
    *out = of[which][0], *in = of[which][1];
}

/* Whether the products of a weight of this shape are in float8. */
static bool layer_fits(const step *s, int out, int in)
{
    return out % UNIT == 0 && in % UNIT == 0 && s->tokens % UNIT == 0;
}

/* Words of a history: one for each operand, or one for each cast of a step: of weights, and, where a layer has seven matrices and
 * a forward twice, of two operands of y, of y again, of dx and of dw. */
static int word_count(const step *s)
{
    const int of_layer = s->float8->delayed ? LINEAR_HEAD * OPERANDS : 2 * LINEAR_HEAD + 7 * 8 * s->micro_batches;
    return s->o.config.layers * of_layer;
}

static void place_weights(step *s)
{
    struct step_float8 *f = s->float8;
    f->weights = xcalloc((size_t)s->o.config.layers * LINEAR_HEAD, sizeof *f->weights);
    for (int k = 0; k < s->part_count; k++)
        for (int l = s->parts[k].holds.first; l < s->parts[k].holds.end; l++)
            for (int which = 0; which < LINEAR_HEAD; which++) {
                int out, in;
                float8_weight_shape(s, which, &out, &in);
                if (!layer_fits(s, out, in))
                    continue;
                size_t *at = f->weights[l * LINEAR_HEAD + which].at;
                at[0] = f->bytes;
                f->bytes += copy_of(f->products[PASS_Y]->b.scaling, out, in).bytes;
                at[1] = f->bytes;
                if (s->o.mode != STEP_FORWARD)
                    f->bytes += copy_of(f->products[PASS_DX]->b.scaling, in, out).bytes;
            }
}

void float8_create(step *s)
{
    const float8_recipe *r = s->o.precision->float8 ? float8_recipe_find(s->o.precision->name) : NULL;
    if (!r)
        return;
    s->float8 = xcalloc(1, sizeof *s->float8);
    *s->float8 = (struct step_float8){
        .products = {float8_product_find(r->y), float8_product_find(r->dx), r->dw ? float8_product_find(r->dw) : NULL},
        .gradient = {-1, -1},
        .input = -1,
        .delayed = r->delayed,
        .cold = true};
    if (!s->eager && !s->o.shard.params)
        place_weights(s);
    s->float8->words = s->float8->bytes;
    if (s->float8->products[PASS_Y]->a.scaling == SB_SCALE_TENSOR)
        s->float8->window = r->delayed ? WINDOW : 1;
    if (s->float8->window)
        s->float8->bytes += aligned((size_t)(2 + s->float8->window) * (size_t)word_count(s) * sizeof(uint32_t));
}

void float8_free(step *s)
{
    if (s->float8)
        free(s->float8->weights);
    free(s->float8);
}

size_t float8_weight_bytes(const step *s)
{
    return s->float8 ? s->float8->bytes : 0;
}

static uint32_t *history_of(const step *s, int row)
{
    return (uint32_t *)(void *)step_at(s->float8_weights, (int64_t)s->float8->words + (int64_t)row * word_count(s) * 4);
}

void float8_begin(step *s)
{
    struct step_float8 *f = s->float8;
    for (int i = 0; f && f->weights && i < s->o.config.layers * LINEAR_HEAD; i++)
        f->weights[i].fresh = false;
}

void float8_history(step *s)
{
    struct step_float8 *f = s->float8;
    if (!f || !f->window || (f->delayed && s->same_step))
        return;
    f->next = 0;
    const int n = word_count(s);
    const sb_float8_history p = {n, f->window, history_of(s, 0), history_of(s, 2), history_of(s, 1)};
    if (step_launching(s)) {
        f->cold = !f->begun;
        f->begun = true;
        if (f->cold)
            device_memset(s->dev, p.largest, 0, (size_t)(2 + f->window) * (size_t)n * sizeof(uint32_t));
        if (f->delayed && s->hooks.agree)
            s->hooks.agree(s->hooks.user, p.largest, p.largest, (size_t)n);
    }
    if (step_go(s))
        step_done(s, s->k->train->float8_history(s->ctx, &p, s->main));
}

/* ---- casts ---- */

/* A matrix in 16 bits, or what another op makes it of; pointers are NULL while planning. */
typedef struct matrix {
    const void *x;
    int rows, columns, ld;
    sb_dtype format;
    int word; /* its own in a history */
    sb_float8_from from;
} matrix;

static int next_word(step *s)
{
    struct step_float8 *f = s->float8;
    if (f->next == word_count(s))
        die(EXIT_CODE_FAILURE, "bug: a step casts more than %d matrices to float8", f->next);
    return f->next++;
}

static int word_of(int which, int layer, operand o)
{
    return (layer * LINEAR_HEAD + which) * OPERANDS + (int)o;
}

/* An operand (rows, k) of a product, which lies transposed in memory where it is `turned`. */
static matrix operand_of(const void *x, int rows, int k, int ld, bool turned, sb_dtype format, int word)
{
    return (matrix){
        .x = x, .rows = turned ? k : rows, .columns = turned ? rows : k, .ld = ld, .format = format, .word = word};
}

/* `as_it_lies` and `transposed`: which copies; NULL: not this one. */
static void cast(step *s, const matrix *m, const copy *as_it_lies, char *y, const copy *transposed, char *y_t,
                 void *stream)
{
    const copy *any = as_it_lies ? as_it_lies : transposed;
    const bool one = any->scaling == SB_SCALE_TENSOR, rows = any->scaling == SB_SCALE_ROW;
    uint32_t *words = (uint32_t *)(void *)(as_it_lies ? y : y_t), *words_t = (uint32_t *)(void *)y_t;
    const struct step_float8 *f = s->float8;
    const bool looks = rows || (one && f->delayed && f->cold);
    const int word = f->delayed ? m->word : one ? next_word(s) : 0;
    const sb_amax largest = {.dtype = s->dtype,
                             .from = m->from,
                             .rows = m->rows,
                             .columns = m->columns,
                             .ld = m->ld,
                             .x = m->x,
                             .of_all = one ? words : NULL,
                             .of_rows = rows && as_it_lies ? words : NULL,
                             .of_columns = rows && transposed ? words_t : NULL};
    if (looks && step_go(s))
        step_done(s, s->k->train->amax(s->ctx, &largest, stream));
    sb_quantize q = {.dtype = s->dtype,
                     .from = m->from,
                     .format = m->format,
                     .scaling = any->scaling,
                     .scaling_t = transposed ? transposed->scaling : SB_SCALE_NONE,
                     .rows = m->rows,
                     .columns = m->columns,
                     .ld = m->ld,
                     .x = m->x,
                     .amax = looks ? words
                             : one ? history_of(s, 1) + word
                                   : NULL,
                     .amax_t = rows ? words_t : NULL,
                     .largest = one ? history_of(s, 0) + word : NULL,
                     .again = one && !f->delayed};
    if (as_it_lies) {
        q.y = step_at(y, (int64_t)as_it_lies->codes), q.ld_y = m->columns;
        q.scales = (float *)(void *)step_at(y, (int64_t)as_it_lies->scales);
    }
    if (transposed) {
        q.y_t = step_at(y_t, (int64_t)transposed->codes), q.ld_t = m->rows;
        q.scales_t = (float *)(void *)step_at(y_t, (int64_t)transposed->scales);
    }
    if (step_go(s))
        step_done(s, s->k->train->quantize(s->ctx, &q, stream));
}

static arena_slot take(step *s, const copy *c, int layer, const char *name)
{
    return step_take(s, c->bytes, MEMORY_TEMPORARY, layer, name);
}

/* The copy of one operand of a product, for itself alone. */
static arena_slot cast_alone(step *s, const matrix *m, const copy *c, bool transposed, int layer, const char *name,
                             void *stream)
{
    const arena_slot slot = take(s, c, layer, name);
    char *at = step_pointer(s, slot);
    if (stream != s->main)
        side_fork(s); /* it writes the slot */
    cast(s, m, transposed ? NULL : c, at, transposed ? c : NULL, at, stream);
    return slot;
}

/* Where the resident copy of a weight lies, made now unless it is that of the present weight. */
static char *resident_weight(step *s, int which, int layer, bool transposed, const matrix *m)
{
    struct step_float8 *f = s->float8;
    weight *w = &f->weights[layer * LINEAR_HEAD + which];
    if (!w->fresh) {
        const bool both = s->o.mode != STEP_FORWARD;
        const copy y = copy_of(f->products[PASS_Y]->b.scaling, m->rows, m->columns),
                   t = copy_of(f->products[PASS_DX]->b.scaling, m->columns, m->rows);
        cast(s, m, &y, step_at(s->float8_weights, (int64_t)w->at[0]), both ? &t : NULL,
             step_at(s->float8_weights, (int64_t)w->at[1]), s->main);
        w->fresh = true;
    }
    return step_at(s->float8_weights, (int64_t)w->at[transposed]);
}

/* The gradient of a layer's output both ways, for dx and dw. */
static void make_gradient(step *s, int which, int layer, const matrix *m)
{
    struct step_float8 *f = s->float8;
    const sb_scaling scaling = f->products[PASS_DX]->a.scaling;
    const copy y = copy_of(scaling, m->rows, m->columns), t = copy_of(scaling, m->columns, m->rows);
    f->gradient[0] = take(s, &y, layer, "dy in float8");
    f->gradient[1] = take(s, &t, layer, "dy in float8, transposed");
    f->which = which, f->layer = layer;
    cast(s, m, &y, step_pointer(s, f->gradient[0]), &t, step_pointer(s, f->gradient[1]), s->main);
}

/* The first of dx and dw makes both, unless SwiGLU or RoPE has; the other one finds it. Each takes its own away. */
static arena_slot shared_gradient(step *s, int which, int layer, linear_pass pass, const matrix *m)
{
    struct step_float8 *f = s->float8;
    const bool transposed = pass == PASS_DW;
    if (f->gradient[transposed] < 0)
        make_gradient(s, which, layer, m);
    if (f->which != which || f->layer != layer)
        die(EXIT_CODE_FAILURE, "bug: a float8 gradient of layer %d is left where layer %d has its own", f->layer,
            layer);
    const arena_slot slot = f->gradient[transposed];
    f->gradient[transposed] = -1;
    return slot;
}

size_t float8_turned_bytes(const step *s, int which)
{
    int out, in;
    if (!s->float8 || !s->float8->products[PASS_DW])
        return 0;
    float8_weight_shape(s, which, &out, &in);
    return layer_fits(s, out, in) ? copy_of(s->float8->products[PASS_DW]->b.scaling, in, s->tokens).bytes : 0;
}

/* The copy for the forward where `output` is wanted, and that for dw unless `turned` is NULL. */
static void make_input(step *s, int layer, const matrix *m, bool output, arena_slot *turned)
{
    struct step_float8 *f = s->float8;
    const copy y = copy_of(f->products[PASS_Y]->a.scaling, m->rows, m->columns),
               t = copy_of(f->products[PASS_DW]->b.scaling, m->columns, m->rows);
    if (turned)
        *turned = step_take(s, t.bytes, MEMORY_ACTIVATION, layer, "x in float8, transposed");
    if (output)
        f->input = take(s, &y, layer, "x in float8");
    cast(s, m, output ? &y : NULL, step_pointer(s, f->input), turned ? &t : NULL,
         turned ? step_pointer(s, *turned) : NULL, s->main);
}

/* Whether the input of a layer, and the gradient of its output, may be cast both ways at once. */
static bool casts_both_ways(const step *s, int which)
{
    int out, in;
    float8_weight_shape(s, which, &out, &in);
    return s->float8 && !s->eager && s->float8->products[PASS_DW] && layer_fits(s, out, in);
}

void float8_input(step *s, int which, int layer, arena_slot x, arena_slot *turned)
{
    int out, in;
    if (*turned >= 0 || !casts_both_ways(s, which))
        return;
    float8_weight_shape(s, which, &out, &in);
    const matrix m = operand_of(step_pointer(s, x), s->tokens, in, in, false, s->float8->products[PASS_Y]->a.format,
                                word_of(which, layer, OF_X));
    make_input(s, layer, &m, true, turned);
}

/* ---- norms, RoPE and SwiGLU within casts ---- */

bool float8_norm(step *s, int which, int layer, arena_slot x, arena_slot rstd, bool output, arena_slot *turned)
{
    const param_kind gain = which == LINEAR_QKV ? PARAM_LN1 : PARAM_LN2;
    if (!casts_both_ways(s, which) || s->param_dtype != s->dtype ||
        s->rows != s->tokens) /* ranks that have rows of their own gather what a norm makes */
        return false;
    if (output)
        norm_make(s, gain, layer, x, -1, rstd);
    const matrix n = {
        .from = {.source = SB_FROM_RMSNORM, .rstd = step_pointer(s, rstd), .gain = step_param(s, gain, layer)},
        .x = step_pointer(s, x),
        .rows = s->tokens,
        .columns = s->d,
        .ld = s->d,
        .format = s->float8->products[PASS_Y]->a.format,
        .word = word_of(which, layer, OF_X)};
    make_input(s, layer, &n, output, turned);
    return true;
}

bool float8_rope_backward(step *s, int layer, arena_slot d_qkv)
{
    if (!casts_both_ways(s, LINEAR_QKV) || s->micro->split || s->head_dim % TURNED_UNIT != 0)
        return false;
    const matrix d = {.from = {.source = SB_FROM_ROPE_GRADIENT,
                               .table = s->rope_table,
                               .seq = s->o.seq,
                               .head_dim = s->head_dim,
                               .turned = s->width + s->kv},
                      .x = step_pointer(s, d_qkv),
                      .rows = s->tokens,
                      .columns = s->qkv,
                      .ld = s->qkv,
                      .format = s->float8->products[PASS_DX]->a.format,
                      .word = word_of(LINEAR_QKV, layer, OF_DY)};
    make_gradient(s, LINEAR_QKV, layer, &d);
    return true;
}

static bool holds_swiglu(const step *s)
{
    if (!casts_both_ways(s, LINEAR_W2))
        return false;
    const sb_scaling scaling = s->float8->products[PASS_DX]->a.scaling;
    return scaling == SB_SCALE_TENSOR || scaling == SB_SCALE_ROW || s->f % BLOCK == 0;
}

bool float8_swiglu_forward(step *s, int layer, arena_slot gate_up, bool output, arena_slot *turned)
{
    if (!holds_swiglu(s) || (!output && !turned))
        return false;
    const matrix h = {.from = {.source = SB_FROM_SWIGLU},
                      .x = step_pointer(s, gate_up),
                      .rows = s->tokens,
                      .columns = s->f,
                      .ld = 2 * s->f,
                      .format = s->float8->products[PASS_Y]->a.format,
                      .word = word_of(LINEAR_W2, layer, OF_X)};
    make_input(s, layer, &h, output, turned);
    return true;
}

bool float8_swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh)
{
    if (!holds_swiglu(s) || s->micro->split)
        return false;
    const matrix d = {.from = {.source = SB_FROM_SWIGLU_GRADIENT, .dh = step_pointer(s, dh)},
                      .x = step_pointer(s, gate_up),
                      .rows = s->tokens,
                      .columns = 2 * s->f,
                      .ld = 2 * s->f,
                      .format = s->float8->products[PASS_DX]->a.format,
                      .word = word_of(LINEAR_GATE_UP, layer, OF_DY)};
    make_gradient(s, LINEAR_GATE_UP, layer, &d);
    return true;
}

int float8_code_word(const struct step_codes *c, int which, int layer)
{
    return layer * c->layer_words + c->first_of[which];
}

float *float8_code_scales(const step *s, int which, int layer)
{
    const struct step_codes *c = s->codes;
    return (float *)(void *)(c->memory + c->scales) + float8_code_word(c, which, layer);
}

/* A weight that has been gathered as codes, as the second operand of y, or transposed as that of dx: what it takes, or -1. */
static arena_slot gathered_weight(step *s, int which, int layer, bool transposed, sb_matmul *p)
{
    const sb_scaling scaling = s->codes->scaling;
    int out, in;
    float8_weight_shape(s, which, &out, &in);
    const void *codes = step_param(s, float8_weight_kinds[which], layer);
    const float *scales = arena_planning(s->arena) ? NULL : float8_code_scales(s, which, layer);
    p->b = codes, p->scale_b = scales;
    if (!transposed)
        return -1;
    const copy c = copy_of(scaling, in, out);
    const arena_slot slot = take(s, &c, layer, "w in float8, transposed");
    char *at = step_pointer(s, slot);
    const sb_codes t = {.scaling = scaling,
                        .rows = out,
                        .columns = in,
                        .x = codes,
                        .scales = scales,
                        .y_t = step_at(at, (int64_t)c.codes),
                        .scales_t = (float *)(void *)step_at(at, (int64_t)c.scales)};
    if (step_go(s))
        step_done(s, s->k->train->transpose_codes(s->ctx, &t, s->main));
    p->b = t.y_t, p->scale_b = t.scales_t;
    return slot;
}

/* ---- products ---- */

float8_operands float8_take(step *s, int which, int layer, linear_pass pass, bool shared, bool turned, sb_matmul *p,
                            void *stream)
{
    struct step_float8 *f = s->float8;
    float8_operands out = {-1, -1};
    const sb_matmul wide = *p; /* in 16 bits */
    if (!float8_shape(s, which, pass, p))
        return out;
    const bool a_turned = wide.transpose_a, b_turned = !wide.transpose_b; /* a product wants k as columns */
    const copy a = copy_of(p->scaling_a, p->m, p->k), b = copy_of(p->scaling_b, p->n, p->k);
    const operand of_a = pass == PASS_Y ? OF_X : OF_DY, of_b = pass == PASS_DW ? OF_X : OF_W;
    const matrix ma = operand_of(wide.a, p->m, p->k, wide.lda, a_turned, p->dtype, word_of(which, layer, of_a)),
                 mb = operand_of(wide.b, p->n, p->k, wide.ldb, b_turned, p->dtype_b, word_of(which, layer, of_b));
    char *at_b = NULL;
    if (pass == PASS_Y && f->input >= 0)
        out.a = f->input, f->input = -1;
    else if (shared && pass != PASS_Y && f->products[PASS_DW] && !s->eager)
        out.a = shared_gradient(s, which, layer, pass, &ma);
    else
        out.a = cast_alone(s, &ma, &a, a_turned, layer, pass == PASS_Y ? "x in float8" : "dy in float8", stream);
    if (turned) {
        if (stream != s->main)
            side_fork(s); /* main has made both copies, the gradient's since the side stream began to follow */
        at_b = (char *)(uintptr_t)wide.b; /* NOLINT: it is read, as all operands are */
    } else if (pass != PASS_DW && s->codes) {
        out.b = gathered_weight(s, which, layer, b_turned, p);
    } else if (pass != PASS_DW && f->weights) {
        at_b = resident_weight(s, which, layer, b_turned, &mb);
    } else {
        out.b = cast_alone(s, &mb, &b, b_turned, layer, pass == PASS_DW ? "x in float8" : "w in float8", stream);
        at_b = step_pointer(s, out.b);
    }
    char *at_a = step_pointer(s, out.a);
    p->a = step_at(at_a, (int64_t)a.codes);
    p->scale_a = (const float *)(const void *)step_at(at_a, (int64_t)a.scales);
    if (pass != PASS_DW && s->codes)
        return out;
    p->b = step_at(at_b, (int64_t)b.codes);
    p->scale_b = (const float *)(const void *)step_at(at_b, (int64_t)b.scales);
    return out;
}

void float8_drop(step *s, float8_operands *o, bool aside)
{
    arena_slot *const slots[] = {&o->a, &o->b};
    for (int i = 0; i < 2; i++)
        if (aside && *slots[i] >= 0)
            side_drop(s, slots[i]);
        else
            step_drop(s, slots[i]);
}
