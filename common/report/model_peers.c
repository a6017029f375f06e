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
    return open_peer_rows(dir, "model", "pytorch_model.csv");
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

/* Its fastest row of the same model, shape and precision, run that way. */
static size_t peer_row(const csv *c, const table *t, size_t row, const model_peer *how)
{
    const char *precision = precision_of(table_text(t, row, "precision"), how);
    size_t best = NO_ROW;
    if (row == NO_ROW || strcmp(table_text(t, row, "mode"), "train-step") != 0 || is_custom(t, row))
        return NO_ROW;
    for (size_t i = 0; c && i < c->rows; i++) {
        const bool same =
            cell_is(c, i, "size", table_text(t, row, "size")) && cell_is(c, i, "seq", table_text(t, row, "seq")) &&
            cell_is(c, i, "batch", table_text(t, row, "batch")) && cell_is(c, i, "precision", precision) &&
            peer_beside(c, i, t, row) && has_mode(c, i, how) && cell_is(c, i, "attn", how->attn);
        const double ms = same ? csv_real(c, i, "step_ms") : NAN;
        if (isfinite(ms) && (best == NO_ROW || ms < csv_real(c, best, "step_ms")))
            best = i;
    }
    return best;
}

double model_peer_time(const csv *c, const table *t, size_t row, const model_peer *how)
{
    size_t theirs = peer_row(c, t, row, how);
    return theirs == NO_ROW ? NAN : csv_real(c, theirs, "step_ms") / table_real(t, row, "step_ms");
}

double model_peer_memory(const csv *c, const table *t, size_t row, const model_peer *how)
{
    size_t theirs = peer_row(c, t, row, how);
    return theirs == NO_ROW ? NAN : csv_real(c, theirs, "peak_gib") * GIB / table_real(t, row, "peak_bytes");
}

void model_peers_compare(comparison *to, const csv *c, const table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        char *where = xasprintf("%s, S %s, batch %s", table_text(t, i, "size"), table_text(t, i, "seq"),
                                table_text(t, i, "batch"));
        for (size_t p = 0; p < MODEL_PEERS; p++) {
            char *who = xasprintf("PyTorch %s", model_peers[p].named);
            comparison_add(to, model_peer_time(c, t, i, &model_peers[p]), who, where);
            free(who);
        }
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
