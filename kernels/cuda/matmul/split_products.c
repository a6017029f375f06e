/* SPDX-License-Identifier: MIT */
/* fp32-level products on tensor cores. On Hopper one kernel of our own does small ones in a single launch
 * (matmul/hopper/matmul_fp32.h), where each row of the operands is whole units of 16 bytes. Else cuBLASLt does, on operands
 * split beforehand into two fp16 parts (split_fp16.h):
 *     A B = 1/(sA sB) (hi hi + (hi lo + lo hi) / 2^11); lo lo, at most 2^-22 of a product, is left out.
 * The two small terms are one product over 2k, the parts next to or below each other, [hi lo] of A and [lo hi] of B; hi hi
 * follows and adds to it in fp32.
 * Tensor cores truncate what does not fit when they add to an accumulator. So hi hi is summed in runs of k, each added to D by
 * the epilogue, which rounds to nearest: SB_FP16X3_FAST has long ones. SB_FP16X3 prefers our own kernel, which rounds its sums
 * every 64 of k without a trip to memory, and has short runs elsewhere. */
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/hopper/matmul_fp32.h"
#include "kernels/cuda/matmul/split_fp16.h"
#include "kernels/shared/train_check.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>

enum {
    LONGEST_RUN_FAST = 1280,
    LONGEST_RUN = 256, /* most of k that one accumulator sums */
    K_UNIT = 64,       /* runs and parts are whole multiples: 128 bytes, so that cuBLASLt may split k */
    ROW_UNIT = 8       /* elements of a part's row: 16 bytes */
};

/* A part as an operand of the products. */
typedef struct part_layout {
    split_operand operand;
    int64_t part;   /* elements from one part to the other, along k */
    int64_t per_k;  /* elements from one k to the next */
    int64_t in_all; /* elements of both */
} part_layout;

typedef struct split_layout {
    part_layout a, b;
    int k;         /* padded with zeros to whole units */
    int runs, run; /* how many, and the length of all but the last */
    size_t partials_at, a_at, b_at, library_at, bytes;
} split_layout;

static int64_t round_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* `k_rows`: the operand is stored as (k, outer), else as (outer, k). Both parts are one matrix of 2k either way. */
static part_layout lay_out_parts(const void *x, bool k_rows, int outer, int k, int padded_k, int ld)
{
    part_layout l = {.operand = {.x = x, .rows = outer, .columns = k, .ld = ld}};
    if (k_rows) {
        const int64_t row = round_up(outer, ROW_UNIT);
        l.operand.rows = k, l.operand.columns = outer;
        l.operand.part_rows = padded_k;
        l.operand.part_columns = l.operand.part_ld = (int)row;
        l.part = padded_k * row;
        l.per_k = row;
        l.in_all = 2 * l.part;
    } else {
        l.operand.part_rows = outer;
        l.operand.part_columns = padded_k;
        l.operand.part_ld = 2 * padded_k;
        l.part = padded_k;
        l.per_k = 1;
        l.in_all = (int64_t)outer * l.operand.part_ld;
    }
    return l;
}

static split_layout lay_out(const sb_context *ctx, const sb_matmul *p)
{
    split_layout s = {.k = (int)round_up(p->k, K_UNIT)};
    const int longest = p->split == SB_FP16X3 ? LONGEST_RUN : LONGEST_RUN_FAST;
    s.runs = (s.k + longest - 1) / longest;
    s.run = (int)round_up((s.k + s.runs - 1) / s.runs, K_UNIT);
    s.runs = (s.k + s.run - 1) / s.run;
    s.a = lay_out_parts(p->a, p->transpose_a, p->m, p->k, s.k, p->lda);
    s.b = lay_out_parts(p->b, !p->transpose_b, p->n, p->k, s.k, p->ldb);
    s.partials_at = (size_t)round_up(sizeof(split_scalars), 256);
    s.a_at = s.partials_at + SPLIT_PARTIALS * sizeof(unsigned);
    s.b_at = s.a_at + (size_t)round_up(2 * s.a.in_all, 256);
    s.library_at = s.b_at + (size_t)round_up(2 * s.b.in_all, 256);
    s.bytes = s.library_at + matmul_library_bytes(ctx);
    return s;
}

static matmul_shape shape_of(const sb_context *ctx, const sb_matmul *p, const split_layout *s)
{
    return (matmul_shape){
        .dtype = SB_FP16,
        .dtype_b = SB_FP16,
        .dtype_out = SB_FP32,
        .transpose_a = p->transpose_a,
        .transpose_b = p->transpose_b,
        .m = p->m,
        .n = p->n,
        .k = s->run,
        .lda = s->a.operand.part_ld,
        .ldb = s->b.operand.part_ld,
        .ldc = p->ldd,
        .ldd = p->ldd,
        .adds = 1,
        .in_place = 1,
        .device_scalars = 1,
        .align_a = MATMUL_MAX_ALIGNMENT,
        .align_b = MATMUL_MAX_ALIGNMENT,
        .align_c = matmul_alignment(p->d),
        .align_d = matmul_alignment(p->d),
        .workspace_kib = matmul_workspace_kib(ctx, matmul_library_bytes(ctx)),
    };
}

/* The plans: small terms, a run, and the last run where it is shorter. */
static sb_status find_plans(sb_context *ctx, const sb_matmul *p, const split_layout *s, matmul_plan_list *out)
{
    const int last = s->k - (s->runs - 1) * s->run;
    matmul_shape run = shape_of(ctx, p, s), small = run;
    small.k = 2 * s->k;
    small.adds = p->c != NULL;
    if (p->c) {
        small.ldc = p->ldc;
        small.in_place = p->c == p->d;
        small.align_c = matmul_alignment(p->c);
    }
    out->count = last < s->run ? 3 : 2;
    sb_status status = matmul_plan_find(ctx, &small, &out->plan[0]);
    if (status == SB_OK)
        status = matmul_plan_find(ctx, &run, &out->plan[1]);
    run.k = last;
    if (status == SB_OK && out->count == 3)
        status = matmul_plan_find(ctx, &run, &out->plan[2]);
    return status;
}

static sb_status check_size(const sb_matmul *p)
{
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->m > INT_MAX - ROW_UNIT || p->n > INT_MAX - ROW_UNIT ||
        p->k > INT_MAX / 2 - K_UNIT)
        return sb_error(SB_UNSUPPORTED, "m %d, n %d, k %d are out of range for a split matmul", p->m, p->n, p->k);
    return SB_OK;
}

/* Our own kernel saves launches and passes over memory; the library's products are faster once that is small compared
 * with the work, as long as its sums are long. Measured on an H200 at 512 rows: 12 against 16 us for 512 x 768 x 768, 29 against
 * 39 for k 3072; at 4096^3 1.12 against 0.96 ms, with A transposed 1.47 against 0.91. */
static bool use_own(const sb_context *ctx, const sb_matmul *p)
{
    const double most = p->split == SB_FP16X3 ? HUGE_VAL : p->transpose_a ? 1e9 : 4e9;
    return matmul_fp32_supports(ctx, p) && (double)p->m * p->n * p->k <= most;
}

static sb_status find_own(sb_context *ctx, const sb_matmul *p, matmul_plan **out)
{
    const matmul_shape shape = {.dtype = SB_FP32,
                                .dtype_out = SB_FP32,
                                .transpose_a = p->transpose_a,
                                .transpose_b = p->transpose_b,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .lda = p->lda,
                                .ldb = p->ldb,
                                .ldc = p->c ? p->ldc : p->ldd,
                                .ldd = p->ldd,
                                .adds = p->c != NULL,
                                .own = 1};
    return matmul_plan_find(ctx, &shape, out);
}

size_t matmul_library_split_workspace(const sb_context *ctx, const sb_matmul *p)
{
    return lay_out(ctx, p).bytes;
}

size_t matmul_split_workspace(sb_context *ctx, const sb_matmul *p)
{
    return check_size(p) != SB_OK || use_own(ctx, p) ? 0 : matmul_library_split_workspace(ctx, p);
}

sb_status matmul_split_plans_of(sb_context *ctx, const sb_matmul *p, matmul_plan_list *out)
{
    SB_TRY(check_size(p));
    if (use_own(ctx, p)) {
        out->count = 1;
        return find_own(ctx, p, &out->plan[0]);
    }
    const split_layout s = lay_out(ctx, p);
    return find_plans(ctx, p, &s, out);
}

sb_status matmul_library_split_run(sb_context *ctx, const sb_matmul *p, void *stream)
{
    matmul_plan_list plans;
    split_layout s = lay_out(ctx, p);
    sb_status status = sb_train_workspace_check("split matmul", p->workspace, p->workspace_bytes, s.bytes);
    if (status == SB_OK)
        status = find_plans(ctx, p, &s, &plans);
    if (status != SB_OK)
        return status;

    char *const base = p->workspace;
    split_scalars *const scalars = (split_scalars *)base;
    uint16_t *const a = (uint16_t *)(base + s.a_at), *const b = (uint16_t *)(base + s.b_at);
    s.a.operand.hi = a, s.a.operand.lo = a + s.a.part;
    s.b.operand.lo = b, s.b.operand.hi = b + s.b.part;
    status = split_fp16_parts(&s.a.operand, &s.b.operand, scalars, (unsigned *)(base + s.partials_at), ctx->sm_count,
                              stream);

    matmul_operands o = {.a = a,
                         .b = b,
                         .c = p->c ? p->c : p->d,
                         .d = p->d,
                         .alpha = &scalars->alpha_small,
                         .beta = p->c ? &scalars->one : &scalars->zero,
                         .workspace = base + s.library_at};
    if (status == SB_OK)
        status = matmul_plan_run(ctx, plans.plan[0], &o, stream);
    o.c = p->d;
    o.alpha = &scalars->alpha, o.beta = &scalars->one;
    for (int i = 0; status == SB_OK && i < s.runs; i++) {
        const int64_t first = (int64_t)i * s.run;
        o.a = (const uint16_t *)s.a.operand.hi + first * s.a.per_k;
        o.b = (const uint16_t *)s.b.operand.hi + first * s.b.per_k;
        status = matmul_plan_run(ctx, plans.plan[i + 1 < s.runs ? 1 : plans.count - 1], &o, stream);
    }
    return status;
}

/* The workspace may have been asked for before the pointers were known, and be none. */
static sb_status check_pointers(const sb_context *ctx, const sb_matmul *p)
{
    sb_matmul shape = *p;
    shape.a = shape.b = NULL;
    const size_t need = matmul_library_split_workspace(ctx, p);
    if (use_own(ctx, &shape) && p->workspace_bytes < need)
        return sb_error(SB_UNSUPPORTED, "split matmul: a and b are aligned to 16 bytes, or the workspace has %zu",
                        need);
    return SB_OK;
}

sb_status matmul_split_run(sb_context *ctx, const sb_matmul *p, void *stream)
{
    matmul_plan *plan;
    sb_status status = check_size(p);
    if (status == SB_OK && !use_own(ctx, p)) {
        status = check_pointers(ctx, p);
        return status == SB_OK ? matmul_library_split_run(ctx, p, stream) : status;
    }
    if (status == SB_OK)
        status = find_own(ctx, p, &plan);
    return status == SB_OK ? matmul_fp32_run(ctx, p, matmul_own_cluster(&plan->algorithm), stream) : status;
}
