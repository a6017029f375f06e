/* SPDX-License-Identifier: MIT */
/* Plans of products: descriptors, the choice of algorithms that may run, and the table that keeps them.
 *
 * An algorithm is acceptable when the same call gives the same bits. Sums over a split k may go through the workspace
 * in fp32 (COMPUTE_TYPE), which a second pass adds up in a fixed order. Reduction in place is left out: its counters
 * let one block add at a time, users report that the order varies, and it rounds to the output's type. OUTPUT_TYPE is
 * left out because it rounds too. */
#include "kernels/cuda/matmul/algorithm.h"

#include <stdlib.h>
#include <string.h>

struct matmul_plans {
    matmul_plan **slots; /* open addressing, a power of two of them, at most half in use */
    size_t capacity, count;
};

/* k is split only where it is whole blocks of 128 bytes: cuBLAS 12.8 and 13.1 are reported to drop what is left over in
 * some split kernels (github.com/facebookexperimental/triton, pull request 2767). */
enum { K_BLOCK_BYTES = 128, FIRST_CAPACITY = 64, PROPOSALS = 32 };

/* A cuBLAS handle holds a cuBLASLt handle and may be used as one. */
static cublasLtHandle_t library(const sb_context *ctx)
{
    return (cublasLtHandle_t)ctx->cublas;
}

int matmul_alignment(const void *p)
{
    const uintptr_t bits = (uintptr_t)p | MATMUL_MAX_ALIGNMENT;
    return (int)(bits & (~bits + 1));
}

size_t matmul_library_bytes(const sb_context *ctx)
{
    return ctx->cublas_workspace_bytes;
}

int matmul_workspace_kib(const sb_context *ctx, size_t bytes)
{
    const size_t most = matmul_library_bytes(ctx);
    return (int)((bytes < most ? bytes : most) >> 10);
}

/* Fast sums of float8 are another number for each split, so none is split: then every algorithm gives the same bits. */
bool matmul_plan_may_split(const matmul_plan *plan)
{
    return !plan->shape.fast_sums &&
           (int64_t)plan->shape.k * sb_dtype_bytes((sb_dtype)plan->shape.dtype) % K_BLOCK_BYTES == 0;
}

/* ---- descriptors ---- */

static cublasStatus_t describe_operation(matmul_plan *p)
{
    const matmul_shape *s = &p->shape;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        int32_t value;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N},
        {CUBLASLT_MATMUL_DESC_TRANSB, s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N},
        {CUBLASLT_MATMUL_DESC_POINTER_MODE,
         s->device_scalars ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST},
    };
    cublasStatus_t status = cublasLtMatmulDescInit(&p->operation, sb_cublas_compute((sb_dtype)s->dtype), CUDA_R_32F);
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof attributes / sizeof *attributes; i++)
        status = cublasLtMatmulDescSetAttribute(&p->operation, attributes[i].name, &attributes[i].value,
                                                sizeof attributes[i].value);
    return status;
}

#if CUBLAS_VERSION >= 120900
/* cuBLASLt's name of a scaling; -1 where it has none. */
static int32_t scale_mode(int scaling)
{
    switch ((sb_scaling)scaling) {
    case SB_SCALE_TENSOR: return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case SB_SCALE_ROW: return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case SB_SCALE_1X128: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case SB_SCALE_128X128: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case SB_SCALE_NONE:
    case SB_SCALE_1X32: break;
    }
    return -1;
}
#endif

/* Scales are read where they lie when the product runs. Its A is our B. */
static cublasStatus_t point_to_scales(cublasLtMatmulDescOpaque_t *operation, const float *scale_a, const float *scale_b)
{
    cublasStatus_t s =
        cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale_b, sizeof scale_b);
    return s != CUBLAS_STATUS_SUCCESS ? s
                                      : cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                                                       &scale_a, sizeof scale_a);
}

/* Scalings and sums of float8. An algorithm is asked for with pointers to scales, which it does not read then. */
static cublasStatus_t describe_float8(matmul_plan *p)
{
    static const _Alignas(MATMUL_MAX_ALIGNMENT) float somewhere[4];
    const int8_t fast = (int8_t)p->shape.fast_sums;
    cublasStatus_t s =
        cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
#if CUBLAS_VERSION >= 120900
    const int32_t mode_a = scale_mode(p->shape.scaling_b), mode_b = scale_mode(p->shape.scaling_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode_a, sizeof mode_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode_b, sizeof mode_b);
#endif
    return s == CUBLAS_STATUS_SUCCESS ? point_to_scales(&p->operation, somewhere, somewhere) : s;
}

/* Describes a row-major matrix as the column-major one in the same memory. */
static cublasStatus_t describe_matrix(cublasLtMatrixLayoutOpaque_t *out, int dtype, int rows, int columns, int ld)
{
    return cublasLtMatrixLayoutInit(out, sb_cublas_type((sb_dtype)dtype), (uint64_t)columns, (uint64_t)rows, ld);
}

static cublasStatus_t describe(matmul_plan *p)
{
    const matmul_shape *s = &p->shape;
    cublasStatus_t status = describe_operation(p);
    if (status == CUBLAS_STATUS_SUCCESS && s->scaling_a != SB_SCALE_NONE)
        status = describe_float8(p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->b, s->dtype_b, s->transpose_b ? s->n : s->k, s->transpose_b ? s->k : s->n, s->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->a, s->dtype, s->transpose_a ? s->k : s->m, s->transpose_a ? s->m : s->k, s->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->c, s->dtype_out, s->m, s->n, s->ldc);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->d, s->dtype_out, s->m, s->n, s->ldd);
    return status;
}

static cublasStatus_t describe_preference(const matmul_plan *p, cublasLtMatmulPreferenceOpaque_t *out)
{
    const matmul_shape *s = &p->shape;
    const uint64_t workspace = (uint64_t)s->workspace_kib << 10;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         matmul_plan_may_split(p) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)s->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)s->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)s->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)s->align_d},
    };
    cublasStatus_t status = cublasLtMatmulPreferenceInit(out);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                      sizeof workspace);
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof attributes / sizeof *attributes; i++)
        status = cublasLtMatmulPreferenceSetAttribute(out, attributes[i].name, &attributes[i].value,
                                                      sizeof attributes[i].value);
    return status;
}

/* ---- algorithms ---- */

/* An algorithm that cannot write to another matrix than it adds is of no use where c is not d. */
static bool places_result(const matmul_plan *plan, const cublasLtMatmulAlgo_t *algorithm)
{
    int32_t out_of_place = 1;
    size_t written;
    return plan->shape.in_place ||
           cublasLtMatmulAlgoCapGetAttribute(algorithm, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT, &out_of_place,
                                             sizeof out_of_place, &written) != CUBLAS_STATUS_SUCCESS ||
           out_of_place != 0;
}

bool matmul_plan_accepts(sb_context *ctx, matmul_plan *plan, const cublasLtMatmulAlgo_t *algorithm)
{
    if (plan->shape.own || matmul_is_own(algorithm))
        return matmul_own_accepts(ctx, &plan->shape, algorithm);
    cublasLtMatmulHeuristicResult_t result;
    const int scheme = matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    const bool splits = matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
    if (splits && (scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE || !matmul_plan_may_split(plan)))
        return false;
    if (scheme != CUBLASLT_REDUCTION_SCHEME_NONE && scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return false;
    return places_result(plan, algorithm) &&
           cublasLtMatmulAlgoCheck(library(ctx), &plan->operation, &plan->b, &plan->a, &plan->c, &plan->d, algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= (size_t)plan->shape.workspace_kib << 10;
}

static int propose(sb_context *ctx, matmul_plan *plan, cublasLtMatmulAlgo_t *out, int most, cublasStatus_t *status)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[PROPOSALS];
    int found = 0, kept = 0;
    *status = describe_preference(plan, &preference);
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = cublasLtMatmulAlgoGetHeuristic(library(ctx), &plan->operation, &plan->b, &plan->a, &plan->c, &plan->d,
                                                 &preference, PROPOSALS, results, &found);
    for (int i = 0; *status == CUBLAS_STATUS_SUCCESS && i < found && kept < most; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && matmul_plan_accepts(ctx, plan, &results[i].algo))
            out[kept++] = results[i].algo;
    return kept;
}

int matmul_plan_candidates(sb_context *ctx, matmul_plan *plan, cublasLtMatmulAlgo_t *out)
{
    cublasStatus_t status;
    return plan->shape.own ? 0 : propose(ctx, plan, out, MATMUL_MAX_CANDIDATES, &status);
}

static sb_status prepare_own(sb_context *ctx, matmul_plan *plan)
{
    const matmul_shape *s = &plan->shape;
    cublasLtMatmulAlgo_t candidates[MATMUL_MAX_OWN];
    if (matmul_own_candidates(ctx, s, candidates) < 1)
        return sb_error(SB_UNSUPPORTED, "the fp32 matmul cannot run m %d, n %d, k %d", s->m, s->n, s->k);
    plan->algorithm = candidates[0];
    return SB_OK;
}

static sb_status prepare(sb_context *ctx, matmul_plan *plan)
{
    const matmul_shape *s = &plan->shape;
    if (s->own)
        return prepare_own(ctx, plan);
    cublasStatus_t status = describe(plan);
    if (status != CUBLAS_STATUS_SUCCESS)
        return sb_cublas_status(status, "matmul descriptors");
    if (propose(ctx, plan, &plan->algorithm, 1, &status) == 1)
        return SB_OK;
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED)
        return sb_cublas_status(status, "cublasLtMatmulAlgoGetHeuristic");
    if (s->scaling_a != SB_SCALE_NONE)
        return sb_error(
            SB_UNSUPPORTED,
            "cuBLASLt has no repeatable algorithm for a matmul of m %d, n %d, k %d in %s x %s to %s, scaled by %s x %s",
            s->m, s->n, s->k, sb_dtype_name((sb_dtype)s->dtype), sb_dtype_name((sb_dtype)s->dtype_b),
            sb_dtype_name((sb_dtype)s->dtype_out), sb_scaling_name((sb_scaling)s->scaling_a),
            sb_scaling_name((sb_scaling)s->scaling_b));
    return sb_error(SB_UNSUPPORTED,
                    "cuBLASLt has no repeatable algorithm for a matmul of m %d, n %d, k %d in dtype %d to %d", s->m,
                    s->n, s->k, s->dtype, s->dtype_out);
}

/* ---- the table ---- */

static size_t slot_of(const matmul_shape *shape, size_t capacity)
{
    /* FNV-1a over the ints, folded: otherwise the low bits would depend only on the low bits of each int. */
    const unsigned *word = (const unsigned *)shape;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *shape / sizeof *word; i++)
        hash = (hash ^ word[i]) * 0x100000001b3u;
    return (size_t)(hash ^ hash >> 32) & (capacity - 1);
}

/* The slot that holds the shape, or the empty one where it belongs. */
static matmul_plan **seek(matmul_plan **slots, size_t capacity, const matmul_shape *shape)
{
    size_t i = slot_of(shape, capacity);
    while (slots[i] && memcmp(&slots[i]->shape, shape, sizeof *shape) != 0)
        i = (i + 1) & (capacity - 1);
    return slots + i;
}

static sb_status grow(struct matmul_plans *t)
{
    const size_t capacity = t->capacity ? 2 * t->capacity : FIRST_CAPACITY;
    matmul_plan **slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return sb_error(SB_NO_MEMORY, "no host memory for the table of matmul plans");
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slots[i])
            *seek(slots, capacity, &t->slots[i]->shape) = t->slots[i];
    free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return SB_OK;
}

static void free_plans(struct matmul_plans *t)
{
    for (size_t i = 0; i < t->capacity; i++)
        free(t->slots[i]);
    free(t->slots);
    free(t);
}

sb_status matmul_plan_find(sb_context *ctx, const matmul_shape *shape, matmul_plan **out)
{
    if (!ctx->matmul_plans && !(ctx->matmul_plans = calloc(1, sizeof *ctx->matmul_plans)))
        return sb_error(SB_NO_MEMORY, "no host memory for the table of matmul plans");
    ctx->matmul_plans_free = free_plans;
    sb_status s = SB_OK;
    struct matmul_plans *t = ctx->matmul_plans;
    if (t->capacity && (*out = *seek(t->slots, t->capacity, shape)))
        return SB_OK;
    if (2 * (t->count + 1) > t->capacity && (s = grow(t)) != SB_OK)
        return s;
    matmul_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return sb_error(SB_NO_MEMORY, "no host memory for a matmul plan");
    plan->shape = *shape;
    if ((s = prepare(ctx, plan)) != SB_OK) {
        free(plan);
        return s;
    }
    *seek(t->slots, t->capacity, shape) = *out = plan;
    t->count++;
    return SB_OK;
}

sb_status matmul_plan_run(sb_context *ctx, matmul_plan *p, const matmul_operands *o, void *stream)
{
    if (p->shape.scaling_a != SB_SCALE_NONE) {
        const cublasStatus_t s = point_to_scales(&p->operation, o->scale_a, o->scale_b);
        if (s != CUBLAS_STATUS_SUCCESS)
            return sb_cublas_status(s, "scales of a matmul");
    }
    return sb_cublas_status(cublasLtMatmul(library(ctx), &p->operation, o->alpha, o->b, &p->b, o->a, &p->a, o->beta,
                                           o->c, &p->c, o->d, &p->d, &p->algorithm, o->workspace,
                                           (size_t)p->shape.workspace_kib << 10, stream),
                            "cublasLtMatmul");
}
