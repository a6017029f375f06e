/* SPDX-License-Identifier: MIT */
/* One attention problem through every op: right within the bounds, nothing else written, the same on every run. */
#include "tests/gpu/forced_kernels.h"
#include "tests/gpu/judge.h"
#include "tests/gpu/ops.h"

#include "common/core/check.h"
#include "common/core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static result result_create(const problem *p)
{
    result x = {0};
    for (int tensor = T_O; tensor < T_COUNT; tensor++)
        x.bytes[tensor] = xmalloc(p->tensor[tensor].bytes);
    x.lse = xcalloc(p->lse_count, sizeof *x.lse);
    return x;
}

static void result_free(result *x)
{
    for (int tensor = T_O; tensor < T_COUNT; tensor++)
        free(x->bytes[tensor]);
    free(x->lse);
}

/* ---- running ---- */

typedef struct buffers {
    sb_attention a;
    guarded tensor[T_COUNT], lse, saved, cu_seqlens[2];
} buffers;

static buffers buffers_create(const runner *r, const problem *p, const sb_attention_op *op, bool deterministic)
{
    buffers b = {.a = p->a};
    b.a.deterministic = deterministic;
    for (int tensor = 0; tensor < T_COUNT; tensor++) {
        b.tensor[tensor] = guarded_create(r, p->tensor[tensor].bytes);
        problem_view(p, &b.a, tensor)->data = b.tensor[tensor].data;
        if (!is_output(tensor)) /* those are NaN already */
            device_upload(r->dev, b.tensor[tensor].data, p->tensor[tensor].host, p->tensor[tensor].bytes);
    }
    for (int keys = 0; p->a.packed && keys < 2; keys++) {
        const size_t bytes = ((size_t)p->a.documents + 1) * sizeof(int);
        const int **view = keys ? &b.a.cu_seqlens_k : &b.a.cu_seqlens_q;
        b.cu_seqlens[keys] = guarded_create(r, bytes);
        device_upload(r->dev, b.cu_seqlens[keys].data, *view, bytes);
        *view = (const int *)b.cu_seqlens[keys].data;
    }
    b.lse = guarded_create(r, p->lse_count * sizeof(float));
    b.a.lse = (float *)b.lse.data;
    if (op) {
        b.saved = guarded_create(r, op->saved_bytes(r->ctx, &b.a));
        b.a.saved = b.saved.data;
    }
    return b;
}

static void buffers_free(const runner *r, buffers *b)
{
    for (int tensor = 0; tensor < T_COUNT; tensor++)
        guarded_free(r, &b->tensor[tensor]);
    guarded_free(r, &b->lse);
    guarded_free(r, &b->cu_seqlens[0]);
    guarded_free(r, &b->cu_seqlens[1]);
    guarded_free(r, &b->saved);
}

/* One pass with a workspace of exactly the size it asks for. NULL, or what went wrong. */
static const char *pass(const runner *r, buffers *b, size_t workspace_bytes,
                        sb_status (*run)(sb_context *, const sb_attention *, void *))
{
    guarded workspace = guarded_create(r, workspace_bytes);
    b->a.workspace = workspace.data;
    b->a.workspace_bytes = workspace_bytes;
    sb_status status = run(r->ctx, &b->a, device_stream(r->dev));
    device_sync(r->dev);
    bool intact = workspace_bytes == 0 || guarded_intact(r, &workspace);
    guarded_free(r, &workspace);
    if (status != SB_OK)
        return sb_last_message();
    return intact ? NULL : "bytes around the workspace were written";
}

/* Inputs and everything around the outputs must be as before. */
static const char *surroundings(const runner *r, const problem *p, const buffers *b, result *x)
{
    snapshot now = snapshot_take(r);
    const char *wrong = NULL;
    for (int tensor = 0; tensor < T_COUNT; tensor++) {
        const struct problem_tensor *t = &p->tensor[tensor];
        const size_t row_bytes = t->columns * (size_t)sb_dtype_bytes(p->a.dtype);
        OWNED unsigned char *after = xmalloc(t->bytes);
        if (!snapshot_intact(&now, &b->tensor[tensor]))
            wrong = "bytes around a tensor were written";
        snapshot_read(&now, &b->tensor[tensor], after);
        if (is_output(tensor))
            memcpy(x->bytes[tensor], after, t->bytes);
        for (size_t row = 0; is_written(p, tensor) && row < t->rows; row++)
            memset(after + problem_row_at(p, tensor, row), 0xff, row_bytes);
        if (memcmp(after, t->host, t->bytes) != 0)
            wrong = is_written(p, tensor) ? "bytes between the rows of an output were written"
                    : is_output(tensor)   ? "forward alone wrote a gradient"
                                          : "an input was written";
    }
    if (!snapshot_intact(&now, &b->lse) || (b->saved.bytes > 0 && !snapshot_intact(&now, &b->saved)))
        wrong = "bytes around lse or `saved` were written";
    snapshot_read(&now, &b->lse, x->lse);
    snapshot_free(&now);
    return wrong;
}

/* Forward, and backward where there is one, on fresh buffers; NULL, or what went wrong. */
static const char *run_once(const runner *r, const problem *p, const sb_attention_op *op, bool deterministic, result *x)
{
    buffers b = buffers_create(r, p, op, deterministic);
    const char *wrong = pass(r, &b, op->forward_workspace(r->ctx, &b.a), op->forward);
    if (!wrong && !p->a.forward_only)
        wrong = pass(r, &b, op->backward_workspace(r->ctx, &b.a), op->backward);
    if (!wrong)
        wrong = surroundings(r, p, &b, x);
    buffers_free(r, &b);
    return wrong;
}

/* ---- one op ---- */

/* Runs again and again; everything must be bitwise the first result, dq only in the deterministic mode. */
static bool check_repeats(const runner *r, const problem *p, const sb_attention_op *op, bool deterministic,
                          const result *first)
{
    const char *dtype = case_dtype_names[p->a.dtype], *mode = deterministic ? "deterministic" : "default";
    bool ok = true;
    result x = result_create(p);
    for (int i = 1; i < r->repeats && ok; i++) {
        const char *wrong = run_once(r, p, op, deterministic, &x);
        if (wrong)
            ok = runner_fail(r, op->name, dtype, p->c->name, "run %d: %s", i + 1, wrong);
        for (int tensor = T_O; tensor < T_COUNT && ok; tensor++)
            if ((tensor != T_DQ || deterministic) &&
                memcmp(x.bytes[tensor], first->bytes[tensor], p->tensor[tensor].bytes) != 0)
                ok = runner_fail(r, op->name, dtype, p->c->name, "%s of run %d differs from the first (%s mode)",
                                 tensor_names[tensor], i + 1, mode);
        if (ok && memcmp(x.lse, first->lse, p->lse_count * sizeof *x.lse) != 0)
            ok = runner_fail(r, op->name, dtype, p->c->name, "lse of run %d differs from the first (%s mode)", i + 1,
                             mode);
    }
    result_free(&x);
    return ok;
}

/* `once`: only what it is wrong by is asked for. */
static bool test_op(const runner *r, const problem *p, const sb_attention_op *op, const double *unfused, bool once,
                    double errors[T_COUNT])
{
    const char *dtype = case_dtype_names[p->a.dtype];
    bool ok = true;
    const bool repeats = p->c->repeats && !once;
    result x = result_create(p);
    for (int deterministic = 0; deterministic < (repeats ? 2 : 1) && ok; deterministic++) {
        const char *mode = deterministic ? " (deterministic)" : "";
        const char *wrong = run_once(r, p, op, deterministic, &x);
        if (wrong) {
            ok = runner_fail(r, op->name, dtype, p->c->name, "%s%s", wrong, mode);
            break;
        }
        ok = judge_result(r, p, op->name, &x, mode, errors);
        if (ok && unfused)
            ok = judge_against_unfused(r, p, op->name, errors, unfused);
        if (ok && repeats)
            ok = check_repeats(r, p, op, deterministic, &x);
    }
    result_free(&x);
    return ok;
}

/* ---- the reference of the table under test ---- */

static void ask_reference(const runner *r, const problem *p, double *const out[T_COUNT], double *const terms[T_COUNT],
                          double *lse)
{
    buffers b = buffers_create(r, p, NULL, false);
    guarded workspace = guarded_create(r, r->kernels->reference_workspace(r->ctx, &b.a, true));
    b.a.workspace = workspace.data;
    b.a.workspace_bytes = workspace.bytes;
    if (!problem_reference(p, r->kernels, r->ctx, &b.a, device_stream(r->dev), out, terms, lse))
        die(EXIT_CODE_FAILURE, "the %s reference of %s: %s", r->kernels->name, p->c->name, sb_last_message());
    if (!guarded_intact(r, &workspace))
        die(EXIT_CODE_VERIFY, "the %s reference wrote around its workspace in %s", r->kernels->name, p->c->name);
    guarded_free(r, &workspace);
    buffers_free(r, &b);
}

/* Two fp64 computations of the same: their difference is rounding in another order. */
static bool test_reference(const runner *r, const problem *p)
{
    const double wider = judge_widening(p, "flash", T_DK, 1) * fmax(1, p->largest_score);
    const check_bound bound = {
        .rel_l2 = 1e-11 * wider, .rel_row = 1e-9 * wider, .max_abs = 1e-9 * wider, .zero_scale = 1};
    double *out[T_COUNT] = {0}, *terms[T_COUNT] = {0}, *lse = xcalloc(p->lse_count, sizeof *lse);
    bool ok = true;
    for (int tensor = T_O; tensor < T_COUNT; tensor++) {
        out[tensor] = xcalloc(p->tensor[tensor].rows * p->tensor[tensor].columns, sizeof(double));
        terms[tensor] = p->tensor[tensor].terms ? xcalloc(p->tensor[tensor].rows, sizeof(double)) : NULL;
    }
    ask_reference(r, p, out, terms, lse);
    for (int tensor = T_O; tensor <= T_COUNT; tensor++) {
        const bool is_lse = tensor == T_COUNT;
        const size_t d = is_lse ? 1 : p->tensor[tensor].columns;
        const size_t n = is_lse ? p->lse_count : p->tensor[tensor].rows * d;
        const check_result c = check_compare(is_lse ? p->lse : p->tensor[tensor].values, is_lse ? lse : out[tensor], n,
                                             is_lse ? n : d, bound);
        char text[256];
        check_describe(&c, bound, text, sizeof text);
        if (!c.ok)
            ok = runner_fail(r, "reference", case_dtype_names[p->a.dtype], p->c->name, "%s: %s",
                             is_lse ? "lse" : tensor_names[tensor], text);
    }
    for (int tensor = T_DQ; tensor <= T_DK; tensor++) {
        const size_t n = p->tensor[tensor].rows;
        const check_result c = check_compare(p->tensor[tensor].terms, terms[tensor], n, n, bound);
        if (!c.ok)
            ok = runner_fail(r, "reference", case_dtype_names[p->a.dtype], p->c->name, "terms of %s: [%zu] %g, not %g",
                             tensor_names[tensor], c.worst, c.got, c.ref);
    }
    for (int tensor = T_O; tensor < T_COUNT; tensor++) {
        free(out[tensor]);
        free(terms[tensor]);
    }
    free(lse);
    return ok;
}

/* ---- one problem ---- */

static bool is_wanted(const char *wanted, const char *op)
{
    return !wanted || strcmp(wanted, op) == 0;
}

static void count(runner *r, const problem *p, const char *op, bool ok, const double errors[T_COUNT])
{
    tally *t = runner_tally(r, op, case_dtype_names[p->a.dtype]);
    t->passed += ok;
    t->failed += !ok;
    t->forward_only += p->a.forward_only;
    for (int tensor = T_O; errors && p->c->values == VALUES_NORMAL && tensor < T_COUNT; tensor++)
        t->worst = fmax(t->worst, errors[tensor]);
}

/* Asks for both passes, then for forward alone. */
static bool is_supported(const runner *r, problem *p, const sb_attention_op *op)
{
    p->a.forward_only = false;
    if (op->supported(r->ctx, &p->a) == SB_OK)
        return true;
    p->a.forward_only = true;
    return op->supported(r->ctx, &p->a) == SB_OK;
}

static void count_skipped(runner *r, const problem *p, const char *op)
{
    tally *t = runner_tally(r, op, case_dtype_names[p->a.dtype]);
    t->skipped++;
    snprintf(t->skip_reason, sizeof t->skip_reason, "%.200s", sb_last_message());
}

/* The op that is the only one wanted; NULL: all are, or the reference. */
static const sb_attention_op *only_op(const runner *r, const char *wanted)
{
    const sb_attention_op *const lists[] = {r->kernels->attention, forced_kernels()};
    const int n = r->kernels == sb_kernels_cpu() ? 1 : 2;
    for (int list = 0; wanted && list < n; list++)
        for (const sb_attention_op *op = lists[list]; op->name; op++)
            if (strcmp(op->name, wanted) == 0)
                return op;
    return NULL;
}

/* What the unfused op was wrong by, if it was right. */
typedef struct baseline {
    bool known;
    double errors[T_COUNT];
} baseline;

static void run_op(runner *r, problem *p, const sb_attention_op *op, const char *wanted, baseline *unfused)
{
    const bool is_baseline = strcmp(op->name, "unfused") == 0;
    const bool rule_applies = judge_is_flash(op->name) && unfused->known && sb_dtype_bytes(p->a.dtype) == 2;
    double errors[T_COUNT] = {0};
    if (!is_wanted(wanted, op->name) && !(is_baseline && wanted && judge_is_flash(wanted) && !r->small))
        return;
    phase_set("%s %s %s", op->name, case_dtype_names[p->a.dtype], p->c->name);
    if (!is_supported(r, p, op)) {
        count_skipped(r, p, op->name);
        return;
    }
    const bool ok = test_op(r, p, op, rule_applies ? unfused->errors : NULL, !is_wanted(wanted, op->name), errors);
    if (is_baseline) {
        memcpy(unfused->errors, errors, sizeof errors);
        unfused->known = ok;
    }
    if (is_wanted(wanted, op->name))
        count(r, p, op->name, ok, errors);
}

void run_attention(runner *r, problem *p, const char *wanted)
{
    baseline unfused = {0};
    const sb_attention_op *only = only_op(r, wanted);
    if (only && !is_supported(r, p, only)) { /* before anything is computed for nobody */
        count_skipped(r, p, only->name);
        return;
    }
    p->a.forward_only = false; /* the reference has both passes */
    if (p->by_cpu) {
        problem_finish(p);
        if (is_wanted(wanted, "reference") && r->kernels != sb_kernels_cpu() && !(r->small && p->a.seq_k > 65))
            count(r, p, "reference", test_reference(r, p), NULL);
    } else { /* the device's own, which smaller cases compare with the CPU's */
        double *out[T_COUNT], *terms[T_COUNT];
        for (int tensor = 0; tensor < T_COUNT; tensor++)
            out[tensor] = p->tensor[tensor].values, terms[tensor] = p->tensor[tensor].terms;
        ask_reference(r, p, out, terms, p->lse);
        problem_finish(p);
    }
    for (const sb_attention_op *op = r->kernels->attention; op->name; op++)
        run_op(r, p, op, wanted, &unfused);
    for (const sb_attention_op *op = forced_kernels(); op->name && r->kernels != sb_kernels_cpu(); op++)
        run_op(r, p, op, wanted, &unfused);
}
