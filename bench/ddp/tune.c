/* SPDX-License-Identifier: MIT */
/* The same algorithms for the matrix products of all ranks; see ddp.h. Rank 0 chooses: so one rank alone writes the
 * file of choices, no rank is slower than another by an unlucky choice, and the same batch gives the same bits
 * everywhere. A context keeps its choices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/ddp/ddp.h"
#include "common/core/error.h"

enum { PRODUCTS_MAX = 64 };

typedef struct ddp_choices {
    char *key;
    bool taken; /* by this rank's context; not while it was no member */
    sb_matmul_choice of[PRODUCTS_MAX];
} ddp_choices;

void ddp_choices_free(ddp_cache *m)
{
    for (size_t i = 0; i < m->choices_count; i++)
        free(m->choices[i].key);
    free(m->choices);
}

/* What the products of a step depend on. */
static char *key_of(const trainer_options *o)
{
    const model_config *c = &o->config;
    return xasprintf("%d %d %d %d %d %d x %d %s %d %d", c->vocab, c->d_model, c->d_ff, c->heads, c->heads_kv, o->batch,
                     o->seq, o->precision->name, o->split, o->grad_fp32);
}

static ddp_choices *find(ddp_cache *m, const char *key)
{
    for (size_t i = 0; i < m->choices_count; i++)
        if (strcmp(m->choices[i].key, key) == 0)
            return &m->choices[i];
    return NULL;
}

static ddp_choices *add(ddp_cache *m, const char *key)
{
    m->choices = xrealloc(m->choices, (m->choices_count + 1) * sizeof *m->choices);
    ddp_choices *c = &m->choices[m->choices_count++];
    memset(c, 0, sizeof *c);
    c->key = xstrdup(key);
    return c;
}

static int products_of(const trainer *t, const tuned_product **out)
{
    const int n = t ? trainer_products(t, out) : 0;
    if (n > PRODUCTS_MAX)
        die(EXIT_CODE_FAILURE, "bug: a step has %d products", n);
    return n;
}

/* On rank 0. */
static bool choose(ddp_case *k, trainer *t, ddp_choices *c)
{
    const session *s = k->s;
    const bool kept = device_kind_of(s->dev) == DEVICE_CUDA && s->csv_path && access(s->results_dir, W_OK) == 0;
    char *path = kept ? xasprintf("%s/gemm_choices.csv", s->results_dir) : NULL;
    const bool ok = trainer_tune(t, path);
    const tuned_product *mine;
    const int n = products_of(t, &mine);
    for (int i = 0; i < n; i++)
        c->of[i] = mine[i].choice;
    free(path);
    return c->taken = ok;
}

/* An algorithm that is unknown here leaves the library's own. */
static void take(const model_bench *b, const trainer *t, ddp_choices *c)
{
    const tuned_product *mine;
    const int n = products_of(t, &mine);
    for (int i = 0; i < n; i++)
        if (c->of[i].tried && b->kernels->train->matmul_choose(b->ctx, &mine[i].shape, &c->of[i]) != SB_OK)
            warn("rank 0's algorithm for %s can't be had here: %s", mine[i].name, sb_last_message());
    c->taken = n > 0;
}

bool ddp_tune(ddp_case *k, trainer *t, const trainer_options *o)
{
    ddp_cache *m = ddp_cache_of(k->s);
    char *key = key_of(o), why[300] = "";
    ddp_choices *c = find(m, key);
    bool ok = true;
    if (!c) {
        c = add(m, key);
        ok = launch_rank(k->l) > 0 || choose(k, t, c);
        if (!ok)
            snprintf(why, sizeof why, "choosing algorithms for the products: %s", sb_last_message());
        launch_share(k->l, "choices of products", c->of, sizeof c->of, 0);
        ok = ddp_agree(k, "tuning", ok, why);
    }
    if (!c->taken)
        take(k->s->user, t, c);
    free(key);
    return ok;
}
