/* SPDX-License-Identifier: MIT */
/* The one index space: parameters, gradients, master weights and both Adam moments are arenas over the same element
 * indices, in the order in which backward finishes gradients: lm_head, ln_final, then for each block from the last to
 * the first w2, w1, w3, ln2, o, q, k, v, ln1, and finally the embedding. A bucket or a shard is a range of it. Blocks
 * without attention end with ln2.
 *
 * q, k, v of a block lie side by side without padding, so that one product with a (d + 2 kv, d) matrix makes all three;
 * likewise w1 (gate) and w3 (up). Every other tensor starts at a multiple of PARAMS_ALIGNMENT elements; what lies
 * between is padding, zero, and stays zero. Where ranks share each layer, each has such a space of its own parts.
 *
 * A unit is what sharded strategies gather, free and reduce together: the head, a block, or the embedding. The gains of
 * norms, which are small, may be a unit of their own: behind the embedding, in the same order. */
#pragma once

#include "common/model/config.h"

enum { PARAMS_ALIGNMENT = 64 };

/* Layers [first, end) of a model, with its embedding and its head or without: what a stage of a pipeline holds. */
typedef struct model_part {
    int first, end;
    bool embedding, head;
} model_part;

typedef enum param_kind {
    PARAM_LM_HEAD,   /* (V, d) */
    PARAM_LN_FINAL,  /* (d) */
    PARAM_W2,        /* (d, F) */
    PARAM_W1,        /* (F, d): the gate */
    PARAM_W3,        /* (F, d): the other factor */
    PARAM_LN2,       /* (d), before the feed-forward */
    PARAM_O,         /* (d, d) */
    PARAM_Q,         /* (d, d) */
    PARAM_K,         /* (kv, d) */
    PARAM_V,         /* (kv, d) */
    PARAM_LN1,       /* (d), before attention */
    PARAM_EMBEDDING, /* (V, d) */
    PARAM_KINDS
} param_kind;

typedef struct param_tensor {
    char name[64]; /* "layers.3.attn.q_proj.weight": the name in CS336's state_dict */
    param_kind kind;
    int layer;         /* -1 outside the blocks */
    int rows, columns; /* row-major (out, in); a norm's gain is (1, d) */
    /* The tensor of the whole model, and where this begins in it: not at 0 and of the same shape where ranks share a layer.
     * Rows past the last one (of the vocabulary) are padding, zero. */
    int whole_rows, whole_columns, row_first, column_first;
    int64_t first;       /* element index */
    int64_t whole_first; /* the same in the index space of all layers: not `first` where this is a stage's */
    int64_t count;       /* rows * columns */
} param_tensor;

typedef struct params {
    model_config config;
    int count;             /* tensors: 9 L + 3 of a whole model, 4 L + 3 without attention */
    param_tensor *tensors; /* in index order */
    int64_t elements;      /* of an arena, padding included */
    int64_t parameters;    /* without padding: of a whole model, model_parameters(config) */
    model_split split;
    bool gains_apart;
    int units;           /* with that of gains that are apart */
    int *layer_of;       /* (units) -1: the head; layers: the embedding, and the gains */
    int *unit_of;        /* (L + 2) by layer + 1; -1: not held */
    int *unit_starts_at; /* (units) tensors */
} params;

params *params_create(const model_config *c);
/* What a rank of several holds that share each layer. All of them have the same layout: rows of q, k, v, w1, w3, the head and
 * the embedding, columns of o and w2; gains are whole. */
params *params_create_split(const model_config *c, bool gains_apart, model_split s);
/* What these parts hold, in the order of the whole model; each tensor keeps its name, and so its initial values. */
params *params_create_parts(const model_config *c, bool gains_apart, model_split s, const model_part *parts, int count);
/* How many of these elements, from the first on, follow each other in the index space of all layers as well; the first one's
 * place there. */
int64_t params_run(const params *p, int64_t first, int64_t count, int64_t *whole_first);
void params_pad(params *p, int64_t granularity); /* makes `elements` a multiple of it; 0: leaves it */
/* The same for every unit's first element, so that each unit can be cut into equal slices. */
void params_pad_units(params *p, int64_t granularity);
void params_free(params *p);
const param_tensor *params_find(const params *p, param_kind kind, int layer); /* NULL: not held */
/* Units, in index order: 0 is the head with the final norm, then come the blocks from the last, then the embedding, and
 * then the gains where they are apart. */
int params_units(const params *p);
int params_unit(const params *p, int layer); /* layer as in params_range; -1: not held */
int params_unit_of(const params *p, const param_tensor *t);
int params_gains(const params *p); /* the unit of gains that are apart; -1: they are not */
void params_unit_range(const params *p, int unit, int64_t *first, int64_t *count);
bool param_is_gain(param_kind kind);
/* The range [first, first + count) that a block's gradients fill, padding included; layer -1: head and final norm;
 * layer == layers: the embedding. */
void params_range(const params *p, int layer, int64_t *first, int64_t *count);
/* Standard deviation of a tensor's initial values, which are normal: sqrt(2/(in+out)) for a linear layer, 1 for the
 * embedding; 0 for a norm's gain, which starts as 1. (CS336 cuts the tails at 3 of it; that changes no measurement.) */
float params_initial_std(const param_tensor *t);
