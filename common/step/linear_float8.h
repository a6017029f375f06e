/* SPDX-License-Identifier: MIT */
/* The products of linear layers in float8, where the policy has them; see linear_float8.c. */
#pragma once

#include "common/step/linear.h"

typedef enum linear_pass { PASS_Y, PASS_DX, PASS_DW } linear_pass;

/* Blocks times micro-batches of a step, whose casts are counted in int. */
enum { FLOAT8_MOST_BLOCKS = 1 << 25 };

/* After the parts and parameters of the step are known. */
void float8_create(step *s);
void float8_free(step *s);
size_t float8_weight_bytes(const step *s); /* of copies of weights that stay from one micro-batch to the next */
void float8_begin(step *s);                /* a step begins: no copy of a weight is that of the present weight */
void float8_history(step *s); /* behind it, and ahead of all casts: words of the step before, on which ranks agree */

/* Makes the product of 16 bits that of the policy. False: it stays as it is, since the policy, or a size that is no multiple
 * of 16, has no float8 there. */
bool float8_shape(const step *s, int which, linear_pass pass, sb_matmul *p);

/* Casts x, the input of a layer whose forward comes next, both ways at once; the forward takes the one copy, and *turned is the
 * one for dw. Does nothing where that product, or dw's, is not in float8, and in an eager step. */
void float8_input(step *s, int which, int layer, arena_slot x, arena_slot *turned);
/* n1 or n2 as the input of qkv or gate_up, made of x and its statistics within the cast: with `output` the copy of the forward,
 * ahead of which the statistics are made, and dw's unless `turned` is NULL. False, and nothing is done, where the norm is an op of
 * its own. */
bool float8_norm(step *s, int which, int layer, arena_slot x, arena_slot rstd, bool output, arena_slot *turned);
/* The gradient of qkv, of which attention has left that of turned heads, turned back within its cast for dx and dw. False, and
 * nothing is done, where RoPE's gradient is an op of its own. */
bool float8_rope_backward(step *s, int layer, arena_slot d_qkv);
/* h as W2's input, made of gate_up within its cast: the copy of the forward where `output` is wanted, and dw's unless `turned` is
 * NULL. The gradient of gate_up likewise, for dx and dw. False, and nothing is done, where SwiGLU is an op of its own. */
bool float8_swiglu_forward(step *s, int layer, arena_slot gate_up, bool output, arena_slot *turned);
bool float8_swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh);
size_t float8_turned_bytes(const step *s, int which);
void float8_weight_shape(const step *s, int which, int *out, int *in); /* of LINEAR_QKV ... LINEAR_W2 */
extern const param_kind float8_weight_kinds[LINEAR_HEAD];              /* the first of each */

/* Blocks that are gathered as codes, and the words of their scales; see train/codes.c. */
struct step_codes {
    sb_scaling scaling;
    int words_of[LINEAR_HEAD],
        first_of[LINEAR_HEAD]; /* of the scale space: a layer's weights, and where they begin in it */
    int layer_words;
    size_t own, agreed, scales, unused, slices, bytes; /* where they lie in memory, and the end */
    char *memory;
};
int float8_code_word(const struct step_codes *c, int which, int layer); /* where a weight's words begin */
float *float8_code_scales(const step *s, int which, int layer);

/* What a product's casts hold of the arena. */
typedef struct float8_operands {
    arena_slot a, b;
} float8_operands;
/* The same with its operands: casts what p->a and p->b point to. `shared`: dx and dw of this layer both come now, one behind the
 * other, and share one cast of the gradient. `turned`, for dw: p->b is float8_input's copy. `stream` is that of the product. */
float8_operands float8_take(step *s, int which, int layer, linear_pass pass, bool shared, bool turned, sb_matmul *p,
                            void *stream);
void float8_drop(step *s, float8_operands *o, bool aside);
