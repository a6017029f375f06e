/* SPDX-License-Identifier: MIT */
/* Argument checks of the training ops: see train_check.h. */
#include "kernels/shared/train_check.h"
#include "kernels/shared/float8.h"

#include <math.h>

typedef struct named {
    const char *name;
    const void *pointer;
} named;

/* Every pointer of a list that ends with {0} must be given. */
static sb_status given(const char *op, const named *list)
{
    for (; list->name; list++)
        if (!list->pointer)
            return sb_error(SB_INVALID, "%s: %s is missing (NULL)", op, list->name);
    return SB_OK;
}

static sb_status known_dtype(const char *op, const char *name, sb_dtype t)
{
    if ((int)t < SB_BF16 || (int)t > SB_FP32)
        return sb_error(SB_INVALID, "%s: %s %d is none of bf16 (0), fp16 (1), tf32 (2), fp32 (3)", op, name, (int)t);
    return SB_OK;
}

/* Two sizes of an op, each at least 1. */
static sb_status at_least_one(const char *op, const char *name1, int n1, const char *name2, int n2)
{
    if (n1 < 1 || n2 < 1)
        return sb_error(SB_INVALID, "%s: %s %d and %s %d must both be at least 1", op, name1, n1, name2, n2);
    return SB_OK;
}

static sb_status wide_enough(const char *op, const char *name, int ld, int columns)
{
    if (ld < columns)
        return sb_error(SB_INVALID, "%s: %s %d is less than the %d columns of a row", op, name, ld, columns);
    return SB_OK;
}

static sb_status known_betas(const char *op, double beta1, double beta2)
{
    if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1))
        return sb_error(SB_INVALID, "%s: beta1 %g and beta2 %g must be at least 0 and less than 1", op, beta1, beta2);
    return SB_OK;
}

/* In the check of an op named `op` with the arguments `p`. */
#define SIZES(a, b) at_least_one(op, #a, p->a, #b, p->b)
#define DTYPE(field) known_dtype(op, #field, p->field)
#define WIDE(ld, columns) wide_enough(op, #ld, p->ld, columns)
/* clang-format off */
#define FIELD(field) {#field, p->field}
/* clang-format on */
#define GIVEN(...) given(op, (const named[]){__VA_ARGS__, {0}})

sb_status sb_train_workspace_check(const char *op, const void *workspace, size_t bytes, size_t need)
{
    if (need > 0 && (!workspace || bytes < need))
        return sb_error(SB_NO_MEMORY, "%s: the workspace has %zu bytes, %zu are needed", op, workspace ? bytes : 0,
                        need);
    return SB_OK;
}

static sb_status matmul_rows(const sb_matmul *p)
{
    static const char op[] = "matmul";
    SB_TRY(WIDE(lda, p->transpose_a ? p->m : p->k));
    SB_TRY(WIDE(ldb, p->transpose_b ? p->k : p->n));
    SB_TRY(WIDE(ldd, p->n));
    if (p->c)
        SB_TRY(WIDE(ldc, p->n));
    if (p->c == p->d && p->ldc != p->ldd)
        return sb_error(SB_INVALID, "%s: c is d, so ldc %d and ldd %d must be equal", op, p->ldc, p->ldd);
    return SB_OK;
}

static bool is_float8(sb_dtype t)
{
    return t == SB_E4M3 || t == SB_E5M2;
}

static sb_status matmul_scalings(const sb_matmul *p)
{
    const sb_scaling a = p->scaling_a, b = p->scaling_b;
    const bool squares =
        (a == SB_SCALE_1X128 && b == SB_SCALE_128X128) || (a == SB_SCALE_128X128 && b == SB_SCALE_1X128);
    if ((int)a < SB_SCALE_TENSOR || a > SB_SCALE_1X32 || (int)b < SB_SCALE_TENSOR || b > SB_SCALE_1X32 ||
        !((a == b && a != SB_SCALE_128X128) || squares))
        return sb_error(
            SB_INVALID,
            "matmul: scalings %d and %d do not go together; both may be tensor (1), row (2), 1x128 (3) or 1x32 (5), or "
            "one 1x128 and the other 128x128 (4)",
            (int)a, (int)b);
    if ((int)p->sums < SB_SUMS_EXACT || (int)p->sums > SB_SUMS_FAST)
        return sb_error(SB_INVALID, "matmul: sums %d are neither exact (0) nor fast (1)", (int)p->sums);
    if (p->sums == SB_SUMS_FAST && a != SB_SCALE_TENSOR && a != SB_SCALE_ROW)
        return sb_error(SB_INVALID, "matmul: sums are exact (0) where blocks are scaled");
    return given("matmul", (const named[]){FIELD(scale_a), FIELD(scale_b), {0}});
}

static sb_status matmul_float8(const sb_matmul *p)
{
    static const char op[] = "matmul";
    if (!is_float8(p->dtype_b) || (p->dtype == SB_E5M2 && p->dtype_b == SB_E5M2))
        return sb_error(SB_INVALID, "%s: dtype %d and dtype_b %d must be e4m3 (5) or e5m2 (6), and one of them e4m3",
                        op, (int)p->dtype, (int)p->dtype_b);
    if (p->dtype_out != SB_BF16 && p->dtype_out != SB_FP16 && p->dtype_out != SB_FP32)
        return sb_error(SB_INVALID, "%s: dtype_out %d is none of bf16 (0), fp16 (1), fp32 (3)", op, (int)p->dtype_out);
    if (p->transpose_a || !p->transpose_b)
        return sb_error(SB_INVALID, "%s: float8 products take A as (m,k) and B as (n,k): only transpose_b", op);
    return matmul_scalings(p);
}

sb_status sb_matmul_check(const sb_matmul *p)
{
    static const char op[] = "matmul";
    const bool float8 = is_float8(p->dtype);
    SB_TRY(float8 ? matmul_float8(p) : DTYPE(dtype));
    if (!float8 && p->dtype_out != p->dtype && p->dtype_out != SB_FP32)
        return sb_error(SB_INVALID, "%s: dtype_out %d is neither dtype %d nor fp32 (3)", op, (int)p->dtype_out,
                        (int)p->dtype);
    if ((int)p->split < SB_FMA || (int)p->split > SB_FP16X3)
        return sb_error(SB_INVALID, "%s: split %d is none of fma (0), fp16x3-fast (1), fp16x3 (2)", op, (int)p->split);
    if (p->split && p->dtype != SB_FP32)
        return sb_error(SB_INVALID, "%s: split is for fp32 products (3), not for dtype %d", op, (int)p->dtype);
    if (p->m < 1 || p->n < 1 || p->k < 1)
        return sb_error(SB_INVALID, "%s: m %d, n %d and k %d must all be at least 1", op, p->m, p->n, p->k);
    SB_TRY(GIVEN(FIELD(a), FIELD(b), FIELD(d)));
    return matmul_rows(p);
}

static sb_status turned_of(const char *op, const sb_float8_from *from, int columns)
{
    if (from->seq < 1 || from->head_dim < 8 || from->head_dim % 8 != 0 || from->turned < 0 || from->turned > columns ||
        from->turned % from->head_dim != 0)
        return sb_error(SB_INVALID,
                        "%s: seq %d must be at least 1, head_dim %d a multiple of 8, and turned %d whole heads of %d "
                        "columns",
                        op, from->seq, from->head_dim, from->turned, columns);
    return GIVEN({"table", from->table});
}

/* The matrix of a cast, and what it is made of. */
static sb_status matrix_of(const char *op, sb_dtype dtype, const sb_float8_from *from, int rows, int columns, int ld,
                           const void *x)
{
    const sb_float8_source source = from->source;
    const bool gradient = source == SB_FROM_SWIGLU_GRADIENT, swiglu = gradient || source == SB_FROM_SWIGLU;
    const int64_t wide = gradient ? columns : 2 * (int64_t)columns;
    SB_TRY(at_least_one(op, "rows", rows, "columns", columns));
    if (dtype != SB_BF16 && dtype != SB_FP16 && dtype != SB_FP32)
        return sb_error(SB_INVALID, "%s: dtype %d is none of bf16 (0), fp16 (1), fp32 (3)", op, (int)dtype);
    SB_TRY(wide_enough(op, "ld", ld, columns));
    if ((int)source < SB_FROM_X || source > SB_FROM_ROPE_GRADIENT)
        return sb_error(
            SB_INVALID,
            "%s: source %d is none of x (0), swiglu (1), its gradient (2), rmsnorm (3), the gradient of rope (4)", op,
            (int)source);
    if (swiglu && (ld != wide || (gradient && columns % 2 != 0)))
        return sb_error(SB_INVALID, "%s: gate_up of %d columns of the matrix has no rows of %d", op, columns, ld);
    if (gradient)
        SB_TRY(GIVEN({"dh", from->dh}));
    if (source == SB_FROM_RMSNORM)
        SB_TRY(GIVEN({"rstd", from->rstd}, {"gain", from->gain}));
    if (source == SB_FROM_ROPE_GRADIENT)
        SB_TRY(turned_of(op, from, columns));
    return GIVEN({"x", x});
}

sb_status sb_amax_check(const sb_amax *p)
{
    return matrix_of("amax", p->dtype, &p->from, p->rows, p->columns, p->ld, p->x);
}

/* Either copy: its rows, its scales, and the words that its scales are made of. */
static sb_status copy_of(const sb_quantize *p, const void *codes, const char *name_ld, int ld, int columns,
                         const char *name_scales, const float *scales, const char *name_amax, const uint32_t *amax)
{
    static const char op[] = "quantize";
    if (!codes)
        return SB_OK;
    SB_TRY(wide_enough(op, name_ld, ld, columns));
    SB_TRY(GIVEN({name_scales, scales}));
    if (p->scaling == SB_SCALE_TENSOR || p->scaling == SB_SCALE_ROW)
        SB_TRY(GIVEN({name_amax, amax}));
    return SB_OK;
}

sb_status sb_quantize_check(const sb_quantize *p)
{
    static const char op[] = "quantize";
    const bool blocks = p->scaling != SB_SCALE_TENSOR && p->scaling != SB_SCALE_ROW;
    SB_TRY(matrix_of(op, p->dtype, &p->from, p->rows, p->columns, p->ld, p->x));
    if (p->from.source == SB_FROM_SWIGLU_GRADIENT && blocks && p->columns % (2 * SB_FLOAT8_BLOCK) != 0)
        return sb_error(SB_INVALID, "%s: a block of %d columns would lie on both of gate's and up's gradients", op,
                        SB_FLOAT8_BLOCK);
    if (!is_float8(p->format))
        return sb_error(SB_INVALID, "%s: format %d is neither e4m3 (5) nor e5m2 (6)", op, (int)p->format);
    if ((int)p->scaling < SB_SCALE_TENSOR || p->scaling > SB_SCALE_1X32)
        return sb_error(SB_INVALID, "%s: scaling %d is none of tensor (1), row (2), 1x128 (3), 128x128 (4), 1x32 (5)",
                        op, (int)p->scaling);
    if (p->scaling_t && p->scaling_t != p->scaling &&
        (p->scaling != SB_SCALE_1X128 || p->scaling_t != SB_SCALE_128X128))
        return sb_error(SB_INVALID,
                        "%s: scaling %d of y and %d of y_t do not go together; 1x128 (3) and 128x128 (4) do", op,
                        (int)p->scaling, (int)p->scaling_t);
    if (p->again && (p->scaling != SB_SCALE_TENSOR || !p->largest || p->counts))
        return sb_error(SB_INVALID, "%s: again needs scaling tensor (1), largest, and no counts", op);
    if (!p->y && !p->y_t)
        return sb_error(SB_INVALID, "%s: neither y nor y_t is given, so there is nothing to write", op);
    SB_TRY(copy_of(p, p->y, "ld_y", p->ld_y, p->columns, "scales", p->scales, "amax", p->amax));
    const bool tensor = p->scaling == SB_SCALE_TENSOR;
    return copy_of(p, p->y_t, "ld_t", p->ld_t, p->rows, "scales_t", p->scales_t, tensor ? "amax" : "amax_t",
                   tensor ? p->amax : p->amax_t);
}

sb_status sb_codes_check(const sb_codes *p)
{
    static const char op[] = "transpose_codes";
    if (p->scaling != SB_SCALE_TENSOR && p->scaling != SB_SCALE_128X128)
        return sb_error(SB_INVALID, "%s: scaling %d is neither tensor (1) nor 128x128 (4)", op, (int)p->scaling);
    if (p->rows < 16 || p->columns < 16 || p->rows % 16 || p->columns % 16)
        return sb_error(SB_INVALID, "%s: rows %d and columns %d must be multiples of 16", op, p->rows, p->columns);
    return GIVEN(FIELD(x), FIELD(scales), FIELD(y_t), FIELD(scales_t));
}

sb_status sb_float8_history_check(const sb_float8_history *p)
{
    static const char op[] = "float8_history";
    SB_TRY(SIZES(n, window));
    return GIVEN(FIELD(largest), FIELD(history), FIELD(used));
}

sb_status sb_rmsnorm_check(const sb_rmsnorm *p, bool backward)
{
    const char *op = backward ? "rmsnorm_backward" : "rmsnorm_forward";
    SB_TRY(SIZES(rows, d));
    SB_TRY(DTYPE(dtype));
    SB_TRY(DTYPE(dtype_param));
    if (backward)
        SB_TRY(DTYPE(dtype_grad));
    if (!(p->eps >= 0 && isfinite(p->eps)))
        return sb_error(SB_INVALID, "%s: eps must be finite and not negative, not %g", op, p->eps);
    SB_TRY(GIVEN(FIELD(x), FIELD(weight), FIELD(rstd)));
    if (backward)
        return GIVEN(FIELD(dy), FIELD(dx), FIELD(dweight));
    if (p->residual && !p->sum)
        return sb_error(SB_INVALID, "%s: a residual needs sum, where x + residual is written", op);
    return SB_OK;
}

sb_status sb_rope_check(const sb_rope *p)
{
    static const char op[] = "rope";
    SB_TRY(SIZES(batch, seq));
    SB_TRY(SIZES(heads, head_dim));
    if (p->head_dim % 2 != 0)
        return sb_error(SB_INVALID, "%s: head_dim %d is odd, and elements turn in pairs", op, p->head_dim);
    SB_TRY(DTYPE(dtype));
    return GIVEN(FIELD(x.data), FIELD(table));
}

sb_status sb_swiglu_check(const sb_swiglu *p, bool backward)
{
    const char *op = backward ? "swiglu_backward" : "swiglu_forward";
    SB_TRY(SIZES(rows, f));
    SB_TRY(DTYPE(dtype));
    SB_TRY(GIVEN(FIELD(gate_up)));
    if (backward)
        return GIVEN(FIELD(dh), FIELD(d_gate_up));
    return GIVEN(FIELD(h));
}

sb_status sb_embedding_check(const sb_embedding *p, bool backward)
{
    const char *op = backward ? "embedding_backward" : "embedding_forward";
    SB_TRY(SIZES(rows, d));
    SB_TRY(SIZES(rows, vocab));
    SB_TRY(DTYPE(dtype));
    if (backward)
        SB_TRY(DTYPE(dtype_grad));
    SB_TRY(GIVEN(FIELD(ids)));
    if (backward)
        return GIVEN(FIELD(d_out), FIELD(d_table));
    return GIVEN(FIELD(table), FIELD(out));
}

sb_status sb_cross_entropy_check(const sb_cross_entropy *p)
{
    static const char op[] = "cross_entropy";
    SB_TRY(SIZES(rows, vocab));
    SB_TRY(DTYPE(dtype));
    if (p->total_rows != 0 && p->total_rows < p->rows)
        return sb_error(SB_INVALID, "%s: total_rows %lld is less than rows %d", op, (long long)p->total_rows, p->rows);
    return GIVEN(FIELD(logits), FIELD(targets), FIELD(row_loss), FIELD(loss));
}

sb_status sb_vocab_loss_check(const sb_vocab_loss *p, bool finish)
{
    const char *op = finish ? "vocab_loss_finish" : "vocab_loss_partial";
    SB_TRY(SIZES(rows, ld));
    SB_TRY(DTYPE(dtype));
    if (p->columns < 0 || p->columns > p->ld || p->ld % 8 != 0)
        return sb_error(SB_INVALID, "%s: %d columns in rows of ld %d: at most as many, and ld a multiple of 8", op,
                        p->columns, p->ld);
    if (finish && p->ranks < 1)
        return sb_error(SB_INVALID, "%s: ranks %d must be at least 1", op, p->ranks);
    SB_TRY(GIVEN(FIELD(logits), FIELD(targets)));
    if (!finish)
        return GIVEN(FIELD(partial));
    return GIVEN(FIELD(partials), FIELD(row_loss), FIELD(loss));
}

sb_status sb_grad_stats_check(const sb_grad_stats *p)
{
    static const char op[] = "grad_stats";
    SB_TRY(DTYPE(dtype));
    SB_TRY(GIVEN(FIELD(state)));
    return p->n == 0 ? SB_OK : GIVEN(FIELD(grad));
}

sb_status sb_optimizer_begin_check(const sb_optimizer_begin *p)
{
    static const char op[] = "optimizer_begin";
    SB_TRY(GIVEN(FIELD(state)));
    SB_TRY(known_betas(op, p->beta1, p->beta2));
    if (!(p->clip_norm >= 0 && isfinite(p->clip_norm)))
        return sb_error(SB_INVALID, "%s: clip_norm must be positive and finite, or 0 for none, not %g", op,
                        p->clip_norm);
    if ((p->rates || p->norms) && p->updates < 1)
        return sb_error(SB_INVALID, "%s: tables of %lld updates have no entry", op, (long long)p->updates);
    if (p->dynamic_scale && p->growth_interval < 1)
        return sb_error(SB_INVALID, "%s: growth_interval %d must be at least 1", op, p->growth_interval);
    return SB_OK;
}

static sb_status adamw_pointers(const sb_adamw *p)
{
    static const char op[] = "adamw";
    SB_TRY(GIVEN(FIELD(param), FIELD(grad), FIELD(m), FIELD(v)));
    if (p->master_kind == SB_MASTER_NONE && p->master)
        return sb_error(SB_INVALID, "%s: a master copy is given, and master_kind says there is none", op);
    return p->master_kind == SB_MASTER_NONE ? SB_OK : GIVEN(FIELD(master));
}

sb_status sb_adamw_check(const sb_adamw *p)
{
    static const char op[] = "adamw";
    SB_TRY(GIVEN(FIELD(state)));
    SB_TRY(DTYPE(dtype_param));
    SB_TRY(DTYPE(dtype_grad));
    SB_TRY(DTYPE(dtype_moments));
    SB_TRY(known_betas(op, p->beta1, p->beta2));
    if ((int)p->master_kind < SB_MASTER_NONE || (int)p->master_kind > SB_MASTER_FP32)
        return sb_error(SB_INVALID, "%s: master_kind %d is none of none (0), split (1), fp32 (2)", op,
                        (int)p->master_kind);
    if (p->master_kind == SB_MASTER_SPLIT && p->dtype_param != SB_BF16)
        return sb_error(SB_INVALID, "%s: a split master is for bf16 parameters (0), not for dtype_param %d", op,
                        (int)p->dtype_param);
    if (p->stochastic && p->dtype_moments != SB_BF16)
        return sb_error(SB_INVALID, "%s: stochastic rounding is for moments in bf16 (0), not for dtype_moments %d", op,
                        (int)p->dtype_moments);
    if (!(p->eps >= 0 && isfinite(p->eps) && p->weight_decay >= 0 && isfinite(p->weight_decay)))
        return sb_error(SB_INVALID, "%s: eps %g and weight_decay %g must be finite and not negative", op, p->eps,
                        p->weight_decay);
    if (p->max_blocks < 0)
        return sb_error(SB_INVALID, "%s: max_blocks %d is negative", op, p->max_blocks);
    return p->n == 0 ? SB_OK : adamw_pointers(p);
}

bool sb_point_has_b(sb_point op)
{
    switch (op) {
    case SB_POINT_ADD:
    case SB_POINT_SUB:
    case SB_POINT_MUL:
    case SB_POINT_DIV:
    case SB_POINT_LERP:
    case SB_POINT_SILU_GRAD:
    case SB_POINT_RELU_GRAD: return true;
    default: return false;
    }
}

/* In place works where every element is read from where it is written. */
static sb_status same_layout(const char *name, sb_dtype t, int ld, const sb_pointwise *p)
{
    if (sb_dtype_bytes(t) != sb_dtype_bytes(p->dtype_out) || (ld != p->ld_out && p->rows > 1))
        return sb_error(SB_INVALID, "pointwise: out is %s, so their elements and rows must have the same size", name);
    return SB_OK;
}

static sb_status pointwise_b(const sb_pointwise *p)
{
    static const char op[] = "pointwise";
    SB_TRY(DTYPE(dtype_b));
    SB_TRY(GIVEN(FIELD(b)));
    if ((int)p->spread_b < SB_SPREAD_FULL || (int)p->spread_b > SB_SPREAD_ONE)
        return sb_error(SB_INVALID, "%s: spread_b %d is none of full (0), row (1), column (2), one (3)", op,
                        (int)p->spread_b);
    if (p->spread_b != SB_SPREAD_FULL)
        return p->out != p->b ? SB_OK : sb_error(SB_INVALID, "%s: out may be b only where b is (rows, columns)", op);
    SB_TRY(WIDE(ldb, p->columns));
    return p->out == p->b ? same_layout("b", p->dtype_b, p->ldb, p) : SB_OK;
}

sb_status sb_pointwise_check(const sb_pointwise *p)
{
    static const char op[] = "pointwise";
    if ((int)p->op < SB_POINT_COPY || (int)p->op > SB_POINT_LOG)
        return sb_error(SB_INVALID, "%s: there is no op %d", op, (int)p->op);
    SB_TRY(SIZES(rows, columns));
    SB_TRY(DTYPE(dtype_a));
    SB_TRY(DTYPE(dtype_out));
    SB_TRY(GIVEN(FIELD(a), FIELD(out)));
    SB_TRY(WIDE(lda, p->columns));
    SB_TRY(WIDE(ld_out, p->columns));
    if (p->out == p->a)
        SB_TRY(same_layout("a", p->dtype_a, p->lda, p));
    return sb_point_has_b(p->op) ? pointwise_b(p) : SB_OK;
}

sb_status sb_reduce_check(const sb_reduce *p)
{
    static const char op[] = "reduce";
    SB_TRY(SIZES(rows, columns));
    SB_TRY(DTYPE(dtype));
    SB_TRY(DTYPE(dtype_out));
    SB_TRY(WIDE(ld, p->columns));
    return GIVEN(FIELD(x), FIELD(out));
}

sb_status sb_attention_merge_check(const sb_attention_merge *p)
{
    static const char op[] = "attention_merge";
    const named list[] = {{"o", p->o.data}, FIELD(lse), {"o_sum", p->o_sum.data}, FIELD(lse_sum), {0}};
    SB_TRY(SIZES(batch, heads));
    SB_TRY(SIZES(seq, columns));
    SB_TRY(DTYPE(dtype));
    return given(op, list);
}
