/* SPDX-License-Identifier: MIT */
/* PyTorch's row for one of ours; see ddp.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/ddp/ddp.h"
#include "common/report/section.h"

ddp_kind ddp_kind_of(const char *variant)
{
    return strncmp(variant, "zero1", 5) == 0 || strcmp(variant, "fused") == 0 ? DDP_SHARDED_OPTIMIZER : DDP_REPLICATED;
}

/* FSDP2 stands beside bench_fsdp (sections/fsdp.c). */
static bool is_kind(const csv *c, size_t row, ddp_kind kind)
{
    const char *strategy = csv_cell(c, row, "strategy");
    return strategy && strncmp(strategy, "fsdp", 4) != 0 && ddp_kind_of(strategy) == kind;
}

/* Which of its strategies does the same. Its `ddp25` is its own default of 25 MB. */
static bool is_strategy(const csv *c, size_t row, const ddp_entry *e)
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

/* What PyTorch sends: autocast's gradients are fp32, whatever its products are. */
static bool same_wire(const csv *c, size_t row, const ddp_entry *e)
{
    return strcmp(e->wire, cell_is(c, row, "precision", "bf16pure") ? "bf16" : "fp32") == 0;
}

static bool same_model(const csv *c, size_t row, const ddp_entry *e)
{
    static const char *const alike[][2] = {
        {"size", "size"}, {"ranks", "ranks"}, {"seq", "seq"}, {"batch_per_rank", "batch"}};
    bool same = e->ok && !table_is_custom(e->t, e->row);
    for (size_t k = 0; k < sizeof alike / sizeof *alike; k++)
        same = same && cell_is(c, row, alike[k][0], ddp_text(e, alike[k][1]));
    return same;
}

/* Its precision by our name, and gradients that are sent and summed in one dtype. */
static bool same_policy(const csv *c, size_t row, const ddp_entry *e)
{
    const char *precision = ddp_text(e, "precision");
    return cell_is(c, row, "precision", strcmp(precision, "bf16-pure") ? precision : "bf16pure") &&
           same_wire(c, row, e);
}

/* Beside a step in bf16 any that computes in bf16: one that keeps its weights and moments in bf16, too, does less. */
static bool any_policy(const csv *c, size_t row, const ddp_entry *e)
{
    const char *precision = ddp_text(e, "precision");
    return same_policy(c, row, e) || cell_is(c, row, "precision", precision) ||
           (strncmp(precision, "bf16", 4) == 0 && cell_is(c, row, "precision", "bf16pure"));
}

static bool does_the_same(const csv *c, size_t row, const ddp_entry *e, ddp_match match)
{
    if (!same_model(c, row, e) || !isfinite(csv_real(c, row, "step_ms")))
        return false;
    switch (match) {
    case DDP_STRATEGY: return is_strategy(c, row, e) && same_policy(c, row, e);
    case DDP_KIND: return is_kind(c, row, ddp_kind_of(e->variant)) && same_policy(c, row, e);
    case DDP_KIND_ANY_POLICY: return is_kind(c, row, ddp_kind_of(e->variant)) && any_policy(c, row, e);
    case DDP_ANY: return any_policy(c, row, e);
    }
    return false;
}

static size_t peer_row(const ddp_rows *r, const ddp_entry *e, ddp_match match, const char *what)
{
    const csv *c = r->pytorch;
    size_t best = NO_ROW;
    for (size_t i = 0; c && i < c->rows; i++)
        if (does_the_same(c, i, e, match) && peer_beside(c, i, e->t, e->row, what) &&
            (best == NO_ROW || csv_real(c, i, "step_ms") < csv_real(c, best, "step_ms")))
            best = i;
    return best;
}

size_t ddp_peer(const ddp_rows *r, const ddp_entry *e, ddp_match match)
{
    return peer_row(r, e, match, "step_ms");
}

void ddp_compare(comparison *to, const ddp_rows *r, const ddp_entry *e, ddp_match match)
{
    const csv *c = r->pytorch;
    char *where = ddp_group_title(e);
    for (size_t i = 0; c && i < c->rows; i++) {
        const char *why =
            match != DDP_ANY && does_the_same(c, i, e, match) ? peer_refused(c, i, e->t, e->row, "step_ms") : NULL;
        char *name = ddp_pytorch_name(r, i), *who = xasprintf("PyTorch %s", name);
        if (why)
            comparison_refuse(to, why, who, where);
        free(name);
        free(who);
    }
    const size_t theirs = ddp_peer(r, e, match);
    if (theirs != NO_ROW) {
        char *name = ddp_pytorch_name(r, theirs), *who = xasprintf("PyTorch %s beside %s", name, e->label),
             *named = peer_named(who, c, theirs, ddp_real(e, "mfu_causal_pct"));
        comparison_add(to, ratio_of_one(csv_real(c, theirs, "step_ms") / ddp_step_ms(e)), named, where);
        free(name);
        free(who);
        free(named);
    }
    free(where);
}

const char *ddp_pytorch_mode(const ddp_rows *r, const ddp_entry *e)
{
    const size_t best = ddp_peer(r, e, DDP_STRATEGY);
    const char *mode = best == NO_ROW ? NULL : csv_cell(r->pytorch, best, "mode");
    return mode ? mode : "";
}

double ddp_pytorch(const ddp_rows *r, const ddp_entry *e, const char *column)
{
    const size_t best = peer_row(r, e, DDP_STRATEGY, column);
    return best == NO_ROW ? NAN : csv_real(r->pytorch, best, column);
}

char *ddp_pytorch_name(const ddp_rows *r, size_t row)
{
    return xasprintf("%s, %s, %s", csv_cell(r->pytorch, row, "strategy"), csv_cell(r->pytorch, row, "mode"),
                     csv_cell(r->pytorch, row, "precision"));
}
