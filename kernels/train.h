/* SPDX-License-Identifier: MIT */
/* Ops of a transformer's training step other than attention. Part of the API: kernels.h includes it.
 *
 * Rows are tokens (T = batch x seq), row-major, columns contiguous; d = d_model, F = d_ff, V = vocabulary.
 * `dtype` fields say how elements are stored: SB_BF16, SB_FP16 or SB_FP32 (SB_TF32 means fp32 there). Sums and
 * statistics are fp32 or better whatever the dtype, and their order is fixed: the same call gives the same bits.
 * Pointers are 16-byte aligned on CUDA. Workspaces are the caller's, 256-byte aligned; an op with one has a function
 * that says its size, and two calls on different streams need two. Unlike attention, these ops use no counter or
 * scratch of the context: they may run on any streams at once. */
#ifndef STEPBENCH_KERNELS_TRAIN_H
#define STEPBENCH_KERNELS_TRAIN_H

#include "kernels/float8.h"
#include "kernels/types.h"

SB_C_BEGIN

/* How fp32 operands are multiplied. Errors are relative L2 ones for N(0,1) operands, k 768 to 12800; docs/kernels/matmul.md has
 * the algorithms. The values are kept in files. */
typedef enum sb_fp32_products {
    /* fused multiply-adds, no tensor cores: 0.5e-6 to 2.2e-6, growing with k */
    SB_FMA = 0,
    /* three products of two fp16 parts on tensor cores, which sum up to 1280 of k: 0.9e-6 to 1.7e-6; 4e-6 to 8e-6 where no
     * product is negative */
    SB_FP16X3_FAST = 1,
    /* like SB_FP16X3_FAST with sums of 64 of k, each rounded to fp32, by our own kernel on Hopper: 1.5e-7; of 256 elsewhere: 9e-7 */
    SB_FP16X3 = 2
} sb_fp32_products;

/* D = op(A) op(B) + C. op(A) is (m,k), op(B) is (k,n); a transposed operand is stored as (k,m) or (n,k).
 * A linear layer with weight W (out,in): Y = X W^T {m T, n out, k in, transpose_b}; dX = dY W {m T, n in, k out};
 * dW = dY^T X {m out, n in, k T, transpose_a}. */
typedef struct sb_matmul {
    sb_dtype dtype;     /* what the products use, and A and B are stored in */
    sb_dtype dtype_out; /* what C and D are stored in: `dtype`, or SB_FP32 */
    bool transpose_a, transpose_b;
    int m, n, k;
    int lda, ldb, ldc, ldd; /* elements from one stored row to the next; ldc counts where c is given */
    const void *a, *b;
    const void *c; /* NULL: nothing is added; may be d, then ldc == ldd */
    void *d;
    sb_fp32_products split; /* SB_FP32 only, else SB_FMA */
    void *workspace;
    size_t workspace_bytes; /* less than matmul_workspace says: SB_NO_MEMORY for split, fewer algorithms otherwise */
    /* Only where dtype is SB_E4M3 or SB_E5M2. Then A is (m,k) and B, of dtype_b, is transposed, (n,k); dtype_out is SB_BF16, SB_FP16 or
     * SB_FP32; one operand at most is e5m2. Both have one scaling, or one 1x128 and the other 128x128; with blocks sums are exact. */
    sb_dtype dtype_b;
    sb_scaling scaling_a, scaling_b;
    const float *scale_a, *scale_b; /* as quantize writes them, of (m,k) and (n,k) */
    sb_float8_sums sums;
} sb_matmul;

/* What tuning chose for a matmul: plain data that can be kept in a file and given back. */
typedef struct sb_matmul_choice {
    unsigned char algorithm[64]; /* opaque, and good only for this version of the library */
    int64_t library;             /* its version */
    float ms, first_ms; /* time of one call: with the chosen algorithm, and with the library's first proposal */
    int tried;          /* algorithms that were timed */
    char name[64];      /* tile, stages, split of k: for people */
} sb_matmul_choice;

/* y = x / sqrt(mean(x^2) + eps) * weight, over rows of d. With `residual` it is the norm of x + residual, which is written
 * to `sum` (rounded to dtype first, so that a later call on `sum` gives the same). Zhang and Sennrich, "Root Mean Square
 * Layer Normalization" (2019). */
typedef struct sb_rmsnorm {
    sb_dtype dtype;       /* x, residual, sum, y, and their gradients */
    sb_dtype dtype_param; /* weight */
    sb_dtype dtype_grad;  /* dweight */
    int rows, d;
    float eps;
    const void *x, *residual; /* (rows, d); residual NULL: none. Backward reads x only: give it `sum` there */
    void *sum;                /* (rows, d), with residual */
    const void *weight;       /* (d) */
    void *y;                  /* (rows, d); NULL: forward makes rstd alone */
    float *rstd;              /* (rows) 1 / sqrt(mean(x^2) + eps); written forward, read backward */
    const void *dy;           /* (rows, d) */
    const void *d_residual;   /* (rows, d) added to dx, or NULL: the gradient that passes by the norm */
    void *dx;                 /* (rows, d); may be dy or d_residual */
    void *dweight;            /* (d) */
    void *workspace;          /* backward */
    size_t workspace_bytes;
    bool accumulate; /* dweight is added to and rounded once, not written */
} sb_rmsnorm;

/* Rotary embedding in place: the pair (x[2i], x[2i+1]) of each head is rotated by position * theta^(-2i/head_dim).
 * Su et al., "RoFormer" (2021). */
typedef struct sb_rope {
    sb_dtype dtype;
    int batch, seq, heads, head_dim; /* head_dim even */
    sb_tensor x;                     /* (B, H, S, D), as in sb_attention */
    const float *table;              /* (seq, head_dim/2, 2): cosine and sine of each angle */
    bool inverse;                    /* rotate back: the gradient */
} sb_rope;

/* h = silu(gate) * up. Shazeer, "GLU variants improve transformer" (2020). */
typedef struct sb_swiglu {
    sb_dtype dtype;
    int rows, f;
    const void *gate_up; /* (rows, 2f): a row is gate, then up */
    void *h;             /* (rows, f); backward writes it again where it is not NULL */
    const void *dh;      /* (rows, f); may be h: each element is read before it is written */
    void *d_gate_up;     /* (rows, 2f); may be gate_up */
} sb_swiglu;

/* SwiGLU as the end of the matrix product ahead of it: forward [gate up] = x w13^T, h = silu(gate) up; backward
 * dh = dy w2 and the gradients of gate and up. Results are the same as with separate ops, except for the order of sums: gate, up
 * and dh are rounded to dtype before they are used, so that h has the bits that swiglu_forward makes of the gate_up
 * stored. dh is never stored, and gate_up need not be. */
typedef struct sb_swiglu_matmul {
    sb_dtype dtype;  /* every tensor's: SB_BF16 or SB_FP16 */
    int rows, f, d;  /* f and d multiples of 8 */
    int lda;         /* elements from one row of x, or of dy, to the next; a multiple of 8 */
    const void *x;   /* forward: (rows, d) */
    const void *w13; /* forward: (2f, d): gate's rows, then up's */
    const void *dy;  /* backward: (rows, d) */
    const void *w2;  /* backward: (d, f) */
    void *gate_up;   /* (rows, 2f): forward writes it where it is not NULL; backward replaces it by its gradient */
    void *h;         /* (rows, f); backward writes it again where it is not NULL */
} sb_swiglu_matmul;

typedef struct sb_embedding {
    sb_dtype dtype;      /* table (forward), out, d_out */
    sb_dtype dtype_grad; /* d_table */
    int rows, vocab, d;
    const int32_t *ids; /* (rows), each in [0, vocab) */
    const void *table;  /* (vocab, d) */
    void *out;          /* (rows, d) */
    const void *d_out;  /* (rows, d) */
    void *d_table;      /* (vocab, d): every row is written, zeros where no id points */
    void *workspace;    /* backward */
    size_t workspace_bytes;
    bool accumulate; /* rows of d_table that ids point to are added to and rounded once; the others stay */
    /* The table is a slice of a larger one, from row first_id on: ids of other rows, any integers, give rows of zeros, and
     * their d_out is left out. */
    bool slice;
    int first_id;
} sb_embedding;

/* Cross-entropy of each row of logits with its target, and its gradient in place of the logits. */
typedef struct sb_cross_entropy {
    sb_dtype dtype;
    int rows, vocab;
    int64_t total_rows; /* rows of the whole batch, of which these are a part; gradients are divided by it; 0: rows */
    void *logits;       /* (rows, vocab); backward: d_logits = (softmax - onehot) * *scale / total_rows */
    const int32_t *targets; /* (rows) */
    float *row_loss;        /* (rows), natural log */
    float *loss;            /* (1) mean over rows */
    const float *scale;     /* one float in device memory, or NULL for 1: the loss scale */
    bool backward;          /* false: logits are only read */
} sb_cross_entropy;

/* Cross-entropy where several ranks hold columns of the logits, in two ops with a gather between them. `partial` makes of a
 * row its maximum, the sum of exponentials less that maximum, and the target's logit (0 where another rank has it); `finish`
 * combines those of all ranks in their order, and makes the gradient in place of the logits as sb_cross_entropy does. Columns from
 * `columns` to `ld` are padding: not counted, and their gradient is zero. */
typedef struct sb_vocab_loss {
    sb_dtype dtype;
    int rows, columns, ld;  /* columns may be 0; ld a multiple of 8 */
    int first_id;           /* that of column 0 */
    int ranks;              /* finish */
    int64_t total_rows;     /* as in sb_cross_entropy */
    void *logits;           /* (rows, ld) */
    const int32_t *targets; /* (rows), of the whole vocabulary */
    float *partial;         /* (rows, 3); partial */
    const float *partials;  /* (ranks, rows, 3); finish, as all that follows */
    float *row_loss;        /* (rows) */
    float *loss;            /* (1) mean over rows */
    const float *scale;     /* as in sb_cross_entropy */
    bool backward;
} sb_vocab_loss;

/* What the optimizer knows, in device memory so that a captured step can be replayed. Zero it, then set lr and
 * loss_scale (1 where gradients are not scaled). */
typedef struct sb_optimizer_state {
    int64_t step;                   /* updates done, this one included once begun */
    int64_t skipped;                /* updates left out because a gradient was not finite */
    float lr;                       /* learning rate */
    float loss_scale;               /* gradients are this many times too large */
    float correction1, correction2; /* 1 - beta1^step, sqrt(1 - beta2^step) */
    float grad_scale;               /* the loss_scale that the present gradients were made with */
    float grad_factor;              /* what a gradient is multiplied by: 1/loss_scale, and the clip */
    float grad_norm;                /* L2 norm over all gradients, unscaled; by grad_stats */
    int found_nonfinite;            /* by grad_stats; begin turns it into `skip` and clears it */
    int skip;                       /* adamw does nothing in this step */
    int good_steps;                 /* finite ones since the loss scale last changed */
} sb_optimizer_state;

typedef struct sb_optimizer_begin {
    sb_optimizer_state *state; /* device */
    double beta1, beta2;
    float clip_norm;    /* 0: no clipping; else gradients are scaled down to this norm; needs grad_stats */
    bool dynamic_scale; /* halve loss_scale after a skip, double it after growth_interval good steps (at most 2^24) */
    int growth_interval;
    /* Tables by update, on the device; either may be NULL. Update `step` takes its learning rate from rates[step - 1], the last
     * one where there are no more, and leaves grad_norm in norms[step - 1]. */
    const float *rates;
    float *norms;
    int64_t updates; /* entries of each */
} sb_optimizer_begin;

/* Where the fp32 value of a parameter is kept. */
typedef enum sb_master {
    SB_MASTER_NONE = 0, /* the parameter itself is all there is */
    /* bf16 parameters: int16 remainder r, fp32 bits = (bf16 bits << 16) + r. Nothing is lost; a tie between two bf16
     * goes away from zero, or r would need 2^16 + 1 values. */
    SB_MASTER_SPLIT = 1,
    SB_MASTER_FP32 = 2 /* a float for each parameter */
} sb_master;

/* AdamW on a range of n parameters: p -= lr wd p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * p -= lr (m / correction1) / (sqrt(v) / correction2 + eps). Loshchilov and Hutter, "Decoupled weight decay
 * regularization" (2019); in the order of operations of torch.optim.AdamW. One pass over memory. */
typedef struct sb_adamw {
    const sb_optimizer_state *state; /* device */
    sb_dtype dtype_param, dtype_grad, dtype_moments;
    sb_master master_kind;
    size_t n;
    void *param;  /* written to the nearest of dtype_param */
    void *master; /* int16 or float, by master_kind; NULL for SB_MASTER_NONE */
    const void *grad;
    void *m, *v;
    /* With moments in bf16: v is rounded by chance (kernels/shared/stochastic.h) and m to the nearest; both have the same bits on
     * every backend. To the nearest, v would never fall where 1 - beta2 is below half a step of bf16, 2^-9. */
    bool stochastic;
    uint64_t first; /* index of element 0 in the model, for the chance; on CUDA a multiple of 4 */
    double beta1, beta2, eps, weight_decay;
    int max_blocks; /* 0: as many as are fastest when nothing else runs; else the most there may be, each on a multiprocessor of its own */
} sb_adamw;

/* L2 norm of n gradients and whether any is not finite, into state->grad_norm and found_nonfinite. */
typedef struct sb_grad_stats {
    sb_optimizer_state *state; /* device; loss_scale is read */
    sb_dtype dtype;
    size_t n;
    const void *grad;
    void *workspace;
    size_t workspace_bytes;
} sb_grad_stats;

/* Pieces of what the ops above fuse, one pass over memory each: what an eager framework launches. */
typedef enum sb_point {
    SB_POINT_COPY,  /* out = a, converting dtypes */
    SB_POINT_ADD,   /* a + b */
    SB_POINT_SUB,   /* a - b */
    SB_POINT_MUL,   /* a * b */
    SB_POINT_DIV,   /* a / b */
    SB_POINT_SCALE, /* a * scalar */
    SB_POINT_SHIFT, /* a + scalar */
    SB_POINT_LERP,  /* a + scalar (b - a) */
    SB_POINT_SQRT,
    SB_POINT_RSQRT,     /* 1 / sqrt(a) */
    SB_POINT_SIGMOID,   /* 1 / (1 + exp(-a)) */
    SB_POINT_SILU,      /* a sigmoid(a) */
    SB_POINT_SILU_GRAD, /* b silu'(a) */
    SB_POINT_RELU,
    SB_POINT_RELU_GRAD, /* a > 0 ? b : 0 */
    SB_POINT_EXP,
    SB_POINT_LOG
} sb_point;
typedef enum sb_spread { SB_SPREAD_FULL, SB_SPREAD_ROW, SB_SPREAD_COLUMN, SB_SPREAD_ONE } sb_spread;

typedef struct sb_pointwise {
    sb_point op;
    sb_dtype dtype_a, dtype_b, dtype_out; /* computed in fp32, rounded once */
    int rows, columns;
    int lda, ldb, ld_out; /* elements from row to row; ldb for SB_SPREAD_FULL */
    sb_spread spread_b;   /* b is (rows, columns), (rows), (columns) or (1) */
    const void *a, *b;
    void *out; /* may be a, or b where FULL */
    float scalar;
} sb_pointwise;

typedef struct sb_reduce {
    sb_dtype dtype, dtype_out;
    int rows, columns, ld;
    bool over_rows; /* true: out (columns) sums down each column; false: out (rows) sums along each row */
    bool maximum;   /* the largest instead of the sum */
    float scale;    /* the result times this */
    const void *x;
    void *out;
    void *workspace;
    size_t workspace_bytes;
} sb_reduce;

/* A part of attention joins the sum of other parts, which saw other keys: lse = m + log(e^(la - m) + e^(lb - m)), with m the
 * larger of both, and o = oa e^(la - lse) + ob e^(lb - lse), in fp32. Rows of which neither part sees a key stay o = 0,
 * lse = -inf. Liu et al., "Ring attention with blockwise transformers" (2023). */
typedef struct sb_attention_merge {
    sb_dtype dtype; /* of o */
    int batch, heads, seq, columns;
    bool first;       /* there is no sum so far: the part is it */
    sb_tensor o;      /* (B,H,S,columns) of the part */
    const float *lse; /* (B,H,S) of the part */
    sb_tensor o_sum;  /* (B,H,S,columns), fp32 */
    float *lse_sum;   /* (B,H,S) */
} sb_attention_merge;

typedef struct sb_train_ops {
    size_t (*matmul_workspace)(sb_context *ctx, const sb_matmul *p);
    sb_status (*matmul)(sb_context *ctx, const sb_matmul *p, void *stream);
    /* Times the algorithms for this matmul's shape on its own (finite, random) operands; d is overwritten. Synchronous.
     * Later calls of that shape, dtypes, layout and workspace use what was chosen. The next best are `most` rivals, those
     * that there are not with tried == 0. */
    sb_status (*matmul_tune)(sb_context *ctx, const sb_matmul *p, sb_matmul_choice *chosen, sb_matmul_choice *rivals,
                             int most, void *stream);
    /* Installs a choice from an earlier run; SB_UNSUPPORTED if this library does not know it. Pointers that are NULL
     * stand for aligned ones. */
    sb_status (*matmul_choose)(sb_context *ctx, const sb_matmul *p, const sb_matmul_choice *chosen);

    /* SB_OK, or in one sentence why products of float8 with this scaling cannot run on the context's device. */
    sb_status (*float8_supported)(sb_context *ctx, sb_scaling scaling);
    sb_status (*amax)(sb_context *ctx, const sb_amax *p, void *stream);
    sb_status (*quantize)(sb_context *ctx, const sb_quantize *p, void *stream);
    sb_status (*transpose_codes)(sb_context *ctx, const sb_codes *p, void *stream);
    sb_status (*float8_history)(sb_context *ctx, const sb_float8_history *p, void *stream);

    sb_status (*rmsnorm_forward)(sb_context *ctx, const sb_rmsnorm *p, void *stream);
    size_t (*rmsnorm_workspace)(sb_context *ctx, const sb_rmsnorm *p);
    sb_status (*rmsnorm_backward)(sb_context *ctx, const sb_rmsnorm *p, void *stream);
    sb_status (*rope)(sb_context *ctx, const sb_rope *p, void *stream);
    sb_status (*swiglu_forward)(sb_context *ctx, const sb_swiglu *p, void *stream);
    sb_status (*swiglu_backward)(sb_context *ctx, const sb_swiglu *p, void *stream);
    /* SB_OK, or why these two cannot run here: dtype, shape, device. Pointers are not looked at. */
    sb_status (*swiglu_matmul_supported)(sb_context *ctx, const sb_swiglu_matmul *p);
    sb_status (*swiglu_matmul_forward)(sb_context *ctx, const sb_swiglu_matmul *p, void *stream);
    sb_status (*swiglu_matmul_backward)(sb_context *ctx, const sb_swiglu_matmul *p, void *stream);
    sb_status (*embedding_forward)(sb_context *ctx, const sb_embedding *p, void *stream);
    size_t (*embedding_workspace)(sb_context *ctx, const sb_embedding *p);
    sb_status (*embedding_backward)(sb_context *ctx, const sb_embedding *p, void *stream);
    sb_status (*cross_entropy)(sb_context *ctx, const sb_cross_entropy *p, void *stream);
    sb_status (*vocab_loss_partial)(sb_context *ctx, const sb_vocab_loss *p, void *stream);
    sb_status (*vocab_loss_finish)(sb_context *ctx, const sb_vocab_loss *p, void *stream);

    size_t (*grad_stats_workspace)(sb_context *ctx, const sb_grad_stats *p);
    sb_status (*grad_stats)(sb_context *ctx, const sb_grad_stats *p, void *stream);
    sb_status (*optimizer_begin)(sb_context *ctx, const sb_optimizer_begin *p,
                                 void *stream); /* before adamw's ranges */
    sb_status (*adamw)(sb_context *ctx, const sb_adamw *p, void *stream);

    sb_status (*pointwise)(sb_context *ctx, const sb_pointwise *p, void *stream);
    size_t (*reduce_workspace)(sb_context *ctx, const sb_reduce *p);
    sb_status (*reduce)(sb_context *ctx, const sb_reduce *p, void *stream);

    sb_status (*attention_merge)(sb_context *ctx, const sb_attention_merge *p, void *stream);
} sb_train_ops;

SB_C_END
#endif
