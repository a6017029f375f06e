/* SPDX-License-Identifier: MIT */
/* ZeRO-1 in the report: what a rank holds with the optimizer's state whole and in parts, and what a step then takes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/ddp/ddp.h"
#include "common/report/section.h"

static const char *const ways[] = {"unsharded", "zero1", "zero1-broadcast", "fused"};
enum { WHOLE, ZERO1, BROADCAST, FUSED, WAYS = sizeof ways / sizeof *ways };

/* A group's rows by way, NULL where there is none; those of other options are in its table of strategies. */
typedef struct by_way {
    const ddp_entry *of[WAYS];
    const ddp_entry *any;
    const ddp_entry *group; /* all of it, `n` rows */
    size_t n;
} by_way;

static by_way ways_of(const ddp_rows *r, size_t first, size_t end)
{
    by_way t = {.group = &r->all[first], .n = end - first};
    for (size_t w = 0; w < WAYS; w++) {
        t.of[w] = ddp_best(r, first, end, ways[w], NULL);
        t.any = t.any ? t.any : t.of[w];
    }
    return t;
}

static double unit_of(const ddp_entry *e)
{
    return ddp_real(e, "after_step_bytes") < 0.1 * GIB ? MIB : GIB;
}

static const char *unit_name(double unit)
{
    return unit == GIB ? "GiB" : "MiB";
}

/* ---- what sharding gave ---- */

static void add_memory_gain(document *doc, const ddp_entry *whole, const ddp_entry *parts)
{
    const double unit = unit_of(whole), before = ddp_real(whole, "after_step_bytes"),
                 after = ddp_real(parts, "after_step_bytes");
    doc_more(doc, "a rank holds %s %s after an update, unsharded %s (%s %% less); of which state %s, unsharded %s",
             number(after / unit), unit_name(unit), number(before / unit), number(100 * (1 - after / before)),
             number(ddp_real(parts, "state_bytes") / unit), number(ddp_real(whole, "state_bytes") / unit));
}

static void add_step_gain(document *doc, const ddp_entry *whole, const ddp_entry *parts)
{
    const double a = ddp_real(whole, "step_ms"), b = ddp_real(parts, "step_ms");
    if (!ddp_beside(whole, parts)) {
        doc_more(doc, "a step takes %s ms (unsharded was measured in another run)", precise(b));
        return;
    }
    doc_more(doc, "a step takes %s ms, unsharded %s: %s %% %s (5th to 95th percentiles %s)", precise(b), precise(a),
             number(100 * fabs(b / a - 1)), b > a ? "longer" : "shorter",
             ddp_steps_apart(whole, parts) ? "don't meet" : "meet");
}

static const char *const whole_ways[] = {"unsharded", "naive", "flat", "overlap", "bucketed", "ddp", NULL};
static const char *const sharded_ways[] = {"zero1", "fused", NULL};

/* Neither buckets of 25 MB nor updates after the backward are always the best: the shortest step of these ways in the run
 * of zero1, unless it is `shown`, which has been said. */
static void add_shortest(document *doc, const by_way *t, const char *const *ways_meant, const ddp_entry *shown,
                         const char *what)
{
    const ddp_entry *best = shown;
    for (size_t i = 0; i < t->n; i++) {
        const ddp_entry *e = &t->group[i];
        bool meant = false;
        for (size_t k = 0; ways_meant[k]; k++)
            meant = meant || ddp_is(e, ways_meant[k]);
        if (e->ok && meant && ddp_beside(e, t->of[ZERO1]) && ddp_real(e, "step_ms") < ddp_real(best, "step_ms"))
            best = e;
    }
    if (best != shown)
        doc_more(doc, "; the shortest step %s takes %s ms (%s)", what, precise(ddp_real(best, "step_ms")), best->label);
}

static void findings(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    const char *device = ddp_device(r, dir);
    for (size_t first = 0, end; r && first < r->n; first = end) {
        end = ddp_group_end(r, first);
        const by_way t = ways_of(r, first, end);
        if (!t.of[WHOLE] || !t.of[ZERO1] || strcmp(ddp_text(t.of[ZERO1], "device"), device) != 0 ||
            ddp_has_longer(r, t.of[ZERO1]))
            continue;
        char *title = ddp_group_title(t.of[ZERO1]);
        doc_bullet(doc, "%s (%s): ", strong("ZeRO-1"), title);
        add_memory_gain(doc, t.of[WHOLE], t.of[ZERO1]);
        doc_more(doc, "; ");
        add_step_gain(doc, t.of[WHOLE], t.of[ZERO1]);
        const bool fused = t.of[FUSED] && ddp_beside(t.of[ZERO1], t.of[FUSED]);
        if (fused)
            doc_more(doc, "; with sum, update and gather in one kernel (fused) %s ms",
                     precise(ddp_real(t.of[FUSED], "step_ms")));
        add_shortest(doc, &t, sharded_ways, fused ? t.of[FUSED] : t.of[ZERO1], "with slices");
        add_shortest(doc, &t, whole_ways, t.of[WHOLE], "without slices");
        doc_more(doc, ".");
        free(title);
    }
    ddp_rows_free(r);
}

/* ---- memory ---- */

/* Memory of the model depends neither on context nor on batch: the first group of a kind stands for all. */
static bool said_before(const ddp_rows *r, size_t first, const ddp_entry *e)
{
    static const char *const alike[] = {"size", "ranks", "precision", "d_model", "d_ff", "layers", "heads_kv", "vocab"};
    for (size_t i = 0; i < first; i++) {
        bool same = isfinite(ddp_real(&r->all[i], "after_step_bytes")) && strcmp(r->all[i].wire, e->wire) == 0;
        for (size_t k = 0; same && k < sizeof alike / sizeof *alike; k++)
            same = ddp_same(&r->all[i], e, alike[k]);
        if (same)
            return true;
    }
    return false;
}

static void memory_row(document *doc, const ddp_rows *r, const ddp_entry *e, bool with_driver, bool with_peer)
{
    static const char *const phases[][2] = {{"after_init_bytes", "predicted_init_bytes"},
                                            {"before_step_bytes", "predicted_before_bytes"},
                                            {"after_step_bytes", "predicted_after_bytes"}};
    const double unit = unit_of(e);
    doc_row(doc, ddp_text(e, "size"), ddp_text(e, "ranks"), ddp_text(e, "precision"), e->wire, e->variant,
            unit_name(unit), number(ddp_real(e, "param_bytes") / unit), number(ddp_real(e, "grad_bytes") / unit),
            number(ddp_real(e, "state_bytes") / unit), NULL);
    for (size_t p = 0; p < 3; p++)
        doc_cell(doc, "%s / %s", number(ddp_real(e, phases[p][0]) / unit), number(ddp_real(e, phases[p][1]) / unit));
    doc_cells(doc, number(ddp_real(e, "err_pct")), NULL);
    if (with_driver) {
        doc_cell(doc, "%s / %s", number(ddp_real(e, "measured_after_step_bytes") / unit),
                 number(ddp_real(e, "peak_bytes") / unit));
        doc_cells(doc, number(ddp_real(e, "err_measured_pct")), number(ddp_real(e, "comm_bytes") / unit), NULL);
    }
    const double theirs = ddp_pytorch(r, e, "mem_after_step_gib");
    if (with_peer)
        doc_cells(doc, isfinite(theirs) ? number(theirs) : "", NULL);
}

static void memory_table(document *doc, const ddp_rows *r)
{
    bool with_driver = false, with_peer = false;
    for (size_t i = 0; i < r->n; i++)
        with_driver = with_driver || isfinite(ddp_real(&r->all[i], "err_measured_pct"));
    for (size_t i = 0; i < r->n; i++)
        with_peer = with_peer || (isfinite(ddp_real(&r->all[i], "after_step_bytes")) &&
                                  isfinite(ddp_pytorch(r, &r->all[i], "mem_after_step_gib")));
    doc_paragraph(doc, "Memory of a rank: counted / predicted, of the rank that holds most");
    if (with_driver)
        doc_more(
            doc,
            ". A model takes all its memory when it is made: %s is\nwhat the driver has given out for it / "
            "what it planned, with the largest deviation of three measured points (after\nset-up, before an update, "
            "after steps), and what the communicators take besides, which is measured apart",
            code("driver"));
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "size", NULL);
    doc_columns(doc, DOC_NUMBER, "ranks", NULL);
    doc_columns(doc, DOC_TEXT, "precision", "gradients", "way", "unit", NULL);
    doc_columns(doc, DOC_NUMBER, "parameters", "gradients", "state", "after set-up", "before an update", "after one",
                "off by %", NULL);
    if (with_driver)
        doc_columns(doc, DOC_NUMBER, "driver / planned", "off by %", "communicators", NULL);
    if (with_peer)
        doc_columns(doc, DOC_NUMBER, "PyTorch GiB, after one", NULL);
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        const by_way t = ways_of(r, first, end);
        for (size_t w = 0; w < WAYS && t.any && !said_before(r, first, t.any); w++)
            if (t.of[w])
                memory_row(doc, r, t.of[w], with_driver, with_peer);
    }
}

/* ---- steps ---- */

static void step_row(document *doc, const ddp_rows *r, const ddp_entry *e, const ddp_entry *whole, bool with_peer)
{
    const double step = ddp_real(e, "step_ms"), theirs = ddp_pytorch(r, e, "step_ms"), peak = ddp_real(e, "peak_bytes");
    doc_row(doc, ddp_text(e, "ranks"), ddp_text(e, "seq"), ddp_text(e, "precision"), e->wire, e->label, precise(step),
            whole && whole != e && ddp_beside(whole, e) ? precise(step / ddp_real(whole, "step_ms")) : "",
            with_interval(e), precise(ddp_real(e, "comm_alone_ms")), number(ddp_real(e, "hidden_pct")),
            precise(ddp_real(e, "opt_alone_ms")), number_unit(ddp_real(e, "wire_bytes"), "bytes"),
            number(ddp_real(e, "wire_gb_s")), number(ddp_real(e, "tokens_per_s")), number_unit(peak, "bytes"), NULL);
    if (with_peer && isfinite(theirs))
        doc_cell(doc, "%s, %s", precise(theirs), number(theirs / step));
    if (with_peer && isfinite(theirs) && *ddp_pytorch_mode(r, e))
        doc_more(doc, " (%s)", ddp_pytorch_mode(r, e));
}

static void step_table(document *doc, const ddp_rows *r)
{
    bool with_peer = false;
    for (size_t i = 0; i < r->n; i++)
        with_peer = with_peer || (isfinite(ddp_real(&r->all[i], "after_step_bytes")) &&
                                  isfinite(ddp_pytorch(r, &r->all[i], "step_ms")));
    doc_paragraph(doc, "Steps");
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "ranks", "S", NULL);
    doc_columns(doc, DOC_TEXT, "precision", "gradients", "way", NULL);
    doc_columns(doc, DOC_NUMBER, "step ms", "of unsharded", "exposed ms [95 %]", "alone ms", "hidden %",
                "AdamW alone ms", "a rank sends", "GB/s", "tokens/s", "peak", NULL);
    if (with_peer)
        doc_columns(doc, DOC_NUMBER, "PyTorch ms, of ours", NULL);
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        const by_way t = ways_of(r, first, end);
        for (size_t w = 0; w < WAYS; w++)
            if (t.of[w])
                step_row(doc, r, t.of[w], t.of[WHOLE], with_peer);
    }
}

static void add_verdicts(document *doc, const ddp_rows *r)
{
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        const by_way t = ways_of(r, first, end);
        if (!t.of[WHOLE] || !t.of[ZERO1])
            continue;
        char *title = ddp_group_title(t.of[ZERO1]);
        doc_bullet(doc, "%s: with %s ", title, code("zero1"));
        if (!said_before(r, first, t.any)) {
            add_memory_gain(doc, t.of[WHOLE], t.of[ZERO1]);
            doc_more(doc, "; ");
        }
        add_step_gain(doc, t.of[WHOLE], t.of[ZERO1]);
        if (t.of[BROADCAST]) {
            doc_more(doc, ". %s sends %s times as much; ", code("zero1-broadcast"),
                     number(ddp_real(t.of[BROADCAST], "wire_bytes") / ddp_real(t.of[ZERO1], "wire_bytes")));
            add_step_gain(doc, t.of[WHOLE], t.of[BROADCAST]);
        }
        if (t.of[FUSED]) {
            doc_more(doc, ". With %s, sum, update and sharing in one pass, ", code("fused"));
            add_step_gain(doc, t.of[WHOLE], t.of[FUSED]);
        }
        doc_more(doc, ".");
        free(title);
    }
}

static bool counts_memory(const ddp_rows *r)
{
    bool any = false;
    for (size_t i = 0; r && i < r->n; i++)
        any = any || isfinite(ddp_real(&r->all[i], "after_step_bytes"));
    return any;
}

static void write_section(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    if (counts_memory(r)) {
        doc_heading(doc, 3, "ZeRO-1: the optimizer's state in parts");
        doc_paragraph(
            doc,
            "%s is the paper's: reduce-scatter of gradients, AdamW on a rank's slice, all-gather under the "
            "next forward.\n%s is the handout's: all-reduce, AdamW on whole tensors, each broadcast by its "
            "owner. %s uses\nthe same buckets with the whole state on every rank. State is master weights "
            "and both moments. A step's peak includes\nits activations; exposed, alone and hidden are\nas above.",
            code("zero1"), code("zero1-broadcast"), code("unsharded"));
        if (r->pytorch)
            doc_more(doc,
                     " PyTorch's sharding is ZeroRedundancyOptimizer with DDP, all-reduce and broadcasts, as in\n%s; "
                     "its figures are what its allocator has handed out before and after an update.",
                     code("zero1-broadcast"));
        figures(doc, dir, "zero1_");
        memory_table(doc, r);
        step_table(doc, r);
        add_verdicts(doc, r);
    }
    ddp_rows_free(r);
}

static const readme_bench benches[] = {
    {.name = "bench_zero1",
     .order = 130,
     .question = "What does it save to divide AdamW's state?",
     .columns = {{"step_ms", "step", "ms"}, {"after_step_bytes", "held by a rank", "bytes"}},
     .only = {{"variant", "zero1"}, {"grad_dtype", "fp32"}, {"size", "xl"}}},
    {.name = NULL}};

const report_section section_zero1 = {.order = 112, .findings = findings, .write = write_section, .benches = benches};
