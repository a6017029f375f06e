/* SPDX-License-Identifier: MIT */
/* The index space of the parameters, laid out once by walking the model backwards, and their initial values. */
#include "common/model/params.h"

#include "common/core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each kind is called in CS336's state_dict, and its shape in terms of the model's dimensions. */
typedef enum dimension { DIM_ONE, DIM_D, DIM_A, DIM_KV, DIM_F, DIM_V } dimension; /* DIM_A: of attention's heads */
typedef enum split_of { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS } split_of;         /* among ranks that share a layer */
static const struct {
    const char *name; /* within a block: after "layers.N." */
    dimension rows, columns;
    bool follows; /* lies against the tensor before it, without padding */
    split_of split;
} kinds[PARAM_KINDS] = {
    [PARAM_LM_HEAD] = {"lm_head.weight", DIM_V, DIM_D, false, SPLIT_ROWS},
    [PARAM_LN_FINAL] = {"ln_final.weight", DIM_ONE, DIM_D, false, SPLIT_NONE},
    [PARAM_W2] = {"ffn.w2.weight", DIM_D, DIM_F, false, SPLIT_COLUMNS},
    [PARAM_W1] = {"ffn.w1.weight", DIM_F, DIM_D, false, SPLIT_ROWS},
    [PARAM_W3] = {"ffn.w3.weight", DIM_F, DIM_D, true, SPLIT_ROWS},
    [PARAM_LN2] = {"ln2.weight", DIM_ONE, DIM_D, false, SPLIT_NONE},
    [PARAM_O] = {"attn.output_proj.weight", DIM_D, DIM_A, false, SPLIT_COLUMNS},
    [PARAM_Q] = {"attn.q_proj.weight", DIM_A, DIM_D, false, SPLIT_ROWS},
    [PARAM_K] = {"attn.k_proj.weight", DIM_KV, DIM_D, true, SPLIT_ROWS},
    [PARAM_V] = {"attn.v_proj.weight", DIM_KV, DIM_D, true, SPLIT_ROWS},
    [PARAM_LN1] = {"ln1.weight", DIM_ONE, DIM_D, false, SPLIT_NONE},
    [PARAM_EMBEDDING] = {"token_embeddings.weight", DIM_V, DIM_D, false, SPLIT_ROWS},
};
enum { BLOCK_TENSORS = PARAM_EMBEDDING - PARAM_W2, GAINS_OF_BLOCK = 2 };

static int dimension_of(const model_config *c, const layer_shape *s, dimension d)
{
    switch (d) {
    case DIM_ONE: return 1;
    case DIM_D: return c->d_model;
    case DIM_A: return s->width;
    case DIM_KV: return s->kv;
    case DIM_F: return s->d_ff;
    case DIM_V: return s->vocab;
    }
    return 0;
}

/* Where the rank's part of a dimension begins. */
static int first_of(const layer_shape *s, model_split split, dimension d)
{
    return d == DIM_A    ? s->first_head * s->head_dim
           : d == DIM_KV ? s->first_head_kv * s->head_dim
           : d == DIM_V  ? s->first_id
                         : split.rank * s->d_ff;
}

static int64_t multiple_up(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

static int64_t align_up(int64_t n)
{
    return multiple_up(n, PARAMS_ALIGNMENT);
}

static void set_shape(const params *p, param_tensor *t)
{
    const layer_shape whole = layer_shape_of(&p->config, (model_split){1, 0}),
                      own = layer_shape_of(&p->config, p->split);
    const dimension rows = kinds[t->kind].rows, columns = kinds[t->kind].columns;
    t->whole_rows = dimension_of(&p->config, &whole, rows);
    t->whole_columns = dimension_of(&p->config, &whole, columns);
    t->rows = dimension_of(&p->config, &own, rows);
    t->columns = dimension_of(&p->config, &own, columns);
    t->row_first = kinds[t->kind].split == SPLIT_ROWS ? first_of(&own, p->split, rows) : 0;
    t->column_first = kinds[t->kind].split == SPLIT_COLUMNS ? first_of(&own, p->split, columns) : 0;
}

static void append(params *p, param_kind kind, int layer)
{
    param_tensor *t = &p->tensors[p->count++];
    *t = (param_tensor){.kind = kind, .layer = layer};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", kinds[kind].name);
    else
        snprintf(t->name, sizeof t->name, "layers.%d.%s", layer, kinds[kind].name);
    set_shape(p, t);
    t->count = (int64_t)t->rows * t->columns;
    t->first = kinds[kind].follows ? p->elements : align_up(p->elements);
    p->elements = t->first + t->count;
    const int rows_left = t->whole_rows > t->row_first ? t->whole_rows - t->row_first : 0;
    p->parameters += (int64_t)(t->rows < rows_left ? t->rows : rows_left) * t->columns;
}

bool param_is_gain(param_kind kind)
{
    return kinds[kind].rows == DIM_ONE;
}

static void append_wanted(params *p, param_kind kind, int layer, bool weights, bool gains)
{
    if (param_is_gain(kind) ? gains : weights)
        append(p, kind, layer);
}

static void append_all(params *p, bool weights, bool gains)
{
    append_wanted(p, PARAM_LM_HEAD, -1, weights, gains);
    append_wanted(p, PARAM_LN_FINAL, -1, weights, gains);
    for (int layer = p->config.layers - 1; layer >= 0; layer--)
        for (param_kind kind = PARAM_W2; kind < PARAM_EMBEDDING; kind++)
            append_wanted(p, kind, layer, weights, gains);
    append_wanted(p, PARAM_EMBEDDING, -1, weights, gains);
}

params *params_create(const model_config *c)
{
    return params_create_with(c, false);
}

params *params_create_with(const model_config *c, bool gains_apart)
{
    return params_create_split(c, gains_apart, (model_split){1, 0});
}

params *params_create_split(const model_config *c, bool gains_apart, model_split s)
{
    char problem[160];
    if (model_config_problem(c, problem, sizeof problem))
        die(EXIT_CODE_USAGE, "no model has these dimensions: %s", problem);
    params *p = xcalloc(1, sizeof *p);
    p->config = *c;
    p->split = s;
    p->tensors = xcalloc((size_t)BLOCK_TENSORS * c->layers + 3, sizeof *p->tensors);
    p->gains_apart = gains_apart;
    append_all(p, true, !gains_apart);
    if (gains_apart)
        append_all(p, false, true);
    p->elements = align_up(p->elements);
    return p;
}

void params_pad(params *p, int64_t granularity)
{
    if (granularity > 1)
        p->elements = multiple_up(p->elements, granularity);
}

void params_pad_units(params *p, int64_t granularity)
{
    int64_t shift = 0;
    for (int i = 0; i < p->count; i++) {
        param_tensor *t = &p->tensors[i];
        const bool gains = p->gains_apart && t->kind == PARAM_LN_FINAL;
        if (t->kind == PARAM_W2 || t->kind == PARAM_EMBEDDING || gains) /* the first of a unit */
            shift = multiple_up(t->first + shift, granularity) - t->first;
        t->first += shift;
    }
    p->elements = multiple_up(p->elements + shift, granularity);
}

void params_free(params *p)
{
    if (!p)
        return;
    free(p->tensors);
    free(p);
}

/* Kinds from..end - 1 that lie where `like` does. */
static int before(const params *p, param_kind from, param_kind end, param_kind like)
{
    int n = 0;
    for (param_kind kind = from; kind < end; kind++)
        n += !p->gains_apart || param_is_gain(kind) == param_is_gain(like);
    return n;
}

const param_tensor *params_find(const params *p, param_kind kind, int layer)
{
    const bool in_block = kind >= PARAM_W2 && kind < PARAM_EMBEDDING;
    const int layers = p->config.layers, head = before(p, 0, PARAM_W2, kind);
    const int in_each = before(p, PARAM_W2, PARAM_EMBEDDING, kind);
    if (kind >= PARAM_KINDS || (in_block && (layer < 0 || layer >= layers)))
        return NULL;
    int at = p->gains_apart && param_is_gain(kind) ? p->count - 1 - GAINS_OF_BLOCK * layers : 0;
    if (kind < PARAM_W2)
        at += before(p, 0, kind, kind);
    else if (in_block)
        at += head + (layers - 1 - layer) * in_each + before(p, PARAM_W2, kind, kind);
    else
        at += head + layers * in_each;
    return &p->tensors[at];
}

int params_units(const params *p)
{
    return p->config.layers + 2 + p->gains_apart;
}

int params_gains(const params *p)
{
    return p->gains_apart ? p->config.layers + 2 : -1;
}

int params_unit_of(const params *p, const param_tensor *t)
{
    if (p->gains_apart && param_is_gain(t->kind))
        return params_gains(p);
    return params_unit(p, t->kind == PARAM_EMBEDDING ? p->config.layers : t->layer);
}

int params_unit(const params *p, int layer)
{
    const int layers = p->config.layers;
    return layer < 0 ? 0 : layer < layers ? layers - layer : layers + 1;
}

/* Where a unit begins; that of the unit behind the last one is the end. */
static int64_t unit_first(const params *p, int unit)
{
    const int layers = p->config.layers;
    if (unit == 0)
        return 0;
    if (unit <= layers)
        return params_find(p, PARAM_W2, layers - unit)->first;
    if (unit == layers + 1)
        return params_find(p, PARAM_EMBEDDING, -1)->first;
    return unit == params_gains(p) ? params_find(p, PARAM_LN_FINAL, -1)->first : p->elements;
}

void params_unit_range(const params *p, int unit, int64_t *first, int64_t *count)
{
    *first = unit_first(p, unit);
    *count = unit_first(p, unit + 1) - *first;
}

void params_range(const params *p, int layer, int64_t *first, int64_t *count)
{
    params_unit_range(p, params_unit(p, layer), first, count);
}

float params_initial_std(const param_tensor *t)
{
    if (param_is_gain(t->kind))
        return 0;
    return t->kind == PARAM_EMBEDDING ? 1 : sqrtf(2.0f / (float)(t->whole_rows + t->whole_columns));
}
