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

static sb_status attend(const sb_attention_op *op, sb_context *ctx, const sb_attention *a, void *stream, bool backward)
{
    const sb_attention s = one_sequence(a);
    const int element = sb_dtype_bytes(a->dtype);
    const double flops = backward ? attention_backward_flops(&s) : attention_forward_flops(&s);
    const double bytes = backward ? attention_backward_bytes(&s, element) : attention_forward_bytes(&s, element);
    const record_work work = {.op = backward ? "attention backward" : "attention forward",
                              .dtype = sb_dtype_name(a->dtype),
                              .flops = known_flops(a, flops),
                              .bytes = bytes};
    running = a, running_backward = backward;
    op_push(work.op, &work);
    const sb_status status = (backward ? op->backward : op->forward)(ctx, a, stream);
    op_pop();
    running = NULL;
    return status;
}

/* An op of the table is not told which one it is, so there is a pair of functions for each. */
#define EACH_ATTENTION(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define PAIR(i)                                                                                                        \
    static sb_status forward##i(sb_context *ctx, const sb_attention *a, void *stream)                                  \
    {                                                                                                                  \
        return attend(&inner->attention[i], ctx, a, stream, false);                                                    \
    }                                                                                                                  \
    static sb_status backward##i(sb_context *ctx, const sb_attention *a, void *stream)                                 \
    {                                                                                                                  \
        return attend(&inner->attention[i], ctx, a, stream, true);                                                     \
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

static double moved(int64_t rows, int64_t columns, sb_dtype t)
{
    return (double)rows * (double)columns * bytes_of(t);
}

static double moved_by_matmul(const sb_matmul *p)
{
    return moved(p->m, p->k, p->dtype) + moved(p->k, p->n, p->dtype) + (p->c ? 2 : 1) * moved(p->m, p->n, p->dtype_out);
}

static double moved_by_adamw(const sb_adamw *p)
{
    const double master = p->master_kind == SB_MASTER_SPLIT ? 2 : p->master_kind == SB_MASTER_FP32 ? 4 : 0;
    return (double)p->n *
           (2 * bytes_of(p->dtype_param) + 2 * master + bytes_of(p->dtype_grad) + 4 * bytes_of(p->dtype_moments));
}

static bool is_binary(sb_point op)
{
    return (op >= SB_POINT_ADD && op <= SB_POINT_DIV) || op == SB_POINT_LERP || op == SB_POINT_SILU_GRAD ||
           op == SB_POINT_RELU_GRAD;
}

static double moved_by_point(const sb_pointwise *p)
{
    const double b = is_binary(p->op) && p->spread_b == SB_SPREAD_FULL ? bytes_of(p->dtype_b) : 0;
    return (double)p->rows * p->columns * (bytes_of(p->dtype_a) + b + bytes_of(p->dtype_out));
}

/* Every op of a step: its entry in the table, its arguments *p, its title, the dtype of its products, its FLOPs, its bytes. */
/* clang-format off */
#define STEP_OPS(X) \
    X(matmul, sb_matmul, "matmul", sb_dtype_name(p->dtype), gemm_flops(p->m, p->n, p->k), moved_by_matmul(p)) \
    X(rmsnorm_forward, sb_rmsnorm, "norm forward", NULL, 0, (p->residual ? 4 : 2) * moved(p->rows, p->d, p->dtype)) \
    X(rmsnorm_backward, sb_rmsnorm, "norm backward", NULL, 0, (p->d_residual ? 4 : 3) * moved(p->rows, p->d, p->dtype)) \
    X(rope, sb_rope, "rope", NULL, 0, 2.0 * p->batch * p->heads * moved(p->seq, p->head_dim, p->dtype)) \
    X(swiglu_forward, sb_swiglu, "swiglu forward", NULL, 0, 3 * moved(p->rows, p->f, p->dtype)) \
    X(swiglu_backward, sb_swiglu, "swiglu backward", NULL, 0, (p->h ? 6 : 5) * moved(p->rows, p->f, p->dtype)) \
    X(swiglu_matmul_forward, sb_swiglu_matmul, "matmul and swiglu", sb_dtype_name(p->dtype), \
      gemm_flops(p->rows, 2 * p->f, p->d), \
      moved(p->rows, p->d, p->dtype) + 2 * moved(p->f, p->d, p->dtype) + \
          (p->gate_up ? 3 : 1) * moved(p->rows, p->f, p->dtype)) \
    X(swiglu_matmul_backward, sb_swiglu_matmul, "matmul and swiglu", sb_dtype_name(p->dtype), gemm_flops(p->rows, p->f, p->d), \
      moved(p->rows, p->d, p->dtype) + moved(p->f, p->d, p->dtype) + (p->h ? 5 : 4) * moved(p->rows, p->f, p->dtype)) \
    X(embedding_forward, sb_embedding, "embedding forward", NULL, 0, 2 * moved(p->rows, p->d, p->dtype)) \
    X(embedding_backward, sb_embedding, "embedding backward", NULL, 0, \
      moved(p->rows, p->d, p->dtype) + moved(p->vocab, p->d, p->dtype_grad)) \
    X(cross_entropy, sb_cross_entropy, "cross-entropy", NULL, 0, (p->backward ? 2 : 1) * moved(p->rows, p->vocab, p->dtype)) \
    X(vocab_loss_partial, sb_vocab_loss, "loss, partial", NULL, 0, moved(p->rows, p->columns, p->dtype)) \
    X(vocab_loss_finish, sb_vocab_loss, "loss, finish", NULL, 0, p->backward ? 2 * moved(p->rows, p->ld, p->dtype) : 0) \
    X(grad_stats, sb_grad_stats, "gradient norm", NULL, 0, moved(p->n, 1, p->dtype)) \
    X(optimizer_begin, sb_optimizer_begin, "optimizer state", NULL, 0, 2.0 * sizeof *p->state) \
    X(adamw, sb_adamw, "AdamW", NULL, 0, moved_by_adamw(p)) \
    X(pointwise, sb_pointwise, "pointwise", NULL, 0, moved_by_point(p)) \
    X(reduce, sb_reduce, "reduce", NULL, 0, moved(p->rows, p->columns, p->dtype)) \
    X(attention_merge, sb_attention_merge, "attention merge", NULL, 0, \
      (double)p->batch * p->heads * p->seq * p->columns * (bytes_of(p->dtype) + (p->first ? 4 : 8)))
/* clang-format on */

#define STEP_OP(name, arguments, title, products, flop, byte)                                                          \
    static sb_status name(sb_context *ctx, const arguments *p, void *stream)                                           \
    {                                                                                                                  \
        OP(title, products, flop, byte, inner->train->name(ctx, p, stream));                                           \
    }
STEP_OPS(STEP_OP)

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
#define SET_OP(name, ...) train.name = name;
    STEP_OPS(SET_OP)
    wrapped.train = &train;
    sb_parts_listen(on_part);
    return &wrapped;
}
