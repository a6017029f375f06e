/* SPDX-License-Identifier: MIT */
/* The first table of the report: how good this machine is for training, each number beside its limit, the strongest peer
 * that the folder has and what others published. A row whose CSV is not there is left out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/formulas/model.h"
#include "common/report/ddp/ddp.h"
#include "common/report/allreduce_peers.h"
#include "common/report/flash_peers.h"
#include "common/report/model_peers.h"
#include "common/report/params.h"
#include "common/report/roofline_peers.h"
#include "common/report/section.h"

/* bf16 where a row went well in it, else fp32, which is all that a CPU has. */
static const char *main_dtype(const table *t, const char *variant, const char *column)
{
    return table_find(t, "variant", variant, column, "bf16", "status", "ok", NULL) == NO_ROW ? "fp32" : "bf16";
}

/* A row: what, measured, limit, share of the limit in percent (NAN: none), peer, published. */
static void begin_row(document *doc, const char *what, const char *dtype)
{
    if (doc_empty(doc)) {
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "what", "measured", "limit", NULL);
        doc_columns(doc, DOC_NUMBER, "share", NULL);
        doc_columns(doc, DOC_TEXT, "strongest peer here", "published elsewhere", NULL);
    }
    doc_row(doc, what, NULL);
    if (*dtype)
        doc_more(doc, ", %s", dtype);
}

static void add_share(document *doc, double percent)
{
    if (isfinite(percent))
        doc_cell(doc, "%.0f %%", percent);
    else
        doc_blank(doc);
}

/* The strongest peer of a few cases, or why there is none. */
static void add_strongest(document *doc, const comparison *c, const char *cases)
{
    const compared *least = comparison_least(c);
    if (least)
        doc_cell(doc, "%s takes at least %s times as long (%zu %s%s)", least->who, ratio_text(least->ratio), c->n,
                 cases, c->n == 1 ? "" : "s");
    else if (c->n_refused)
        doc_cell(doc, "%s: not compared, %s", c->refused[0].who, c->refused[0].why);
    else
        doc_blank(doc);
}

static void roofline_peer(document *doc, const table *t, const csv *c, const char *kind, const char *dtype)
{
    comparison sizes = {0};
    roofline_peers_compare(&sizes, t, c, kind, dtype);
    add_strongest(doc, &sizes, "size");
    comparison_free(&sizes);
}

static void ceilings(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return;
    csv *theirs = roofline_peers_open(dir);
    const char *dtype = main_dtype(t, "gemm", "dtype");
    table *gemm = table_where(t, "variant", "gemm", "status", "ok", "dtype", dtype, NULL);
    table *copy = table_where(t, "variant", "copy_kernel", "status", "ok", NULL);
    const size_t best = largest(gemm, "tflops"), most = largest(copy, "bytes");
    if (best != NO_ROW) {
        const double rate = table_real(gemm, best, "tflops"), peak = peak_tflops(table_text(gemm, best, "gpu"), dtype);
        begin_row(doc, "matrix product", dtype);
        doc_cell(doc, "%s TFLOP/s (n %s)", number(rate), table_text(gemm, best, "size"));
        if (isfinite(peak))
            doc_cell(doc, "%s TFLOP/s by the data sheet", number(peak));
        else
            doc_cell(doc, "not known");
        add_share(doc, 100 * rate / peak);
        roofline_peer(doc, t, theirs, "gemm", dtype);
    }
    if (most != NO_ROW) {
        const double rate = table_real(copy, most, "gb_s"), peak = peak_gb_s(table_text(copy, most, "gpu"));
        begin_row(doc, "memory", "");
        doc_cell(doc, "%s GB/s copied (read + written)", number(rate));
        if (isfinite(peak))
            doc_cell(doc, "%s GB/s by the data sheet", number(peak));
        else
            doc_cell(doc, "not known");
        add_share(doc, 100 * rate / peak);
        roofline_peer(doc, t, theirs, "copy", NULL);
    }
    csv_free(theirs);
    table_free(copy);
    table_free(gemm);
    table_free(t);
}

/* The published times of the longest context that both have: theirs over ours. */
static void published_attention(document *doc, const char *dir, const table *flash)
{
    csv *c = open_published(dir, "flash.csv");
    size_t mine = NO_ROW, theirs = NO_ROW;
    for (size_t i = 0; c && i < flash->n; i++)
        for (size_t r = 0; r < c->rows; r++) {
            const bool same = cell_is(c, r, "dtype", table_text(flash, i, "dtype")) &&
                              cell_is(c, r, "seq", table_text(flash, i, "seq")) &&
                              cell_is(c, r, "d", table_text(flash, i, "head_dim")) &&
                              cell_is(c, r, "impl", "triton_flash") && csv_real(c, r, "fwd_ms") > 0;
            const double seq = table_real(flash, i, "seq"), dim = table_real(flash, i, "head_dim");
            if (same && (mine == NO_ROW || seq > table_real(flash, mine, "seq") ||
                         (seq == table_real(flash, mine, "seq") && dim > table_real(flash, mine, "head_dim")) ||
                         (mine == i && csv_real(c, r, "fwd_ms") < csv_real(c, theirs, "fwd_ms")))) {
                mine = i;
                theirs = r;
            }
        }
    if (mine == NO_ROW)
        doc_blank(doc);
    else
        doc_cell(doc, "Triton on %s: %s ms at S %s, D %s (batch and mask not stated), where ours takes %s",
                 csv_cell(c, theirs, "gpu"), number(csv_real(c, theirs, "fwd_ms")), table_text(flash, mine, "seq"),
                 table_text(flash, mine, "head_dim"), number(table_real(flash, mine, "fwd_ms")));
    csv_free(c);
}

/* Over causal shapes that fill the GPU. */
static void attention_peer(document *doc, const char *dir, const char *ratio)
{
    csv *in_turn = flash_peers_open(dir);
    comparison shapes = {0};
    flash_peers_compare(&shapes, in_turn, "bf16", "1", FLASH_FULL_LOAD, ratio);
    add_strongest(doc, &shapes, "shape");
    comparison_free(&shapes);
    csv_free(in_turn);
}

/* A pass's best rate, up to its share; false without one. */
static bool attention_row(document *doc, const table *flash, const char *pass, const char *dtype, const char *tflops,
                          const char *pct)
{
    const size_t best = largest(flash, tflops);
    if (best == NO_ROW)
        return false;
    const double ceiling = table_real(flash, best, "ceiling_tflops");
    begin_row(doc, "causal attention", "");
    doc_more(doc, ", %s, %s", pass, dtype);
    doc_cell(doc, "%s TFLOP/s (S %s, D %s)", number(table_real(flash, best, tflops)), table_text(flash, best, "seq"),
             table_text(flash, best, "head_dim"));
    if (isfinite(ceiling))
        doc_cell(doc, "%s TFLOP/s, the measured matrix product", number(ceiling));
    else
        doc_cell(doc, "not known");
    add_share(doc, table_real(flash, best, pct));
    return true;
}

static void attention(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_flash.csv");
    if (!t)
        return;
    table_keep_plain_attention(t);
    const char *dtype = main_dtype(t, "flash", "dtype");
    table *flash = table_where(t, "variant", "flash", "status", "ok", "dtype", dtype, "causal", "1", "heads_kv", "0",
                               "seq_k", "0", "layout", "bhsd", "deterministic", "0", NULL);
    if (attention_row(doc, flash, "forward", dtype, "fwd_tflops", "fwd_ceiling_pct")) {
        attention_peer(doc, dir, "fwd_ratio");
        published_attention(doc, dir, flash);
    }
    if (attention_row(doc, flash, "backward", dtype, "bwd_tflops", "bwd_ceiling_pct"))
        attention_peer(doc, dir, "bwd_ratio");
    table_free(flash);
    table_free(t);
}

static void step_peer(document *doc, const csv *c, const table *t)
{
    comparison cases = {0};
    model_peers_compare(&cases, c, t);
    add_strongest(doc, &cases, "case");
    comparison_free(&cases);
}

/* PyTorch's memory over ours: the least over all ways to run it. */
static void memory_peer(document *doc, const csv *c, const table *t, size_t row)
{
    double least = INFINITY;
    const char *how = "";
    for (size_t p = 0; p < MODEL_PEERS; p++) {
        const double ratio = model_peer_memory(c, t, row, &model_peers[p]);
        if (ratio < least) {
            least = ratio;
            how = model_peers[p].named;
        }
    }
    if (isfinite(least))
        doc_cell(doc, "PyTorch (%s) uses at least %s times as much", how, number(least));
    else
        doc_blank(doc);
}

/* The row with most memory among models of a size as it is. */
static size_t largest_of_a_size(const table *t)
{
    size_t best = NO_ROW;
    for (size_t i = 0; i < t->n; i++)
        if (!table_is_custom(t, i) &&
            (best == NO_ROW || table_real(t, i, "peak_bytes") > table_real(t, best, "peak_bytes")))
            best = i;
    return best;
}

static void step(document *doc, const char *dir)
{
    static const char *const axes[] = {"size", "seq", "precision", NULL};
    table *t = open_result(dir, "bench_transformer.csv");
    if (!t)
        return;
    csv *machine = open_peer(dir, "machine.csv"), *theirs = model_peers_open(dir);
    const char *level = table_find(t, "variant", "graph", "status", "ok", NULL) == NO_ROW ? "kernels" : "graph";
    const char *precision = main_dtype(t, level, "precision");
    table *same = table_main_slice(t, axes, NULL);
    table *ok = table_where(same, "status", "ok", "precision", precision, "mode", "train-step", "variant", level, NULL);
    table *any = table_where(t, "status", "ok", "precision", precision, "mode", "train-step", NULL);
    const size_t best = largest(ok, "mfu_causal_pct"), most = largest_of_a_size(any);
    if (best != NO_ROW) {
        begin_row(doc, "training step", precision);
        doc_cell(doc, "MFU %s %% = %s tokens/s (%s, S %s, batch %s)", number(table_real(ok, best, "mfu_causal_pct")),
                 number(table_real(ok, best, "tokens_per_s")), table_text(ok, best, "size"),
                 table_text(ok, best, "seq"), table_text(ok, best, "batch"));
        doc_cell(doc, "the data sheet's rate of matrix products");
        add_share(doc, table_real(ok, best, "mfu_causal_pct"));
        step_peer(doc, theirs, ok);
    }
    if (most != NO_ROW) {
        double memory = NAN;
        const char *text = run_value(machine, table_text(any, most, "run_id"), "gpu_memory_bytes");
        const char *again = table_text(any, most, "recompute");
        if (*text)
            memory = strtod(text, NULL);
        begin_row(doc, "memory of the largest step", precision);
        doc_cell(doc, "%s (%s, S %s, batch %s", number_unit(table_real(any, most, "peak_bytes"), "bytes"),
                 table_text(any, most, "size"), table_text(any, most, "seq"), table_text(any, most, "batch"));
        doc_more(doc, param_departs("recompute", again) ? ", recompute %s)" : ")", again);
        if (isfinite(memory))
            doc_cell(doc, "%s on the GPU", number_unit(memory, "bytes"));
        else
            doc_cell(doc, "not known");
        add_share(doc, 100 * table_real(any, most, "peak_bytes") / memory);
        memory_peer(doc, theirs, any, most);
    }
    table_free(any);
    table_free(ok);
    table_free(same);
    csv_free(theirs);
    csv_free(machine);
    table_free(t);
}

/* The shortest published step of the same size, ranks and context, whatever its strategy; they are all fp32. */
static void published_step(document *doc, const char *dir, const ddp_entry *e)
{
    csv *c = open_published(dir, "ddp.csv");
    double least = INFINITY;
    for (size_t r = 0; c && r < c->rows; r++)
        if (cell_is(c, r, "size", ddp_text(e, "size")) && cell_is(c, r, "ranks", ddp_text(e, "ranks")) &&
            cell_is(c, r, "seq", ddp_text(e, "seq")) && cell_is(c, r, "status", "ok") && csv_real(c, r, "step_ms") > 0)
            least = fmin(least, csv_real(c, r, "step_ms"));
    if (isfinite(least))
        doc_cell(doc, "a step in fp32 takes %s ms or more (any strategy; other GPUs and batches)", number(least));
    else
        doc_blank(doc);
    csv_free(c);
}

/* What decides which step stands for a machine, the most important first: the most is meant. */
enum { MEANT = 4 };

static void meant(const ddp_entry *e, double of[MEANT])
{
    const double params = ddp_real(e, "params");
    of[0] = ddp_real(e, "ranks");
    of[1] = isfinite(params) ? params : 0;
    of[2] = ddp_real(e, "seq");
    of[3] = -ddp_real(e, "step_ms");
}

static bool meant_more(const ddp_entry *e, const ddp_entry *than)
{
    double a[MEANT], b[MEANT];
    meant(e, a);
    meant(than, b);
    for (size_t k = 0; k < MEANT; k++)
        if (a[k] != b[k])
            return a[k] > b[k];
    return false;
}

/* The shortest bf16 step of the largest model on the most ranks, at its longest context. */
static void data_parallelism(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    const char *device = ddp_device(r, dir);
    const ddp_entry *best = NULL;
    for (size_t i = 0; r && i < r->n; i++) {
        const ddp_entry *e = &r->all[i];
        if (!e->ok || strcmp(ddp_text(e, "precision"), "bf16") != 0 || !isfinite(e->exposed) ||
            strcmp(ddp_text(e, "device"), device) != 0)
            continue;
        best = !best || meant_more(e, best) ? e : best;
    }
    if (best) {
        const double ms = ddp_real(best, "step_ms");
        begin_row(doc, "exposed communication", "bf16");
        doc_cell(doc, "%s of a step of %s ms (%s ranks, %s, S %s, %s)", with_interval(best), precise(ms),
                 ddp_text(best, "ranks"), ddp_text(best, "size"), ddp_text(best, "seq"), best->label);
        doc_cell(doc, "0; share is that of the step");
        add_share(doc, 100 * best->exposed / ms);
        const size_t strongest = ddp_peer(r, best, DDP_KIND_ANY_POLICY);
        char *name = strongest == NO_ROW ? NULL : ddp_pytorch_name(r, strongest);
        if (name)
            doc_cell(doc, "PyTorch's fastest step of this kind (%s) takes %s times as long", name,
                     number(csv_real(r->pytorch, strongest, "step_ms") / ms));
        else
            doc_blank(doc);
        free(name);
        published_step(doc, dir, best);
    }
    ddp_rows_free(r);
}

/* The fastest measured copy from one GPU to another, in 10^9 bytes per second: what a bus of them could do. NAN: none. */
static double link_gb_s(const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return NAN;
    table *copies = table_where(t, "variant", "p2p", "status", "ok", NULL);
    const size_t best = largest(copies, "gb_s");
    const double rate = best == NO_ROW ? NAN : table_real(copies, best, "gb_s");
    table_free(copies);
    table_free(t);
    return rate;
}

static void collective(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_allreduce.csv");
    if (!t)
        return;
    const bool gpus = table_find(t, "device", "cuda", NULL) != NO_ROW;
    table *on =
        table_where(t, "device", gpus ? "cuda" : main_device(dir), "variant", "all-reduce", "status", "ok", NULL);
    values ranks = table_values(on, "ranks");
    const allreduce_peers peers = allreduce_peers_open(dir);
    const double link = gpus ? link_gb_s(dir) : NAN;
    for (size_t i = 0; i < ranks.n; i++) {
        table *of = table_where(on, "ranks", ranks.v[i], NULL);
        const size_t best = largest(of, "busbw_gb_s");
        if (best != NO_ROW) {
            begin_row(doc, "", "");
            doc_more(doc, "all-reduce on %s ranks", ranks.v[i]);
            doc_cell(doc, "%s GB/s on the bus (%s, %s)", number(table_real(of, best, "busbw_gb_s")),
                     table_text(of, best, "size"), table_text(of, best, "backend"));
            if (isfinite(link))
                doc_cell(doc, "%s GB/s, the measured copy between two GPUs", number(link));
            else
                doc_cell(doc, "not known");
            add_share(doc, 100 * table_real(of, best, "busbw_gb_s") / link);
            comparison cases = {0};
            allreduce_peers_compare(&cases, &peers, of);
            add_strongest(doc, &cases, "case");
            comparison_free(&cases);
        }
        table_free(of);
    }
    allreduce_peers_free(&peers);
    values_free(&ranks);
    table_free(on);
    table_free(t);
}

static void write_section(document *doc, const char *dir)
{
    document *rows = doc_create("");
    ceilings(rows, dir);
    attention(rows, dir);
    step(rows, dir);
    data_parallelism(rows, dir);
    collective(rows, dir);
    if (doc_empty(rows)) {
        doc_free(rows);
        return;
    }
    doc_heading(doc, 2, "How good is this machine for training?");
    doc_append(doc, rows);
    doc_paragraph(
        doc, "Rates are the best rows of the bench of each; shorter bursts at a higher clock, as those of "
             "bench_qualify and of\nattention in turn with peers, are faster. Exposed communication is that of the "
             "shortest step of the largest model on\nthe most ranks. Limits of the data sheet are dense rates at full "
             "clock. Published\nnumbers are of other machines. \"not known\": no file of this folder has it.");
}

const report_section section_summary = {.order = -10, .write = write_section};
