/* SPDX-License-Identifier: MIT */
/* Accounting of memory and communication in data, tensor and optimizer parallelism: closed forms, no device.
 *
 * The first part answers `communication_accounting` of CS336, assignment 2, in the notation of "How to Scale Your
 * Model" (Austin et al., 2025, chapters on sharding and training): B tokens of the whole batch, X devices along the
 * FSDP axis, Y along the tensor-parallel one, N = X Y, C FLOP/s of a device, W bytes/s of one mesh axis in both
 * directions, M_X and M_Y mesh axes given to each. The second is that assignment's forms of 2026, where W is what a
 * device can send. The third is of GPUs behind a switch: W is the bus bandwidth of a collective, and
 * w = W n / (2 (n - 1)) is the bytes of an all-reduce of n ranks over its time.
 * Times are seconds, sizes bytes. INFINITY: no batch, or no number of devices, is enough. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ---- memory of a stack of feed-forward blocks ---- */

/* Blocks of two matrices (d x F, F x d), or of SwiGLU's three (two d x F, one F x d); no attention. */
typedef struct ffn_stack {
    int64_t d_model, d_ff, blocks, matrices;
} ffn_stack;

enum {
    ACCOUNTING_STATE_BYTES = 16,     /* of a parameter, all fp32: master weight 4, gradient 4, AdamW's moments 8 */
    ACCOUNTING_ACTIVATION_BYTES = 2, /* bf16 */
};

int64_t ffn_parameters(const ffn_stack *s); /* P = blocks matrices d F */
/* Kept for backward by a token in bf16: a product keeps its input, so a block of two keeps d + F elements; SwiGLU also
 * keeps gate and up, d + 3 F. A block's output is the next one's input. */
int64_t ffn_saved_per_token(const ffn_stack *s);

/* FSDP shards the state and every second layer's activations: 16 P / N + A/2 (1 + 1/N), with A the activations. */
double fsdp_device_bytes(const ffn_stack *s, double devices, double tokens);
/* The least N that needs less than device_bytes; with `exact` where both are equal, which is no whole number. */
double fsdp_devices(const ffn_stack *s, double device_bytes, double tokens, double *exact);
/* The most tokens that any number of devices can hold: the half of A that is not sharded must fit. */
double fsdp_tokens_most(const ffn_stack *s, double device_bytes);

/* ---- when does a block compute longer than it communicates? ---- */

typedef struct ffn_mesh {
    double x, y;                           /* devices along the FSDP and the tensor-parallel axis */
    double mesh_x, mesh_y;                 /* M_X, M_Y */
    double flops, bandwidth;               /* C of a device, W of one axis */
    double weight_bytes, activation_bytes; /* of an element on the wire */
} ffn_mesh;

typedef struct mesh_rules {
    bool at_once; /* the collectives of the two axes run beside each other, not one after the other */
    bool rings;   /* (k - 1)/k of the bytes, as a ring of k devices sends, not all of them */
} mesh_rules;

typedef struct mesh_times {
    double math, fsdp, tp;
} mesh_times;

/* Forward of one block of m matrices: math = 2 m B d F / (N C); fsdp = m d F weight_bytes / (Y W M_X) gathers the
 * weights; tp = 2 B d activation_bytes / (X W M_Y) gathers the input and scatters the output. An axis of one device
 * sends nothing. */
mesh_times mesh_forward(const ffn_stack *s, const ffn_mesh *m, double tokens, mesh_rules r);
/* What must be less than math. */
double mesh_communication(mesh_times t, mesh_rules r);
/* The B at which both are equal; more is bound by compute. 0: any batch is. */
double mesh_tokens(const ffn_stack *s, const ffn_mesh *m, mesh_rules r);
double mesh_intensity(const ffn_mesh *m); /* alpha = C / W, FLOP/byte */

typedef struct mesh_split {
    double x, y, tokens_per_device;
} mesh_split;
/* The X that needs the smallest batch on N = X Y devices, axes one after the other: for two matrices and 2-byte data
 * B/N = 4 alpha^2 / (M_X M_Y F) at X = sqrt(B M_X N / (F M_Y)). It need not be whole, nor from 1 to N. */
mesh_split mesh_best_split(const ffn_stack *s, const ffn_mesh *m);
mesh_split mesh_best_whole_split(const ffn_stack *s,
                                 const ffn_mesh *m); /* of the whole X that divide N, with tokens/device */
/* FSDP alone over some mesh axes, without tensor parallelism: alpha weight_bytes / (2 axes) tokens a device. */
double mesh_pure_fsdp(const ffn_mesh *m, double axes);

/* ---- the forms of 2026: three matrices, 2-byte data, rho = W / C ---- */

typedef enum closed_form {
    FORM_ALL_REDUCE, /* of a block's gradients, 6 d F bytes */
    FORM_DATA,       /* backward of data parallelism */
    FORM_FSDP_FORWARD,
    FORM_FSDP_BACKWARD,
    FORM_TENSOR_FORWARD,
    FORM_TENSOR_BACKWARD,
    FORM_2D_AT_ONCE, /* forward, X of FSDP and Y of tensor parallelism, their collectives beside each other */
    FORM_2D_IN_TURN,
    CLOSED_FORMS
} closed_form;
#define CLOSED_FORM_NAMES                                                                                              \
    "all-reduce|data|fsdp-forward|fsdp-backward|tensor-forward|tensor-backward|2d-at-once|2d-in-turn"

/* S bytes on n devices in a ring: every device passes whole buffers on, n - 1 of them; or a reduce-scatter and an
 * all-gather, 2 (n - 1)/n of one. */
double all_reduce_alternate_s(double bytes, double n, double bandwidth);
double all_reduce_s(double bytes, double n, double bandwidth);

typedef struct closed_answer {
    double math_s, comm_s;       /* on X and Y devices, at B tokens */
    double devices;              /* the most N that B keeps bound by compute */
    double devices_x, devices_y; /* how a 2D form divides them */
    double tokens;               /* the least B for X and Y */
} closed_answer;
/* With B = 0, times and devices are those at the least B. Forms of one axis have N = X Y on it. */
closed_answer closed_form_of(closed_form form, const ffn_stack *s, const ffn_mesh *m, double tokens);

/* ---- data parallelism of GPUs ---- */

double all_reduce_rate(double bandwidth, double ranks); /* w of W; INFINITY for one rank */
/* Tokens of a GPU whose backward, 4 FLOPs for each weight that multiplies, takes as long as the all-reduce of all
 * gradients. */
double data_parallel_tokens(double parameters, double matmul_parameters, double grad_bytes, double ranks, double flops,
                            double bandwidth);

/* Gradients of s bytes, ready at g bytes/s, reduced at w bytes/s in equal buckets, each o seconds more. The overhead is
 * the time that the last bucket ends after backward. */
typedef struct bucket_model {
    double bytes, rate, overhead_s; /* s, w, o */
    double ready_rate;              /* g */
    double kappa;                   /* share of a collective's time by which it delays what computes beside it */
} bucket_model;

double bucket_count(const bucket_model *m, double bucket); /* n = s / b */
/* The handout's: each bucket is ready as fast as it is sent (g = w) and o is never hidden: n o + s / (n w). */
double bucket_overhead(const bucket_model *m, double bucket);
double bucket_best(const bucket_model *m); /* its best b: sqrt(s o w) */
double bucket_best_count(const bucket_model *m, bool whole);
/* First in, first out, with t = o + b/w and c = b/g: t + (n - 1) max(0, t - c). */
double bucket_overhead_fifo(const bucket_model *m, double bucket);
double bucket_best_fifo(const bucket_model *m); /* its best b while g < w: o g w / (w - g); else INFINITY */
/* Hidden, but slowing compute: o + b/w + kappa (n o + s/w). */
double bucket_overhead_contention(const bucket_model *m, double bucket);
double bucket_best_contention(const bucket_model *m); /* sqrt(kappa s o w) */

/* ---- memory and traffic by strategy ---- */

typedef struct zero_recipe { /* bytes of a parameter */
    double param, grad;
    double state, master; /* the optimizer's, and the part of it that is there before the first step */
} zero_recipe;
#define ZERO_RECIPE_NAMES "fp32|bf16|bf16-grad32"
zero_recipe zero_recipe_of(const char *name); /* one of them */

typedef enum zero_stage { ZERO_DDP, ZERO_1_BROADCAST, ZERO_1, ZERO_2, ZERO_3 } zero_stage;
#define ZERO_STAGE_NAMES "ddp|zero1-broadcast|zero1|zero2|zero3"

typedef struct zero_bytes {
    double init;        /* parameters, and what makes 16-bit ones fp32 */
    double before_step; /* and gradients; activations are gone, moments not there yet */
    double after_step;  /* and moments: what is held from then on */
    double slots; /* beside these while forward and backward run: gathered parameters, gradients not yet reduced */
} zero_bytes;
/* What one of n ranks holds. `slots` of each kind hold the largest unit, of unit_parameters; ZeRO-2 has those of gradients. */
zero_bytes zero_memory(zero_stage stage, zero_recipe r, double parameters, double ranks, double slots,
                       double unit_parameters);

typedef struct zero_wire { /* elements that a rank sends in a step */
    double grads, params;
} zero_wire;
/* DDP and ZeRO-1, -2: 2 P (n - 1)/n; ZeRO-3 gathers twice: 3 P (n - 1)/n; so does all-reduce and then broadcast, in
 * which every rank but the last of the ring passes each parameter on. */
zero_wire zero_wire_elements(zero_stage stage, double parameters, double ranks);
