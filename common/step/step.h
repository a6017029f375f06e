/* SPDX-License-Identifier: MIT */
/* What one walk of a training step needs, and the calls that every op of a walk makes (walk.c).
 *
 * A walk is a sequence of ops. While the arena plans, they take and drop memory and note products, and launch nothing;
 * later walks make the same calls and launch. The first failure is kept in `status`, and nothing is launched after it.
 * The other sources of this folder, each of which uses only those before it: options, table, streams, optimizer, units,
 * tensors, eager, pieces, share, ops, linear_float8, linear, offload, hops, ends, transformer. What stands around a walk is in
 * common/train. */
#pragma once

#include "common/arena/arena.h"
#include "common/device/device.h"
#include "common/model/params.h"
#include "common/step/options.h"
#include "common/model/products.h"

enum { STEP_WINDOWS = 6 /* in which other ranks' rows come */ };
enum { LAG = 2 /* blocks that the weight gradients may be behind */, PENDING_MAX = 24 };

/* The tensors of one block that live from its forward to its backward; -1: not held. T of those that are d wide: rows. */
typedef struct block_slots {
    arena_slot x;          /* (T, d) input; the residual stream */
    arena_slot rstd1, n1;  /* (T) fp32, (T, d) */
    arena_slot qkv;        /* (T, width + 2 kv), q and k turned */
    arena_slot lse, saved; /* (B, H, S) fp32; what the attention op keeps */
    arena_slot att;        /* (T, width) attention output */
    arena_slot x_mid;      /* (T, d) x + attention */
    arena_slot rstd2, n2;  /* (T) fp32, (T, d) */
    arena_slot gate_up, h; /* (T, 2F), (T, F) */
    arena_slot turned[4];  /* by linear layer (linear.h): its input in float8, transposed, for dw */
} block_slots;
extern const block_slots block_nothing; /* none is held */

typedef struct offload offload; /* offload.c */
struct step_float8;             /* linear_float8.c */
struct step_codes;              /* linear_float8.h */
typedef struct step_unit {      /* of the index space; see units.c */
    int64_t first, count;       /* elements */
    arena_slot gathered, grads; /* -1: not there */
    bool awaited;               /* main has waited for what is gathered */
    bool complete;              /* its sums are those of the whole step */
} step_unit;

/* Units in the order in which a walk uses their parameters. */
typedef struct unit_uses {
    int *unit, count, room;
    int at;      /* where the walk is */
    bool noting; /* it only notes them */
} unit_uses;

/* What the side stream has to do; see streams.c. */
typedef struct side_work {
    int top, block;       /* the first unit of this backward; whose weight gradients are being enqueued */
    arena_slot workspace; /* of their products; -1: none */
    /* By block, the tensors that it reads: dropped once it is known to be done with them. */
    arena_slot pending[LAG + 1][PENDING_MAX];
    int count[LAG + 1];
} side_work;

/* What a split backward leaves to its W, in order. */
typedef enum note_kind { NOTE_PRODUCT, NOTE_DROP, NOTE_UNIT } note_kind;
typedef struct step_note {
    note_kind kind;
    int which, layer; /* a linear layer's; the unit whose gradients are all made */
    arena_slot dy, x; /* of the product; x: what is dropped */
    bool turned;      /* x is the input in float8 */
} step_note;

typedef struct step_micro { /* a micro-batch on its way through one part */
    int number;             /* which tokens and loss are its own */
    block_slots *blocks;    /* of each block of the model; index layers is the head's */
    arena_slot x;      /* the residual stream: what the part is given, behind the last block walked, what it gives */
    arena_slot dy;     /* its gradient, likewise */
    arena_slot logits; /* (T, V); -1: made in chunks, or not here */
    bool split;        /* this backward leaves its weight gradients to a W */
    step_note *notes;
    int note_count, note_room;
} step_micro;

typedef struct step_part {
    model_part holds;
    int before, behind;     /* the parts of this rank that are its neighbours; -1: another rank's, or none */
    step_micro *micros;     /* of each micro-batch */
    int backwards, weights; /* micro-batches of this step whose B is over, and whose weight gradients are made */
    struct {                /* what has been given last, by direction; -1: nothing that is not read yet */
        arena_slot slot;
        step_hop hop;
    } sent[2];
} step_part;

typedef struct step_window { /* pieces.c */
    arena_slot of;           /* of whose rows it is */
    bool ahead;              /* share_ahead has sent it, and share_sent has not been asked for it */
    bool seen;               /* main has waited for all rows */
} step_window;

typedef struct attention_bytes { /* of a block: what forward keeps for backward; workspace of both */
    size_t saved, forward, backward;
} attention_bytes;

typedef struct step {
    step_options o;
    step_hooks hooks;
    step_hops hops;
    step_share share;
    device *dev;
    const sb_kernels *k;
    sb_context *ctx;
    const sb_attention_op *attention;
    attention_bytes attention_needs;
    context *context; /* of ranks that share sequences; NULL: this one has whole ones */
    recompute_schedule schedule;
    params *params;
    arena *arena;
    void *block; /* the arena's memory */
    sb_status status;

    /* The shape of what this rank computes: T, d, ... The residual stream is (rows, d), where rows are T unless ranks that share
     * layers have their own; heads are `width` together, which is d where a rank has all of them; qkv = width + 2 kv. */
    int tokens, rows, d, width, f, vocab, heads, heads_kv, head_dim, kv, qkv;
    sb_dtype dtype, param_dtype, grad_dtype;  /* of activations, parameters and gradients in memory */
    int element, param_element, grad_element; /* their bytes */
    sb_dtype moment_dtype;
    int moment_element;
    sb_dtype made_dtype; /* of gradients as the backward makes them, before they are summed */
    int made_element;
    bool sums_in_products;      /* step_sums_in_products */
    bool adds;                  /* they are added to those of the micro-batches before */
    bool eager;                 /* FUSION_NONE */
    bool rehearsing;            /* nothing is launched, and hops learn their places */
    bool same_step;             /* see trainer_set_same_step */
    bool swiglu_matmul;         /* step_fuses_swiglu */
    struct step_float8 *float8; /* of the blocks' products; NULL: none is in float8 */
    struct step_codes *codes;   /* with which blocks are gathered; NULL: they are as parameters */

    /* Resident. Arenas over the index space, or of slices of its units: */
    char *param, *master, *m, *v;
    char *grad_sums;        /* of slices or of micro-batches; NULL: gradients lie at the start of the block */
    int32_t *ids, *targets; /* (T) */
    float *rope_table;      /* (S, head_dim/2, 2) */
    float *row_loss, *loss; /* (T), (1) */
    char *float8_weights;   /* copies of weights; NULL: none stay */
    sb_optimizer_state *state;
    sb_optimizer_state *range_state; /* of optimizer_range_norm: its loss scale is 1 */
    arena_slot stats_workspace;      /* during an update */
    float *rates, *norms, *losses;   /* tables of a run, by update and by step, `updates` long; NULL: none (feed.c) */
    int64_t updates;

    void *main, *side, *back; /* streams: the chain of the step, weight gradients, AdamW; those beside may be main */
    void *own_side, *own_back;
    overlap overlap;          /* in use; never OVERLAP_AUTO */
    device_event **side_done; /* of each block's weight gradients; index layers is the head's */

    step_part *parts;
    step_action *actions;
    int part_count, action_count, micro_batches;
    bool splits;       /* some B leaves its weight gradients to a W */
    step_part *part;   /* in which the walk is, */
    step_micro *micro; /* with which micro-batch */
    int action;        /* of the table */
    int in_flight;     /* micro-batches between their F and their B, over all parts */
    offload *offload;  /* NULL: nothing leaves */
    side_work work;
    step_window windows[STEP_WINDOWS];
    int spreads; /* windows used in this walk */

    step_unit *units;
    unit_uses uses;
    int units_ready;        /* how many the hooks have been told of, where whole units are */
    int64_t gathered_bytes; /* in a step */

    step_products products;
} step;

arena_slot step_take(step *s, size_t bytes, memory_kind kind, int layer, const char *name);
void step_drop(step *s, arena_slot *slot);          /* -1 is fine; leaves -1 */
void *step_pointer(const step *s, arena_slot slot); /* NULL for -1 and while planning; below -1: a window (pieces.c) */
static inline char *step_at(void *p, int64_t bytes) /* NULL stays NULL */
{
    return p ? (char *)p + bytes : NULL;
}
bool step_launching(const step *s); /* this walk does not only plan, and nothing has failed */
bool step_go(step *s);              /* counts an op; false when nothing is to be launched */
void step_done(step *s, sb_status status);
/* `to`, (rows, columns), becomes `from`, or the sum of both with `onto`; launches. */
void step_sum(step *s, void *to, sb_dtype kept, const void *from, sb_dtype given, bool onto, int rows, int columns,
              void *stream);
size_t step_rows(const step *s, int64_t columns); /* bytes of a (T, columns) activation */
size_t step_stream(const step *s);                /* bytes of the residual stream, (rows, d) */
void step_defer(step *s, step_note note);         /* to the W of the micro-batch that is walked */
