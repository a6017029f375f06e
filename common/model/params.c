/* SPDX-License-Identifier: MIT */
/* The index space of the parameters, laid out once by walking the model backwards, and their initial values. */
#include "common/model/params.h"

#include "common/core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each kind is called in CS336's state_dict, and its shape in terms of the model's dimensions. */
typedef enum dimension { DIM_ONE, DIM_D, DIM_KV, DIM_F, DIM_V } dimension;
static const struct {
    const char *name; /* within a block: after "layers.N." */
    dimension rows, columns;
    bool follows; /* lies against the tensor before it, without padding */
} kinds[PARAM_KINDS] = {
    [PARAM_LM_HEAD] = {"lm_head.weight", DIM_V, DIM_D, false},
    [PARAM_LN_FINAL] = {"ln_final.weight", DIM_ONE, DIM_D, false},
    [PARAM_W2] = {"ffn.w2.weight", DIM_D, DIM_F, false},
    [PARAM_W1] = {"ffn.w1.weight", DIM_F, DIM_D, false},
    [PARAM_W3] = {"ffn.w3.weight", DIM_F, DIM_D, true},
    [PARAM_LN2] = {"ln2.weight", DIM_ONE, DIM_D, false},
    [PARAM_O] = {"attn.output_proj.weight", DIM_D, DIM_D, false},
    [PARAM_Q] = {"attn.q_proj.weight", DIM_D, DIM_D, false},
    [PARAM_K] = {"attn.k_proj.weight", DIM_KV, DIM_D, true},
    [PARAM_V] = {"attn.v_proj.weight", DIM_KV, DIM_D, true},
    [PARAM_LN1] = {"ln1.weight", DIM_ONE, DIM_D, false},
    [PARAM_EMBEDDING] = {"token_embeddings.weight", DIM_V, DIM_D, false},
};
enum { HEAD_TENSORS = PARAM_W2, BLOCK_TENSORS = PARAM_EMBEDDING - PARAM_W2 };

static int dimension_of(const model_config *c, dimension d)
{
    switch (d) {
    case DIM_ONE: return 1;
    case DIM_D: return c->d_model;
    case DIM_KV: return model_kv_dim(c);
    case DIM_F: return c->d_ff;
    case DIM_V: return c->vocab;
    }
    return 0;
}

static int64_t multiple_up(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

static int64_t align_up(int64_t n)
{
    return multiple_up(n, PARAMS_ALIGNMENT);
}

static void append(params *p, param_kind kind, int layer)
{
    param_tensor *t = &p->tensors[p->count++];
    *t = (param_tensor){.kind = kind, .layer = layer};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", kinds[kind].name);
    else
        snprintf(t->name, sizeof t->name, "layers.%d.%s", layer, kinds[kind].name);
    t->rows = dimension_of(&p->config, kinds[kind].rows);
    t->columns = dimension_of(&p->config, kinds[kind].columns);
    t->count = (int64_t)t->rows * t->columns;
    t->first = kinds[kind].follows ? p->elements : align_up(p->elements);
    p->elements = t->first + t->count;
    p->parameters += t->count;
}

params *params_create(const model_config *c)
{
    char problem[160];
    if (model_config_problem(c, problem, sizeof problem))
        die(EXIT_CODE_USAGE, "no model has these dimensions: %s", problem);
    params *p = xcalloc(1, sizeof *p);
    p->config = *c;
    p->tensors = xcalloc((size_t)BLOCK_TENSORS * c->layers + 3, sizeof *p->tensors);
    append(p, PARAM_LM_HEAD, -1);
    append(p, PARAM_LN_FINAL, -1);
    for (int layer = c->layers - 1; layer >= 0; layer--)
        for (param_kind kind = PARAM_W2; kind < PARAM_EMBEDDING; kind++)
            append(p, kind, layer);
    append(p, PARAM_EMBEDDING, -1);
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
        if (t->kind == PARAM_W2 || t->kind == PARAM_EMBEDDING) /* the first of a unit */
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

const param_tensor *params_find(const params *p, param_kind kind, int layer)
{
    if (kind < PARAM_W2)
        return &p->tensors[kind];
    if (kind == PARAM_EMBEDDING)
        return &p->tensors[p->count - 1];
    if (kind > PARAM_EMBEDDING || layer < 0 || layer >= p->config.layers)
        return NULL;
    return &p->tensors[HEAD_TENSORS + (p->config.layers - 1 - layer) * BLOCK_TENSORS + (kind - PARAM_W2)];
}

const param_tensor *params_named(const params *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return &p->tensors[i];
    return NULL;
}

int params_units(const params *p)
{
    return p->config.layers + 2;
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
    return unit == layers + 1 ? params_find(p, PARAM_EMBEDDING, -1)->first : p->elements;
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
    if (kinds[t->kind].rows == DIM_ONE) /* a norm's gain */
        return 0;
    return t->kind == PARAM_EMBEDDING ? 1 : sqrtf(2.0f / (float)(t->rows + t->columns));
}
