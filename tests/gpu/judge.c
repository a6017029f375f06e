/* SPDX-License-Identifier: MIT */
/* See judge.h. */
#include "tests/gpu/judge.h"

#include "common/core/check.h"
#include "common/core/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool judge_is_flash(const char *op)
{
    return strncmp(op, "flash", 5) == 0;
}

/* Relative rounding of a score in an op: unfused and fused store scores in the dtype, flash keeps them in fp32 and
 * rounds at most what enters a product. */
static double score_rounding(const char *op, sb_dtype dtype)
{
    static const double stored[] = {0x1p-9, 0x1p-12, 0x1p-11, 0x1p-22, 0x1p-22};
    static const double kept[] = {0x1p-22, 0x1p-22, 0x1p-11, 0x1p-22, 0x1p-20};
    return judge_is_flash(op) ? kept[dtype] : stored[dtype];
}

/* The rms that dq or dk has before its terms cancel, for softmax rows that sum to 1: what rounding errors scale with
 * where a nearly one-hot softmax makes the gradient itself small. 0 for the other tensors. */
static double uncancelled(const problem *p, int tensor)
{
    const sb_attention *a = &p->a;
    const double scale = a->scale != 0 ? fabs(a->scale) : 1 / sqrt(a->head_dim);
    const double dp = sqrt((double)p->tensor[T_V].columns) * p->rms[T_D_O] * p->rms[T_V];
    if (tensor == T_DQ)
        return scale * dp * p->rms[T_K];
    if (tensor == T_DK)
        return scale * dp * p->rms[T_Q] * sqrt((double)a->heads / a->heads_kv * a->seq_q / a->seq_k);
    return 0;
}

static bool is_ordinary(const problem *p)
{
    return p->c->values == VALUES_NORMAL && p->c->scale == 0;
}

/* How much wider the bound of a tensor is when values other than N(0,1) are drawn on purpose: a score wrong by x makes
 * its probability wrong by x, and gradients keep the errors of their terms. */
double judge_widening(const problem *p, const char *op, int tensor, double rel_l2)
{
    if (is_ordinary(p))
        return 1;
    return (1 + score_rounding(op, p->a.dtype) * p->largest_score / rel_l2) *
           fmax(1, uncancelled(p, tensor) / fmax(p->rms[tensor], 1e-30));
}

static check_bound bound_of(const problem *p, const char *op, int tensor)
{
    const char *dtype = case_dtype_names[p->a.dtype];
    const double *terms = p->tensor[tensor].terms;
    check_bound bound =
        terms && is_ordinary(p) ? check_terms_bound(dtype, terms) : check_attention_bound(dtype, tensor != T_O);
    const double wider = judge_widening(p, op, tensor, bound.rel_l2);
    bound.rel_l2 *= wider;
    bound.max_abs *= wider;
    if (!is_ordinary(p)) /* rows have no common scale then */
        bound.rel_row = INFINITY;
    return bound;
}

/* True where query row `row` of (B*H*Sq) sees no key. */
static bool sees_nothing(const problem *p, size_t row)
{
    const bool ends = p->a.causal || (p->a.windowed && p->a.window_right >= 0);
    const int right = p->a.causal ? 0 : p->a.window_right, query = (int)(row % (size_t)p->a.seq_q);
    if (!p->a.packed)
        return ends && query + 1 + p->a.seq_k - p->a.seq_q + right <= 0;
    const test_case *c = p->c;
    int i = 0;
    while (c->cu_seqlens_q[i + 1] <= query)
        i++;
    const int keys = c->cu_seqlens_k[i + 1] - c->cu_seqlens_k[i];
    return keys == 0 || (ends && query - c->cu_seqlens_q[i + 1] + 1 + keys + right <= 0);
}

/* Scores in bf16x3 lose the product of the low parts and what these round away: 3 * 2^-18 of each product at most, which
 * the worst of 10^5 rows comes near. A product left out would be sixty times that. */
static bool check_lse(const runner *r, const problem *p, const char *op, const char *name, const float *lse)
{
    const double base = check_attention_bound(case_dtype_names[p->a.dtype], false).rel_l2;
    const double score = p->a.dtype == SB_BF16X3 && is_ordinary(p) ? 0x3p-18 * p->largest_score : 0;
    const double bound = base * judge_widening(p, op, T_O, base) + score;
    for (size_t i = 0; i < p->lse_count; i++) {
        const double want = p->lse[i], got = lse[i];
        if (sees_nothing(p, i) ? got == -INFINITY : fabs(got - want) <= bound * fmax(1, fabs(want)))
            continue;
        return runner_fail(r, op, case_dtype_names[p->a.dtype], name, "lse[%zu] is %.9g, not %.9g (bound %.1e)", i, got,
                           want, bound);
    }
    return true;
}

bool judge_result(const runner *r, const problem *p, const char *op, const result *x, const char *mode,
                  double errors[T_COUNT])
{
    const char *dtype = case_dtype_names[p->a.dtype], *name = p->c->name;
    bool ok = check_lse(r, p, op, name, x->lse);
    for (int tensor = T_O; tensor < T_COUNT; tensor++) {
        const size_t rows = p->tensor[tensor].rows, d = p->tensor[tensor].columns;
        if (!is_written(p, tensor))
            continue;
        OWNED double *got = xcalloc(rows * d, sizeof *got);
        for (size_t row = 0; row < rows; row++)
            problem_read_row(p, tensor, x->bytes[tensor], row, got + row * d);
        const check_bound bound = bound_of(p, op, tensor);
        const check_result c = check_compare(p->tensor[tensor].values, got, rows * d, d, bound);
        errors[tensor] = c.rel_l2;
        if (!c.ok) {
            char text[256];
            check_describe(&c, bound, text, sizeof text);
            ok = runner_fail(r, op, dtype, name, "%s%s: %s", tensor_names[tensor], mode, text);
        }
        for (size_t row = 0; row < rows && !is_key_tensor(tensor); row++)
            for (size_t i = 0; sees_nothing(p, row) && i < d; i++)
                if (got[row * d + i] != 0) {
                    ok = runner_fail(r, op, dtype, name, "%s%s: row %zu sees no key but is not 0", tensor_names[tensor],
                                     mode, row);
                    row = rows - 1;
                    break;
                }
    }
    return ok;
}

bool judge_against_unfused(const runner *r, const problem *p, const char *op, const double flash[T_COUNT],
                           const double unfused[T_COUNT])
{
    bool ok = true;
    for (int tensor = T_O; tensor < T_COUNT && is_written(p, tensor); tensor++) {
        const double base = p->a.dtype == SB_BF16 ? 1e-3 : 1.25e-4;
        const double most = 2 * unfused[tensor] + base * judge_widening(p, op, tensor, base);
        if (!(flash[tensor] <= most))
            ok = runner_fail(r, op, case_dtype_names[p->a.dtype], p->c->name,
                             "%s: rel_l2 %.2e is more than twice unfused's %.2e (allowed %.2e)", tensor_names[tensor],
                             flash[tensor], unfused[tensor], most);
    }
    return ok;
}
