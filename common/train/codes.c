/* SPDX-License-Identifier: MIT */
/* Gathers of one byte a parameter. Where the scales of a weight serve it as it lies and transposed, the blocks' units travel as
 * codes: at the begin of a step each rank casts its slices, after one all-reduce of all scales by MAX, and a block that needs the
 * transposed copy makes it of the codes. So a gathered weight has the bits that a rank alone makes of the whole one.
 *
 * The scale space has the words of each weight's scales: the largest magnitude of the matrix, or with squares the scales
 * themselves, which only the rank that has the square knows; the others give 0. NaN is larger than any of them. */
#include "common/train/codes.h"

#include <stdlib.h>

#include "common/core/error.h"
#include "common/model/float8.h"
#include "common/step/linear_float8.h"

enum { UNIT = 16 /* of sizes, in cuBLASLt */, ALIGNMENT = 256, SQUARE = 128 };

/* ---- whether ---- */

/* A rank's cut of a unit falls on rows of squares of every weight. */
static bool cut_at_squares(const step *s, const step_unit *u, int layer)
{
    const int64_t slice = u->count / s->o.shard.ranks;
    for (int which = 0; which < LINEAR_HEAD; which++) {
        int out, in;
        float8_weight_shape(s, which, &out, &in);
        const int64_t first = params_find(s->params, float8_weight_kinds[which], layer)->first - u->first;
        const int64_t end = first + (int64_t)out * in;
        for (int64_t cut = slice; cut < u->count; cut += slice)
            if (cut > first && cut < end && (cut - first) % ((int64_t)SQUARE * in))
                return false;
    }
    return true;
}

/* One kind of code and one of scale for both products, in sizes that both have. */
static bool possible(const step *s, sb_scaling *scaling)
{
    const float8_recipe *r = s->o.precision->float8 ? float8_recipe_find(s->o.precision->name) : NULL;
    if (!r || r->delayed || s->eager || !s->o.shard.params || !s->o.shard.codes || !s->params->gains_apart)
        return false;
    const float8_operand y = float8_product_find(r->y)->b, dx = float8_product_find(r->dx)->b;
    *scaling = y.scaling;
    if (y.format != dx.format || y.scaling != dx.scaling || s->tokens % UNIT)
        return false;
    for (int which = 0; which < LINEAR_HEAD; which++) {
        int out, in;
        float8_weight_shape(s, which, &out, &in);
        if (out % UNIT || in % UNIT)
            return false;
    }
    return y.scaling == SB_SCALE_TENSOR ||
           (y.scaling == SB_SCALE_128X128 && cut_at_squares(s, &s->units[params_unit(s->params, 0)], 0));
}

/* ---- memory ---- */

static size_t place(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

step_codes_place codes_of(const step *s)
{
    const int layers = s->o.config.layers;
    if (!s->codes)
        return (step_codes_place){NULL, 0, 0};
    return (step_codes_place){s->codes->memory + s->codes->slices, params_unit(s->params, layers - 1),
                              params_unit(s->params, 0) + 1};
}

/* Elements of this rank's slices before that of a block's unit. */
static int64_t slices_before(const step *s, int unit)
{
    const int first = params_unit(s->params, s->o.config.layers - 1);
    return (s->units[unit].first - s->units[first].first) / s->o.shard.ranks;
}

void codes_create(step *s)
{
    sb_scaling scaling;
    if (!possible(s, &scaling))
        return;
    struct step_codes *c = s->codes = xcalloc(1, sizeof *c);
    c->scaling = scaling;
    for (int which = 0; which < LINEAR_HEAD; which++) {
        int out, in;
        float8_weight_shape(s, which, &out, &in);
        c->first_of[which] = c->layer_words;
        c->layer_words += c->words_of[which] = (int)((sb_scale_count(scaling, out, in) + 3) / 4 * 4);
    }
    const size_t words = (size_t)c->layer_words * (size_t)s->o.config.layers;
    c->own = place(&c->bytes, words * sizeof(uint32_t));
    c->agreed = place(&c->bytes, words * sizeof(uint32_t));
    c->scales = scaling == SB_SCALE_TENSOR ? place(&c->bytes, words * sizeof(float)) : c->agreed;
    c->unused = scaling == SB_SCALE_TENSOR ? place(&c->bytes, words) : 0;
    c->slices = place(&c->bytes, (size_t)slices_before(s, params_unit(s->params, 0)) +
                                     (size_t)(s->units[params_unit(s->params, 0)].count / s->o.shard.ranks));
}

void codes_free(step *s)
{
    free(s->codes);
}

size_t codes_bytes(const step *s)
{
    return s->codes ? s->codes->bytes : 0;
}

/* Where ranks do not communicate, the words stay those of the last step in which they did: at first, of none. */
void codes_place(step *s, char *memory)
{
    if (!s->codes)
        return;
    s->codes->memory = memory + float8_weight_bytes(s);
    device_memset(s->dev, s->codes->memory, 0, s->codes->bytes);
}

/* ---- casts ---- */

/* A weight's part in this rank's slice. */
typedef struct piece {
    int which, layer, rows, columns;
    int64_t before; /* elements of the weight */
    const char *x;
    char *codes;
} piece;

/* False: there is none. A matrix with one scale may be looked at in any shape. */
static bool piece_of(const step *s, int which, int layer, piece *p)
{
    const struct step_codes *c = s->codes;
    const int unit = params_unit(s->params, layer), ranks = s->o.shard.ranks;
    const step_unit *u = &s->units[unit];
    const int64_t slice = u->count / ranks, from = u->first + s->o.shard.rank * slice;
    int out, in;
    float8_weight_shape(s, which, &out, &in);
    const int64_t weight = params_find(s->params, float8_weight_kinds[which], layer)->first,
                  end = weight + (int64_t)out * in;
    const int64_t first = weight > from ? weight : from, last = end < from + slice ? end : from + slice;
    if (first >= last)
        return false;
    const int64_t n = last - first, at = first - from;
    *p = (piece){.which = which, .layer = layer, .columns = in, .before = first - weight};
    if (c->scaling == SB_SCALE_TENSOR)
        p->columns = n % ALIGNMENT == 0 ? ALIGNMENT : UNIT;
    p->rows = (int)(n / p->columns);
    p->x = s->param + (u->first / ranks + at) * s->param_element;
    p->codes = c->memory + c->slices + slices_before(s, unit) + at;
    return true;
}

static void amax(step *s, const piece *p, uint32_t *word)
{
    const sb_amax a = {
        .dtype = s->dtype, .rows = p->rows, .columns = p->columns, .ld = p->columns, .x = p->x, .of_all = word};
    if (step_go(s))
        step_done(s, s->k->train->amax(s->ctx, &a, s->main));
}

static void cast(step *s, const piece *p, const uint32_t *word, float *scales)
{
    const sb_quantize q = {.dtype = s->dtype,
                           .format = SB_E4M3,
                           .scaling = s->codes->scaling,
                           .rows = p->rows,
                           .columns = p->columns,
                           .ld = p->columns,
                           .x = p->x,
                           .amax = word,
                           .y = p->codes,
                           .ld_y = p->columns,
                           .scales = scales};
    if (step_go(s))
        step_done(s, s->k->train->quantize(s->ctx, &q, s->main));
}

static int square_words(int columns)
{
    return (int)sb_scale_count(SB_SCALE_128X128, SQUARE, columns);
}

/* Squares are cast as their scales are found; a whole matrix waits for those of other ranks. */
static void each_piece(step *s, bool agreed)
{
    const struct step_codes *c = s->codes;
    const bool one = c->scaling == SB_SCALE_TENSOR;
    uint32_t *own = (uint32_t *)(void *)(c->memory + c->own), *all = (uint32_t *)(void *)(c->memory + c->agreed);
    piece p;
    for (int layer = 0; layer < s->o.config.layers; layer++)
        for (int which = 0; which < LINEAR_HEAD; which++) {
            const int word = float8_code_word(c, which, layer);
            if (!piece_of(s, which, layer, &p))
                continue;
            if (!one)
                cast(s, &p, NULL,
                     (float *)(void *)(own + word) +
                         p.before / ((int64_t)SQUARE * p.columns) * square_words(p.columns));
            else if (agreed)
                cast(s, &p, all + word, float8_code_scales(s, which, layer));
            else
                amax(s, &p, own + word);
        }
}

/* The words of whole matrices are looked at as those of the rows of one: so its scales are those of the matrices. */
static void make_scales(step *s)
{
    const struct step_codes *c = s->codes;
    const sb_quantize q = {.dtype = s->dtype,
                           .format = SB_E4M3,
                           .scaling = SB_SCALE_ROW,
                           .rows = c->layer_words * s->o.config.layers,
                           .columns = 1,
                           .ld = 1,
                           .x = c->memory + c->agreed,
                           .amax = (const uint32_t *)(const void *)(c->memory + c->agreed),
                           .y = c->memory + c->unused,
                           .ld_y = 1,
                           .scales = (float *)(void *)(c->memory + c->scales)};
    if (step_go(s))
        step_done(s, s->k->train->quantize(s->ctx, &q, s->main));
}

void codes_begin(step *s)
{
    const struct step_codes *c = s->codes;
    if (!c || !step_launching(s))
        return;
    each_piece(s, false);
    if (s->hooks.agree && s->status == SB_OK)
        s->hooks.agree(s->hooks.user, c->memory + c->own, c->memory + c->agreed,
                       (size_t)c->layer_words * (size_t)s->o.config.layers);
    if (c->scaling != SB_SCALE_TENSOR)
        return;
    make_scales(s);
    each_piece(s, true);
}
