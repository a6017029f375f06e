/* SPDX-License-Identifier: MIT */
/* Ranges of the index space that a rank updates, as pieces of a checkpoint's files; see state.h. */
#include "common/replica/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/session/watchdog.h"

enum { CUT = 2048 /* elements: pieces of 2 bytes or more begin on 4096 bytes where their unit does */ };

checkpoint_model replica_model(const replica *r)
{
    const trainer_state s = trainer_state_of(r->t);
    return (checkpoint_model){r->o.config, s.param_dtype, s.moments_dtype, r->o.precision->master};
}

/* Elements [first, first + count) of the index space, in arenas whose own index is `shift` larger. */
static void add_range(replica_state *x, checkpoint_pieces *to, checkpoint_arena a, char *arena, int64_t first,
                      int64_t count, int64_t shift)
{
    const params *p = trainer_params(x->r->t);
    const int element = checkpoint_element(&x->layout->model, a);
    for (int i = 0; i < p->count && arena && element; i++) {
        const param_tensor *t = &p->tensors[i];
        const int64_t from = t->first > first ? t->first : first;
        const int64_t tensor_end = t->first + t->count, end = first + count;
        const int64_t last = tensor_end < end ? tensor_end : end;
        if (from >= last)
            continue;
        const int in_file = (int)(params_find(x->layout->params, t->kind, t->layer) - x->layout->params->tensors);
        checkpoint_pieces_add(to, x->layout, in_file, a, from - t->first, last - t->first,
                              arena + (from + shift) * element);
    }
}

/* Part i of n of a range that n ranks hold. */
static owned_range share_of(const owned_range *r, int i, int n)
{
    const int64_t blocks = (r->count + CUT - 1) / CUT;
    const int64_t from = blocks * i / n * CUT, to = i == n - 1 ? r->count : blocks * (i + 1) / n * CUT;
    return (owned_range){r->first + from, to - from, r->state_first + from};
}

static void add_owned(replica_state *x, checkpoint_pieces *to, const owned_range *r, bool weights)
{
    const trainer_state s = trainer_state_of(x->r->t);
    const int64_t shift = r->state_first - r->first;
    const bool resident = x->r->plan->s->parameters == PARAMETERS_RESIDENT;
    if (weights)
        add_range(x, to, CHECKPOINT_WEIGHT, s.param, r->first, r->count, resident ? 0 : shift);
    add_range(x, to, CHECKPOINT_M, s.m, r->first, r->count, shift);
    add_range(x, to, CHECKPOINT_V, s.v, r->first, r->count, shift);
    add_range(x, to, CHECKPOINT_MASTER, s.master, r->first, r->count, shift);
}

replica_state *replica_state_create(replica *r)
{
    const parallel_plan *plan = r->plan;
    const checkpoint_model model = replica_model(r);
    const bool resident = plan->s->parameters == PARAMETERS_RESIDENT, cut = strategy_slices(plan->s);
    replica_state *x = xcalloc(1, sizeof *x);
    x->r = r;
    x->layout = checkpoint_layout_create(&model);
    for (int i = 0; i < plan->own.n; i++) {
        const bool whole = cut && i >= plan->own.n - plan->whole;
        const int holders = plan->s->share == SHARE_BROADCAST ? 1
                            : cut && !whole                   ? plan->o.ranks / plan->slices
                                                              : plan->o.ranks;
        const int mine = holders == plan->o.ranks ? plan->rank : plan->rank / plan->slices;
        const owned_range part = share_of(&plan->own.r[i], holders == 1 ? 0 : mine, holders);
        add_owned(x, &x->save, &part, true);
        add_owned(x, &x->load, &plan->own.r[i], !resident);
    }
    if (resident)
        add_range(x, &x->load, CHECKPOINT_WEIGHT, trainer_state_of(r->t).param, 0, plan->elements, 0);
    checkpoint_pieces_sort(&x->save);
    checkpoint_pieces_sort(&x->load);
    return x;
}

void replica_state_free(replica_state *x)
{
    if (!x)
        return;
    checkpoint_hasher_free(x->hasher);
    checkpoint_pieces_free(&x->save);
    checkpoint_pieces_free(&x->load);
    checkpoint_layout_free(x->layout);
    free(x);
}

void replica_state_note(const replica_state *x, checkpoint_state *out)
{
    trainer_optimizer_state(x->r->t, &out->optimizer);
    out->step = out->optimizer.step;
    out->seed = x->r->o.seed;
    out->ranks = x->r->plan->o.ranks;
    snprintf(out->strategy, sizeof out->strategy, "%s", x->r->plan->s->name);
}

/* What no tensor has is zero, and stays so. */
static void clear(const replica *r)
{
    const trainer_state s = trainer_state_of(r->t);
    const checkpoint_model m = replica_model(r);
    const bool resident = r->plan->s->parameters == PARAMETERS_RESIDENT;
    const struct {
        checkpoint_arena arena;
        void *at;
        int64_t elements;
    } all[] = {{CHECKPOINT_WEIGHT, s.param, resident ? r->plan->elements : s.elements},
               {CHECKPOINT_M, s.m, s.elements},
               {CHECKPOINT_V, s.v, s.elements},
               {CHECKPOINT_MASTER, s.master, s.elements}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].at)
            device_memset(r->at.d, all[i].at, 0, (size_t)(all[i].elements * checkpoint_element(&m, all[i].arena)));
    device_sync(r->at.d);
}

bool replica_state_load(replica_state *x, const checkpoint *c, int readers, checkpoint_loaded *out, char *why,
                        size_t why_bytes)
{
    replica *r = x->r;
    replica_settle(r);
    if (checkpoint_model_differs(&c->m.layout->model, &x->layout->model, why, why_bytes))
        return false;
    clear(r);
    if (!checkpoint_load(c, r->at.d, &x->load, readers, x->room, out, why, why_bytes))
        return false;
    trainer_set_optimizer_state(r->t, &c->m.state.optimizer);
    return true;
}

static bool optimizer_is(const replica_state *x, const checkpoint *c, char *why, size_t why_bytes)
{
    sb_optimizer_state has;
    const sb_optimizer_state *want = &c->m.state.optimizer;
    trainer_optimizer_state(x->r->t, &has);
    if (has.step != want->step)
        snprintf(why, why_bytes, "rank %d has counted %lld updates, and %s has %lld: its place in the schedule is lost",
                 x->r->plan->rank, (long long)has.step, c->path, (long long)want->step);
    else if (has.skipped != want->skipped || has.loss_scale != want->loss_scale || has.good_steps != want->good_steps)
        snprintf(why, why_bytes, "rank %d has another loss scale than %s", x->r->plan->rank, c->path);
    else
        return true;
    return false;
}

bool replica_state_is(const replica_state *x, const checkpoint *c, int readers, char *why, size_t why_bytes)
{
    char what[96];
    bool ok = optimizer_is(x, c, why, why_bytes);
    replica_settle(x->r);
    for (int i = 0; i < x->load.n && ok; i++) {
        const checkpoint_piece *p = &x->load.p[i];
        checkpoint_piece host = *p;
        checkpoint_loaded loaded;
        OWNED char *want = xmalloc((size_t)p->bytes), *has = xmalloc((size_t)p->bytes);
        host.at = want;
        device_download(x->r->at.d, has, p->at, (size_t)p->bytes);
        ok = checkpoint_load(c, NULL, &(checkpoint_pieces){&host, 1, 1, p->bytes}, readers, (checkpoint_room){0},
                             &loaded, why, why_bytes);
        if (ok && memcmp(want, has, (size_t)p->bytes) != 0) {
            snprintf(why, why_bytes, "rank %d has other bytes than %s, from %s on", x->r->plan->rank, c->path,
                     checkpoint_at(x->layout, p->file, p->offset, what, sizeof what));
            ok = false;
        }
        watchdog_beat();
    }
    return ok;
}

checkpoint_way replica_state_way(const replica *r, checkpoint_way wanted, bool captured)
{
    const bool hooked = r->p && !captured;
    return wanted == CHECKPOINT_LAZY && !hooked ? CHECKPOINT_ASYNC : wanted;
}

void replica_state_hashes(replica_state *x, int threads, uint64_t *out)
{
    replica_settle(x->r);
    if (!x->hasher)
        x->hasher = checkpoint_hasher_create(x->r->at.d, threads);
    checkpoint_hasher_run(x->hasher, &x->load, out, watchdog_beat);
}
