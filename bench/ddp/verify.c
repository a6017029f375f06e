/* SPDX-License-Identifier: MIT */
/* The check of a case before it is timed, on a slice of its model: the sums of gradients and three updates on all
 * its ranks against one rank that does everything itself (reference.c), and the ranks against each other; see
 * verify.h. The ranks start from different parameters, so that what makes them equal is checked, too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/verify.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"

enum { SLICE_VOCAB = 1 << 15, SLICE_BUCKETS = 4 };

/* ---- the slice ---- */

static step_options slice_of(const step_options *o)
{
    step_options slice = model_slice(o);
    slice.config.vocab = o->config.vocab < SLICE_VOCAB ? o->config.vocab : SLICE_VOCAB;
    slice.loss_chunk = model_slice_chunk(&slice);
    slice.offload_every = 1;
    return slice;
}

static int64_t slice_elements(const step_options *slice)
{
    params *p = params_create(&slice->config);
    const int64_t n = p->elements;
    params_free(p);
    return n;
}

/* Buckets of the same size as in the case, unless the slice would have too few of them. */
static parallel_options slice_parallel(const ddp_case *k, const step_options *slice)
{
    parallel_options p = k->p;
    const int grad_bytes = sb_dtype_bytes(step_sums_dtype(slice));
    const int64_t few = slice_elements(slice) * grad_bytes / SLICE_BUCKETS;
    p.bucket_bytes = p.bucket_bytes > few ? few : p.bucket_bytes;
    p.update_elements = slice_elements(slice) / SLICE_BUCKETS;
    return p;
}

static void slice_key(const ddp_case *k, const step_options *o, char *out, size_t bytes)
{
    const model_config *c = &o->config;
    snprintf(out, bytes,
             "%d %d %d %d %d %d x %d x %d seed %llu %s attention %s recompute %d/%d split %d grad32 %d/%d moments %d "
             "ranks %d units "
             "%d/%d clip %g micro %d in products %d chunk %d away %d cp %d",
             c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, o->batch, o->seq,
             (unsigned long long)o->seed, o->precision->name, o->attention, o->recompute, o->recompute_every, o->split,
             o->grad_fp32, o->sums, o->moments, k->ranks, o->shard.ranks, o->shard.small, o->clip_norm,
             o->micro_batches, ddp_reference_micros(k, o), o->loss_chunk, o->offload, o->context.ranks);
}

/* ---- the ranks ---- */

static float *read_grads(replica *r)
{
    float *out = xcalloc((unsigned long)r->plan->elements, sizeof *out);
    replica_read_grads(r, out);
    return out;
}

/* ---- planted errors ---- */

/* On the last rank, in the tensor that is ready first. */
typedef struct plant {
    enum { PLANT_NONE, PLANT_GRADIENT, PLANT_PARAMETER, PLANT_HALF, PLANT_STALE, PLANT_GROUP } kind;
    int steps;   /* so far, the one for the sums included */
    void *saved; /* of PLANT_STALE: the gradients of the step before, and room for this one's */
} plant;

/* By name, since bench_run has faults of its own in other places. */
static plant plant_of(const ddp_case *k)
{
    static const char *const names[] = {"none", "gradient", "parameter", "half", "stale", "group"};
    const char *name = option_text(k->s->opt, "plant-error");
    plant p = {PLANT_NONE, 0, NULL};
    for (int i = 0; i <= PLANT_GROUP; i++) /* nobody sums, or the last rank is wrong */
        if (strcmp(name, names[i]) == 0 && (i == PLANT_GROUP || launch_rank(k->l) == k->ranks - 1))
            p.kind = i;
    return p;
}

/* Replaces this step's gradients by those of the step before, except in the first step. */
static void make_stale(plant *p, device *d, void *grads, size_t bytes)
{
    char *before = p->saved, *now = before + bytes;
    device_copy(d, now, grads, bytes);
    if (p->steps > 0)
        device_copy(d, grads, before, bytes);
    device_copy(d, before, now, bytes);
}

/* One gradient is wrong in every step. Half and stale gradients are wrong from the second update on, so that the sums of
 * the first step do not show them. (The first update has the same gradients as the step for the sums, so a stale one is
 * right.) In a captured step, half is wrong from the first update on. */
static void tamper(replica *r, int64_t first, int64_t count, void *stream)
{
    plant *p = r->user;
    char *grads = trainer_grad_at(r->t, first);
    const size_t element = (size_t)sb_dtype_bytes(step_made_dtype(&r->o)), bytes = (size_t)count * element;
    (void)stream;
    if (first > 0)
        return;
    if (p->kind == PLANT_GRADIENT)
        device_memset(r->at.d, grads, 0x3f, element);
    if (p->kind == PLANT_HALF && p->steps > 1)
        device_memset(r->at.d, grads + bytes / 2, 0, bytes - bytes / 2);
    if (p->kind == PLANT_STALE && !p->saved)
        p->saved = device_malloc(r->at.d, 2 * bytes);
    if (p->kind == PLANT_STALE && p->saved)
        make_stale(p, r->at.d, grads, bytes);
    p->steps++;
}

/* ---- the steps ---- */

/* NULL on other ranks than 0, which join in gathering. */
static float *read_params(replica *r)
{
    const bool first = launch_rank(r->at.l) == 0;
    if (!r->member || (!first && r->plan->s->parameters == PARAMETERS_RESIDENT))
        return NULL;
    phase_set("check: reading parameters");
    float *out = xcalloc((unsigned long)r->plan->elements, sizeof *out);
    replica_read_params(r, out);
    if (first)
        return out;
    free(out);
    return NULL;
}

/* One update; afterwards all ranks must have the same parameters. */
static void update(replica *r, const plant *p, int step, ddp_outcome *out)
{
    replica_step(r);
    replica_settle(r);
    if (p->kind == PLANT_PARAMETER) {
        const trainer_state s = trainer_state_of(r->t);
        device_memset(r->at.d, s.param, 0x3f, (size_t)sb_dtype_bytes(s.param_dtype));
    }
    phase_set("check: parameters of all ranks after update %d", step + 1);
    const int odd = replica_odd_rank(r, replica_checksum(r));
    out->ok = odd < 0;
    if (odd >= 0)
        snprintf(out->reason, sizeof out->reason,
                 "after step %d of the checked slice the parameters of rank %d are not those of rank 0", step + 1, odd);
}

/* One step without an update, for the sums; then the updates. Returns false after setting the row's status. */
static bool verify_run(ddp_case *k, replica *r, plant *p, ddp_results *got, ddp_outcome *out)
{
    r->tamper = p->kind != PLANT_NONE ? tamper : NULL;
    r->user = p;
    if (p->kind == PLANT_GROUP && r->member)
        parallel_communicate(r->p, false);
    r->hold = true;
    phase_set("check: gradients of a step on all ranks");
    replica_step(r);
    replica_settle(r);
    phase_set("check: reading gradients");
    if (r->member)
        got->grads = read_grads(r);
    r->hold = false;
    if (k->graph && !ddp_capture(k, r))
        return false;
    for (int step = 0; step < DDP_CHECK_STEPS && out->ok; step++) {
        phase_set("check: update %d of %d on all ranks", step + 1, DDP_CHECK_STEPS);
        update(r, p, step, out);
        if (step == 0 && r->member)
            got->norm = ddp_grad_norm(r->t);
        if (step == 0)
            got->first = read_params(r);
    }
    got->after = read_params(r);
    return true;
}

/* The worst errors of all ranks, and the sentence of the first rank that failed. */
static void merge(const ddp_case *k, ddp_outcome *out)
{
    OWNED ddp_outcome *all = launch_gathered(k->l, "check", out, sizeof *out);
    *out = all[0];
    for (int r = 1; r < k->ranks; r++) {
        const double err = all[r].err_grad > out->err_grad || isnan(all[r].err_grad) ? all[r].err_grad : out->err_grad;
        if (out->ok)
            *out = all[r].ok ? *out : all[r];
        out->err_grad = err;
    }
    out->err_param = all[0].err_param;
}

/* Returns false after setting the row's status. */
static bool check_slice(ddp_case *k, const step_options *slice, const char *key, const char *reference_key,
                        ddp_outcome *out)
{
    const parallel_options p = slice_parallel(k, slice);
    step_options other = *slice;
    const ddp_reference *ref = NULL;
    ddp_results got = {.grads = NULL};
    plant planted = plant_of(k);
    char why[400] = "";
    const bool sent = parallel_strategy(p.strategy)->parameters == PARAMETERS_RESIDENT;
    if (sent && slice->precision->master != SB_MASTER_FP32) /* separate fp32 masters are not sent by rank 0 */
        other.seed += (uint64_t)launch_rank(k->l);
    phase_set("check: set-up of a slice: %s", key);
    replica *r = ddp_replica(k, &other, &p);
    if (!r)
        return false;
    if (r->member) {
        replica_set_tokens(r->t, slice->seed, launch_rank(k->l));
        replica_set_safe_loss_scale(r->t);
    }
    bool ran = verify_run(k, r, &planted, &got, out);
    if (ran && out->ok) {
        if (r->member)
            ref = ddp_reference_of(k, slice, reference_key, why, sizeof why);
        ran = ddp_agree(k, "reference", ref || !r->member, why);
        phase_set("check: comparing with one rank");
        if (ran && r->member)
            ddp_compare(k, r, &got, ref, out);
        merge(k, out);
    }
    free(got.grads);
    free(got.first);
    free(got.after);
    if (planted.saved)
        device_free(k->s->dev, planted.saved);
    replica_free(r);
    memory_release_all(k->s->mem); /* the case may need all of it */
    return ran;
}

bool ddp_verify(ddp_case *k)
{
    if (!option_flag(k->s->opt, "check"))
        return true;
    const step_options slice = slice_of(&k->o);
    const parallel_options p = slice_parallel(k, &slice);
    char reference_key[512], key[640];
    slice_key(k, &slice, reference_key, sizeof reference_key);
    snprintf(
        key, sizeof key,
        "%s %s bucket %lld update %d/%d ctas %d graph %d overlap %d prefetch %d/%d gather %d/%d reduce %d replicas %d "
        "cp %s",
        reference_key, p.strategy, (long long)p.bucket_bytes, p.update, p.update_blocks, p.max_ctas, k->graph,
        slice.overlap, slice.shard.prefetch, slice.shard.free_every, p.gather, slice.shard.codes, p.reduce, p.replicas,
        context_rows[slice.context.way].name);
    ddp_outcome *known = cache_find(k->s->kept, "check", key);
    if (!known) {
        ddp_outcome new = {.ok = true};
        scope_push("verify");
        const bool ran = check_slice(k, &slice, key, reference_key, &new);
        scope_pop();
        if (!ran)
            return false;
        known = cache_add(k->s->kept, "check", key, sizeof *known, NULL);
        *known = new;
    }
    row_real(k->w, "err_grad", known->err_grad);
    row_real(k->w, "err_param", known->err_param);
    if (!known->ok)
        row_status_set(k->w, ROW_FAIL, "%s", known->reason);
    return known->ok;
}
