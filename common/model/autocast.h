/* SPDX-License-Identifier: MIT */
/* Automatic mixed precision as an eager framework does it: parameters stay fp32, and each op chooses by its kind in
 * which dtype it runs. Tensors know their dtype, casts are tensors of their own, and backward walks what forward did.
 *
 * The kinds are those of PyTorch's autocast ("Automatic Mixed Precision package - torch.amp", section "Autocast Op
 * Reference", lists of CUDA ops):
 *   low      matmul, linear, conv, ...: inputs are cast to the low dtype
 *   fp32     layer_norm, softmax, cross_entropy, sum, exp, log, pow, ...: inputs are cast to fp32
 *   widest   ops of several inputs: they are cast to the widest dtype among them
 *   follow   every op that no list names, such as relu: it runs in the dtype of its input
 * A gradient has the dtype of its tensor, so backward runs each op in the dtype of its forward, and the gradient of an
 * fp32 parameter comes back to fp32 through the cast. As there, an fp32 parameter is cast once and the copy is used
 * again.
 *
 * The engine is for small models and for showing dtypes: every op is launched on its own, and everything that forward
 * makes is kept. The first op that fails is remembered, and those after it do nothing and return NULL. */
#ifndef STEPBENCH_MODEL_AUTOCAST_H
#define STEPBENCH_MODEL_AUTOCAST_H

#include "common/device/device.h"
#include "common/device/memory.h"
#include "kernels/kernels.h"

typedef enum autocast_kind { AUTOCAST_LOW, AUTOCAST_FP32, AUTOCAST_WIDEST, AUTOCAST_FOLLOW } autocast_kind;
typedef struct autocast_rule {
    const char *op;
    autocast_kind kind;
} autocast_rule;
extern const autocast_rule autocast_rules[]; /* of the ops below; ends with op == NULL */

typedef struct autocast_tensor {
    char name[64];
    sb_dtype dtype;
    int rows, columns;
    void *data;      /* (rows, columns), device memory */
    void *grad;      /* the same shape and dtype; NULL until backward has reached it */
    bool wants_grad; /* a parameter, or made from one */
    bool parameter;
} autocast_tensor;

typedef struct autocast autocast;

/* With low == SB_FP32 autocast is off: every op runs in the dtype of its inputs. */
autocast *autocast_create(device *d, memory *m, const sb_kernels *k, sb_context *ctx, sb_dtype low);
void autocast_free(autocast *a);              /* gives all its memory back */
sb_status autocast_status(const autocast *a); /* of the first op that failed, with sb_last_message; SB_OK */

/* fp32 tensors from host values (rows * columns). */
autocast_tensor *autocast_parameter(autocast *a, const char *name, int rows, int columns, const float *values);
autocast_tensor *autocast_input(autocast *a, const char *name, int rows, int columns, const float *values);

autocast_tensor *autocast_linear(autocast *a, const char *name, autocast_tensor *x,
                                 autocast_tensor *weight); /* x W^T, weight (out, in) */
autocast_tensor *autocast_relu(autocast *a, const char *name, autocast_tensor *x);
autocast_tensor *autocast_add(autocast *a, const char *name, autocast_tensor *x, autocast_tensor *y);
/* (x - mean) / sqrt(var + eps) * weight + bias over each row; weight and bias (1, columns). Ba, Kiros, Hinton, "Layer
 * normalization" (2016). */
autocast_tensor *autocast_layer_norm(autocast *a, const char *name, autocast_tensor *x, autocast_tensor *weight,
                                     autocast_tensor *bias, float eps);
/* Mean over rows of the cross-entropy with targets (rows), host memory; a (1, 1) tensor. */
autocast_tensor *autocast_cross_entropy(autocast *a, const char *name, autocast_tensor *logits, const int32_t *targets);

/* Gradients of everything that `loss`, a (1, 1) fp32 tensor, was made from, `scale` times as large: the loss scale.
 * Once an engine. */
bool autocast_backward(autocast *a, autocast_tensor *loss, float scale);

/* Host copies as floats; they wait for the device. */
void autocast_read(autocast *a, const autocast_tensor *t, float *out);
void autocast_read_grad(autocast *a, const autocast_tensor *t, float *out); /* t->grad is not NULL */

/* Every tensor so far, casts included ("fc1.weight as bf16"), in the order in which they were made. */
size_t autocast_tensors(const autocast *a, autocast_tensor *const **out);

#endif
