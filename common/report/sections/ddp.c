/* SPDX-License-Identifier: MIT */
/* Data parallelism in the report: strategies side by side, whether each beats the one before it, and PyTorch's steps.
 * Buckets and ZeRO-1 have parts of their own (ddp_buckets.c, zero1.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections/ddp.h"
#include "common/report/sections.h"

/* The course's strategies in the order in which each should cost no more than the one before it. */
static const char *const chain[] = {"naive", "flat", "overlap", "bucketed"};
enum { CHAIN = sizeof chain / sizeof *chain };

typedef struct links { /* those that were measured */
    const ddp_entry *e[CHAIN];
    size_t n, sizes; /* sizes: of buckets, from which the best stands for all */
} links;

static links links_of(const ddp_rows *r, size_t first, size_t end)
{
    links l = {.n = 0};
    for (size_t i = 0; i < CHAIN; i++) {
        const ddp_entry *best = ddp_best(r, first, end, chain[i], &l.sizes);
        if (best)
            l.e[l.n++] = best;
    }
    return l;
}

static double step_of(const ddp_entry *e)
{
    return ddp_real(e, "step_ms");
}

/* ---- in short ---- */

static void print_finding(FILE *out, const ddp_rows *r, const links *l)
{
    const ddp_entry *best = l->e[0];
    double theirs = INFINITY;
    for (size_t i = 0; i < l->n; i++) {
        best = step_of(l->e[i]) < step_of(best) ? l->e[i] : best;
        theirs = fmin(theirs, ddp_pytorch(r, l->e[i], "step_ms"));
    }
    char *title = ddp_group_title(best);
    const double mfu = ddp_real(best, "mfu_causal_pct");
    fprintf(out, "- **Data parallelism** (%s): a step of %s ms = %s tokens/s", title, precise(step_of(best)),
            number(ddp_real(best, "tokens_per_s")));
    if (isfinite(mfu))
        fprintf(out, ", MFU %s %%", number(mfu));
    fprintf(out, " (%s). Of communication, alone %s ms, remain exposed", best->label,
            precise(ddp_real(best, "comm_alone_ms")));
    for (size_t i = 0; i < l->n; i++)
        fprintf(out, "%s %s %s", i ? "," : "", l->e[i]->label, with_interval(l->e[i]));
    fprintf(out, " ms");
    if (isfinite(theirs))
        fprintf(out, ". PyTorch's fastest step of this model%s takes %s times as long",
                strcmp(ddp_text(best, "precision"), "bf16") ? "" : " (autocast, fp32 gradients)",
                number(theirs / step_of(best)));
    fprintf(out, ".\n");
    free(title);
}

void ddp_findings(FILE *out, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    for (size_t first = 0, end; r && first < r->n; first = end) {
        end = ddp_group_end(r, first);
        const links l = links_of(r, first, end);
        if (l.n && ddp_real(l.e[0], "ranks") > 1 && strcmp(ddp_text(l.e[0], "size"), ddp_main_size(r)) == 0 &&
            !ddp_has_longer(r, l.e[0]))
            print_finding(out, r, &l);
    }
    ddp_rows_free(r);
}

/* ---- does each strategy cost no more than the one before it? ---- */

static void print_chain(FILE *out, const links *l)
{
    for (size_t i = 0; i < l->n; i++)
        fprintf(out, "%s%s", i ? " ≥ " : "", l->e[i]->variant);
}

typedef struct verdict {
    size_t wrong, apart; /* of neighbours: out of order; told apart by their intervals */
    size_t certain;      /* of all pairs: out of order and told apart */
} verdict;

static bool contradicts(const ddp_entry *first, const ddp_entry *then)
{
    return then->exposed > first->exposed && ddp_apart(first, then);
}

static verdict judge(const links *l)
{
    verdict v = {0, 0, 0};
    for (size_t i = 1; i < l->n; i++) {
        v.apart += ddp_apart(l->e[i - 1], l->e[i]);
        v.wrong += l->e[i]->exposed > l->e[i - 1]->exposed;
        for (size_t k = 0; k < i; k++)
            v.certain += contradicts(l->e[k], l->e[i]);
    }
    return v;
}

static void print_pair(FILE *out, const ddp_entry *a, const ddp_entry *b)
{
    fprintf(out, "%s %s ms %s than %s (intervals %s)", b->variant, precise(fabs(b->exposed - a->exposed)),
            b->exposed > a->exposed ? "more" : "less", a->variant, ddp_apart(a, b) ? "separate" : "meet");
}

/* Neighbours in the order, each with what can be said of it; then others that contradict it, and its two ends. */
static void print_pairs(FILE *out, const links *l)
{
    for (size_t i = 1; i < l->n; i++) {
        fprintf(out, "%s ", i > 1 ? ";" : "");
        print_pair(out, l->e[i - 1], l->e[i]);
    }
    for (size_t i = 2; i < l->n; i++)
        for (size_t k = 0; k + 1 < i; k++)
            if (contradicts(l->e[k], l->e[i]) || (k == 0 && i == l->n - 1)) {
                fprintf(out, "; ");
                print_pair(out, l->e[k], l->e[i]);
            }
}

/* Whole steps have no interval, but percentiles. */
static void print_steps(FILE *out, const links *l)
{
    size_t wrong = 0;
    fprintf(out, "Whole steps (");
    for (size_t i = 0; i < l->n; i++)
        fprintf(out, "%s%s", i ? ", " : "", precise(step_of(l->e[i])));
    fprintf(out, " ms): ");
    for (size_t i = 1; i < l->n; i++) {
        const ddp_entry *a = l->e[i - 1], *b = l->e[i];
        const double more = step_of(b) - step_of(a);
        if (!(more > 0))
            continue;
        fprintf(out, "%s%s takes %s ms (%s %%) longer than %s, and their 5th to 95th percentiles %s",
                wrong++ ? "; " : "", b->variant, precise(more), number(100 * more / step_of(a)), a->variant,
                ddp_real(b, "step_p5_ms") > ddp_real(a, "step_p95_ms") ? "don't meet" : "meet");
    }
    fprintf(out, "%s.\n", wrong ? "" : "each takes no longer than the one before");
}

/* Variants of a strategy against it. */
static void print_variant(FILE *out, const ddp_rows *r, size_t first, size_t end, const char *variant, const char *what,
                          const char *base)
{
    const ddp_entry *a = ddp_best(r, first, end, base, NULL), *b = ddp_best(r, first, end, variant, NULL);
    if (a && b)
        fprintf(out, "%s (`%s`) costs %s ms %s than `%s` (intervals %s).\n", what, variant,
                precise(fabs(b->exposed - a->exposed)), b->exposed > a->exposed ? "more" : "less", base,
                ddp_apart(a, b) ? "separate" : "meet");
}

static void print_verdict(FILE *out, const ddp_rows *r, size_t first, size_t end)
{
    const links l = links_of(r, first, end);
    if (l.n > 1) {
        const verdict v = judge(&l);
        print_chain(out, &l);
        fprintf(out, " in exposed time %s (%zu of %zu neighbours told apart by their intervals):",
                v.certain ? "**does not hold** in this run"
                : v.wrong ? "**holds only within the intervals**"
                          : "**holds** in this run",
                v.apart, l.n - 1);
        print_pairs(out, &l);
        fprintf(out, ".\n");
        if (strcmp(l.e[l.n - 1]->variant, "bucketed") == 0 && l.sizes > 1)
            fprintf(out, "Here `%s` stands for %zu sizes of buckets, as the least exposed of them.\n",
                    l.e[l.n - 1]->label, l.sizes);
        print_steps(out, &l);
    }
    print_variant(out, r, first, end, "naive-grouped", "One launch for all calls", "naive");
    print_variant(out, r, first, end, "flat-copy", "Copying gradients together and back", "flat");
    fprintf(out, "\n");
}

/* ---- tables ---- */

static void print_row(FILE *out, const ddp_rows *r, const ddp_entry *e, bool with_mfu, bool with_peer)
{
    const double theirs = ddp_pytorch(r, e, "step_ms");
    if (!e->ok) {
        fprintf(out, "| %s | %s |", e->label, ddp_text(e, "status"));
        for (int i = 0; i < 11 + with_mfu + 2 * with_peer; i++)
            fprintf(out, " |");
        fprintf(out, "\n");
        return;
    }
    fprintf(out, "| %s | %s (%s ± %s) | %s | %s | %s | %s | %s | %s | %s | %s | %s |", e->label, precise(step_of(e)),
            precise(ddp_real(e, "step_mean_ms")), number(ddp_real(e, "step_std_ms")), with_interval(e),
            precise(ddp_real(e, "comm_alone_ms")), number(ddp_real(e, "hidden_pct")), precise(ddp_real(e, "tail_ms")),
            precise(ddp_real(e, "contention_ms")), precise(ddp_real(e, "fwd_ms")), precise(ddp_real(e, "bwd_ms")),
            precise(ddp_real(e, "opt_ms")), number(ddp_real(e, "tokens_per_s")));
    if (with_mfu)
        fprintf(out, " %s |", number(ddp_real(e, "mfu_causal_pct")));
    fprintf(out, " %s |", ddp_text(e, "buckets"));
    if (with_peer && isfinite(theirs))
        fprintf(out, " %s, %s | %s |", precise(theirs), precise(ddp_pytorch(r, e, "comm_exposed_ms")),
                number(theirs / step_of(e)));
    else if (with_peer)
        fprintf(out, " | |");
    fprintf(out, "\n");
}

static void group_table(FILE *out, const ddp_rows *r, size_t first, size_t end)
{
    bool with_mfu = false, with_peer = false;
    for (size_t i = first; i < end; i++) {
        with_mfu = with_mfu || isfinite(ddp_real(&r->all[i], "mfu_causal_pct"));
        with_peer = with_peer || isfinite(ddp_pytorch(r, &r->all[i], "step_ms"));
    }
    fprintf(out,
            "| strategy | step ms (mean ± std) | exposed ms [95 %%] | alone ms | hidden %% | tail ms | contention ms "
            "| forward ms | backward ms | updates ms | tokens/s |%s calls |%s\n"
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|%s---:|%s\n",
            with_mfu ? " MFU % |" : "", with_peer ? " PyTorch: step, wait ms | PyTorch / ours |" : "",
            with_mfu ? "---:|" : "", with_peer ? "---:|---:|" : "");
    for (size_t i = first; i < end; i++)
        print_row(out, r, &r->all[i], with_mfu, with_peer);
    fprintf(out, "\n");
}

static void print_group(FILE *out, const char *dir, const ddp_rows *r, size_t first, size_t end)
{
    const ddp_entry *e = &r->all[first];
    const bool main_size = strcmp(ddp_text(e, "size"), ddp_main_size(r)) == 0;
    char *title = ddp_group_title(e);
    if (main_size) {
        char *figure = xasprintf("ddp_steps_%s_%s_%s_b%s_%s.", ddp_text(e, "ranks"), ddp_text(e, "precision"), e->wire,
                                 ddp_text(e, "batch"), ddp_text(e, "seq"));
        fprintf(out, "### %s\n\n", title);
        figures(out, dir, figure);
        free(figure);
    } else {
        fprintf(out, "<details><summary>%s</summary>\n\n", title);
    }
    group_table(out, r, first, end);
    print_verdict(out, r, first, end);
    if (!main_size)
        fprintf(out, "</details>\n\n");
    free(title);
}

void ddp_section(FILE *out, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    if (!r)
        return;
    fprintf(
        out,
        "## Data parallelism\n\n"
        "Every rank has the model and a batch of its own, and gradients are summed over the ranks. `exposed` is what "
        "communication\ncosts: a step less its twin, which is the same without communication, by turns in one run; the "
        "interval is a bootstrap's.\n`alone` are the collectives of a step with nothing beside them, `hidden` is 1 - "
        "exposed / alone. `tail` is how long compute\nstands still after backward, `contention` the rest of exposed: "
        "what collectives slow down beside them. An exposed time\nbelow 0 is noise. Strategies are different runs: two "
        "differ only where their intervals don't meet. Forward, backward, updates\nand tail are of another run, step "
        "by "
        "step, and need not add up to the step. `calls` are collectives for gradients.\n\n");
    if (r->pytorch)
        fprintf(
            out,
            "PyTorch's columns are its fastest step of the same model, ranks, batch and precision, as the largest of "
            "the ranks' medians,\nand its time over ours: above 1 ours is faster. With bf16 it runs autocast over "
            "fp32 parameters and sends fp32 gradients,\nwhatever ours sends; its rows don't say which attention ran. "
            "Its `wait` is the time between the "
            "end of backward and the optimizer on its stream, and not our `exposed`:\nafter backward (naive, flat) "
            "it is all of communication, with flat's copies; its own DDP waits within backward, so that\nnext to "
            "nothing is left here.\n\n");
    figures(out, dir, "ddp_timeline.");
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        print_group(out, dir, r, first, end);
    }
    ddp_scaling(out, dir, r);
    ddp_buckets(out, dir, r);
    ddp_zero1(out, dir, r);
    ddp_published(out, dir);
    ddp_rows_free(r);
}
