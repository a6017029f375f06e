/* SPDX-License-Identifier: MIT */
/* What the files of a training step share. Not part of the API.
 *
 * One walk of a step is a sequence of the calls below. While the arena plans, they take and drop memory and note
 * products, and launch nothing; later walks make the same calls and launch. The first failure is kept in `status`, and
 * nothing is launched after it. */
#ifndef STEPBENCH_STEP_STEP_H
#define STEPBENCH_STEP_STEP_H

#include "common/core/stats.h"
#include "common/train/trainer.h"

enum { PRODUCTS_MAX = 48, LAG = 2 /* blocks that the weight gradients may be behind */, PENDING_MAX = 16 };

/* The tensors of one block that live from its forward to its backward; -1: not held. */
typedef struct block_slots {
    arena_slot x;          /* (T, d) input; the residual stream */
    arena_slot rstd1, n1;  /* (T) fp32, (T, d) */
    arena_slot qkv;        /* (T, d + 2 kv), q and k turned */
    arena_slot lse, saved; /* (B, H, S) fp32; what the attention op keeps */
    arena_slot att;        /* (T, d) attention output */
    arena_slot x_mid;      /* (T, d) x + attention */
    arena_slot rstd2, n2;  /* (T) fp32, (T, d) */
    arena_slot gate_up, h; /* (T, 2F), (T, F) */
} block_slots;

typedef struct offload offload; /* offload.c */
typedef struct step_unit {      /* of the index space; see step_units.c */
    int64_t first, count;       /* elements */
    arena_slot gathered, grads; /* -1: not there */
    bool awaited;               /* main has waited for what is gathered */
} step_unit;

struct trainer {
    step_options o;
    device *dev;
    memory *mem;
    const sb_kernels *k;
    sb_context *ctx;
    const sb_attention_op *attention;
    recompute_schedule schedule;
    params *params;
    arena *arena;
    void *block;
    sb_status status;

    int tokens, d, f, vocab, heads, heads_kv, head_dim, kv, qkv; /* T, ... ; qkv = d + 2 kv */
    sb_dtype dtype, param_dtype, grad_dtype;  /* of activations, parameters and gradients in memory */
    int element, param_element, grad_element; /* their bytes */
    sb_dtype moment_dtype;
    int moment_element;
    sb_dtype made_dtype; /* of gradients as the backward makes them, before they are summed */
    int made_element;
    bool eager;         /* FUSION_NONE */
    bool swiglu_matmul; /* step_fuses_swiglu */

    /* Resident. Arenas over the index space, or of slices of its units: */
    char *param, *master, *m, *v;
    char *grad_sums;        /* of slices or of micro-batches; NULL: gradients lie at the start of the block */
    int32_t *ids, *targets; /* (T) */
    float *rope_table;      /* (S, head_dim/2, 2) */
    float *row_loss, *loss; /* (T), (1) */
    sb_optimizer_state *state;
    sb_optimizer_state *range_state; /* of trainer_range_norm: its loss scale is 1 */
    arena_slot stats_workspace;      /* during an update */
    int64_t resident[MEMORY_KINDS];
    int64_t skipped; /* bytes in front of them */

    void *main, *side, *back; /* streams: the chain of the step, weight gradients, AdamW; those beside may be main */
    void *own_side, *own_back;
    overlap overlap;          /* in use; never OVERLAP_AUTO */
    device_event *mark[4];    /* start, after forward, after backward, end */
    device_event *ready;      /* a gradient's inputs are enqueued on main */
    device_event **side_done; /* of each block's weight gradients; index layers is the head's */
    device_event *joined;

    offload *offload; /* NULL: nothing leaves */
    block_slots *blocks;
    arena_slot x;              /* the residual stream behind the last block walked */
    arena_slot side_workspace; /* of the weight gradients' products; -1: none */
    arena_slot pending[LAG + 1]
                      [PENDING_MAX]; /* read by the side stream: dropped once it is known to be done with them */
    int pending_count[LAG + 1];
    int side_block; /* whose weight gradients are being enqueued */

    step_unit *units;
    int *uses, use_count, use_room, use; /* units in the order in which a walk uses their parameters; where it is */
    bool noting_uses;
    int64_t gathered_elements; /* in a micro-batch */
    int micro_batches, micro;  /* of a step; the one that is walked */

    device_graph *graph;
    int steps;
    tuned_product products[PRODUCTS_MAX];
    sb_matmul_choice rivals[PRODUCTS_MAX][CHOICE_RIVALS]; /* still to race; of products that were timed in this run */
    int product_count;
    step_hooks hooks;
};

/* ---- calls of a walk (step_ops.c, step_linear.c) ---- */

arena_slot step_take(trainer *t, size_t bytes, memory_kind kind, int layer, const char *name);
void step_drop(trainer *t, arena_slot *s);          /* -1 is fine; leaves -1 */
void *step_pointer(const trainer *t, arena_slot s); /* NULL for -1 and while planning */
static inline char *step_at(void *p, int64_t bytes) /* NULL stays NULL */
{
    return p ? (char *)p + bytes : NULL;
}
bool step_go(trainer *t); /* counts an op; false when nothing is to be launched */
void step_done(trainer *t, sb_status s);
size_t step_rows(const trainer *t, int64_t columns); /* bytes of a (T, columns) activation */
void *step_param(const trainer *t, param_kind kind, int layer);
/* The gradient of a tensor and those next to it, `count` elements: live from here on. */
void *step_grad(trainer *t, param_kind kind, int layer, int64_t count);
void step_ready(trainer *t, param_kind kind, int layer, int64_t count, void *stream);
void step_need(trainer *t, int layer); /* forward reads a block's parameters next; layer as in params_range */

/* ---- units of a sharded step (step_units.c); layer as in params_range. Without sharding they do nothing. ---- */
void units_create(trainer *t);
void units_free(trainer *t);
void units_note(trainer *t);                  /* before the arena plans */
void units_begin(trainer *t);                 /* a walk starts */
void unit_acquire(trainer *t, int layer);     /* what main enqueues from here on may read its parameters */
void unit_release(trainer *t);                /* of the unit acquired last: all that reads them is enqueued */
void unit_grads_begin(trainer *t, int layer); /* its gradients are made next */
void unit_grads_end(trainer *t, int layer);   /* they are enqueued */
int64_t units_held(const trainer *t);         /* elements of this rank's slices, with what it has whole */
void units_end(trainer *t);                   /* a backward is over */
bool unit_grads_apart(const trainer *t);      /* they lie in slots */
void *unit_param(const trainer *t, const param_tensor *p);
char *unit_grad(const trainer *t, int unit, int64_t element); /* NULL while planning */

/* ---- activations that leave for the host (offload.c). Without any they do nothing. ---- */
void offload_create(trainer *t);                                /* before the plan */
bool offload_allocate(trainer *t, char *why, size_t why_bytes); /* after it */
void offload_free(trainer *t);
void offload_begin(trainer *t);            /* a walk starts */
void offload_send(trainer *t, int layer);  /* the block's forward is enqueued */
void offload_forward_end(trainer *t);      /* all blocks' are */
void offload_fetch(trainer *t, int layer); /* the block's backward is next */

/* A linear layer: one weight, or several with the same input that lie side by side. */
typedef struct linear {
    const char *name; /* "qkv" */
    param_kind first;
    int in;
    int parts, out[3];
} linear;
enum { LINEAR_QKV, LINEAR_O, LINEAR_GATE_UP, LINEAR_W2, LINEAR_HEAD, LINEARS };
linear step_linear(const trainer *t, int which);
int linear_out(const linear *l); /* of all parts */

size_t step_side_workspace(const trainer *t); /* the most that a weight gradient's product wants */
/* y = x W^T, plus `residual` where it is not -1. */
void linear_forward(trainer *t, int which, int layer, arena_slot x, arena_slot residual, arena_slot y);
void linear_dx(trainer *t, int which, int layer, arena_slot dy, arena_slot dx);
/* On the side stream with overlap: dy and x must then be dropped by side_drop. */
void linear_dw(trainer *t, int which, int layer, arena_slot dy, arena_slot x);

/* The head on tokens [first, first + rows) of x (T, d): y (rows, V), dx (T, d). dw (V, d) is written by the first chunk and
 * added to by the others. All on main. */
void head_chunk_forward(trainer *t, int first, int rows, arena_slot x, arena_slot y);
void head_chunk_backward(trainer *t, int first, int rows, arena_slot dy, arena_slot x, arena_slot dx, char *dw);
/* Logits (rows, V) of those tokens become their gradient, with `backward`. */
void cross_entropy(trainer *t, int first, int rows, arena_slot logits, bool backward);
/* loss_chunks.c: the loss, the head's weight gradient, and dn (T, d), the gradient of the final norm's output. */
void head_by_chunks(trainer *t, block_slots *head, arena_slot dn);

void norm_forward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd);
/* dx = d_residual (-1: none) + gradient through the norm; writes the gain's gradient. */
void norm_backward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                   arena_slot d_residual, arena_slot dx);
void swiglu_forward(trainer *t, int layer, arena_slot gate_up, arena_slot h);
/* gate_up becomes its gradient; h, where it is not -1, is made again. */
void swiglu_backward(trainer *t, int layer, arena_slot gate_up, arena_slot dh, arena_slot h);
/* The same within the matrix products: gate and up from x, kept where gate_up is not -1; gate_up becomes its
 * gradient from that of the block's output. */
void swiglu_matmul_forward(trainer *t, int layer, arena_slot x, arena_slot gate_up, arena_slot h);
void swiglu_matmul_backward(trainer *t, int layer, arena_slot dy, arena_slot gate_up, arena_slot h);
void rope(trainer *t, int layer, arena_slot qkv, bool inverse);
void attention_forward(trainer *t, int layer, block_slots *b);
void attention_backward(trainer *t, int layer, block_slots *b, arena_slot d_att, arena_slot d_qkv);
sb_attention step_attention(const trainer *t);

/* ---- eager forms (step_eager.c) ---- */
void eager_add(trainer *t, int layer, arena_slot a, arena_slot b, arena_slot out);
void eager_norm_forward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd);
void eager_norm_backward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                         arena_slot d_residual, arena_slot dx, void *dweight);
void eager_swiglu_forward(trainer *t, int layer, arena_slot gate_up, arena_slot h);
void eager_swiglu_backward(trainer *t, int layer, arena_slot gate_up, arena_slot dh, arena_slot h);

/* ---- streams beside the main one (step_streams.c) ---- */
/* Units of backward, in its order: the head (layers), the blocks from the last to 0, the embedding (-1). */
void side_begin(trainer *t);                /* backward starts */
void *side_fork(trainer *t);                /* the stream for a weight gradient whose inputs are enqueued on main */
void side_drop(trainer *t, arena_slot *s);  /* once the side stream has read it */
void side_unit_begin(trainer *t, int unit); /* main may go on with it: LAG units back the side stream is done */
void side_unit_end(trainer *t, int unit);   /* all gradients of it are enqueued: AdamW may follow */
void side_join(trainer *t);                 /* main waits for what the side stream has so far */
void side_end(trainer *t);                  /* main waits for the side stream */

/* ---- the step (transformer.c, optimizer.c, products.c) ---- */
void transformer_forward(trainer *t, arena_slot *logits);
void transformer_loss(trainer *t, arena_slot logits, bool backward);
void transformer_backward(trainer *t, arena_slot logits);
void overlap_use(trainer *t, overlap o);        /* from the next walk on; the plan serves all of them */
bool optimizer_overlaps(const trainer *t);      /* AdamW of a block runs while backward goes on */
void optimizer_begin(trainer *t, void *stream); /* a new update starts */
void optimizer_range(trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream);
void optimizer_take_workspace(trainer *t); /* around what an update enqueues */
void optimizer_drop_workspace(trainer *t);
void optimizer_all(trainer *t);           /* statistics where they are needed, then all parameters, on main */
sb_status trainer_initialize(trainer *t); /* parameters, tables, tokens, the optimizer's state */
void step_walk(trainer *t);               /* plans, or launches */
bool step_launch(trainer *t);             /* one walk, launched op by op (or into a capture) */
void trainer_zero_moments(trainer *t);
bool trainer_plan_apart(trainer *t);            /* a new plan, without overlap; false: no memory */
bool overlap_tune(trainer *t);                  /* the part of trainer_tune that chooses the way of overlap */
bool products_race(trainer *t, choices *known); /* the part that lets rival algorithms race in whole steps */
/* Whole steps as a measure (step_tune.c): between begin and end they change nothing. */
void step_tune_begin(trainer *t, sb_optimizer_state *kept);
void step_tune_end(trainer *t, const sb_optimizer_state *kept);
bool step_tune_capture(trainer *t, device_graph **graph); /* NULL where steps are launched op by op */
bool step_tune_run(trainer *t, device_graph *graph, double *ms);
/* Steps until the clock has settled; *step_ms is about what a step takes. */
bool step_tune_warm(trainer *t, device_graph *graph, double *step_ms);
/* Some steps in a row, for a time that suits the length of one; adds those at a settled clock. */
bool step_tune_block(trainer *t, device_graph *graph, double step_ms, samples *ms);
void product_note(trainer *t, const char *linear, const char *pass, const sb_matmul *p);

#endif
