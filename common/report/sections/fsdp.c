/* SPDX-License-Identifier: MIT */
/* bench_fsdp in the report: what a rank holds and what a step takes when no rank has the whole model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/ddp/ddp.h"
#include "common/report/results.h"
#include "common/report/section.h"

static void add_step(document *doc, const table *t, size_t row, const char *which)
{
    const char *recompute = table_text(t, row, "recompute");
    doc_more(doc, " %s %s ms and %s at its peak (%s, sums in %s%s%s)", which, precise(table_real(t, row, "step_ms")),
             number_unit(table_real(t, row, "peak_bytes"), "bytes"), table_text(t, row, "variant"),
             table_text(t, row, "wire_dtype"), strcmp(recompute, "none") == 0 ? "" : ", recompute ",
             strcmp(recompute, "none") == 0 ? "" : recompute);
}

/* What sets a row apart from the default, such as "recompute block, update backward"; caller frees. */
static char *options_of(const table *t, size_t row)
{
    static const char *const plain[][2] = {
        {"recompute", "none"}, {"offload", "none"},      {"update", "buckets"}, {"update_blocks", "0"},
        {"max_ctas", "0"},     {"micro_batches", "1"},   {"clip", "0"},         {"moments", "policy"},
        {"loss_chunk", "0"},   {"reduce_dtype", "grad"}, {"small", "sharded"},  {"free_every", "1"}};
    char *all = xstrdup("");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const char *value = table_text(t, row, plain[i][0]); /* empty where the variant has no such option */
        if (!*value || strcmp(value, plain[i][1]) == 0)
            continue;
        char *longer = xasprintf("%s%s%s %s", all, *all ? ", " : "", plain[i][0], value);
        free(all);
        all = longer;
    }
    return all;
}

static void write_section(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_fsdp.csv");
    if (!t)
        return;
    doc_heading(doc, 2, "Sharded training: nothing is whole on any rank");
    figures(doc, dir, "fsdp");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "variant", "size", NULL);
    doc_columns(doc, DOC_NUMBER, "S", "batch", "ranks", "prefetch", NULL);
    doc_columns(doc, DOC_TEXT, "precision", "sums", "gathers", "other options", NULL);
    doc_columns(doc, DOC_NUMBER, "step ms", "compute ms", "exposed ms", "waits for gathers ms", "tokens/s", "MFU %",
                "held GiB", "peak GiB", "gathered GiB a step", NULL);
    for (size_t i = 0; i < t->n; i++) {
        char *options = options_of(t, i);
        doc_row(doc, table_text(t, i, "variant"), table_text(t, i, "size"), table_text(t, i, "seq"),
                table_text(t, i, "batch"), table_text(t, i, "ranks"), table_text(t, i, "prefetch"),
                table_text(t, i, "precision"), table_text(t, i, "wire_dtype"), table_text(t, i, "gather"), options,
                cell_number(t, i, "step_ms", 1), cell_number(t, i, "compute_ms", 1), cell_number(t, i, "exposed_ms", 1),
                cell_number(t, i, "gather_wait_ms", 1), cell_number(t, i, "tokens_per_s", 1),
                cell_number(t, i, "mfu_causal_pct", 1), cell_number(t, i, "after_step_bytes", GIB),
                cell_number(t, i, "peak_bytes", GIB), cell_number(t, i, "gathered_bytes", GIB), NULL);
        free(options);
    }
    table_free(t);
}

/* Whether two of our rows are of one model, with as many tokens on as many ranks. */
static bool same_model(const table *t, size_t a, size_t b)
{
    static const char *const columns[] = {"ranks", "size", "seq", "batch"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(table_text(t, a, columns[i]), table_text(t, b, columns[i])) != 0)
            return false;
    return true;
}

/* What of FSDP2 does the same: it frees what it gathered behind the forward, or keeps it for the backward. */
static const struct likeness {
    const char *theirs, *what;
    const char *ours[3];
} likenesses[] = {
    {"fsdp2", "FSDP step, sums in fp32", {"fsdp", NULL}},
    {"fsdp2-keep", "step with parameters kept for the backward, sums in fp32", {"fsdp-keep", "zero2", NULL}}};
enum { LIKENESSES = sizeof likenesses / sizeof *likenesses };

/* FSDP2 sums gradients in fp32, keeps moments in fp32 and computes nothing again. */
static bool is_like(const table *t, size_t row, const struct likeness *l)
{
    static const char *const options[][2] = {{"recompute", "none"},  {"offload", "none"}, {"moments", "policy"},
                                             {"micro_batches", "1"}, {"clip", "0"},       {NULL, NULL}};
    return names_have(l->ours, table_text(t, row, "variant")) &&
           strcmp(table_text(t, row, "wire_dtype"), "fp32") == 0 && table_agrees(t, row, options) &&
           !table_is_custom(t, row);
}

/* Our shortest step of that kind of the model of a row. */
static size_t ours_like(const table *t, size_t model, const struct likeness *l)
{
    size_t ours = NO_ROW;
    for (size_t i = 0; i < t->n; i++)
        if (same_model(t, i, model) && is_like(t, i, l) &&
            (ours == NO_ROW || table_real(t, i, "step_ms") < table_real(t, ours, "step_ms")))
            ours = i;
    return ours;
}

static bool does_the_same(const csv *c, size_t peer, const table *t, size_t row, const struct likeness *l)
{
    static const char *const columns[][2] = {
        {"ranks", "ranks"}, {"size", "size"}, {"seq", "seq"}, {"batch_per_rank", "batch"}};
    bool same = cell_is(c, peer, "strategy", l->theirs) && cell_is(c, peer, "precision", "bf16") &&
                isfinite(csv_real(c, peer, "step_ms"));
    for (size_t k = 0; same && k < sizeof columns / sizeof *columns; k++)
        same = cell_is(c, peer, columns[k][0], table_text(t, row, columns[k][1]));
    return same;
}

/* Its fastest step of those that may stand beside ours. */
static size_t fsdp2_beside(const csv *peers, const table *t, size_t ours, const struct likeness *l)
{
    size_t theirs = NO_ROW;
    for (size_t i = 0; ours != NO_ROW && peers && i < peers->rows; i++)
        if (does_the_same(peers, i, t, ours, l) && peer_beside(peers, i, t, ours, "step_ms") &&
            (theirs == NO_ROW || csv_real(peers, i, "step_ms") < csv_real(peers, theirs, "step_ms")))
            theirs = i;
    return theirs;
}

static void add_peer(document *doc, const char *dir, const table *t, size_t model)
{
    csv *peers = open_peer_rows(dir, "ddp");
    const size_t ours = ours_like(t, model, &likenesses[0]), theirs = fsdp2_beside(peers, t, ours, &likenesses[0]);
    if (theirs != NO_ROW)
        doc_more(doc, ". PyTorch's FSDP2 (%s, sums in fp32) takes %s ms, %s times as long as our fsdp with such sums",
                 csv_cell(peers, theirs, "mode"), precise(csv_real(peers, theirs, "step_ms")),
                 number(csv_real(peers, theirs, "step_ms") / table_real(t, ours, "step_ms")));
    csv_free(peers);
}

static bool measured_whole(const table *t, size_t model)
{
    for (size_t i = 0; i < t->n; i++)
        if (same_model(t, i, model) && strcmp(table_text(t, i, "variant"), "ddp") == 0)
            return true;
    return false;
}

/* Whether a row's model speaks for all of them before another row's: on more ranks, then with a step of whole parameters
 * to compare with, then larger. */
static bool speaks_before(const table *t, size_t a, size_t b)
{
    const double of_a[] = {table_real(t, a, "ranks"), measured_whole(t, a), table_real(t, a, "params")},
                 of_b[] = {table_real(t, b, "ranks"), measured_whole(t, b), table_real(t, b, "params")};
    return comes_before(of_a, of_b, sizeof of_a / sizeof *of_a);
}

/* Of one model in bf16: the shortest sharded step, and the one that needs least memory. */
static void findings(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_fsdp.csv");
    if (!t)
        return;
    table *of = table_where(t, "device", main_device(dir), "status", "ok", "precision", "bf16", NULL);
    size_t most = NO_ROW, fastest = NO_ROW, least = NO_ROW;
    for (size_t i = 0; i < of->n; i++)
        if (table_real(of, i, "ranks") > 1 && (most == NO_ROW || speaks_before(of, i, most)))
            most = i;
    for (size_t i = 0; most != NO_ROW && i < of->n; i++) {
        if (!same_model(of, i, most) || strcmp(table_text(of, i, "variant"), "ddp") == 0)
            continue;
        if (fastest == NO_ROW || table_real(of, i, "step_ms") < table_real(of, fastest, "step_ms"))
            fastest = i;
        if (least == NO_ROW || table_real(of, i, "peak_bytes") < table_real(of, least, "peak_bytes"))
            least = i;
    }
    if (fastest != NO_ROW) {
        doc_bullet(doc, "%s (%s, batch %s per rank, S %s, bf16, %s ranks):", strong("Sharded training"),
                   table_text(of, most, "size"), table_text(of, most, "batch"), table_text(of, most, "seq"),
                   table_text(of, most, "ranks"));
        add_step(doc, of, fastest, "the shortest step takes");
        if (least != fastest) {
            doc_more(doc, ";");
            add_step(doc, of, least, "the one of least memory");
        }
        add_peer(doc, dir, of, most);
        doc_more(doc, ".");
    }
    table_free(of);
    table_free(t);
}

static void compare_model(comparison *to, const csv *peers, const table *t, size_t ours, const struct likeness *l)
{
    char *where = xasprintf("%s, batch %s per rank, S %s, bf16, %s ranks", table_text(t, ours, "size"),
                            table_text(t, ours, "batch"), table_text(t, ours, "seq"), table_text(t, ours, "ranks"));
    for (size_t i = 0; peers && i < peers->rows; i++) {
        const char *why = does_the_same(peers, i, t, ours, l) ? peer_refused(peers, i, t, ours, "step_ms") : NULL;
        char *who = xasprintf("PyTorch %s, %s", l->theirs, csv_cell(peers, i, "mode"));
        if (why)
            comparison_refuse(to, why, who, where);
        free(who);
    }
    const size_t theirs = fsdp2_beside(peers, t, ours, l);
    if (theirs != NO_ROW) {
        char *who = xasprintf("PyTorch %s, %s", l->theirs, csv_cell(peers, theirs, "mode")),
             *named = peer_named(who, peers, theirs, table_real(t, ours, "mfu_causal_pct"));
        comparison_add(to, ratio_of_one(csv_real(peers, theirs, "step_ms") / table_real(t, ours, "step_ms")), named,
                       where);
        free(who);
        free(named);
    }
    free(where);
}

static void compare(comparisons *to, const char *dir)
{
    table *t = open_result(dir, "bench_fsdp.csv");
    if (!t)
        return;
    csv *peers = open_peer_rows(dir, "ddp");
    table *of = table_where(t, "device", main_device(dir), "status", "ok", "precision", "bf16", NULL);
    for (size_t k = 0; k < LIKENESSES; k++) {
        comparison *c = comparisons_begin(to, xstrdup(likenesses[k].what));
        for (size_t i = 0; i < of->n; i++)
            if (ours_like(of, i, &likenesses[k]) == i)
                compare_model(c, peers, of, i, &likenesses[k]);
    }
    table_free(of);
    csv_free(peers);
    table_free(t);
}

static const readme_bench benches[] = {
    {"bench_fsdp",
     140,
     "What does it cost that no rank holds the whole model?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}, {"peak_bytes", "peak", "bytes"}},
     {{"variant", "fsdp"}, {"size", "xl"}, {"precision", "bf16"}, {"recompute", "none"}, {"grad_dtype", "fp32"}},
     {{"update", "buckets"},
      {"update_blocks", "0"},
      {"gather", "nccl"},
      {"reduce_dtype", "grad"},
      {"small", "sharded"}}},
    {.name = NULL}};

const report_section section_fsdp = {
    .order = 113, .write = write_section, .findings = findings, .compare = compare, .benches = benches};
