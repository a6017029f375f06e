/* SPDX-License-Identifier: MIT */
/* The index space of the parameters, laid out once by walking the model backwards, and their initial values. */
#include "common/model/params.h"

#include "common/core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
enum { BLOCK_TENSORS = PARAM_EMBEDDING - PARAM_W2 };

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

static bool holds(const params *p, int layer)
{
    return p->unit_of[layer + 1] >= 0;
}

static void append_all(params *p, bool weights, bool gains)
{
    const int layers = p->config.layers;
    const param_kind block_end = p->config.heads ? PARAM_EMBEDDING : PARAM_O;
    for (int u = 0; u < p->units - p->gains_apart; u++) {
        const int layer = p->layer_of[u];
        const bool head = layer < 0, block = !head && layer < layers;
        const param_kind first = head ? PARAM_LM_HEAD : block ? PARAM_W2 : PARAM_EMBEDDING;
        const param_kind end = head ? PARAM_W2 : block ? block_end : PARAM_KINDS;
        for (param_kind kind = first; kind < end; kind++)
            append_wanted(p, kind, block ? layer : -1, weights, gains);
    }
}

static void number_unit(params *p, int layer, bool held)
{
    p->unit_of[layer + 1] = held ? p->units : -1;
    if (held)
        p->layer_of[p->units++] = layer;
}

/* In index order: the head, the blocks from the last, the embedding, gains that are apart. */
static void number_units(params *p, const model_part *parts, int count)
{
    bool head = false, embedding = false;
    for (int k = 0; k < count; k++)
        head |= parts[k].head, embedding |= parts[k].embedding;
    number_unit(p, -1, head);
    for (int layer = p->config.layers - 1; layer >= 0; layer--) {
        bool held = false;
        for (int k = 0; k < count; k++)
            held |= layer >= parts[k].first && layer < parts[k].end;
        number_unit(p, layer, held);
    }
    number_unit(p, p->config.layers, embedding);
    if (p->gains_apart)
        p->layer_of[p->units++] = p->config.layers;
}

params *params_create(const model_config *c)
{
    return params_create_split(c, false, (model_split){1, 0});
}

params *params_create_split(const model_config *c, bool gains_apart, model_split s)
{
    return params_create_parts(c, gains_apart, s, &(model_part){0, c->layers, true, true}, 1);
}

params *params_create_parts(const model_config *c, bool gains_apart, model_split s, const model_part *parts, int count)
{
    char problem[160];
    if (model_config_problem(c, problem, sizeof problem))
        die(EXIT_CODE_USAGE, "no model has these dimensions: %s", problem);
    const size_t most = (size_t)c->layers + 3;
    params *p = xcalloc(1, sizeof *p);
    p->config = *c;
    p->split = s;
    p->tensors = xcalloc((size_t)BLOCK_TENSORS * c->layers + 3, sizeof *p->tensors);
    p->layer_of = xcalloc(most, sizeof *p->layer_of);
    p->unit_of = xcalloc(most, sizeof *p->unit_of);
    p->unit_starts_at = xcalloc(most, sizeof *p->unit_starts_at);
    p->gains_apart = gains_apart;
    number_units(p, parts, count);
    append_all(p, true, !gains_apart);
    if (gains_apart)
        append_all(p, false, true);
    for (int i = p->count - 1; i >= 0; i--)
        p->unit_starts_at[params_unit_of(p, &p->tensors[i])] = i;
    p->elements = align_up(p->elements);
    params *whole = p->units == c->layers + 2 + gains_apart ? NULL : params_create_split(c, gains_apart, s);
    for (param_tensor *t = p->tensors; t < p->tensors + p->count; t++)
        t->whole_first = whole ? params_find(whole, t->kind, t->layer)->first : t->first;
    params_free(whole);
    return p;
}

int64_t params_run(const params *p, int64_t first, int64_t count, int64_t *whole_first)
{
    const param_tensor *t = p->tensors + p->count - 1, *end = p->tensors + p->count;
    while (t > p->tensors && t->first > first)
        t--;
    const int64_t shift = t->whole_first - t->first;
    *whole_first = first + shift;
    while (++t < end && t->whole_first - t->first == shift)
        ;
    return t < end && t->first < first + count ? t->first - first : count;
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
        if (p->unit_starts_at[params_unit_of(p, t)] == i)
            shift = multiple_up(t->first + shift, granularity) - t->first;
        t->first += shift;
        t->whole_first += shift;
    }
    p->elements = multiple_up(p->elements + shift, granularity);
}

void params_free(params *p)
{
    if (!p)
        return;
    free(p->layer_of);
    free(p->unit_of);
    free(p->unit_starts_at);
    free(p->tensors);
    free(p);
}

/* Its unit holds the tensor, or its gains do; in either, those of one layer are neighbours. */
const param_tensor *params_find(const params *p, param_kind kind, int layer)
{
    const bool in_block = kind >= PARAM_W2 && kind < PARAM_EMBEDDING;
    const int layers = p->config.layers;
    if (kind >= PARAM_KINDS || (in_block && (layer < 0 || layer >= layers)))
        return NULL;
    const int of = in_block ? layer : kind == PARAM_EMBEDDING ? layers : -1;
    if (!holds(p, of) || (!p->config.heads && kind >= PARAM_O && kind <= PARAM_LN1))
        return NULL;
    if (!p->gains_apart || !param_is_gain(kind)) {
        int at = p->unit_starts_at[p->unit_of[of + 1]];
        while (p->tensors[at].kind != kind)
            at++;
        return &p->tensors[at];
    }
    const bool head = holds(p, -1);
    const int of_block = p->config.heads ? 2 : 1;
    const int before = in_block ? head + of_block * (p->unit_of[of + 1] - head) + (kind == PARAM_LN1) : 0;
    return &p->tensors[p->unit_starts_at[p->units - 1] + before];
}

int params_units(const params *p)
{
    return p->units;
}

int params_gains(const params *p)
{
    return p->gains_apart ? p->units - 1 : -1;
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
    return p->unit_of[layer < 0 ? 0 : layer < layers ? layer + 1 : layers + 1];
}

/* Where a unit begins; that of the unit behind the last one is the end. */
static int64_t unit_first(const params *p, int unit)
{
    return unit == 0 ? 0 : unit < p->units ? p->tensors[p->unit_starts_at[unit]].first : p->elements;
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
