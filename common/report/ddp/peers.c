/* SPDX-License-Identifier: MIT */
/* PyTorch's row for one of ours; see ddp.h. */
#include <math.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/results.h"
#include "common/report/ddp/ddp.h"

/* Which of its strategies does the same. Its `ddp25` is its own default of 25 MB. */
static bool is_peer(const csv *c, size_t row, const ddp_entry *e)
{
    static const char *const same[][2] = {{"naive", "naive"},          {"naive-grouped", "naive"}, {"flat", "flat"},
                                          {"flat-copy", "flat"},       {"overlap", "overlap"},     {"zero1", "zero1"},
                                          {"zero1-broadcast", "zero1"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (ddp_is(e, same[i][0]) && cell_is(c, row, "strategy", same[i][1]))
            return true;
    if (!ddp_is(e, "bucketed") && !ddp_is(e, "unsharded"))
        return false;
    const double mb = ddp_real(e, "bucket_mb");
    return (cell_is(c, row, "strategy", "ddp") && csv_real(c, row, "bucket_mb") == mb) ||
           (cell_is(c, row, "strategy", "ddp25") && mb == 25);
}

/* What PyTorch sends: autocast's gradients are fp32, whatever its products are. Files of the time before they named a mode are
 * compared in spite of it. */
static bool same_wire(const csv *c, size_t row, const ddp_entry *e)
{
    const char *theirs = cell_is(c, row, "precision", "bf16pure") ? "bf16" : "fp32";
    return csv_column(c, "mode") < 0 || strcmp(e->wire, theirs) == 0;
}

/* The same model on as many ranks, with the same batch and precision, and where both say it on the same GPU. any_policy: beside a
 * step in bf16 one that keeps its weights and moments in bf16, too, which is less work. */
static bool is_alike(const csv *c, size_t row, const ddp_entry *e, bool any_policy)
{
    static const char *const alike[][2] = {
        {"size", "size"}, {"ranks", "ranks"}, {"seq", "seq"}, {"batch_per_rank", "batch"}};
    const char *precision = ddp_text(e, "precision");
    bool same = cell_is(c, row, "precision", strcmp(precision, "bf16-pure") ? precision : "bf16pure") ||
                (any_policy && strcmp(precision, "bf16") == 0 && cell_is(c, row, "precision", "bf16pure"));
    for (size_t k = 0; k < sizeof alike / sizeof *alike; k++)
        same = same && cell_is(c, row, alike[k][0], ddp_text(e, alike[k][1]));
    return same && (any_policy || same_wire(c, row, e)) && peer_beside(c, row, e->t, e->row);
}

/* A model on every rank, which none of the sharded ones is. */
static bool is_replica(const csv *c, size_t row)
{
    return !cell_is(c, row, "strategy", "zero1") && !cell_is(c, row, "strategy", "fsdp2");
}

static size_t fastest(const ddp_rows *r, const ddp_entry *e, bool any_replica)
{
    const csv *c = r->pytorch;
    size_t best = NO_ROW;
    for (size_t i = 0; c && e->ok && !table_is_custom(e->t, e->row) && i < c->rows; i++) {
        const bool same = (any_replica ? is_replica(c, i) : is_peer(c, i, e)) && is_alike(c, i, e, any_replica);
        const double ms = same ? csv_real(c, i, "step_ms") : NAN;
        if (isfinite(ms) && (best == NO_ROW || ms < csv_real(c, best, "step_ms")))
            best = i;
    }
    return best;
}

const char *ddp_pytorch_mode(const ddp_rows *r, const ddp_entry *e)
{
    const size_t best = fastest(r, e, false);
    return best == NO_ROW || csv_column(r->pytorch, "mode") < 0 ? "" : csv_cell(r->pytorch, best, "mode");
}

double ddp_pytorch(const ddp_rows *r, const ddp_entry *e, const char *column)
{
    const size_t best = fastest(r, e, false);
    return best == NO_ROW ? NAN : csv_real(r->pytorch, best, column);
}

size_t ddp_pytorch_strongest(const ddp_rows *r, const ddp_entry *e)
{
    return r->pytorch && csv_column(r->pytorch, "mode") >= 0 ? fastest(r, e, true) : NO_ROW;
}

char *ddp_pytorch_name(const ddp_rows *r, size_t row)
{
    return xasprintf("%s, %s, %s", csv_cell(r->pytorch, row, "strategy"), csv_cell(r->pytorch, row, "mode"),
                     csv_cell(r->pytorch, row, "precision"));
}
