/* SPDX-License-Identifier: MIT */
/* Finding PyTorch's row for one of ours; see model_peers.h. */
#include "common/report/model_peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

/* The strongest first. */
const model_peer model_peers[MODEL_PEERS] = {
    {"step-graph", "sdpa", "bf16master", "in one CUDA graph, SDPA, bf16 weights with fp32 master"},
    {"step-graph", "sdpa", NULL, "in one CUDA graph, SDPA"},
    {"compile-graph", "sdpa", "bf16master", "compiled with CUDA graphs, SDPA, bf16 weights with fp32 master"},
    {"compile-graph", "sdpa", NULL, "compiled with CUDA graphs, SDPA"},
    {"eager", "naive", NULL, "eager, naive attention"},
    {"eager", "sdpa", NULL, "eager, SDPA"},
    {"compile", "naive", NULL, "compiled, naive attention"},
    {"compile", "sdpa", "bf16master", "compiled, SDPA, bf16 weights with fp32 master"},
    {"compile", "sdpa", NULL, "compiled, SDPA"}};

csv *model_peers_open(const char *dir)
{
    return open_peer_rows(dir, "model");
}

/* Another model or step than those of a size, which PyTorch did not run. */
static bool is_custom(const table *t, size_t row)
{
    return table_is_custom(t, row) || table_real(t, row, "micro_batches") > 1 || table_real(t, row, "clip") > 0;
}

/* Its name for our precision. */
static const char *precision_of(const char *ours, const model_peer *how)
{
    if (how->precision)
        return strcmp(ours, "bf16") == 0 ? how->precision : "";
    return strcmp(ours, "bf16-pure") == 0 ? "bf16pure" : ours;
}

/* A step in one graph has two modes: with each block compiled, or the model as one. */
static bool has_mode(const csv *c, size_t row, const model_peer *how)
{
    return cell_is(c, row, "mode", how->mode) ||
           (strcmp(how->mode, "step-graph") == 0 && cell_is(c, row, "mode", "block-graph"));
}

/* The same model, shape and precision, run that way. */
static bool same_step(const csv *c, size_t peer, const table *t, size_t row, const model_peer *how)
{
    static const char *const columns[] = {"size", "seq", "batch"};
    bool same = strcmp(table_text(t, row, "mode"), "train-step") == 0 && !is_custom(t, row) && has_mode(c, peer, how) &&
                cell_is(c, peer, "attn", how->attn) &&
                cell_is(c, peer, "precision", precision_of(table_text(t, row, "precision"), how));
    for (size_t k = 0; same && k < sizeof columns / sizeof *columns; k++)
        same = cell_is(c, peer, columns[k], table_text(t, row, columns[k]));
    return same;
}

/* Its fastest such row that may stand beside ours, by a column. */
static size_t peer_row(const csv *c, const table *t, size_t row, const model_peer *how, const char *what)
{
    size_t best = NO_ROW;
    for (size_t i = 0; row != NO_ROW && c && i < c->rows; i++) {
        const bool beside = same_step(c, i, t, row, how) && peer_beside(c, i, t, row, what);
        const double ms = beside ? csv_real(c, i, "step_ms") : NAN;
        if (isfinite(ms) && (best == NO_ROW || ms < csv_real(c, best, "step_ms")))
            best = i;
    }
    return best;
}

double model_peer_time(const csv *c, const table *t, size_t row, const model_peer *how)
{
    size_t theirs = peer_row(c, t, row, how, "step_ms");
    return theirs == NO_ROW ? NAN : csv_real(c, theirs, "step_ms") / table_real(t, row, "step_ms");
}

double model_peer_memory(const csv *c, const table *t, size_t row, const model_peer *how)
{
    size_t theirs = peer_row(c, t, row, how, "peak_gib");
    return theirs == NO_ROW ? NAN : csv_real(c, theirs, "peak_gib") * GIB / table_real(t, row, "peak_bytes");
}

static void compare_way(comparison *to, const csv *c, const table *t, size_t row, const model_peer *how,
                        const char *where)
{
    char *who = xasprintf("PyTorch %s", how->named);
    for (size_t i = 0; c && i < c->rows; i++) {
        const char *why = isfinite(csv_real(c, i, "step_ms")) && same_step(c, i, t, row, how)
                              ? peer_refused(c, i, t, row, "step_ms")
                              : NULL;
        if (why)
            comparison_refuse(to, why, who, where);
    }
    const size_t theirs = peer_row(c, t, row, how, "step_ms");
    if (theirs != NO_ROW) {
        char *named = peer_named(who, c, theirs, table_real(t, row, "mfu_causal_pct"));
        comparison_add(to, ratio_of_one(model_peer_time(c, t, row, how)), named, where);
        free(named);
    }
    free(who);
}

void model_peers_compare(comparison *to, const csv *c, const table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        char *where = xasprintf("%s, S %s, batch %s", table_text(t, i, "size"), table_text(t, i, "seq"),
                                table_text(t, i, "batch"));
        for (size_t p = 0; p < MODEL_PEERS; p++)
            compare_way(to, c, t, i, &model_peers[p], where);
        free(where);
    }
}

bool model_peer_has(const csv *c, const table *t, const model_peer *how)
{
    for (size_t i = 0; i < t->n; i++)
        if (isfinite(model_peer_time(c, t, i, how)))
            return true;
    return false;
}

bool model_peers_eager_alone(const csv *c)
{
    for (size_t i = 0; c && i < c->rows; i++)
        if (!cell_is(c, i, "mode", "eager"))
            return false;
    return c && c->rows;
}
