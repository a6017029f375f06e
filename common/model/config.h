/* SPDX-License-Identifier: MIT */
/* The transformer of CS336: pre-norm RMSNorm, RoPE, causal multi-head attention, SwiGLU with three matrices, an untied
 * head and no biases. Its dimensions, named sizes and exact parameter count. With no heads its blocks are feed-forward
 * alone: no attention, and no norm before it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct model_config {
    const char *name; /* "small" ... or "custom" */
    int vocab, d_model, d_ff, layers, heads, heads_kv;
    float rope_theta, norm_eps;
} model_config; /* head_dim = d_model / heads; heads, heads_kv 0: no attention */

/* tiny; small, medium, large, xl, 2.7b (2025); xl-2026, 10b; 8b (the leaderboard model of 2026); llama3-8b (Llama 3's:
 * grouped key and value heads); mlp-1024 and mlp-4096, 3 and 4 wide blocks without attention. */
extern const model_config model_sizes[]; /* ends with name == NULL */
#define MODEL_SIZE_CHOICES "tiny|small|medium|large|xl|2.7b|xl-2026|10b|8b|llama3-8b|mlp-1024|mlp-4096"

const model_config *model_size_find(const char *name); /* NULL when there is none */
/* Why these dimensions make no model ("d_model 100 is not a multiple of heads 3"), or NULL. */
const char *model_config_problem(const model_config *c, char *out, size_t out_bytes);
/* What one of several ranks that share each layer holds of it; one rank: the whole. */
typedef struct model_split {
    int ranks, rank; /* heads and d_ff are multiples of ranks; so is heads_kv, or ranks a multiple of it */
} model_split;
typedef struct layer_shape {
    int heads, heads_kv, head_dim, d_ff;
    int width, kv; /* of attention: heads head_dim, heads_kv head_dim */
    int vocab;     /* of several ranks a multiple of 64, the last ones' ids past the end: padding */
    int first_head, first_head_kv, first_id;
    int sharers_kv; /* model_sharers_kv */
} layer_shape;
layer_shape layer_shape_of(const model_config *c, model_split s);

int model_head_dim(const model_config *c); /* 0 without attention */
/* So many neighbours hold the same key and value heads, where ranks share each layer. */
int model_sharers_kv(const model_config *c, int ranks);
/* The size with those dimensions of `asked` that are not 0. Heads and d_ff follow another d_model unless they are asked for, so that
 * head_dim and the ratio d_ff / d_model stay. heads_kv follow heads: as many of them share one as in the size, or none do where these
 * don't divide heads. */
model_config model_config_resized(const model_config *size, const model_config *asked);
/* What has to be asked for so that the size becomes `c`; 0 for what it has by itself. */
model_config model_config_departures(const model_config *size, const model_config *c);
int model_kv_dim(const model_config *c); /* heads_kv * head_dim */
/* 2 V d + L (2 d^2 + 2 d kv + 3 d F + 2 d) + d; 2 V d + L (3 d F + d) + d without attention */
int64_t model_parameters(const model_config *c);
