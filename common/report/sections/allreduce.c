/* SPDX-License-Identifier: MIT */
/* bench_allreduce in the report: collectives by number of ranks and size, beside PyTorch and nccl-tests. */
#include <math.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/allreduce_peers.h"
#include "common/report/section.h"
#include "common/report/sentences.h"
#include "common/report/sections/allreduce/own.h"

/* How a row was made, in the order of the columns. */
static const struct {
    const char *mode, *in_place, *what;
} ways[] = {{"eager", "1", "eager, in place"},
            {"eager", "0", "eager"},
            {"graph", "1", "graph, in place"},
            {"graph", "0", "graph"}};
enum { WAYS = sizeof ways / sizeof *ways };

static size_t row_of(const table *t, const char *ranks, const char *bytes, size_t way)
{
    return table_find(t, "ranks", ranks, "bytes", bytes, "mode", ways[way].mode, "in_place", ways[way].in_place, NULL);
}

/* ---- in short ---- */

/* "cuda" and "cpu", as far as the table has them. */
static values devices_of(const table *t)
{
    values devices = table_values(t, "device");
    if (devices.n == 2 && strcmp(devices.v[0], "cpu") == 0) {
        devices.v[0] = devices.v[1];
        devices.v[1] = "cpu";
    }
    return devices;
}

static void findings_on(document *doc, const table *all, const char *device)
{
    table *t = table_where(all, "variant", "all-reduce", "status", "ok", "dtype", "fp32", "device", device, NULL);
    values ranks = table_values(t, "ranks");
    for (size_t i = 0; i < ranks.n; i++) {
        table *of = table_where(t, "ranks", ranks.v[i], NULL);
        const size_t best = largest(of, "busbw_gb_s");
        size_t quickest = NO_ROW;
        for (size_t k = 0; k < of->n; k++)
            if (quickest == NO_ROW || table_real(of, k, "median_ms") < table_real(of, quickest, "median_ms"))
                quickest = k;
        if (best != NO_ROW)
            doc_bullet(doc, "%s (%s, fp32): %s in %s ms = %s GB/s, %s GB/s on the bus; %s in %s us (%s).",
                       strong("All-reduce on %s ranks", ranks.v[i]), table_text(of, best, "backend"),
                       table_text(of, best, "size"), number(table_real(of, best, "median_ms")),
                       number(table_real(of, best, "algbw_gb_s")), number(table_real(of, best, "busbw_gb_s")),
                       table_text(of, quickest, "size"), number(table_real(of, quickest, "median_ms") * 1e3),
                       table_text(of, quickest, "mode"));
        table_free(of);
    }
    values_free(&ranks);
    table_free(t);
}

static void findings(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_allreduce.csv");
    if (!all)
        return;
    values devices = devices_of(all);
    for (size_t i = 0; i < devices.n; i++)
        findings_on(doc, all, devices.v[i]);
    values_free(&devices);
    csv *machine = open_peer(dir, "machine.csv");
    allreduce_own_findings(doc, all, machine);
    csv_free(machine);
    table_free(all);
}

/* ---- tables ---- */

static void add_cell(document *doc, const table *t, size_t row)
{
    const char *status = table_text(t, row, "status");
    if (row == NO_ROW)
        doc_blank(doc);
    else if (strcmp(status, "ok") != 0)
        doc_cell(doc, "%s", status);
    else
        doc_cell(doc, "%s (%s ± %s), %s, %s", number(table_real(t, row, "median_ms")),
                 number(table_real(t, row, "mean_ms")), number(table_real(t, row, "std_ms")),
                 number(table_real(t, row, "algbw_gb_s")), number(table_real(t, row, "busbw_gb_s")));
}

/* The peer's time over ours, for each mode in which both have the case. */
static void add_ratios(document *doc, const allreduce_peers *p, const table *t, const size_t *rows, size_t which)
{
    const char *separator = "";
    for (size_t w = 0; w < WAYS; w++) {
        const double ratio = allreduce_peer_ratio(p, which, t, rows[w]);
        if (!isfinite(ratio) || (w % 2 && rows[w - 1] != NO_ROW)) /* in place stands for both */
            continue;
        if (!*separator)
            doc_cell(doc, "%s %s", ways[w].mode, number(ratio));
        else
            doc_more(doc, "%s%s %s", separator, ways[w].mode, number(ratio));
        separator = ", ";
    }
    if (!*separator)
        doc_blank(doc);
}

static bool has_peer(const allreduce_peers *p, const table *t, size_t which)
{
    for (size_t i = 0; i < t->n; i++)
        if (isfinite(allreduce_peer_ratio(p, which, t, i)))
            return true;
    return false;
}

static const char *size_of(const table *t, const char *bytes)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(table_text(t, i, "bytes"), bytes) == 0 && *table_text(t, i, "size"))
            return table_text(t, i, "size");
    return bytes;
}

static void op_table(document *doc, const table *t, const allreduce_peers *p)
{
    bool with_way[WAYS] = {false}, with_peer[ALLREDUCE_PEERS] = {false};
    values ranks = table_values(t, "ranks"), sizes = table_values(t, "bytes");
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "ranks", "size", NULL);
    for (size_t w = 0; w < WAYS; w++) {
        table *of = table_where(t, "mode", ways[w].mode, "in_place", ways[w].in_place, "status", "ok", NULL);
        if ((with_way[w] = of->n))
            doc_column(doc, DOC_NUMBER, "%s: ms (mean ± std), GB/s, on the bus", ways[w].what);
        table_free(of);
    }
    for (size_t i = 0; i < ALLREDUCE_PEERS; i++)
        if ((with_peer[i] = p && has_peer(p, t, i)))
            doc_column(doc, DOC_NUMBER, "%s / ours", allreduce_peer_name(i));
    for (size_t r = 0; r < ranks.n; r++)
        for (size_t b = 0; b < sizes.n; b++) {
            size_t rows[WAYS], found = 0;
            for (size_t w = 0; w < WAYS; w++)
                found += (rows[w] = row_of(t, ranks.v[r], sizes.v[b], w)) != NO_ROW;
            if (!found)
                continue;
            doc_row(doc, ranks.v[r], size_of(t, sizes.v[b]), NULL);
            for (size_t w = 0; w < WAYS; w++)
                if (with_way[w])
                    add_cell(doc, t, rows[w]);
            for (size_t i = 0; i < ALLREDUCE_PEERS; i++)
                if (with_peer[i])
                    add_ratios(doc, p, t, rows, i);
        }
    values_free(&ranks);
    values_free(&sizes);
}

/* The tables of one device; `between` is behind their names where there is another device. */
static void device_tables(document *doc, const table *t, const allreduce_peers *p, const csv *machine,
                          const char *between)
{
    values ops = table_values(t, "variant"), dtypes = table_values(t, "dtype");
    for (size_t o = 0; o < ops.n; o++)
        for (size_t d = 0; d < dtypes.n; d++) {
            table *of = table_where(t, "variant", ops.v[o], "dtype", dtypes.v[d], NULL);
            const bool open = strcmp(ops.v[o], "all-reduce") == 0, ours = strstr(ops.v[o], "-shot");
            const bool compared = (open || ours) && strcmp(dtypes.v[d], "fp32") == 0;
            if (of->n && open)
                doc_heading(doc, 3, "%s, %s%s", ops.v[o], dtypes.v[d], between);
            else if (of->n)
                doc_fold(doc, "%s, %s%s", ops.v[o], dtypes.v[d], between);
            if (of->n)
                say_collective(doc, of);
            if (of->n)
                op_table(doc, of, compared ? p : NULL);
            if (of->n && open)
                allreduce_own(doc, t, machine, dtypes.v[d]);
            else if (of->n)
                doc_fold_end(doc);
            table_free(of);
        }
    values_free(&ops);
    values_free(&dtypes);
}

static void write_section(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_allreduce.csv");
    if (!t)
        return;
    csv *machine = open_peer(dir, "machine.csv");
    const allreduce_peers p = allreduce_peers_open(dir);
    values devices = devices_of(t);
    doc_heading(doc, 2, "bench_allreduce: collectives");
    doc_paragraph(
        doc, "Each sample is the time of the slowest rank. GB/s are 10^9 bytes per second at the median: the size over "
             "the time, and on\nthe bus with the factor of nccl-tests. A ratio above 1 means that ours is faster.");
    figures(doc, dir, "allreduce_");
    for (size_t i = 0; i < devices.n; i++) {
        table *on = table_where(t, "device", devices.v[i], NULL);
        const bool other = devices.n > 1 && strcmp(devices.v[i], "cpu") == 0;
        device_tables(doc, on, &p, machine, other ? ", between CPUs" : "");
        table_free(on);
    }
    values_free(&devices);
    allreduce_peers_free(&p);
    csv_free(machine);
    table_free(t);
}

static void compare(comparisons *to, const char *dir)
{
    table *t = open_result(dir, "bench_allreduce.csv");
    if (!t)
        return;
    allreduce_peers p = allreduce_peers_open(dir);
    table *on = table_where(t, "device", main_device(dir), "variant", "all-reduce", "status", "ok", NULL);
    values ranks = table_values(on, "ranks");
    for (size_t i = 0; i < ranks.n; i++) {
        table *of = table_where(on, "ranks", ranks.v[i], NULL);
        allreduce_peers_compare(
            comparisons_begin(to, xasprintf("all-reduce on %s ranks, from CUDA graphs", ranks.v[i])), &p, of);
        table_free(of);
    }
    values_free(&ranks);
    table_free(on);
    allreduce_peers_free(&p);
    table_free(t);
}

static const readme_bench benches[] = {
    {.name = "bench_allreduce",
     .order = 80,
     .question = "How long does a collective take?",
     .columns = {{"median_ms", "", "ms"}, {"busbw_gb_s", "busbw", "GB/s"}},
     .only = {{"variant", "all-reduce"}, {"mode", "graph"}, {"bytes", "1000000000"}, {"ranks", "2"}}},
    {.name = NULL}};

const report_section section_allreduce = {
    .order = 90, .findings = findings, .write = write_section, .compare = compare, .benches = benches};
