/* SPDX-License-Identifier: MIT */
/* A case from its options to its table and its edges; see case.h. */
#include "bench/pp/case.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/core/text.h"

bool pp_agree(pp_case *k, const char *name)
{
    return replica_agree_row(&k->at, name, k->w, k->ranks, k->wrong);
}

bool pp_shares(const pp_case *k)
{
    return k->ranks > k->shape.ranks;
}

int pp_rank_at(const pp_case *k, int stage)
{
    return stage * (k->ranks / k->shape.ranks);
}

/* ---- set-up ---- */

typedef struct kept_edges {
    edges *e; /* NULL: not made, and why */
    char why[256];
} kept_edges;

static void kept_edges_close(void *value)
{
    edges_close(((kept_edges *)value)->e);
}

static edges *edges_of(pp_case *k)
{
    const int max_ctas = (int)case_int(k->c, "max-ctas");
    const bool copy = text_is(case_text(k->c, "transport"), "copy");
    char key[32];
    snprintf(key, sizeof key, "%d of %d, %d, %d", k->shape.ranks, k->ranks, max_ctas, copy);
    kept_edges *x = cache_find(k->s->kept, "edges", key);
    if (!x) {
        x = cache_add(k->s->kept, "edges", key, sizeof *x, kept_edges_close);
        x->e = edges_open(k->l, k->s->dev, k->on.m, copy, max_ctas, x->why, sizeof x->why);
    }
    if (!x->e)
        row_status_set(k->w, ROW_SKIP, "%s", x->why);
    return x->e;
}

/* Why the case is skipped; NULL: it is not. */
static const char *contradiction(const pp_case *k, char *why, size_t bytes)
{
    const pipeline_schedule *row = k->shape.schedule;
    if (pipeline_problem(&k->shape, why, bytes))
        return why;
    if (k->o.precision->loss_scaling)
        return "--precision fp16 has a loss scale, which all stages would have to agree on";
    if (k->o.config.layers < pipeline_stages(&k->shape)) {
        snprintf(why, bytes, "%d stages need more layers than %d", pipeline_stages(&k->shape), k->o.config.layers);
        return why;
    }
    if ((k->plant == PLANT_NO_W || k->plant == PLANT_W_TWICE) && !row->split)
        return "this schedule has no W: there is no such error to plant";
    if (parallel_strategy(k->on.strategy)->gradients == GRADIENTS_SLICED && (k->shape.chunks > 1 || row->split))
        return "gradients are kept in slices where a rank has one chunk and no W: with gpipe and 1f1b; fsdp-no-sync "
               "has them whole";
    if (k->plant == PLANT_NORM && (k->on.m.tp == 1 || !(k->o.clip_norm > 0)))
        return "--plant-error norm is for --clip and a mesh with tp";
    if (k->on.m.cp > 1)
        return "stages share no sequences: bench_fsdp --cp and bench_tp --mesh do within a step";
    if ((k->plant == PLANT_GROUPS && k->on.data == 1) ||
        (k->plant == PLANT_ORDER && (k->on.data == 1 || k->on.m.tp == 1)))
        return "--plant-error groups is for a mesh with data parallelism, and order for one with tp besides";
    if (k->plant != PLANT_NONE && (k->shape.ranks < 2 || k->shape.micros < 2))
        return "errors are planted between 2 ranks or more, and 2 micro-batches or more";
    if (k->graph && !device_has_graphs(k->s->dev))
        return "the CPU has no graphs";
    if (device_kind_of(k->s->dev) == DEVICE_CPU && case_int(k->c, "max-ctas"))
        return "--max-ctas is for NCCL";
    return NULL;
}

/* The first W of the last rank in place of its second one. */
static void plant_table(pp_case *k)
{
    pipeline_action *a = k->table->actions + (size_t)(k->shape.ranks - 1) * (size_t)k->table->count, *first = NULL;
    for (int i = 0; i < k->table->count && k->plant == PLANT_W_TWICE; i++)
        if (a[i].kind == PIPELINE_W && !first) {
            first = &a[i];
        } else if (a[i].kind == PIPELINE_W) {
            a[i] = *first;
            return;
        }
}

static bool make_table(pp_case *k)
{
    char why[256];
    k->table = pipeline_table_create(&k->shape, NULL);
    plant_table(k);
    if (!pipeline_invalid(k->table, why, sizeof why))
        return true;
    row_status_set(k->w, ROW_FAIL, "wrong table: %s", why);
    return false;
}

bool pp_case_of(session *s, const bench_case *c, row *w, pp_case *out)
{
    char why[512] = "";
    *out =
        (pp_case){.s = s, .l = launch_of(s), .c = c, .w = w, .plant = (pp_plant)option_choice(s->opt, "plant-error")};
    out->at = model_place(s, out->l);
    if (!model_case_options(c, &out->o, why, sizeof why) || !model_mesh_of(c, &out->o, 1, &out->on, why, sizeof why)) {
        row_status_set(w, ROW_SKIP, "%s", why);
        return false;
    }
    out->o.fusion = FUSION_KERNELS; /* the step with its hops is captured here, not by the trainer */
    out->o.share_grad_memory = true;
    out->graph = text_is(case_text(c, "fusion"), "graph");
    const pipeline_schedule *row = pipeline_schedule_find(case_variant(c));
    out->o.shard.prefetch = 1;
    out->shape = (pipeline_shape){row, out->on.m.pp, pipeline_chunks(row, (int)case_int(c, "chunks")),
                                  step_micro_batches(&out->o)};
    out->ranks = mesh_world(out->on.m);
    out->o.update_units = text_is(case_text(c, "update"), "units") && !pp_shares(out);
    out->rank = launch_rank(out->l);
    out->member = out->rank < out->ranks;
    out->stage = out->member ? mesh_coords(out->on.m, out->rank).pp : 0;
    const char *problem = contradiction(out, why, sizeof why);
    if (problem) {
        row_status_set(w, ROW_SKIP, "%s", problem);
        return false;
    }
    out->loss_rank =
        mesh_metrics_rank(out->on.m, row->there_and_back != (out->plant == PLANT_LOSS) ? MESH_V : MESH_LOOP);
    out->ends = xcalloc((size_t)pipeline_stages(&out->shape), sizeof *out->ends);
    return make_table(out) && (out->edges = edges_of(out));
}

void pp_case_free(pp_case *k)
{
    pipeline_table_free(k->table);
    free(k->ends);
}
