/* SPDX-License-Identifier: MIT */
/* The mesh as a value: its text, the places of ranks, and their groups; see mesh.h. */
#include "common/mesh/mesh.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/text.h"

enum { AXES = 5 };
static const struct {
    const char *name;
    size_t at;
    unsigned axis;
} axes_in_order[AXES] = {{"pp", offsetof(mesh, pp), MESH_PP}, /* outermost first */
                         {"dp_replicate", offsetof(mesh, dp_replicate), MESH_DP_REPLICATE},
                         {"dp_shard", offsetof(mesh, dp_shard), MESH_DP_SHARD},
                         {"cp", offsetof(mesh, cp), MESH_CP},
                         {"tp", offsetof(mesh, tp), MESH_TP}};
enum { SHARD = 2 }; /* its place in the table */

static int *axis_of(mesh *m, int i)
{
    return (int *)((char *)m + axes_in_order[i].at);
}

static int axis_in(mesh m, int i)
{
    return *axis_of(&m, i);
}

int mesh_group_size(mesh m, unsigned axes)
{
    int size = 1;
    for (int i = 0; i < AXES; i++)
        size *= axes_in_order[i].axis & axes ? axis_in(m, i) : 1;
    return size;
}

int mesh_world(mesh m)
{
    return mesh_group_size(m, MESH_ALL);
}

/* ---- text ---- */

static const char separators[] = ",+";

/* Takes "tp2" off the text, up to a separator; size 0: it has none. False: it is none of ours. */
static bool take_axis(const char **text, int *axis, long *size)
{
    char word[32];
    const size_t length = strcspn(*text, separators), name = strcspn(*text, "0123456789,+");
    if (name >= sizeof word)
        return false;
    snprintf(word, sizeof word, "%.*s", (int)name, *text);
    for (*axis = 0; *axis < AXES && !text_is(word, axes_in_order[*axis].name); ++*axis)
        ;
    char *end;
    *size = strtol(*text + name, &end, 10);
    const bool whole = end == *text + length && *axis < AXES && (*size >= 1 || name == length);
    *text += length;
    return whole;
}

bool mesh_parse(const char *text, int world, mesh *out, char *why, size_t why_bytes)
{
    const char *from = text ? text : "";
    long long product = 1;
    int takes_rest = -1;
    *out = (mesh){0};
    while (*from) {
        const char *word = from;
        const size_t length = strcspn(word, separators);
        int axis;
        long size;
        if (!take_axis(&from, &axis, &size)) {
            snprintf(why, why_bytes,
                     "'%.*s' is not an axis of a mesh: these are pp, dp_replicate, dp_shard, cp or tp with a size of 1 "
                     "or more, as in pp2+tp2",
                     (int)length, word);
            return false;
        }
        const bool again = axis_in(*out, axis) || axis == takes_rest;
        if (again || (!size && takes_rest >= 0)) {
            snprintf(why, why_bytes, "the mesh %s names %s twice", text,
                     again ? axes_in_order[axis].name : "who takes the rest");
            return false;
        }
        takes_rest = size ? takes_rest : axis;
        if (size > world || (product *= size ? size : 1) > world) {
            snprintf(why, why_bytes, "the mesh %s needs more than %d rank%s", text, world, world == 1 ? "" : "s");
            return false;
        }
        *axis_of(out, axis) = (int)size;
        if (*from && !*++from)
            return mesh_parse(",", world, out, why, why_bytes); /* nothing follows the comma */
    }
    takes_rest = takes_rest < 0 && !out->dp_shard ? SHARD : takes_rest;
    const bool rest = takes_rest >= 0;
    for (int i = 0; i < AXES; i++)
        if (!axis_in(*out, i))
            *axis_of(out, i) = i == takes_rest ? (int)(world / product) : 1;
    if (mesh_world(*out) == world)
        return true;
    if (rest)
        snprintf(why, why_bytes, "%d ranks are not a multiple of the %lld of the mesh %s", world, product, text);
    else
        snprintf(why, why_bytes, "the mesh %s has %lld ranks, and there are %d", text, product, world);
    return false;
}

const char *mesh_text(mesh m, char *out, size_t out_bytes)
{
    size_t used = 0;
    snprintf(out, out_bytes, "dp_shard1");
    for (int i = 0; i < AXES && used < out_bytes; i++)
        if (axis_in(m, i) > 1)
            used += (size_t)snprintf(out + used, out_bytes - used, "%s%s%d", used ? "+" : "", axes_in_order[i].name,
                                     axis_in(m, i));
    return out;
}

/* ---- places ---- */

int mesh_rank(mesh m, mesh at)
{
    int rank = 0;
    for (int i = 0; i < AXES; i++)
        rank = rank * axis_in(m, i) + axis_in(at, i);
    return rank;
}

mesh mesh_coords(mesh m, int rank)
{
    mesh at = {0};
    if (rank < 0 || rank >= mesh_world(m))
        die(EXIT_CODE_FAILURE, "bug: rank %d in a mesh of %d", rank, mesh_world(m));
    for (int i = AXES; i-- > 0; rank /= axis_in(m, i))
        *axis_of(&at, i) = rank % axis_in(m, i);
    return at;
}

/* ---- groups ---- */

mesh_group mesh_group_of(mesh m, int rank, unsigned axes)
{
    const mesh own = mesh_coords(m, rank);
    mesh_group g = {.count = mesh_group_size(m, axes)};
    g.ranks = xcalloc((unsigned long)g.count, sizeof *g.ranks);
    for (int member = 0; member < g.count; member++) {
        mesh at = own;
        int left = member;
        for (int i = AXES; i-- > 0;)
            if (axes_in_order[i].axis & axes) {
                *axis_of(&at, i) = left % axis_in(m, i);
                left /= axis_in(m, i);
            }
        g.ranks[member] = mesh_rank(m, at);
        if (g.ranks[member] == rank)
            g.mine = member;
    }
    return g;
}

void mesh_group_free(mesh_group *g)
{
    free(g->ranks);
    *g = (mesh_group){0};
}

int mesh_metrics_rank(mesh m, mesh_placement placement)
{
    return placement == MESH_V ? 0 : mesh_world(m) / m.pp * (m.pp - 1);
}

/* ---- what cannot be split ---- */

const char *mesh_problem(mesh m, const mesh_model *of, char *out, size_t out_bytes)
{
    const int chunks = m.pp * (of->chunks ? of->chunks : 1);
    const long long rows = of->batch ? (long long)of->seq * of->batch / m.cp : 0;
    if (of->layers && of->layers < chunks)
        snprintf(out, out_bytes, "the %d chunks of pp %d need more layers than %d", chunks, m.pp, of->layers);
    else if (of->heads % m.tp)
        snprintf(out, out_bytes, "heads %d are not a multiple of tp %d", of->heads, m.tp);
    else if (of->heads_kv && of->heads_kv % m.tp && m.tp % of->heads_kv)
        snprintf(out, out_bytes, "heads-kv %d and tp %d: neither is a multiple of the other", of->heads_kv, m.tp);
    else if (of->d_ff % m.tp)
        snprintf(out, out_bytes, "d-ff %d is not a multiple of tp %d", of->d_ff, m.tp);
    else if (m.cp > 1 && of->seq % (2 * m.cp))
        snprintf(out, out_bytes, "seq %d is not a multiple of %d: each rank of cp %d takes two chunks of a sequence",
                 of->seq, 2 * m.cp, m.cp);
    else if (rows % m.tp)
        snprintf(out, out_bytes, "%lld tokens of a micro-batch are not a multiple of tp %d", rows, m.tp);
    else
        return NULL;
    return out;
}
