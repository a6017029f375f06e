/* SPDX-License-Identifier: MIT */
/* Data parallelism in the report: strategies side by side, whether each beats the one before it, and PyTorch's steps.
 * Buckets and
 * numbers of ranks have parts of their own in ddp/; the sections zero1 and ddp_published stand below this one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"
#include "common/report/sections/ddp/ddp.h"

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

/* ---- in short ---- */

static void add_finding(document *doc, const ddp_rows *r, const links *l)
{
    const ddp_entry *best = l->e[0];
    for (size_t i = 0; i < l->n; i++)
        best = ddp_step_ms(l->e[i]) < ddp_step_ms(best) ? l->e[i] : best;
    char *title = ddp_group_title(best);
    const double mfu = ddp_real(best, "mfu_causal_pct");
    doc_bullet(doc, "%s (%s): a step of %s ms = %s tokens/s", strong("Data parallelism"), title,
               precise(ddp_step_ms(best)), number(ddp_real(best, "tokens_per_s")));
    if (isfinite(mfu))
        doc_more(doc, ", MFU %s %%", number(mfu));
    doc_more(doc, " (%s). Communication alone takes %s ms; exposed are", best->label,
             precise(ddp_real(best, "comm_alone_ms")));
    for (size_t i = 0; i < l->n; i++)
        doc_more(doc, "%s %s %s", i ? "," : "", l->e[i]->label, with_interval(l->e[i]));
    doc_more(doc, " ms");
    const size_t strongest = ddp_peer(r, best, DDP_KIND_ANY_POLICY);
    char *name = strongest == NO_ROW ? NULL : ddp_pytorch_name(r, strongest);
    if (name)
        doc_more(doc, ". PyTorch's fastest step with a model on every rank (%s) takes %s times as long", name,
                 number(csv_real(r->pytorch, strongest, "step_ms") / ddp_step_ms(best)));
    doc_more(doc, ".");
    free(name);
    free(title);
}

static void findings(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    const char *device = ddp_device(r, dir);
    for (size_t first = 0, end; r && first < r->n; first = end) {
        end = ddp_group_end(r, first);
        const links l = links_of(r, first, end);
        if (l.n && strcmp(ddp_text(l.e[0], "device"), device) == 0 && ddp_real(l.e[0], "ranks") > 1 &&
            strcmp(ddp_text(l.e[0], "size"), ddp_main_size(r)) == 0 && !ddp_has_longer(r, l.e[0]))
            add_finding(doc, r, &l);
    }
    ddp_rows_free(r);
}

/* ---- does each strategy cost no more than the one before it? ---- */

static void add_chain(document *doc, const links *l)
{
    for (size_t i = 0; i < l->n; i++)
        doc_more(doc, "%s%s", i ? " ≥ " : "", l->e[i]->variant);
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

static void add_pair(document *doc, const ddp_entry *a, const ddp_entry *b)
{
    doc_more(doc, "%s %s ms %s than %s (intervals %s)", b->label, precise(fabs(b->exposed - a->exposed)),
             b->exposed > a->exposed ? "more" : "less", a->label, ddp_apart(a, b) ? "separate" : "meet");
}

/* Neighbours in the order, each with what can be said of it; then others that contradict it, and its two ends. */
static void add_pairs(document *doc, const links *l)
{
    for (size_t i = 1; i < l->n; i++) {
        doc_more(doc, "%s ", i > 1 ? ";" : "");
        add_pair(doc, l->e[i - 1], l->e[i]);
    }
    for (size_t i = 2; i < l->n; i++)
        for (size_t k = 0; k + 1 < i; k++)
            if (contradicts(l->e[k], l->e[i]) || (k == 0 && i == l->n - 1)) {
                doc_more(doc, "; ");
                add_pair(doc, l->e[k], l->e[i]);
            }
}

/* Whole steps have no interval, but percentiles. */
static void add_steps(document *doc, const links *l)
{
    size_t wrong = 0;
    doc_more(doc, "Whole steps (");
    for (size_t i = 0; i < l->n; i++)
        doc_more(doc, "%s%s", i ? ", " : "", precise(ddp_step_ms(l->e[i])));
    doc_more(doc, " ms): ");
    for (size_t i = 1; i < l->n; i++) {
        const ddp_entry *a = l->e[i - 1], *b = l->e[i];
        const double more = ddp_step_ms(b) - ddp_step_ms(a);
        if (!(more > 0) || !ddp_beside(a, b))
            continue;
        doc_more(doc, "%s%s takes %s ms (%s %%) longer than %s, and their 5th to 95th percentiles %s",
                 wrong++ ? "; " : "", b->variant, precise(more), number(100 * more / ddp_step_ms(a)), a->variant,
                 ddp_real(b, "step_p5_ms") > ddp_real(a, "step_p95_ms") ? "don't meet" : "meet");
    }
    doc_more(doc, "%s.\n", wrong ? "" : "each takes no longer than the one before");
}

/* Variants of a strategy against it, by their steps: the compute-only step of flat-copy copies as well, so that its
 * exposed time does not have the copies. */
static void add_variant(document *doc, const ddp_rows *r, size_t first, size_t end, const char *variant,
                        const char *what, const char *base)
{
    const ddp_entry *a = ddp_best(r, first, end, base, NULL), *b = ddp_best(r, first, end, variant, NULL);
    if (!a || !b || !ddp_beside(a, b))
        return;
    const double more = ddp_step_ms(b) - ddp_step_ms(a);
    doc_more(doc, "%s (%s) makes a step %s ms %s than %s does (5th to 95th percentiles %s).\n", what,
             code("%s", variant), precise(fabs(more)), more > 0 ? "longer" : "shorter", code("%s", base),
             ddp_steps_apart(a, b) ? "don't meet" : "meet");
}

static void add_verdict(document *doc, const ddp_rows *r, size_t first, size_t end)
{
    const links l = links_of(r, first, end);
    doc_paragraph(doc, "%s", "");
    if (l.n > 1) {
        const verdict v = judge(&l);
        add_chain(doc, &l);
        const char *verdict_text = v.certain ? "does not hold" : v.wrong ? "holds only within the intervals" : "holds";
        doc_more(doc, " in exposed time %s%s (%zu of %zu neighbours told apart by their intervals):",
                 strong("%s", verdict_text), v.wrong && !v.certain ? "" : " in this run", v.apart, l.n - 1);
        add_pairs(doc, &l);
        doc_more(doc, ".\n");
        if (strcmp(l.e[l.n - 1]->variant, "bucketed") == 0 && l.sizes > 1)
            doc_more(doc, "Here %s stands for %zu sizes of buckets, as the least exposed of them.\n",
                     code("%s", l.e[l.n - 1]->label), l.sizes);
        add_steps(doc, &l);
    }
    add_variant(doc, r, first, end, "naive-grouped", "One launch for all calls", "naive");
    add_variant(doc, r, first, end, "flat-copy", "Copying gradients together and back", "flat");
}

/* ---- tables ---- */

/* Columns that only some groups have. */
typedef struct extras {
    bool recorded, mfu, peer;
} extras;

static void strategy_row(document *doc, const ddp_rows *r, const ddp_entry *e, const extras *x)
{
    const double theirs = ddp_pytorch(r, e, "step_ms");
    if (!e->ok) {
        doc_row(doc, e->label, ddp_text(e, "status"), NULL);
        return;
    }
    doc_row(doc, e->label, NULL);
    doc_cell(doc, "%s (%s ± %s)", precise(ddp_step_ms(e)), precise(ddp_real(e, "step_mean_ms")),
             number(ddp_real(e, "step_std_ms")));
    doc_cells(doc, with_interval(e), precise(ddp_real(e, "comm_alone_ms")), number(ddp_real(e, "hidden_pct")), NULL);
    if (x->recorded)
        doc_cells(doc, number(ddp_real(e, "overlapped_pct")), NULL);
    doc_cells(doc, precise(ddp_real(e, "tail_ms")), precise(ddp_real(e, "contention_ms")),
              precise(ddp_real(e, "fwd_ms")), precise(ddp_real(e, "bwd_ms")), precise(ddp_real(e, "opt_ms")),
              number(ddp_real(e, "tokens_per_s")), NULL);
    if (x->mfu)
        doc_cells(doc, number(ddp_real(e, "mfu_causal_pct")), NULL);
    doc_cells(doc, ddp_text(e, "buckets"), NULL);
    if (x->peer && isfinite(theirs)) {
        doc_cell(doc, "%s, %s", precise(theirs), precise(ddp_pytorch(r, e, "comm_exposed_ms")));
        if (*ddp_pytorch_mode(r, e))
            doc_more(doc, " (%s)", ddp_pytorch_mode(r, e));
        doc_cells(doc, number(theirs / ddp_step_ms(e)), NULL);
    }
}

static void group_table(document *doc, const ddp_rows *r, size_t first, size_t end)
{
    extras x = {false, false, false};
    for (size_t i = first; i < end; i++) {
        x.recorded = x.recorded || isfinite(ddp_real(&r->all[i], "overlapped_pct"));
        x.mfu = x.mfu || isfinite(ddp_real(&r->all[i], "mfu_causal_pct"));
        x.peer = x.peer || isfinite(ddp_pytorch(r, &r->all[i], "step_ms"));
    }
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "strategy", NULL);
    doc_columns(doc, DOC_NUMBER, "step ms (mean ± std)", "exposed ms [95 %]", "alone ms", "hidden %", NULL);
    if (x.recorded)
        doc_columns(doc, DOC_NUMBER, "overlapped %", NULL);
    doc_columns(doc, DOC_NUMBER, "tail ms", "contention ms", "forward ms", "backward ms", "updates ms", "tokens/s",
                NULL);
    if (x.mfu)
        doc_columns(doc, DOC_NUMBER, "MFU %", NULL);
    doc_columns(doc, DOC_NUMBER, "calls", NULL);
    if (x.peer)
        doc_columns(doc, DOC_NUMBER, "PyTorch: step, wait ms", "PyTorch / ours", NULL);
    for (size_t i = first; i < end; i++)
        strategy_row(doc, r, &r->all[i], &x);
}

static void add_group(document *doc, const char *dir, const ddp_rows *r, size_t first, size_t end)
{
    const ddp_entry *e = &r->all[first];
    const bool main_size = strcmp(ddp_text(e, "size"), ddp_main_size(r)) == 0;
    char *title = ddp_group_title(e);
    if (main_size) {
        char *figure = xasprintf("ddp_steps_%s_%s_%s_b%s_%s.", ddp_text(e, "ranks"), ddp_text(e, "precision"), e->wire,
                                 ddp_text(e, "batch"), ddp_text(e, "seq"));
        doc_heading(doc, 3, "%s", title);
        figures(doc, dir, figure);
        free(figure);
    } else {
        doc_fold(doc, "%s", title);
    }
    group_table(doc, r, first, end);
    add_verdict(doc, r, first, end);
    if (!main_size)
        doc_fold_end(doc);
    free(title);
}

static void write_section(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    if (!r)
        return;
    doc_heading(doc, 2, "Data parallelism");
    doc_paragraph(
        doc,
        "Every rank has the model and its own batch, and gradients are summed over the ranks. %s is what communication "
        "costs:\nthe step minus the same step without communication, the two alternating in one run, with a bootstrap "
        "interval. %s is\nthe time of a step's collectives with nothing beside them, and %s is 1 - exposed / alone. %s "
        "is the\nshare of the communication in a recorded step beside which compute ran. Overlapped communication is "
        "not free: %s is how\nlong compute waits after the backward, and %s is the rest of exposed, by which "
        "collectives slow down the compute\nbeside them. So hidden is less than overlapped. An exposed time below 0 "
        "is noise. Strategies are separate runs: two differ\nonly where their intervals don't meet. Forward, backward, "
        "updates and tail come from another run, measured step by step,\nand need not add up to the step. %s counts "
        "collectives for gradients.",
        code("exposed"), code("alone"), code("hidden"), code("overlapped"), code("tail"), code("contention"),
        code("calls"));
    if (r->pytorch)
        doc_paragraph(
            doc,
            "PyTorch's columns are its fastest step of the same strategy, model, ranks, batch, precision and dtype of "
            "gradients, as the\nlargest of the ranks' medians, and its time over ours: above 1, ours is faster. With "
            "bf16 "
            "it runs autocast over fp32\nparameters and sends fp32 gradients. Its host launches every kernel, so a row "
            "in which its GPU was busy\nfor less than 80 %% of the time, or which does not say so, is left out. In "
            "short, above, names its fastest step\nwith a model on every rank, whatever its precision policy. Its %s "
            "is "
            "the time between the end of the backward and the optimizer on its stream, which is not our %s:\nwhere "
            "communication follows the backward (naive, flat), it is all of it, with flat's copies; its own DDP\nwaits "
            "within the backward, so that next to nothing is left here.",
            code("wait"), code("exposed"));
    figures(doc, dir, "ddp_timeline.");
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        add_group(doc, dir, r, first, end);
    }
    ddp_scaling(doc, dir, r);
    ddp_buckets(doc, dir, r);
    ddp_rows_free(r);
}

/* The fastest step of a group, of one kind or of any, on the machine's own device. */
static const ddp_entry *fastest_of(const ddp_rows *r, size_t first, size_t end, const char *device, bool any,
                                   ddp_kind kind)
{
    const ddp_entry *best = NULL;
    for (size_t i = first; i < end; i++) {
        const ddp_entry *e = &r->all[i];
        if (e->ok && ddp_real(e, "ranks") > 1 && strcmp(ddp_text(e, "device"), device) == 0 &&
            (any || ddp_kind_of(e->variant) == kind) && (!best || ddp_step_ms(e) < ddp_step_ms(best)))
            best = e;
    }
    return best;
}

/* Like beside like; and apart from that, so labelled, the fastest of both sides. */
static void compare(comparisons *to, const char *dir)
{
    static const struct {
        const char *what;
        ddp_kind kind;
        ddp_match match;
    } all[] = {{"data-parallel step, all replicated", DDP_REPLICATED, DDP_KIND},
               {"data-parallel step, optimizer sharded", DDP_SHARDED_OPTIMIZER, DDP_KIND},
               {"data-parallel step, any algorithm on either side", DDP_REPLICATED, DDP_ANY}};
    ddp_rows *r = ddp_rows_open(dir);
    const char *device = ddp_device(r, dir);
    for (size_t k = 0; r && k < sizeof all / sizeof *all; k++) {
        comparison *c = comparisons_begin(to, xstrdup(all[k].what));
        for (size_t first = 0, end; first < r->n; first = end) {
            end = ddp_group_end(r, first);
            const ddp_entry *e = fastest_of(r, first, end, device, all[k].match == DDP_ANY, all[k].kind);
            if (e)
                ddp_compare(c, r, e, all[k].match);
        }
    }
    ddp_rows_free(r);
}

static const readme_bench benches[] = {
    {.name = "bench_ddp_naive",
     .order = 90,
     .question = "What does an all-reduce per gradient cost?",
     .columns = {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}},
     .only = {{"variant", "naive"}, {"size", "xl"}, {"seq", "512"}}},
    {.name = "bench_ddp_flat",
     .order = 100,
     .question = "What does a single all-reduce save?",
     .columns = {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}},
     .only = {{"variant", "flat"}, {"size", "xl"}, {"seq", "512"}}},
    {.name = "bench_ddp_overlap",
     .order = 110,
     .question = "How much communication hides beside the backward?",
     .columns = {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}},
     .only = {{"size", "xl"}, {"seq", "512"}, {"update", "buckets"}}},
    {.name = "bench_ddp_bucketed",
     .order = 120,
     .question = "Which bucket size is best?",
     .columns = {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}},
     .only = {{"update", "buckets"}, {"seq", "512"}, {"grad_dtype", "fp32"}, {"bucket_mb", "100"}}},
    {.name = NULL}};

const report_section section_ddp = {
    .order = 100, .findings = findings, .write = write_section, .compare = compare, .benches = benches};
