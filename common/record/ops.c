/* SPDX-License-Identifier: MIT */
/* Ranges around ops; see ops.h. Bytes are the fewest that the op must move: each input read once, each output written
 * once. FLOPs are those of products; ops without one are bound by memory, and count none. */
#include "common/record/ops.h"

#include "common/formulas/attention.h"
#include "common/record/nvtx.h"
#include "common/record/record.h"
#include "kernels/shared/parts.h"

#include <math.h>
#include <string.h>

enum { ATTENTION_OPS = 8 };

static const sb_kernels *inner;
static sb_kernels wrapped;
static sb_train_ops train;
static sb_attention_op attention[ATTENTION_OPS + 1];

static double bytes_of(sb_dtype t)
{
    return sb_dtype_bytes(t);
}

/* `call` with a range of this name around it. */
#define OP(title, type, flop, byte, call)                                                                              \
    do {                                                                                                               \
        const record_work work = {.op = (title), .dtype = (type), .flops = (flop), .bytes = (byte)};                   \
        op_push(title, &work);                                                                                         \
        const sb_status status = (call);                                                                               \
        op_pop();                                                                                                      \
        return status;                                                                                                 \
    } while (0)

/* ---- attention ---- */

static _Thread_local const sb_attention *running; /* the one that parts are told of */
static _Thread_local bool running_backward;

/* Packed documents count as one sequence: their lengths are on the device. */
static sb_attention one_sequence(const sb_attention *a)
{
    sb_attention s = *a;
    s.packed = false;
    return s;
}

/* So the bytes are right, and the FLOPs unknown. */
static double known_flops(const sb_attention *a, double flops)
{
    return a->packed ? NAN : flops;
}

/* Parts work on the whole S x S matrix whatever the mask: each product is 2 B H Sq Sk D, those of `value` with the columns of v,
 * and softmax some five operations an element; scale and mask are two passes over it. On the CPU they run head by head. */
static record_work part_work(const char *part)
{
    const sb_attention *a = running;
    const sb_attention s = one_sequence(a);
    const double calls = strcmp(inner->name, "cpu") != 0 ? 1 : (double)a->batch * a->heads;
    const double matrix = attention_matrix_bytes(&s, sb_dtype_bytes(a->dtype)) / calls;
    const double elements = (double)a->batch * a->heads * a->seq_q * a->seq_k / calls;
    const double columns = (double)(strcmp(part, "value") == 0 ? attention_head_dim_v(&s) : s.head_dim);
    const double rows = (double)a->batch * a->heads * (a->seq_q + a->seq_k) * columns * bytes_of(a->dtype) / calls;
    const bool softmax = strcmp(part, "softmax") == 0, mask = strcmp(part, "mask") == 0;
    const int products = running_backward ? 2 : 1;
    return (record_work){.op = running_backward ? "attention backward" : "attention forward",
                         .dtype = softmax || mask ? NULL : sb_dtype_name(a->dtype),
                         .flops = (mask      ? 1
                                   : softmax ? 5
                                             : 2.0 * columns * products) *
                                  elements,
                         .bytes = mask      ? 4 * matrix
                                  : softmax ? (running_backward ? 3 : 2) * matrix
                                            : products * (matrix + rows),
                         .part = true};
}

static void on_part(const char *part)
{
    if (!running)
        return;
    if (part) {
        const record_work work = part_work(part);
        op_push(part, &work);
    } else {
        op_pop();
    }
}

static sb_status attention_forward(const sb_attention_op *op, sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_attention s = one_sequence(a);
    const record_work work = {.op = "attention forward",
                              .dtype = sb_dtype_name(a->dtype),
                              .flops = known_flops(a, attention_forward_flops(&s)),
                              .bytes = attention_forward_bytes(&s, sb_dtype_bytes(a->dtype))};
    running = a, running_backward = false;
    op_push(work.op, &work);
    const sb_status status = op->forward(ctx, a, stream);
    op_pop();
    running = NULL;
    return status;
}

static sb_status attention_backward(const sb_attention_op *op, sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_attention s = one_sequence(a);
    const record_work work = {.op = "attention backward",
                              .dtype = sb_dtype_name(a->dtype),
                              .flops = known_flops(a, attention_backward_flops(&s)),
                              .bytes = attention_backward_bytes(&s, sb_dtype_bytes(a->dtype))};
    running = a, running_backward = true;
    op_push(work.op, &work);
    const sb_status status = op->backward(ctx, a, stream);
    op_pop();
    running = NULL;
    return status;
}

/* An op of the table is not told which one it is, so there is a pair of functions for each. */
#define EACH_ATTENTION(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define PAIR(i)                                                                                                        \
    static sb_status forward##i(sb_context *ctx, const sb_attention *a, void *stream)                                  \
    {                                                                                                                  \
        return attention_forward(&inner->attention[i], ctx, a, stream);                                                \
    }                                                                                                                  \
    static sb_status backward##i(sb_context *ctx, const sb_attention *a, void *stream)                                 \
    {                                                                                                                  \
        return attention_backward(&inner->attention[i], ctx, a, stream);                                               \
    }
EACH_ATTENTION(PAIR)

static void wrap_attention(void)
{
#define FUNCTIONS(i) {forward##i, backward##i},
    static const struct {
        sb_status (*forward)(sb_context *ctx, const sb_attention *a, void *stream);
        sb_status (*backward)(sb_context *ctx, const sb_attention *a, void *stream);
    } of[ATTENTION_OPS] = {EACH_ATTENTION(FUNCTIONS)};
    int n = 0;
    for (; n < ATTENTION_OPS && inner->attention[n].name; n++) {
        attention[n] = inner->attention[n];
        attention[n].forward = of[n].forward;
        attention[n].backward = attention[n].backward ? of[n].backward : NULL;
    }
    memset(&attention[n], 0, sizeof attention[n]);
    wrapped.attention = attention;
}

/* ---- ops of a step ---- */

static sb_status matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    const double in = bytes_of(p->dtype), out = bytes_of(p->dtype_out);
    OP("matmul", sb_dtype_name(p->dtype), gemm_flops(p->m, p->n, p->k),
       ((double)p->m * p->k + (double)p->k * p->n) * in + (double)p->m * p->n * out * (p->c ? 2 : 1),
       inner->train->matmul(ctx, p, stream));
}

static sb_status rmsnorm_forward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    OP("norm forward", NULL, 0, (double)p->rows * p->d * bytes_of(p->dtype) * (p->residual ? 4 : 2),
       inner->train->rmsnorm_forward(ctx, p, stream));
}

static sb_status rmsnorm_backward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    OP("norm backward", NULL, 0, (double)p->rows * p->d * bytes_of(p->dtype) * (p->d_residual ? 4 : 3),
       inner->train->rmsnorm_backward(ctx, p, stream));
}

static sb_status rope(sb_context *ctx, const sb_rope *p, void *stream)
{
    OP("rope", NULL, 0, 2.0 * p->batch * p->seq * p->heads * p->head_dim * bytes_of(p->dtype),
       inner->train->rope(ctx, p, stream));
}

static sb_status swiglu_forward(sb_context *ctx, const sb_swiglu *p, void *stream)
{
    OP("swiglu forward", NULL, 0, 3.0 * p->rows * p->f * bytes_of(p->dtype),
       inner->train->swiglu_forward(ctx, p, stream));
}

static sb_status swiglu_backward(sb_context *ctx, const sb_swiglu *p, void *stream)
{
    OP("swiglu backward", NULL, 0, (p->h ? 6.0 : 5.0) * p->rows * p->f * bytes_of(p->dtype),
       inner->train->swiglu_backward(ctx, p, stream));
}

static sb_status swiglu_matmul_forward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream)
{
    const double rows = p->rows, f = p->f, d = p->d;
    OP("matmul and swiglu", sb_dtype_name(p->dtype), gemm_flops(p->rows, 2 * p->f, p->d),
       (rows * d + 2 * f * d + (p->gate_up ? 3 : 1) * rows * f) * bytes_of(p->dtype),
       inner->train->swiglu_matmul_forward(ctx, p, stream));
}

static sb_status swiglu_matmul_backward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream)
{
    const double rows = p->rows, f = p->f, d = p->d;
    OP("matmul and swiglu", sb_dtype_name(p->dtype), gemm_flops(p->rows, p->f, p->d),
       (rows * d + f * d + (p->h ? 5 : 4) * rows * f) * bytes_of(p->dtype),
       inner->train->swiglu_matmul_backward(ctx, p, stream));
}

static sb_status embedding_forward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    OP("embedding forward", NULL, 0, 2.0 * p->rows * p->d * bytes_of(p->dtype),
       inner->train->embedding_forward(ctx, p, stream));
}

static sb_status embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    OP("embedding backward", NULL, 0,
       (double)p->rows * p->d * bytes_of(p->dtype) + (double)p->vocab * p->d * bytes_of(p->dtype_grad),
       inner->train->embedding_backward(ctx, p, stream));
}

static sb_status cross_entropy(sb_context *ctx, const sb_cross_entropy *p, void *stream)
{
    OP("cross-entropy", NULL, 0, (double)p->rows * p->vocab * bytes_of(p->dtype) * (p->backward ? 2 : 1),
       inner->train->cross_entropy(ctx, p, stream));
}

static sb_status vocab_loss_partial(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    OP("loss, partial", NULL, 0, (double)p->rows * p->columns * bytes_of(p->dtype),
       inner->train->vocab_loss_partial(ctx, p, stream));
}

static sb_status vocab_loss_finish(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    OP("loss, finish", NULL, 0, p->backward ? 2.0 * p->rows * p->ld * bytes_of(p->dtype) : 0,
       inner->train->vocab_loss_finish(ctx, p, stream));
}

static sb_status grad_stats(sb_context *ctx, const sb_grad_stats *p, void *stream)
{
    OP("gradient norm", NULL, 0, (double)p->n * bytes_of(p->dtype), inner->train->grad_stats(ctx, p, stream));
}

static sb_status optimizer_begin(sb_context *ctx, const sb_optimizer_begin *p, void *stream)
{
    OP("optimizer state", NULL, 0, 2.0 * sizeof *p->state, inner->train->optimizer_begin(ctx, p, stream));
}

static sb_status adamw(sb_context *ctx, const sb_adamw *p, void *stream)
{
    const double master = p->master_kind == SB_MASTER_SPLIT ? 2 : p->master_kind == SB_MASTER_FP32 ? 4 : 0;
    OP("AdamW", NULL, 0,
       (double)p->n *
           (2 * bytes_of(p->dtype_param) + 2 * master + bytes_of(p->dtype_grad) + 4 * bytes_of(p->dtype_moments)),
       inner->train->adamw(ctx, p, stream));
}

static bool is_binary(sb_point op)
{
    return (op >= SB_POINT_ADD && op <= SB_POINT_DIV) || op == SB_POINT_LERP || op == SB_POINT_SILU_GRAD ||
           op == SB_POINT_RELU_GRAD;
}

static sb_status pointwise(sb_context *ctx, const sb_pointwise *p, void *stream)
{
    const double n = (double)p->rows * p->columns;
    const double b = is_binary(p->op) && p->spread_b == SB_SPREAD_FULL ? bytes_of(p->dtype_b) : 0;
    OP("pointwise", NULL, 0, n * (bytes_of(p->dtype_a) + b + bytes_of(p->dtype_out)),
       inner->train->pointwise(ctx, p, stream));
}

static sb_status reduce(sb_context *ctx, const sb_reduce *p, void *stream)
{
    OP("reduce", NULL, 0, (double)p->rows * p->columns * bytes_of(p->dtype), inner->train->reduce(ctx, p, stream));
}

/* ---- the rest ---- */

static sb_status gemm(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                      void *stream)
{
    OP("matmul", sb_dtype_name(dtype), gemm_flops(m, n, k),
       ((double)m * k + (double)k * n + (double)m * n) * bytes_of(dtype),
       inner->gemm(ctx, dtype, m, n, k, a, b, c, stream));
}

static sb_status fill_normal(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed, uint32_t stream_id,
                             float scale, void *stream)
{
    OP("fill", NULL, 0, (double)n * bytes_of(dtype),
       inner->fill_normal(ctx, dtype, out, n, seed, stream_id, scale, stream));
}

static sb_status copy(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    OP("copy", NULL, 0, 2 * (double)bytes, inner->copy(ctx, dst, src, bytes, stream));
}

static sb_status nothing(sb_context *ctx, void *stream)
{
    OP("nothing", NULL, 0, 0, inner->nothing(ctx, stream));
}

static sb_status attention_merge(sb_context *ctx, const sb_attention_merge *p, void *stream)
{
    OP("attention merge", NULL, 0,
       (double)p->batch * p->heads * p->seq * p->columns * (bytes_of(p->dtype) + (p->first ? 4 : 8)),
       inner->train->attention_merge(ctx, p, stream));
}

const sb_kernels *profiled_kernels(const sb_kernels *k)
{
    inner = k;
    wrapped = *k;
    wrapped.gemm = gemm;
    wrapped.fill_normal = fill_normal;
    wrapped.copy = copy;
    wrapped.nothing = nothing;
    wrap_attention();
    train = *k->train;
    train.matmul = matmul;
    train.rmsnorm_forward = rmsnorm_forward;
    train.rmsnorm_backward = rmsnorm_backward;
    train.rope = rope;
    train.swiglu_forward = swiglu_forward;
    train.swiglu_backward = swiglu_backward;
    train.swiglu_matmul_forward = swiglu_matmul_forward;
    train.swiglu_matmul_backward = swiglu_matmul_backward;
    train.embedding_forward = embedding_forward;
    train.embedding_backward = embedding_backward;
    train.cross_entropy = cross_entropy;
    train.vocab_loss_partial = vocab_loss_partial;
    train.vocab_loss_finish = vocab_loss_finish;
    train.grad_stats = grad_stats;
    train.optimizer_begin = optimizer_begin;
    train.adamw = adamw;
    train.pointwise = pointwise;
    train.reduce = reduce;
    train.attention_merge = attention_merge;
    wrapped.train = &train;
    sb_parts_listen(on_part);
    return &wrapped;
}
