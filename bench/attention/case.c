/* SPDX-License-Identifier: MIT */
/* One attention problem: setup, one step, timing. See case.h. */
#include "bench/attention/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/attention/verify.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/profile/nvtx.h"

static attention_bench *bench_of(const attention_case *ac)
{
    return ac->s->user;
}

void attention_start(session *s)
{
    attention_bench *b = xcalloc(1, sizeof *b);
    b->kernels = device_kind_of(s->dev) == DEVICE_CUDA ? sb_kernels_cuda() : sb_kernels_cpu();
    if (b->kernels->create(device_ordinal(s->dev), &b->ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "can't set up the %s kernels: %s", b->kernels->name, sb_last_message());
    s->user = b;
}

void attention_finish(session *s)
{
    attention_bench *b = s->user;
    attention_oracle_clear(&b->oracle);
    b->kernels->destroy(b->ctx);
    free(b);
    s->user = NULL;
}

/* The case's key with the variant cut off. */
static void key_of_case(const bench_case *c, char *out, size_t out_bytes)
{
    const char *key = case_key(c), *variant = strstr(key, " variant=");
    snprintf(out, out_bytes, "%.*s", variant ? (int)(variant - key) : (int)strlen(key), key);
}

static sb_dtype dtype_of(const char *name)
{
    static const char *const names[] = {[SB_BF16] = "bf16", [SB_FP16] = "fp16", [SB_TF32] = "tf32", [SB_FP32] = "fp32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return (sb_dtype)i;
    die(EXIT_CODE_FAILURE, "no such dtype: %s", name);
}

double attention_estimate_bytes(const attention_problem *problem, const char *variant)
{
    const attention_shape *s = &problem->shape;
    int elem = sb_dtype_bytes(dtype_of(problem->dtype));
    double query = (double)s->batch * (double)s->heads * (double)s->seq_q;
    double key = (double)s->batch * (double)s->heads_kv * (double)s->seq_k;
    double tensors = 4 * (query + key) * (double)s->head_dim * elem + 4 * query; /* q o dO dq, k v dk dv; lse */
    /* P, and beside it in backward dP turned to dS in place (fused) or not (unfused) */
    int matrices = strcmp(variant, "unfused") == 0 ? 3 : strcmp(variant, "fused") == 0 ? 2 : 0;
    return tensors + matrices * attention_matrix_bytes(s, elem);
}

bool attention_status_ok(attention_case *ac, sb_status status, const char *what)
{
    if (status == SB_OK)
        return true;
    const char *why = *sb_last_message() ? sb_last_message() : sb_status_name(status);
    row_status kind = status == SB_UNSUPPORTED ? ROW_SKIP : status == SB_NO_MEMORY ? ROW_OOM : ROW_FAIL;
    row_status_set(ac->w, kind, "%s%s%s", what ? what : "", what ? ": " : "", why);
    return false;
}

static int64_t elements(const attention_case *ac, bool keys)
{
    const attention_shape *s = &ac->problem.shape;
    return s->batch * (keys ? s->heads_kv * s->seq_k : s->heads * s->seq_q) * s->head_dim;
}

/* Allocates a (B, H, S, D) tensor in the problem's layout; false when there is no memory. */
static bool tensor_alloc(attention_case *ac, sb_tensor *t, bool keys, const char *tag)
{
    const attention_shape *s = &ac->problem.shape;
    int64_t heads = keys ? s->heads_kv : s->heads, seq = keys ? s->seq_k : s->seq_q, d = s->head_dim;
    *t = ac->problem.seq_first ? (sb_tensor){NULL, seq * heads * d, d, heads * d}
                               : (sb_tensor){NULL, seq * heads * d, seq * d, d};
    t->data = memory_alloc(ac->s->mem, (size_t)elements(ac, keys) * (size_t)sb_dtype_bytes(ac->a.dtype), tag);
    return t->data != NULL;
}

static bool tensor_fill(attention_case *ac, const sb_tensor *t, bool keys, uint32_t stream_id, uint64_t seed)
{
    attention_bench *b = bench_of(ac);
    sb_status status = b->kernels->fill_normal(b->ctx, ac->a.dtype, t->data, (size_t)elements(ac, keys), seed,
                                               stream_id, 1.0f, device_stream(ac->s->dev));
    return attention_status_ok(ac, status, "fill");
}

/* All-ones bytes are NaN in every dtype: what a kernel fails to write can't pass the check. */
static void tensor_poison(attention_case *ac, const sb_tensor *t, bool keys)
{
    device_memset(ac->s->dev, t->data, 0xff, (size_t)elements(ac, keys) * (size_t)sb_dtype_bytes(ac->a.dtype));
}

bool attention_workspace(attention_case *ac, size_t bytes)
{
    memory_release(ac->s->mem, ac->a.workspace);
    ac->a.workspace = NULL;
    ac->a.workspace_bytes = bytes;
    if (bytes == 0)
        return true;
    ac->a.workspace = memory_alloc(ac->s->mem, bytes, "workspace");
    if (ac->a.workspace)
        device_memset(ac->s->dev, ac->a.workspace, 0xff, bytes);
    return ac->a.workspace != NULL;
}

static sb_status forward(attention_case *ac)
{
    range_push("forward");
    sb_status status = ac->op->forward(bench_of(ac)->ctx, &ac->a, device_stream(ac->s->dev));
    range_pop();
    return status;
}

static sb_status backward(attention_case *ac)
{
    range_push("backward");
    sb_status status = ac->op->backward(bench_of(ac)->ctx, &ac->a, device_stream(ac->s->dev));
    range_pop();
    return status;
}

static bool step_backward(attention_case *ac)
{
    sb_attention *a = &ac->a;
    if (!tensor_alloc(ac, &a->d_o, false, "d_o") || !tensor_alloc(ac, &a->dq, false, "dq") ||
        !tensor_alloc(ac, &a->dk, true, "dk") || !tensor_alloc(ac, &a->dv, true, "dv") ||
        !attention_workspace(ac, ac->op->backward_workspace(bench_of(ac)->ctx, a)) ||
        !tensor_fill(ac, &a->d_o, false, 3, ac->seed))
        return false;
    tensor_poison(ac, &a->dq, false);
    tensor_poison(ac, &a->dk, true);
    tensor_poison(ac, &a->dv, true);
    if (!attention_status_ok(ac, backward(ac), "backward"))
        return false;
    device_sync(ac->s->dev);
    return true;
}

/* Allocates in the order of a training step and runs it once, so that the memory columns are those of a step: the
 * backward's tensors do not exist before forward is done. */
static bool step(attention_case *ac)
{
    session *s = ac->s;
    sb_context *ctx = bench_of(ac)->ctx;
    sb_attention *a = &ac->a;
    size_t lse_bytes = sizeof(float) * (size_t)a->batch * (size_t)a->heads * (size_t)a->seq_q;
    uint64_t seed = ac->seed;

    memory_peak_reset(s->mem);
    if (!tensor_alloc(ac, &a->q, false, "q") || !tensor_alloc(ac, &a->k, true, "k") ||
        !tensor_alloc(ac, &a->v, true, "v") || !tensor_alloc(ac, &a->o, false, "o") ||
        !(a->lse = memory_alloc(s->mem, lse_bytes, "lse")))
        return false;
    ac->saved_bytes = ac->op->saved_bytes(ctx, a);
    if (ac->saved_bytes && !(a->saved = memory_alloc(s->mem, ac->saved_bytes, "saved")))
        return false;
    if (!attention_workspace(ac, ac->op->forward_workspace(ctx, a)) || !tensor_fill(ac, &a->q, false, 0, seed) ||
        !tensor_fill(ac, &a->k, true, 1, seed) || !tensor_fill(ac, &a->v, true, 2, seed))
        return false;
    tensor_poison(ac, &a->o, false);
    device_memset(s->dev, a->lse, 0xff, lse_bytes);
    if (ac->saved_bytes)
        device_memset(s->dev, a->saved, 0xff, ac->saved_bytes);
    if (!attention_status_ok(ac, forward(ac), "forward") || !attention_workspace(ac, 0))
        return false;
    device_sync(s->dev);
    ac->before_backward_bytes = memory_current(s->mem);
    if (!a->forward_only && !step_backward(ac))
        return false;
    ac->peak_bytes = memory_peak(s->mem);
    return attention_workspace(ac, 0);
}

/* An op without a backward for this case is taken forward alone, and the row says so. */
static bool supported(attention_case *ac)
{
    sb_context *ctx = bench_of(ac)->ctx;
    const sb_status both = ac->op->supported(ctx, &ac->a);
    if (both != SB_UNSUPPORTED)
        return attention_status_ok(ac, both, NULL);
    char why[256];
    snprintf(why, sizeof why, "%s", sb_last_message());
    ac->a.forward_only = true;
    if (!attention_status_ok(ac, ac->op->supported(ctx, &ac->a), NULL))
        return false;
    row_status_set(ac->w, ROW_OK, "forward only: %s", why);
    return true;
}

bool attention_prepare(attention_case *ac, session *s, const bench_case *c, row *w, const attention_problem *problem)
{
    const attention_shape *sh = &problem->shape;
    *ac = (attention_case){
        .s = s, .w = w, .problem = *problem, .err_o = NAN, .err_dq = NAN, .err_dk = NAN, .err_dv = NAN};
    ac->a = (sb_attention){.batch = (int)sh->batch,
                           .heads = (int)sh->heads,
                           .heads_kv = (int)sh->heads_kv,
                           .seq_q = (int)sh->seq_q,
                           .seq_k = (int)sh->seq_k,
                           .head_dim = (int)sh->head_dim,
                           .dtype = dtype_of(problem->dtype),
                           .causal = sh->causal,
                           .deterministic = problem->deterministic};
    key_of_case(c, ac->key, sizeof ac->key);
    ac->seed = rng_hash((uint64_t)option_int(s->opt, "seed"), ac->key);
    attention_bench *b = bench_of(ac);
    ac->op = sb_attention_find(b->kernels, case_variant(c));
    if (!ac->op) {
        row_status_set(w, ROW_SKIP, "the %s backend has no %s attention", b->kernels->name, case_variant(c));
        return false;
    }
    if (!supported(ac))
        return false;

    phase_set("setup and first step of %s", case_key(c));
    range_push("setup");
    bool ok = step(ac);
    range_pop();
    return ok && attention_check(ac);
}

bool attention_check(attention_case *ac)
{
    if (!option_flag(ac->s->opt, "check"))
        return true;
    phase_set("verification of %s variant=%s", ac->key, ac->op->name);
    range_push("verify");
    bool ok = attention_verify(ac);
    range_pop();
    return ok;
}

/* A call that fails here may be one that can't be captured in a graph, which the timer gets over: the row is told only
 * when the whole measurement failed. */
static bool run_forward(void *arg)
{
    attention_case *ac = arg;
    ac->last = forward(ac);
    return ac->last == SB_OK;
}

static bool run_backward(void *arg)
{
    attention_case *ac = arg;
    ac->last = backward(ac);
    return ac->last == SB_OK;
}

static bool run_both(void *arg)
{
    return run_forward(arg) && run_backward(arg);
}

bool attention_time(attention_case *ac, attention_part part, double *median_ms)
{
    static const struct {
        const char *name;
        bool (*run)(void *arg);
    } parts[] = {[ATTENTION_FORWARD] = {"fwd", run_forward},
                 [ATTENTION_BACKWARD] = {"bwd", run_backward},
                 [ATTENTION_BOTH] = {"fwd_bwd", run_both}};
    if (ac->a.forward_only && part != ATTENTION_FORWARD) {
        *median_ms = NAN;
        return true;
    }
    sb_context *ctx = bench_of(ac)->ctx;
    size_t need_forward = ac->op->forward_workspace(ctx, &ac->a);
    size_t need_backward = ac->a.forward_only ? 0 : ac->op->backward_workspace(ctx, &ac->a);
    if (!attention_workspace(ac, need_forward > need_backward ? need_forward : need_backward))
        return false;

    const char *name = parts[part].name, *timer = "";
    samples x = {0};
    phase_set("timing %s of %s variant=%s", name, ac->key, ac->op->name);
    range_push(name);
    bool ok = timer_measure(ac->s->dev, &ac->s->timing, parts[part].run, ac, &x, &timer);
    range_pop();
    if (ok) {
        stats st = stats_of(&x);
        const struct {
            const char *suffix;
            double value;
        } reals[] = {{"_ms", st.median}, {"_p10_ms", st.p10}, {"_p90_ms", st.p90}};
        char column[32];
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
            snprintf(column, sizeof column, "%s%s", name, reals[i].suffix);
            row_real(ac->w, column, reals[i].value);
        }
        snprintf(column, sizeof column, "n_%s", name);
        row_int(ac->w, column, (int64_t)st.n);
        snprintf(column, sizeof column, "timer_%s", name);
        row_text(ac->w, column, timer);
        *median_ms = st.median;
    }
    samples_free(&x);
    return ok || attention_status_ok(ac, ac->last, name);
}
