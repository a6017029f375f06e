/* SPDX-License-Identifier: MIT */
/* One GPU's (or the CPU's) training step: a transformer, its memory, forward, backward and AdamW, enqueued as eager ops
 * or replayed as one CUDA graph. The benches and the strategies of data parallelism drive this. */
#ifndef STEPBENCH_TRAIN_TRAINER_H
#define STEPBENCH_TRAIN_TRAINER_H

#include "common/device/device.h"
#include "common/device/memory.h"
#include "common/formulas/recompute.h"
#include "common/arena/arena.h"
#include "common/train/tune/choices.h"
#include "common/model/config.h"
#include "common/model/params.h"
#include "common/model/precision.h"
#include "kernels/peer_adamw.h"

typedef enum step_mode { STEP_FORWARD, STEP_FORWARD_BACKWARD, STEP_TRAIN } step_mode;
#define STEP_MODE_CHOICES "forward|forward-backward|train-step"

/* none: an eager framework's ops, one pass over memory each, launched from the host. kernels: fused kernels, launched
 * from the host. graph: fused kernels, the step replayed as one CUDA graph. */
typedef enum fusion { FUSION_NONE, FUSION_KERNELS, FUSION_GRAPH } fusion;
#define FUSION_CHOICES "none|kernels|graph"

/* What runs on streams of its own beside the chain of backward: nothing; weight gradients; those and AdamW of finished
 * blocks; or whichever of the three trainer_tune measures to be fastest. A GPU at its power limit gains nothing from it,
 * one with idle multiprocessors does. Gradients do not depend on it. */
typedef enum overlap { OVERLAP_NONE, OVERLAP_GRADIENTS, OVERLAP_ALL, OVERLAP_AUTO } overlap;
#define OVERLAP_CHOICES "auto|all|gradients|none"

/* What a rank holds of a model whose units (params.h) are divided into equal slices. */
typedef struct step_sharding {
    int ranks, rank; /* slices of each unit, and the one held here; 0: units are not padded to be cut */
    bool grads;      /* of gradients the slices alone are kept: a unit's lie in a slot until they are reduced */
    bool params;     /* of parameters the slices alone are kept: a unit is gathered into a slot before its use */
    int prefetch;    /* units gathered ahead of the one in use */
    bool small;      /* small parameters (gains of norms) are whole on every rank: a unit that is not cut */
    int free_every;  /* every K-th block is freed after its forward, the others stay for backward; 0: all stay */
} step_sharding;

/* The dtype in which gradients are summed and kept: that in which the backward makes them, or another one, to which they
 * are rounded unit by unit. */
typedef enum grad_sums { SUMS_AS_MADE, SUMS_FP32, SUMS_BF16 } grad_sums;

typedef struct step_options {
    model_config config;
    int batch, seq;
    step_mode mode;
    const precision *precision;
    bool grad_fp32;         /* gradients in fp32 where the policy has 16 bits */
    grad_sums sums;         /* gradients of another dtype than they are made in do not share memory with activations */
    moments_kind moments;   /* of AdamW */
    sb_fp32_products split; /* of the fp32 policy; else SB_FMA */
    bool swiglu_apart;      /* SwiGLU as ops of its own, also where it could run within its matrix products */
    const char *attention;  /* "unfused", "fused", "flash", "flash_portable" */
    recompute recompute;
    int recompute_every; /* blocks of a group, for RECOMPUTE_BLOCK; 1 or more */
    int offload;         /* OFFLOAD_... kinds of blocks leave for the host; 0: none */
    int offload_every;   /* of every k-th block, but not of the last ones; 0: as 1 */
    const recompute_schedule
        *schedule; /* what each block recomputes and offloads; NULL: all what the lines above say */
    fusion fusion;
    bool deterministic; /* attention backward too; everything else always is */
    overlap overlap;
    int optimizer_blocks; /* AdamW beside backward: blocks it may use; 0: a third as many as multiprocessors */
    int loss_chunk;       /* tokens whose logits exist at once; 0: all. Only with a backward, which has the loss then */
    bool share_grad_memory;                                /* activations may lie where gradients are not written yet */
    double lr, beta1, beta2, eps, weight_decay, clip_norm; /* clip_norm 0: none */
    uint64_t seed;
    /* A step is so many forwards and backwards, of `batch` sequences each, and one update with the sum of their gradients; 0
     * or 1: one. Gradients that are added up do not share memory with activations. */
    int micro_batches;
    /* Data parallelism. Gradients are divided by tokens x ranks, so that their sum over ranks is that of the mean loss. */
    int ranks;           /* 0 or 1: alone */
    int64_t granularity; /* the index space is a multiple of so many elements; 0: as it comes */
    int64_t
        state_elements; /* of the optimizer's state that is held here; 0: all. With an fp32 master (fp16 policy) only with shard.grads */
    step_sharding shard; /* needs the hooks for it, from the first step on */
} step_options;
/* What backward computes again, block by block. */
recompute_schedule step_schedule(const step_options *o);
int step_micro_batches(const step_options *o); /* of a step, 1 or more */
/* Whether SwiGLU runs within its matrix products: with fused kernels, in 16 bits, where the backend can. */
bool step_fuses_swiglu(const step_options *o, const sb_kernels *k, sb_context *ctx);
step_options step_defaults(void); /* small, batch 4, seq 128, train step, fp32, flash, graph, lr 1e-3 ... */
step_mode step_mode_parse(const char *name);
recompute recompute_parse(const char *name);
fusion fusion_parse(const char *name);
overlap overlap_parse(const char *name);
const char *overlap_name(overlap o);

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

/* Chooses an algorithm for every matrix product of the step: one that is known, else by timing, which is then added to
 * `known` (NULL: nothing is known). A choice that this trainer has made already stays. False with sb_last_message. */
bool trainer_tune_products(trainer *t, choices *known);
/* The same, then what only whole steps can tell: with OVERLAP_AUTO the way of overlap, and of large products that were
 * timed in this run the algorithm, raced against its rivals. Before the first step. Parameters, moments and tokens are
 * as before afterwards. */
bool trainer_tune(trainer *t, choices *known);

/* (batch, seq) ids in [0, vocab), host memory; of all micro-batches, one after another. */
void trainer_set_tokens(trainer *t, const int32_t *ids, const int32_t *targets);
void trainer_set_lr(trainer *t, double lr);
void trainer_set_loss_scale(trainer *t, double scale); /* of the fp16 policy; it starts at 65536 */

/* Enqueues one step on the device's stream: the graph with FUSION_GRAPH where graphs exist (captured at the second
 * step: the first runs eagerly and warms up), else op by op. False with sb_last_message. Does not wait. */
bool trainer_step(trainer *t);
overlap trainer_overlap(const trainer *t); /* what runs beside the backward, whatever was asked for */
double trainer_loss(trainer *t);           /* of the last step, waits for it */
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
/* Only the optimizer, over all parameters, with the gradients that are there: for timing it alone. */
bool trainer_optimizer(trainer *t);
double trainer_optimizer_bytes(const trainer *t); /* its necessary traffic */

/* Access for checks and benches; all wait for the device. */
const params *trainer_params(const trainer *t);
const step_options *trainer_options_of(const trainer *t);
void trainer_read_param(trainer *t, const param_tensor *p, float *out); /* master value where all of it is here */
void trainer_write_param(trainer *t, const param_tensor *p, const float *in);
void trainer_read_grad(trainer *t, const param_tensor *p, float *out);       /* unscaled; valid after a backward */
void trainer_write_grad(trainer *t, const param_tensor *p, const float *in); /* until the next forward */
/* Not with loss_chunk, where they never are whole. Logits (batch*seq, vocab) of a forward with the present parameters and tokens; also sets the loss. */
bool trainer_read_logits(trainer *t, float *out);
void trainer_optimizer_state(trainer *t, sb_optimizer_state *out);
/* AdamW's m and v of a part of a tensor, as they lie in memory; of a trainer that holds all of them. */
void trainer_read_moments(trainer *t, const param_tensor *p, void *m, void *v);

/* Memory. The arena's events are of one step; what lives outside it (parameters, moments, ...) is in `resident`. */
typedef struct trainer_memory {
    int64_t resident[MEMORY_KINDS];  /* held from creation to trainer_free, outside the arena */
    int64_t arena_bytes;             /* the block that holds activations, temporaries, workspaces and gradients */
    int64_t phase_peak[STEP_PHASES]; /* resident and live in the arena at the worst op of each phase */
    int64_t allocated; /* bytes taken from the device: resident, what lies in front of it, and the arena's block */
} trainer_memory;
trainer_memory trainer_memory_of(const trainer *t);
const arena *trainer_arena(const trainer *t);

/* The products that were tuned, for reports: name like "w2 forward", shape, what was chosen. */
typedef struct tuned_product {
    char name[32];
    sb_matmul shape; /* pointers are NULL */
    sb_matmul_choice choice;
    choice_source source;
    int uses; /* how often the step has this product */
} tuned_product;
int trainer_products(const trainer *t, const tuned_product **out);

/* For data parallelism: called on the host while a step is enqueued (or captured), in this order. Any may be NULL. Set
 * them after trainer_tune and before the first step. */
typedef struct step_hooks {
    void *user;
    /* Before the first op of each micro-batch: whether it is the step's first one, and its last. */
    void (*begin)(void *user, bool first, bool last);
    /* Before the first op of forward that reads parameters [first, first + count). */
    void (*need)(void *user, int64_t first, int64_t count, void *stream);
    /* The op that makes gradients [first, first + count) final was enqueued on `stream`; in index order, without gaps but
     * for padding, of the last micro-batch or, with shard.grads, of each. What is enqueued after the next call no longer reads the parameters of this one. */
    void (*ready)(void *user, int64_t first, int64_t count, void *stream);
    void (*update)(void *user); /* after backward; with it the trainer itself updates nothing */
    /* With shard.params: a unit's parameters are to be gathered at `to`, behind all that the step's stream has so far; then
     * that stream is to wait for them. */
    void (*gather)(void *user, int unit, void *to);
    void (*await)(void *user, int unit);
    /* With shard.grads: the gradients of a unit will lie at `from`, and `ready` says when they do; then the step's stream
     * is to wait until they have been read. */
    void (*grads)(void *user, int unit, void *from);
    void (*reduced)(void *user, int unit);
} step_hooks;
void trainer_set_hooks(trainer *t, const step_hooks *hooks);
/* to += from, n gradients; on `stream`. For hooks that add up what they have reduced. */
bool trainer_add_grads(trainer *t, void *to, const void *from, int64_t n, void *stream);
/* to = from, n gradients as the backward made them to the dtype of their sums. */
bool trainer_cast_grads(trainer *t, void *to, const void *from, int64_t n, void *stream);

/* What strategies work on; valid until trainer_free. Arenas over the index space, of trainer_params(t)->elements; what
 * is sharded is one of slices instead, each at a rank's part of where its unit begins, state_elements in all. */
void *trainer_stream(const trainer *t);
void *trainer_grad_arena(const trainer *t);
void *trainer_param_arena(const trainer *t);
/* In a step: gradient `element` of the unit whose gradients are made now, of step_made_dtype. */
void *trainer_grad_at(const trainer *t, int64_t element);
/* Memory that has no content between steps, at least one unit's parameters or gradients. */
void *trainer_scratch(const trainer *t);
int64_t trainer_gathered_elements(const trainer *t); /* parameters that a step gathers, each as often as it does */
sb_dtype trainer_grad_dtype(const trainer *t);       /* of their sums */
sb_dtype trainer_moments_dtype(const trainer *t);
sb_dtype step_made_dtype(const step_options *o);
sb_dtype step_sums_dtype(const step_options *o);
sb_dtype trainer_param_dtype(const trainer *t);
/* A new update begins; AdamW on a range whose state starts at state_first of the state held here, with at most max_blocks
 * thread blocks (0: no limit). Enqueue on `stream`; false with sb_last_message. */
bool trainer_update_begin(trainer *t, void *stream);
bool trainer_update_range(trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream);
/* The same on GPUs that reach each other's memory, where p says where the range's parameters and gradients lie on each
 * rank; p.update is filled in here. */
bool trainer_update_pass(trainer *t, sb_peer_adamw p, int64_t first, int64_t count, int64_t state_first, int max_blocks,
                         void *stream);
/* Everything, on the step's stream, with statistics over all gradients where the options want them. Only from the update
 * hook. */
bool trainer_update_all(trainer *t);
/* Whether an update needs statistics over all gradients first (clipping, a loss scale). */
bool trainer_update_wants_all(const trainer *t);
/* Those statistics where ranks have slices. The L2 norm of a range of gradients, with their loss scale, goes to *norm in
 * device memory, NaN where one is not finite; then the norms of all ranges of all ranks become the norm that the next
 * trainer_update_begin clips to. Only from the update hook; false with sb_last_message. */
bool trainer_range_norm(trainer *t, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream);
bool trainer_take_norms(trainer *t, const float *norms, int n, void *stream);

#endif
