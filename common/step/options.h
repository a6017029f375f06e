/* SPDX-License-Identifier: MIT */
/* What a training step is: its model and batch, what it keeps and computes again, how it is launched and updated; and
 * the hooks by which data parallelism takes part in it. */
#pragma once

#include "common/context/context.h"
#include "common/formulas/recompute.h"
#include "common/model/config.h"
#include "common/model/params.h"
#include "common/model/precision.h"
#include "kernels/train.h"

typedef enum step_mode { STEP_FORWARD, STEP_FORWARD_BACKWARD, STEP_TRAIN } step_mode;
#define STEP_MODE_CHOICES "forward|forward-backward|train-step"

/* none: an eager framework's ops, one pass over memory each, launched from the host. kernels: fused kernels, launched
 * from the host. graph: fused kernels, the step replayed as one CUDA graph. */
typedef enum fusion { FUSION_NONE, FUSION_KERNELS, FUSION_GRAPH } fusion;
#define FUSION_CHOICES "none|kernels|graph"

/* What runs on streams of its own beside the chain of backward: nothing; weight gradients; those and AdamW of finished
 * blocks; or whichever of the three trainer_tune measures to be fastest. A GPU at its power limit gains nothing from
 * it, one with idle multiprocessors does. Gradients do not depend on it. */
typedef enum overlap { OVERLAP_NONE, OVERLAP_GRADIENTS, OVERLAP_ALL, OVERLAP_AUTO } overlap;
#define OVERLAP_CHOICES "auto|all|gradients|none"

/* What a rank holds of a model whose units (params.h) are divided into equal slices. */
typedef struct step_sharding {
    int ranks, rank; /* slices of each unit, and the one held here; 0: units are not padded to be cut */
    bool grads;      /* of gradients only slices are kept: a unit's lie in a slot until they are reduced */
    bool params;     /* of parameters only slices are kept: a unit is gathered into a slot before its use */
    int prefetch;    /* units gathered ahead of the one in use */
    bool small;      /* small parameters (gains of norms) are whole on every rank: a unit that is not cut */
    bool codes; /* blocks are gathered as codes of float8, where the policy's scales serve both products of a weight */
    int free_every; /* every K-th block is freed after its forward, the others stay for backward; 0: all stay */
    bool held;      /* with free_every 0: they stay for later micro-batches, too, which else gather them again */
} step_sharding;

/* The dtype in which gradients are summed and kept: that in which the backward makes them, or another one, to which
 * they are rounded unit by unit. */
typedef enum grad_sums { SUMS_AS_MADE, SUMS_FP32, SUMS_BF16 } grad_sums;

/* What a rank of a pipeline does in a step: F is the forward of a micro-batch through one of its parts, B the backward, W
 * the weight gradients of linear layers that a B has left. */
typedef enum step_work { STEP_F, STEP_B, STEP_W } step_work;
typedef struct step_action {
    step_work work;
    int micro, part;
} step_action;

/* The actions in their order. Each part has one F and, later, one B of each micro-batch. Either there is no W, and every B
 * makes all gradients; or each B is followed by its W, sooner or later: at once is the same as a B that makes all,
 * unless other W come later and the B gives another rank its gradient, which goes first.
 * Gradients are added in the order of the actions, so the bits of one rank want the micro-batches of each part in
 * order. Gains, the embedding, and the head where the loss is made in chunks are a B's in any case. */
typedef struct step_table {
    const model_part *parts; /* of this rank, by growing layers */
    int part_count;
    const step_action *actions;
    int action_count;
} step_table;

/* How ranks share each sequence. They are ranks of data parallelism, too: `ranks` below counts them. */
typedef struct step_context {
    int ranks, rank;
    bool contiguous; /* as of a context_shape */
    context_way way;
    int groups;          /* as of a context_setup */
    context_fault fault; /* CONTEXT_POSITION: positions begin with 0 on the last rank, too */
} step_context;

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
    bool
        update_units; /* AdamW of a unit as soon as its gradients of all micro-batches are summed, beside what follows; not
                             where statistics over all gradients come first */
    int optimizer_blocks; /* AdamW beside backward: blocks it may use; 0: a third as many as multiprocessors */
    int loss_chunk;       /* tokens whose logits exist at once; 0: all. Only with a backward, which has the loss then */
    bool share_grad_memory;                                /* activations may lie where gradients are not written yet */
    double lr, beta1, beta2, eps, weight_decay, clip_norm; /* clip_norm 0: none */
    uint64_t seed;
    /* Forwards and backwards of a step, of `batch` sequences each, before one update with the sum of their
     * gradients; 0 or 1: one. Gradients that are added up do not share memory with activations. */
    int micro_batches;
    const step_table *table; /* NULL: the whole model, F0 B0 F1 B1 ...; copied by trainer_create */
    /* Data parallelism. Gradients are divided by tokens x ranks, so that their sum over ranks is that of the mean loss.
     * */
    int ranks;           /* 0 or 1: alone */
    int64_t granularity; /* the index space is a multiple of this many elements; 0: as it comes */
    int64_t
        state_elements; /* of the optimizer's state that is held here; 0: all. With an fp32 master (fp16 policy) only with shard.grads */
    step_sharding shard; /* needs the hooks for it, from the first step on */
    /* Tensor parallelism: this rank's part of each layer. Needs trainer_set_share. */
    model_split split_layers; /* ranks 0 or 1: whole layers */
    bool rows_apart;          /* norms and the residual stream: each rank has its own rows, not all of them */
    bool keep_rows;           /* all rows of a norm's output stay for the backward, which else gathers them once more */
    bool windows;             /* with rows_apart: rows come and go piece by piece (pieces.c) */
    bool push;          /* with windows: products write parts of sums into the memory of the rank that adds them */
    bool gather_logits; /* for the loss, instead of three numbers a row */
    /* Context parallelism: `seq` is what this rank has of each sequence, two chunks. Needs context_connect. */
    step_context context; /* ranks 0 or 1: whole sequences */
} step_options;
/* The whole sequences of the ranks that share them; ranks is 1 where nobody does. */
context_shape step_context_shape(const step_options *o);
int step_context_ranks(const step_options *o); /* that share them, 1 or more */
/* What backward computes again, block by block. */
recompute_schedule step_schedule(const step_options *o);
int step_micro_batches(const step_options *o); /* of a step, 1 or more */
step_options step_defaults(void); /* small, batch 4, seq 128, train step, fp32, flash, graph, lr 1e-3 ... */
sb_dtype step_made_dtype(const step_options *o); /* of gradients as the backward makes them */
sb_dtype step_sums_dtype(const step_options *o); /* of their sums */
/* Whether the ops that make gradients add those of several micro-batches themselves, in the dtype of the sums. */
bool step_sums_in_products(const step_options *o);
step_mode step_mode_parse(const char *name);
recompute recompute_parse(const char *name);
fusion fusion_parse(const char *name);
overlap overlap_parse(const char *name);
const char *overlap_name(overlap o);

/* For data parallelism: called on the host while a step is enqueued (or captured), in this order. Any may be NULL. Set
 * them after trainer_tune and before the first step. */
typedef struct step_hooks {
    void *user;
    /* Before the first op of each micro-batch: whether it is the step's first one, and its last. Where a table has several
     * in flight, it is their sums that are counted: before the first op behind those of the micro-batch before. Of a rank
     * with several parts: once, as both. */
    void (*begin)(void *user, bool first, bool last);
    /* Before the first op of forward that reads parameters [first, first + count). */
    void (*need)(void *user, int64_t first, int64_t count, void *stream);
    /* The op that makes gradients [first, first + count) final was enqueued on `stream`; in index order, without gaps
     * but for padding, of the last micro-batch or, with shard.grads, of each. What is enqueued after the next call no
     * longer reads the parameters of this one. */
    void (*ready)(void *user, int64_t first, int64_t count, void *stream);
    void (*update)(void *user); /* after backward; where it is set, the step itself updates nothing */
    /* With shard.params: a unit's parameters, or codes, are to be gathered at `to`, behind all that the step's stream has so far;
     * then that stream is to wait for them. */
    void (*gather)(void *user, int unit, void *to);
    void (*await)(void *user, int unit);
    /* With shard.grads: the gradients of a unit will lie at `from`, and `ready` says when they do; then the step's
     * stream is to wait until they have been read. */
    void (*grads)(void *user, int unit, void *from);
    void (*reduced)(void *user, int unit);
    /* With shard.codes or delayed scales, before any gather of a step: `all`, which may be `own`, is to hold the largest of all
     * ranks' words, as integers. */
    void (*agree)(void *user, const void *own, void *all, size_t words);
} step_hooks;

/* For tensor parallelism: what ranks of a group give each other, on `stream` and in place of an op of the walk. Where one is
 * NULL nothing is sent, and results are wrong. Set them after trainer_tune and before the first step. */
typedef struct step_share {
    void *user;
    /* all: (ranks, count), the `mine` of each rank in their order. */
    void (*gather)(void *user, const void *mine, void *all, size_t count, sb_dtype t, void *stream);
    /* mine: (count), the sum of slice `rank` of all ranks' partial (ranks, count). */
    void (*scatter)(void *user, const void *partial, void *mine, size_t count, sb_dtype t, void *stream);
    void (*sum)(void *user, void *values, size_t count, sb_dtype t, void *stream); /* in place */
    /* Sums of gradients, once a step: those of all gains, and among neighbours that hold the same key and value heads. */
    void (*sum_gains)(void *user, void *values, size_t count, sb_dtype t, void *stream);
    void (*sum_kv)(void *user, void *values, size_t count, sb_dtype t, void *stream);
    /* With options.windows, in place of gathers and sums of rows; all of it behind what main has. A step begins. `count` elements
     * of this rank, all of which come to every rank's window number `at` (whole: its own, too), the rank's rows in its place.
     * The stream then waits for those of a rank, or of all (-1), aside: main does not join it before the next exchange; at last all that reads the window is on main or `side`. */
    void (*begin)(void *user);
    void (*spread)(void *user, int at, const void *mine, size_t count, sb_dtype t, bool whole);
    void *(*window)(void *user, int at);
    void (*await)(void *user, int at, int rank, void *stream, bool aside);
    void (*read)(void *user, int at, void *side);
    /* With options.push: where a product writes the part of a rank, or NULL: where it has it. It is then given as NULL. */
    void *(*part)(void *user, int rank);
    /* Another rank's part of a sum is made; then out = the sum of all parts of this rank's rows, plus residual if not NULL. */
    void (*give)(void *user, int rank, const void *part);
    void (*add)(void *user, const void *own, const void *residual, void *out, size_t count, sb_dtype t);
    void (*loss)(void *user, sb_vocab_loss *p); /* may change what the loss is given: for checks that plant an error */
} step_share;

/* Codes of a rank's slices: those of units [first, end) lie one behind the other. */
typedef struct step_codes_place {
    const char *slices;
    int first, end;
} step_codes_place;

/* What one part gives another on the way: the residual stream, or its gradient, (T, d) in the dtype of activations. */
typedef struct step_hop {
    bool backward;    /* the gradient */
    int micro, layer; /* between blocks layer - 1 and layer: the same on both sides */
    void *at;         /* device memory: where it is to come, or where it lies */
    size_t bytes;
} step_hop;

/* For a pipeline: how parts of different ranks give each other tensors. Called on the host while a step is enqueued (or
 * captured); nobody waits on the host but a transport whose streams are threads. Parts of one rank that are neighbours
 * hand on theirs without. Set them after trainer_tune and before the first step. */
typedef struct step_hops {
    void *user;
    /* Only by trainer_rehearse: where a tensor will come in every step, h->at. */
    void (*place)(void *user, const step_hop *h);
    /* A tensor that comes. open: behind all that main has so far, h->at may be written; called one action ahead of the one
     * that reads it. receive: main is to wait until it has been written; called in that action. */
    void (*open)(void *user, const step_hop *h);
    void (*receive)(void *user, const step_hop *h);
    /* A tensor that goes. send: behind all that main has so far, h->at may be read. sent: main is to wait until it has been
     * read, since the memory has another use then; called in front of the next send of the same part and direction, or at
     * the end of the step. */
    void (*send)(void *user, const step_hop *h);
    void (*sent)(void *user, const step_hop *h);
    /* An action of the table begins: its first op comes next, what it receives is there. It ends: its last op is on main, and
     * what it sends comes next. A W that is part of its B has neither. */
    void (*begun)(void *user, int action);
    void (*ended)(void *user, int action);
    /* Weight gradients of a B that are made on a stream beside main, for which main waits next, are enqueued there. */
    void (*beside)(void *user, int action, void *stream);
} step_hops;
