/* SPDX-License-Identifier: MIT */
/* One GPU's (or the CPU's) training step: a transformer, its memory, forward, backward and AdamW, enqueued as eager ops
 * or replayed as one CUDA graph. The benches and the strategies of data parallelism drive this. */
#pragma once

#include "common/arena/arena.h"
#include "common/device/device.h"
#include "common/device/memory.h"
#include "common/model/params.h"
#include "common/step/options.h"
#include "common/model/products.h"

typedef struct trainer trainer;

/* Plans, allocates from `m`, fills parameters and random tokens from the seed. NULL with a sentence in `why`: an
 * unsupported shape or no memory (then memory_failed(m) is also true). `k` is the table of the device's kind. */
trainer *trainer_create(device *d, memory *m, const sb_kernels *k, sb_context *ctx, const step_options *o, char *why,
                        size_t why_bytes);
/* The bytes that a trainer of these options would take from the device, less up to 64 KiB of gaps: planned, not taken.
 * With OVERLAP_AUTO the most that tuning may choose. -1: an unsupported shape. */
int64_t trainer_planned_bytes(device *d, const sb_kernels *k, sb_context *ctx, const step_options *o);
/* trainer_offloaded_bytes of such a trainer, likewise. */
int64_t trainer_planned_offload(device *d, const sb_kernels *k, sb_context *ctx, const step_options *o);
void trainer_free(trainer *t); /* gives its memory back to `m` */
/* Between two steps: bf16 becomes a float8 policy, one of these another, or bf16 again. Parameters, their master, moments and
 * tokens keep their bits and addresses; activations and cast weights are planned anew, and products are to be tuned again. False with
 * a sentence in `why`, and nothing is changed, unless it is memory that is not enough: then the trainer is only good for
 * trainer_free. */
bool trainer_convert(trainer *t, const precision *to, char *why, size_t why_bytes);

/* (batch, seq) ids in [0, vocab), host memory; of all micro-batches, one after another. */
void trainer_set_tokens(trainer *t, const int32_t *ids, const int32_t *targets);
void trainer_set_lr(trainer *t, double lr);
void trainer_set_loss_scale(trainer *t, double scale); /* of the fp16 policy; it starts at 65536 */
/* The calls of trainer_step that follow take more batches of the step before, as other ranks would: delayed scales stay. */
void trainer_set_same_step(trainer *t, bool same);

/* Walks a step as it will be and launches nothing: tells the hops where tensors will come. Before the first step. */
void trainer_rehearse(trainer *t);

/* Enqueues one step on the device's stream: the graph with FUSION_GRAPH where graphs exist (captured at the second
 * step: the first runs eagerly and warms up), else op by op. False with sb_last_message. Does not wait. */
bool trainer_step(trainer *t);
overlap trainer_overlap(const trainer *t); /* what runs beside the backward, whatever was asked for */
double trainer_loss(trainer *t);           /* of the last step, waits for it; NaN where the head is another rank's */
/* Bytes that a micro-batch copies to pinned memory of the host, and back again; as many are held there. */
int64_t trainer_offloaded_bytes(const trainer *t);
/* How long the last micro-batch's forward and backward waited for these copies, milliseconds; waits for it. */
double trainer_offload_exposed_ms(trainer *t);
typedef struct
    step_times { /* milliseconds of the last step on the device's stream, waits for it; 0 where a mode has no such phase */
    double forward, backward, optimizer; /* the optimizer's part is what remains after backward's last op */
    double step;
} step_times;
step_times trainer_times(trainer *t);

/* Access for checks and benches; all wait for the device. */
const params *trainer_params(const trainer *t);
const step_options *trainer_options_of(const trainer *t);
void trainer_read_param(trainer *t, const param_tensor *p, float *out); /* master value where all of it is here */
void trainer_write_param(trainer *t, const param_tensor *p, const float *in);
void trainer_read_grad(trainer *t, const param_tensor *p, float *out); /* unscaled; valid after a backward */
/* Not with loss_chunk, where they never are whole. Logits (batch*seq, vocab) of a forward with the present parameters
 * and tokens; also sets the loss. */
bool trainer_read_logits(trainer *t, float *out);
void trainer_optimizer_state(trainer *t, sb_optimizer_state *out);
/* AdamW's m and v of a part of a tensor, as they lie in memory; of a trainer that holds all of them. */
void trainer_read_moments(trainer *t, const param_tensor *p, void *m, void *v);

/* Memory. The arena's events are those of one step; what lives outside it (parameters, moments, ...) is in `resident`. */
typedef struct trainer_memory {
    int64_t resident[MEMORY_KINDS];  /* held from creation to trainer_free, outside the arena */
    int64_t arena_bytes;             /* the block that holds activations, temporaries, workspaces and gradients */
    int64_t phase_peak[STEP_PHASES]; /* resident and live in the arena at the worst op of each phase */
    int64_t allocated; /* bytes taken from the device: resident, what lies in front of it, and the arena's block */
} trainer_memory;
trainer_memory trainer_memory_of(const trainer *t);
const arena *trainer_arena(const trainer *t);

/* The matrix products of the step, and what was chosen for them. */
int trainer_products(const trainer *t, const tuned_product **out);

void trainer_set_hooks(trainer *t, const step_hooks *hooks); /* after trainer_tune and before the first step */
void trainer_set_hops(trainer *t,
                      const step_hops *hops); /* likewise; needed where a part's neighbour is on another rank */
void trainer_set_share(trainer *t, const step_share *share); /* likewise; needed where ranks share layers */

/* What strategies and checkpoints work on; valid until trainer_free. Arenas cover the index space, trainer_params(t)->elements;
 * what is sharded is an arena of slices instead, each at a rank's part of where its unit begins. */
typedef struct trainer_state {
    void *stream; /* of the step */
    void *param, *grad;
    void *master, *m, *v;   /* as updates find them; NULL where the step or its precision has none */
    int64_t elements;       /* of master, m and v */
    void *scratch;          /* has no content between steps; at least one unit's parameters or gradients */
    int64_t gathered_bytes; /* of parameters or codes, each as often as a step gathers it */
    sb_dtype param_dtype, grad_dtype, moments_dtype; /* grad: of their sums */
    step_codes_place codes;
    context *context; /* NULL: sequences are not shared; else to be connected before the first step */
} trainer_state;
trainer_state trainer_state_of(const trainer *t);
/* As trainer_optimizer_state gave it: for a run that goes on. */
void trainer_set_optimizer_state(trainer *t, const sb_optimizer_state *state);
/* In a step: gradient `element` of the unit whose gradients are made now, of step_made_dtype. */
void *trainer_grad_at(const trainer *t, int64_t element);
