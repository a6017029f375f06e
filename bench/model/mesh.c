/* SPDX-License-Identifier: MIT */
/* The mesh of a case, and what does not go together; see mesh.h. */
#include "bench/model/mesh.h"

#include <stdio.h>
#include <string.h>

#include "bench/model/case.h"
#include "common/core/text.h"
#include "common/parallel/strategy.h"

static const char *contradiction(const model_mesh *x, const char *asked)
{
    const strategy *s = parallel_strategy(x->strategy);
    const bool hybrid = s->reduce == REDUCE_HYBRID;
    if (x->data == 1 && !text_is(asked, "ddp"))
        return "no two ranks of this mesh hold the same parts: --strategy ddp is the same";
    if (hybrid && (x->m.dp_replicate == 1 || x->m.dp_shard == 1))
        return "--strategy hsdp is for a mesh with dp_replicate and dp_shard";
    if (!hybrid && s->parameters != PARAMETERS_RESIDENT && x->m.dp_replicate > 1)
        return "with dp_replicate, parameters are sharded by --strategy hsdp";
    return NULL;
}

/* hsdp is a strategy or a variant. */
static bool replicas_fit(const bench_case *c, char *why, size_t why_bytes)
{
    const char *name = case_has(c, "strategy") ? case_text(c, "strategy") : case_variant(c);
    if (!case_has(c, "replicas") || !text_is(name, "hsdp"))
        return true;
    const int ranks = (int)case_int(c, "ranks"), replicas = (int)case_int(c, "replicas");
    if (ranks % replicas)
        snprintf(why, why_bytes, "--replicas %d does not divide --ranks %d", replicas, ranks);
    else if (ranks == replicas)
        snprintf(why, why_bytes, "--ranks %d is --replicas: nothing is sharded, and ddp is the same", ranks);
    else
        return true;
    return false;
}

bool model_mesh_of(const bench_case *c, const step_options *o, int chunks, model_mesh *out, char *why, size_t why_bytes)
{
    const model_config *k = &o->config;
    const char *asked = case_has(c, "mesh") ? case_text(c, "strategy") : NULL;
    char sharers[32];
    snprintf(sharers, sizeof sharers, "cp%d", case_has(c, "cp") ? (int)case_int(c, "cp") : 1);
    *out = (model_mesh){.strategy = asked && text_is(asked, "ddp") ? "bucketed" : asked};
    if (!mesh_parse(asked ? case_text(c, "mesh") : sharers, (int)case_int(c, "ranks"), &out->m, why, why_bytes))
        return false;
    out->data = mesh_group_size(out->m, MESH_DATA);
    const mesh_model of = {.layers = k->layers,
                           .heads = k->heads,
                           .heads_kv = k->heads_kv,
                           .d_ff = k->d_ff,
                           .chunks = chunks,
                           .seq = o->seq};
    if (mesh_problem(out->m, &of, why, why_bytes) || !replicas_fit(c, why, why_bytes))
        return false;
    const char *problem = asked ? contradiction(out, asked) : NULL;
    if (problem)
        snprintf(why, why_bytes, "%s", problem);
    return !problem;
}

/* Whether the list is one mesh of these ranks with commas between its axes: none of its meshes names them all. */
static bool one_in_pieces(const options *o, int ranks, char *msg, size_t msg_bytes)
{
    char joined[256] = "", why[256];
    const char *part = NULL;
    int has = 0;
    mesh m;
    for (size_t i = 0, used = 0; i < option_count(o, "mesh") && used < sizeof joined; i++) {
        const char *text = option_text_at(o, "mesh", i);
        used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", i ? "+" : "", text);
        if (!mesh_parse(text, ranks, &m, why, sizeof why))
            continue;
        if (m.dp_shard == 1 || strstr(text, "dp_shard"))
            return false;
        part = part ? part : text;
        has = part == text ? ranks / m.dp_shard : has;
    }
    if (!part || option_count(o, "mesh") < 2 || !mesh_parse(joined, ranks, &m, why, sizeof why))
        return false;
    snprintf(msg, msg_bytes,
             "--mesh lists %s, which has %d of %d ranks: axes of one mesh are joined by +, as in %s, and meshes of a "
             "list name dp_shard, too",
             part, has, ranks, joined);
    return true;
}

bool model_mesh_validate(const options *o, char *msg, size_t msg_bytes)
{
    size_t pieces = 0;
    while (pieces < option_count(o, "ranks") && options_have(o, "mesh") &&
           one_in_pieces(o, (int)option_int_at(o, "ranks", pieces), msg, msg_bytes))
        pieces++;
    if (pieces == option_count(o, "ranks"))
        return false;
    bool possible = false;
    char first[256] = "", why[256];
    for (size_t i = 0; i < cases_count(o) && !possible; i++) {
        step_options step;
        model_mesh x;
        bench_case *c = case_at(o, i);
        possible = !model_case_options(c, &step, why, sizeof why) || model_mesh_of(c, &step, 1, &x, why, sizeof why);
        if (!first[0])
            snprintf(first, sizeof first, "%s", why);
        case_free(c);
    }
    if (!possible)
        snprintf(msg, msg_bytes, "%s", first);
    return possible;
}

bool model_shared_steps_validate(const options *o, char *msg, size_t msg_bytes)
{
    return model_steps_validate(o, msg, msg_bytes) && model_mesh_validate(o, msg, msg_bytes);
}
