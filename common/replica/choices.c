/* SPDX-License-Identifier: MIT */
/* Gives the matrix products of all ranks the same algorithms; see replica.h. Rank 0 chooses: so one rank alone writes
 * the file of choices, no rank is slower than another by an unlucky choice, and the same batch gives the same bits
 * everywhere. A context keeps its choices. */
#include <stdlib.h>

#include "common/core/error.h"
#include "common/replica/replica.h"
#include "common/train/tune/tune.h"

enum { CHOICES_MAX = 64 };

typedef struct shared_choices {
    bool taken; /* this rank's context has them; not while it was not a member */
    sb_matmul_choice of[CHOICES_MAX];
} shared_choices;

/* Everything that the products of a step depend on. */
static char *key_of(const step_options *o)
{
    const model_config *c = &o->config;
    return xasprintf("%d %d %d %d %d %d x %d / %d %s %d %d %d/%d of %d %d %d", c->vocab, c->d_model, c->d_ff, c->heads,
                     c->heads_kv, o->batch, o->seq, o->loss_chunk, o->precision->name, o->split, o->grad_fp32,
                     step_sums_in_products(o), step_sums_dtype(o), o->split_layers.ranks, o->windows, o->push);
}

static int products_of(const trainer *t, const tuned_product **out)
{
    const int n = t ? trainer_products(t, out) : 0;
    if (n > CHOICES_MAX)
        die(EXIT_CODE_FAILURE, "bug: a step has %d products", n);
    return n;
}

/* On rank 0. */
static bool choose(const replica_place *at, trainer *t, shared_choices *c)
{
    const tuned_product *mine;
    const bool ok = trainer_tune(t, at->known);
    const int n = products_of(t, &mine);
    for (int i = 0; i < n; i++)
        c->of[i] = mine[i].choice;
    return c->taken = ok;
}

/* If an algorithm is unknown here, the library's own is used. */
static void take(const replica_place *at, const trainer *t, shared_choices *c)
{
    const tuned_product *mine;
    const int n = products_of(t, &mine);
    for (int i = 0; i < n; i++)
        if (c->of[i].tried && at->kernels->train->matmul_choose(at->ctx, &mine[i].shape, &c->of[i]) != SB_OK)
            warn("rank 0's algorithm for %s is not available here: %s", mine[i].name, sb_last_message());
    c->taken = n > 0;
}

bool replica_tune(const replica_place *at, trainer *t, const step_options *o, replica_problem *problem)
{
    const bool first = !at->l || launch_rank(at->l) == 0;
    OWNED char *key = key_of(o), *why = NULL;
    shared_choices *c = cache_find(at->kept, "choices", key);
    bool ok = true;
    if (!c) {
        c = cache_add(at->kept, "choices", key, sizeof *c, NULL);
        ok = !first || choose(at, t, c);
        if (!ok)
            why = xasprintf("choosing algorithms for the products: %s", sb_last_message());
        OWNED char *before = xstrdup(phase_get());
        if (!first)
            phase_set("waiting for rank 0's choices of algorithms");
        if (at->l)
            launch_share(at->l, "choices of products", c->of, sizeof c->of, 0);
        ok = replica_agree(at, "tuning", ok, why, problem);
        phase_set("%s", before);
    }
    if (!c->taken)
        take(at, t, c);
    return ok;
}
