/* SPDX-License-Identifier: MIT */
/* Chooses the algorithm of a matmul by timing: the library's proposals, variations of the fastest of them, and our
 * own kernels.
 * A slow one is dropped after a few calls. The others get the median of a few batches of about 0.4 ms, short ones as
 * replays of a graph: the host would take longer to launch them than they run. At the end the first proposal and the
 * fastest alternate, so that a drifting clock meets both, and the first stays unless it is more than 1 % slower: then two
 * runs of the tuner mostly choose the same.
 * A step of large products runs at the GPU's power limit, which short batches on a cool GPU do not show. So for a large
 * product the library's first proposal stays unless another is much faster; a caller with a whole step to run can race it
 * against its rivals there. The best of our own is the first rival if it is near: it gains as the clock falls. */
#include "kernels/cuda/matmul/matmul.h"

#include <math.h>
#include <string.h>

#include "kernels/cuda/train.h"

enum { MAX_VARIATIONS = 16, MAX_TRIALS = MATMUL_MAX_CANDIDATES + MAX_VARIATIONS + MATMUL_MAX_OWN };
enum { ROUNDS = 5, FEW_ROUNDS = 3, GRAPH_CALLS = 20 };
enum { SHORTEST_PART = 256 }; /* least of k in a part of a split that the library did not propose */
static const float warm_ms = 10, batch_ms = 0.4f, slow_ms = 2;   /* a call of slow_ms gets few rounds */
static const float short_ms = 0.05f;                             /* a shorter call is timed as part of a graph */
static const double large_flops = 30e9;                          /* a product that brings the GPU to its power limit */
static const float hopeless = 1.3f, near_enough = 1.15f;         /* times the fastest so far */
static const float worth_changing = 1.01f, worth_energy = 1.06f; /* the latter for a large product */

typedef struct trial {
    cublasLtMatmulAlgo_t algorithm;
    float ms; /* time of one call; infinity if it failed */
} trial;

typedef struct tuner {
    sb_context *ctx;
    const sb_matmul *p;
    cudaStream_t stream;
    matmul_plan_list plans;
    cudaEvent_t begin, end;
    trial trials[MAX_TRIALS];
    int count, fastest;
} tuner;

static float median(float *x, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            const float t = x[j];
            x[j] = x[j - 1], x[j - 1] = t;
        }
    return x[n / 2];
}

/* Enqueues `calls` calls. *refused: the library does not run what is installed. */
static sb_status enqueue(tuner *t, int calls, bool *refused)
{
    sb_status s = SB_OK;
    *refused = false;
    for (int i = 0; s == SB_OK && !*refused && i < calls; i++) {
        s = sb_cuda_matmul(t->ctx, t->p, t->stream);
        if (s == SB_DEVICE_ERROR) {
            (void)cudaGetLastError(); /* clears the error of a refused launch; a broken context reports its own again */
            *refused = true;
            s = SB_OK;
        }
    }
    return s;
}

/* Calls of what is installed as a graph: launched one by one, short calls take as long as the host needs for each. NULL
 * where the stream cannot be captured. */
static cudaGraphExec_t capture(tuner *t)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool refused = true;
    if (cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    const sb_status s = enqueue(t, GRAPH_CALLS, &refused);
    if (cudaStreamEndCapture(t->stream, &graph) != cudaSuccess || s != SB_OK || refused ||
        cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) {
        (void)cudaGetLastError();
        exec = NULL;
    }
    if (graph)
        cudaGraphDestroy(graph);
    return exec;
}

static void drop(cudaGraphExec_t graph)
{
    if (graph)
        cudaGraphExecDestroy(graph);
}

/* Milliseconds of one call, measured over `times` calls or replays of the graph; infinity if the library refuses to run
 * what is installed. */
static sb_status time_calls(tuner *t, cudaGraphExec_t graph, int times, float *ms)
{
    bool refused = false;
    *ms = INFINITY;
    sb_status s = sb_cuda_status(cudaEventRecord(t->begin, t->stream), "cudaEventRecord");
    if (s == SB_OK && !graph)
        s = enqueue(t, times, &refused);
    for (int i = 0; s == SB_OK && graph && i < times; i++)
        s = sb_cuda_status(cudaGraphLaunch(graph, t->stream), "cudaGraphLaunch");
    if (s == SB_OK && refused)
        return sb_cuda_status(cudaStreamSynchronize(t->stream), "matmul_tune");
    if (s == SB_OK)
        s = sb_cuda_status(cudaEventRecord(t->end, t->stream), "cudaEventRecord");
    if (s == SB_OK)
        s = sb_cuda_status(cudaEventSynchronize(t->end), "matmul_tune");
    if (s == SB_OK)
        s = sb_cuda_status(cudaEventElapsedTime(ms, t->begin, t->end), "cudaEventElapsedTime");
    *ms = s == SB_OK ? *ms / (float)(graph ? times * GRAPH_CALLS : times) : INFINITY;
    return s;
}

/* How many calls of `ms` take about `total`. */
static int calls_for(float total, float ms, int most)
{
    return ms * (float)most < total ? most : ms > total ? 1 : (int)(total / ms);
}

/* How often a batch replays the graph, or calls the product. */
static int times_for(cudaGraphExec_t graph, float ms)
{
    return graph ? calls_for(batch_ms, ms * GRAPH_CALLS, 4) : calls_for(batch_ms, ms, 64);
}

/* The median of a few batches; one is enough to see that an algorithm will be neither chosen nor a rival. */
static sb_status time_batches(tuner *t, cudaGraphExec_t graph, float once, float *ms)
{
    float rounds[ROUNDS];
    const int count = once > slow_ms ? FEW_ROUNDS : ROUNDS;
    const float far = t->count > 0 ? near_enough * t->trials[t->fastest].ms : INFINITY;
    sb_status s = time_calls(t, graph, times_for(graph, once), &rounds[0]);
    *ms = rounds[0];
    if (s != SB_OK || rounds[0] > far)
        return s;
    for (int i = 1; s == SB_OK && i < count; i++)
        s = time_calls(t, graph, times_for(graph, once), &rounds[i]);
    if (s == SB_OK)
        *ms = median(rounds, count);
    return s;
}

static sb_status measure(tuner *t, float *ms)
{
    float once;
    sb_status s = time_calls(t, NULL, 1, &once); /* loads the kernel */
    if (s == SB_OK && isfinite(once))
        s = time_calls(t, NULL, once > slow_ms ? 1 : 2, &once);
    cudaGraphExec_t graph = s == SB_OK && once < short_ms ? capture(t) : NULL;
    for (int i = 0; s == SB_OK && graph && i < 2; i++) /* the first replay is slower */
        s = time_calls(t, graph, 1, &once);
    *ms = once;
    if (s == SB_OK && isfinite(once) && !(t->count > 0 && once > hopeless * t->trials[t->fastest].ms))
        s = time_batches(t, graph, once, ms);
    drop(graph);
    return s;
}

/* One more trial, unless the algorithm has been tried or is not acceptable to every plan. */
static sb_status try_algorithm(tuner *t, const cublasLtMatmulAlgo_t *algorithm)
{
    for (int i = 0; i < t->count; i++)
        if (memcmp(&t->trials[i].algorithm, algorithm, sizeof *algorithm) == 0)
            return SB_OK;
    if (t->count == MAX_TRIALS || !matmul_install(t->ctx, &t->plans, algorithm))
        return SB_OK;
    float ms;
    sb_status s = SB_OK;
    if (t->count == 0) { /* an idle GPU's clock is low */
        s = time_calls(t, NULL, 1, &ms);
        if (s == SB_OK && isfinite(ms))
            s = time_calls(t, NULL, calls_for(warm_ms, ms, 1000), &ms);
    }
    if (s == SB_OK)
        s = measure(t, &ms);
    if (s != SB_OK || !isfinite(ms))
        return s;
    t->trials[t->count] = (trial){*algorithm, ms};
    if (ms < t->trials[t->fastest].ms)
        t->fastest = t->count;
    t->count++;
    return SB_OK;
}

static bool set(cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t name, const void *value, size_t bytes)
{
    return cublasLtMatmulAlgoConfigSetAttribute(a, name, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static uint32_t capability(const cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoCapAttributes_t name)
{
    uint32_t value = 0;
    size_t written;
    return cublasLtMatmulAlgoCapGetAttribute(a, name, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS ? value
                                                                                                               : 0;
}

/* Whether each of `parts` parts of k is long enough to be worth a part, in every plan. */
static bool parts_are_long(const matmul_plan_list *plans, int parts)
{
    for (int i = 0; i < plans->count; i++)
        if (!matmul_plan_may_split(plans->plan[i]) || plans->plan[i]->shape.k / parts < SHORTEST_PART)
            return false;
    return true;
}

/* `base` with another order of tiles, split of k or cluster shape, one of them changed at a time. */
static int vary(const tuner *t, const cublasLtMatmulAlgo_t *base, cublasLtMatmulAlgo_t *out)
{
    static const int32_t splits[] = {1, 2, 3, 4, 6, 8};
    static const uint16_t clusters[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                        CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_2x2x1,
                                        CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x4x1};
    int n = 0;
    if (capability(base, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT)) {
        const uint32_t swizzle = !matmul_algorithm_get(base, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
        out[n] = *base;
        n += set(&out[n], CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &swizzle, sizeof swizzle);
    }
    const bool splits_k =
        capability(base, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT) &&
        capability(base, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK) & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (size_t i = 0; splits_k && i < sizeof splits / sizeof *splits; i++) {
        const uint32_t scheme = splits[i] > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
        out[n] = *base;
        n += parts_are_long(&t->plans, splits[i]) &&
             set(&out[n], CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits[i], sizeof splits[i]) &&
             set(&out[n], CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme);
    }
    for (size_t i = 0; t->ctx->cc_major >= 9 && i < sizeof clusters / sizeof *clusters; i++) {
        out[n] = *base;
        n += set(&out[n], CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &clusters[i], sizeof clusters[i]);
    }
    return n;
}

static sb_status try_all(tuner *t)
{
    cublasLtMatmulAlgo_t candidates[MATMUL_MAX_CANDIDATES], variations[MAX_VARIATIONS], own[MATMUL_MAX_OWN];
    const int proposed = matmul_plan_candidates(t->ctx, t->plans.plan[0], candidates);
    const int owned = matmul_own_candidates(t->ctx, &t->plans.plan[0]->shape, own);
    sb_status s = SB_OK;
    for (int i = 0; s == SB_OK && i < proposed; i++)
        s = try_algorithm(t, &candidates[i]);
    const int varied = s == SB_OK && t->count > 0 ? vary(t, &t->trials[t->fastest].algorithm, variations) : 0;
    for (int i = 0; s == SB_OK && i < varied; i++)
        s = try_algorithm(t, &variations[i]);
    for (int i = 0; s == SB_OK && i < owned; i++)
        s = try_algorithm(t, &own[i]);
    if (s == SB_OK && t->count == 0)
        return sb_error(SB_UNSUPPORTED, "no algorithm that was proposed for m %d, n %d, k %d could run", t->p->m,
                        t->p->n, t->p->k);
    return s;
}

static void describe(const tuner *t, const cublasLtMatmulAlgo_t *algorithm, float first_ms, float ms,
                     sb_matmul_choice *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->algorithm, algorithm, sizeof *algorithm);
    out->first_ms = first_ms;
    out->ms = ms;
    out->tried = t->count;
    out->library = (int64_t)cublasLtGetVersion();
    matmul_algorithm_name(algorithm, out->name, sizeof out->name);
}

/* The first proposal against the fastest, alternating; then the better one is installed. */
static sb_status decide(tuner *t, sb_matmul_choice *chosen)
{
    const trial *two[2] = {&t->trials[0], &t->trials[t->fastest]};
    const int count = two[0]->ms > slow_ms ? FEW_ROUNDS : ROUNDS, contenders = t->fastest != 0 ? 2 : 1;
    const bool large = 2.0 * t->p->m * t->p->n * t->p->k >= large_flops;
    float rounds[2][ROUNDS];
    cudaGraphExec_t graphs[2] = {NULL};
    sb_status s = SB_OK;
    for (int j = 0; j < contenders; j++) {
        matmul_install(t->ctx, &t->plans, &two[j]->algorithm);
        graphs[j] = two[j]->ms < short_ms ? capture(t) : NULL;
    }
    for (int i = 0; s == SB_OK && i < count; i++)
        for (int j = 0; s == SB_OK && j < contenders; j++) {
            matmul_install(t->ctx, &t->plans, &two[j]->algorithm);
            s = time_calls(t, graphs[j], times_for(graphs[j], two[j]->ms), &rounds[j][i]);
        }
    drop(graphs[0]);
    drop(graphs[1]);
    if (s != SB_OK)
        return s;
    const float first = median(rounds[0], count), fastest = contenders == 2 ? median(rounds[1], count) : first;
    const bool change = first > (large ? worth_energy : worth_changing) * fastest;
    const cublasLtMatmulAlgo_t *algorithm = &two[change]->algorithm;
    matmul_install(t->ctx, &t->plans, algorithm);
    describe(t, algorithm, first, change ? fastest : first, chosen);
    return SB_OK;
}

/* The fastest trial that is near, and neither chosen nor named yet; -1 where there is none. */
static int next_rival(const tuner *t, const sb_matmul_choice *chosen, const bool *named, bool own)
{
    int best = -1;
    for (int i = 0; i < t->count; i++)
        if (!named[i] && (!own || matmul_is_own(&t->trials[i].algorithm)) &&
            memcmp(chosen->algorithm, &t->trials[i].algorithm, sizeof t->trials[i].algorithm) != 0 &&
            t->trials[i].ms <= near_enough * t->trials[t->fastest].ms &&
            (best < 0 || t->trials[i].ms < t->trials[best].ms))
            best = i;
    return best;
}

/* The best of our own, then the fastest of the others. */
static void name_rivals(const tuner *t, const sb_matmul_choice *chosen, sb_matmul_choice *rivals, int most)
{
    bool named[MAX_TRIALS] = {false};
    memset(rivals, 0, (size_t)most * sizeof *rivals);
    for (int n = 0; n < most; n++) {
        int best = n == 0 ? next_rival(t, chosen, named, true) : -1;
        if (best < 0)
            best = next_rival(t, chosen, named, false);
        if (best < 0)
            return;
        named[best] = true;
        describe(t, &t->trials[best].algorithm, chosen->first_ms, t->trials[best].ms, &rivals[n]);
    }
}

static sb_status check_not_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t e = cudaStreamIsCapturing(stream, &capture);
    if (e == cudaErrorStreamCaptureImplicit)
        (void)cudaGetLastError();
    else if (e != cudaSuccess)
        return sb_cuda_status(e, "cudaStreamIsCapturing");
    if (e != cudaSuccess || capture != cudaStreamCaptureStatusNone)
        return sb_error(SB_INVALID, "matmul_tune waits for the GPU and cannot run while a stream is captured");
    return SB_OK;
}

static sb_status tune(tuner *t, sb_matmul_choice *chosen, sb_matmul_choice *rivals, int most)
{
    cublasLtMatmulAlgo_t before[MATMUL_MAX_PLANS];
    for (int i = 0; i < t->plans.count; i++)
        before[i] = t->plans.plan[i]->algorithm;
    sb_status s = try_all(t);
    if (s == SB_OK)
        s = decide(t, chosen);
    if (s == SB_OK)
        name_rivals(t, chosen, rivals, most);
    for (int i = 0; s != SB_OK && i < t->plans.count; i++)
        t->plans.plan[i]->algorithm = before[i];
    return s;
}

sb_status sb_cuda_matmul_tune(sb_context *ctx, const sb_matmul *p, sb_matmul_choice *chosen, sb_matmul_choice *rivals,
                              int most, void *stream)
{
    tuner t = {.ctx = ctx, .p = p, .stream = stream};
    sb_status s = check_not_capturing(t.stream);
    if (s == SB_OK)
        s = matmul_check(p);
    if (s == SB_OK)
        s = matmul_plans_of(ctx, p, &t.plans);
    if (s == SB_OK)
        s = sb_cuda_status(cudaEventCreate(&t.begin), "cudaEventCreate");
    if (s == SB_OK)
        s = sb_cuda_status(cudaEventCreate(&t.end), "cudaEventCreate");
    if (s == SB_OK)
        s = tune(&t, chosen, rivals, most);
    if (t.begin)
        cudaEventDestroy(t.begin);
    if (t.end)
        cudaEventDestroy(t.end);
    return s;
}
