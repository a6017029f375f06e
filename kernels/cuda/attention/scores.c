/* SPDX-License-Identifier: MIT */
/* Layout of the score matrix and the cuBLAS products around it. */
#include "kernels/cuda/attention/scores.h"

#include "kernels/shared/internal.h"

/* Matrices of one cuBLAS call, as many as a grid has along y or z, whichever of them cuBLAS uses. */
enum { MOST_AT_ONCE = 65535 };

static size_t round_up(size_t x, size_t to)
{
    return (x + to - 1) / to * to;
}

sb_scores sb_scores_of(const sb_attention *a)
{
    sb_scores s = {.dtype = a->dtype, .heads = a->batch * a->heads, .seq_q = a->seq_q, .seq_k = a->seq_k};
    s.pitch = (int64_t)round_up((size_t)a->seq_k, 8);
    s.head_stride = s.pitch * a->seq_q;
    s.mask_bytes = round_up((size_t)s.head_stride, 256);
    s.bytes = round_up((size_t)s.heads * (size_t)s.head_stride * (size_t)sb_dtype_bytes(a->dtype), 256);
    return s;
}

sb_status sb_scores_supported(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    SB_TRY(sb_attention_check_whole(a));
    if (a->windowed)
        return sb_error(SB_UNSUPPORTED, "unfused and fused attention take no window on CUDA");
    if (a->packed)
        return sb_error(SB_UNSUPPORTED, "unfused and fused attention take no packed documents on CUDA");
    return SB_OK;
}

size_t sb_scores_saved_bytes(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return sb_scores_of(a).bytes;
}

/* A row-major matrix for every head of a batch. */
typedef struct operand {
    const char *data;
    int64_t stride_b, stride_h; /* elements */
    int64_t row_stride;
    bool of_query_heads; /* one per query head; else one per key/value head */
    bool transposed;     /* enters the product transposed */
} operand;

static operand matrix_operand(const sb_attention *a, const void *matrix, bool transposed)
{
    sb_scores s = sb_scores_of(a);
    return (operand){matrix, s.head_stride * a->heads, s.head_stride, s.pitch, true, transposed};
}

static operand tensor_operand(const sb_tensor *t, bool of_query_heads, bool transposed)
{
    return (operand){t->data, t->stride_b, t->stride_h, t->stride_s, of_query_heads, transposed};
}

/* How the heads of one cuBLAS call are walked: `outer` calls of `inner` equally spaced matrices. */
typedef struct batching {
    int outer, inner;
    bool inner_is_batch; /* the inner step is stride_b, else one key/value head */
} batching;

static bool batches_follow_heads(const sb_attention *a, const operand *x)
{
    return x->stride_b == x->stride_h * (x->of_query_heads ? a->heads : a->heads_kv);
}

static batching choose_batching(const sb_attention *a, const operand *x, const operand *y, const operand *z)
{
    if (a->heads_kv == 1)
        return (batching){1, a->batch, true};
    if (batches_follow_heads(a, x) && batches_follow_heads(a, y) && batches_follow_heads(a, z))
        return (batching){1, a->batch * a->heads_kv, false};
    return (batching){a->batch, a->heads_kv, false};
}

/* Step of one operand between the matrices of a call. A group of query heads shares a key/value head, and a call takes
 * the same member of every group. */
static int64_t inner_stride(const sb_attention *a, const operand *x, const batching *w)
{
    if (w->inner_is_batch)
        return x->stride_b;
    return x->of_query_heads ? x->stride_h * (a->heads / a->heads_kv) : x->stride_h;
}

static void *operand_at(const sb_attention *a, const operand *x, int outer, int member, int64_t inner)
{
    int64_t element = outer * x->stride_b + (x->of_query_heads ? member * x->stride_h : 0) + inner;
    return (void *)(x->data + element * sb_dtype_bytes(a->dtype));
}

/* z (m, n) = x (m, k) y (k, n) for every head; where z has one matrix per key/value head, the sum over its group.
 * cuBLAS is column-major, where a row-major matrix is its transpose: it is asked for z^T = y^T x^T. */
static sb_status multiply(sb_context *ctx, const sb_attention *a, operand x, operand y, operand z, int m, int n, int k)
{
    const batching w = choose_batching(a, &x, &y, &z);
    const cudaDataType_t type = sb_cublas_type(a->dtype);
    const cublasComputeType_t compute = sb_cublas_compute(a->dtype);
    const cublasOperation_t op_x = x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_y = y.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t step_x = inner_stride(a, &x, &w), step_y = inner_stride(a, &y, &w), step_z = inner_stride(a, &z, &w);
    const float one = 1;

    for (int outer = 0; outer < w.outer; outer++)
        for (int member = 0; member < a->heads / a->heads_kv; member++)
            for (int first = 0; first < w.inner; first += MOST_AT_ONCE) {
                const int count = w.inner - first < MOST_AT_ONCE ? w.inner - first : MOST_AT_ONCE;
                const float beta = member > 0 && !z.of_query_heads ? 1 : 0;
                void *xp = operand_at(a, &x, outer, member, first * step_x);
                void *yp = operand_at(a, &y, outer, member, first * step_y);
                void *zp = operand_at(a, &z, outer, member, first * step_z);
                cublasStatus_t status =
                    count == 1 ? cublasGemmEx(ctx->cublas, op_y, op_x, n, m, k, &one, yp, type, (int)y.row_stride, xp,
                                              type, (int)x.row_stride, &beta, zp, type, (int)z.row_stride, compute,
                                              CUBLAS_GEMM_DEFAULT)
                               : cublasGemmStridedBatchedEx(ctx->cublas, op_y, op_x, n, m, k, &one, yp, type,
                                                            (int)y.row_stride, step_y, xp, type, (int)x.row_stride,
                                                            step_x, &beta, zp, type, (int)z.row_stride, step_z, count,
                                                            compute, CUBLAS_GEMM_DEFAULT);
                if (status != CUBLAS_STATUS_SUCCESS)
                    return sb_cublas_status(status, "matrix product of attention");
            }
    return SB_OK;
}

sb_status sb_scores_from_qk(sb_context *ctx, const sb_attention *a, void *matrix)
{
    return multiply(ctx, a, tensor_operand(&a->q, true, false), tensor_operand(&a->k, false, true),
                    matrix_operand(a, matrix, false), a->seq_q, a->seq_k, a->head_dim);
}

sb_status sb_scores_to_o(sb_context *ctx, const sb_attention *a, const void *matrix)
{
    return multiply(ctx, a, matrix_operand(a, matrix, false), tensor_operand(&a->v, false, false),
                    tensor_operand(&a->o, true, false), a->seq_q, sb_head_dim_v(a), a->seq_k);
}

sb_status sb_scores_to_dv_dp(sb_context *ctx, const sb_attention *a, const void *p, void *dp)
{
    SB_TRY(multiply(ctx, a, matrix_operand(a, p, true), tensor_operand(&a->d_o, true, false),
                    tensor_operand(&a->dv, false, false), a->seq_k, sb_head_dim_v(a), a->seq_q));
    return multiply(ctx, a, tensor_operand(&a->d_o, true, false), tensor_operand(&a->v, false, true),
                    matrix_operand(a, dp, false), a->seq_q, a->seq_k, sb_head_dim_v(a));
}

sb_status sb_scores_to_dq_dk(sb_context *ctx, const sb_attention *a, const void *matrix)
{
    SB_TRY(multiply(ctx, a, matrix_operand(a, matrix, false), tensor_operand(&a->k, false, false),
                    tensor_operand(&a->dq, true, false), a->seq_q, a->head_dim, a->seq_k));
    return multiply(ctx, a, matrix_operand(a, matrix, true), tensor_operand(&a->q, true, false),
                    tensor_operand(&a->dk, false, false), a->seq_k, a->head_dim, a->seq_q);
}
