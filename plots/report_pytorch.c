/* Our times beside those of PyTorch on the same machine in the same run. */
#include <math.h>
#include <string.h>

#include "plots/report_parts.h"

/* What does the same work as an implementation of the other side. */
static const char *our_variant(const char *impl)
{
    return strcmp(impl, "eager") == 0 ? "unfused" : strcmp(impl, "compile") == 0 ? "fused" : "flash";
}

/* Our row of bench_flash at the shape of row `r` of PyTorch's, which is causal and as plain as the defaults. */
static size_t our_row(const table *ours, const table *theirs, size_t r, const char *variant)
{
    return table_find(ours, "status", "ok", "variant", variant, "dtype", table_text(theirs, r, "dtype"), "batch",
                      table_text(theirs, r, "batch"), "heads", table_text(theirs, r, "heads"), "seq",
                      table_text(theirs, r, "seq"), "head_dim", table_text(theirs, r, "head_dim"), "causal", "1",
                      "heads_kv", "0", "seq_k", "0", "layout", "bhsd", "deterministic", "0", NULL);
}

static double ratio_of(const table *ours, const table *theirs, size_t r, const char *column)
{
    size_t mine = our_row(ours, theirs, r, our_variant(table_text(theirs, r, "impl")));
    return table_real(theirs, r, column) / table_real(ours, mine, column);
}

typedef struct summary {
    size_t n;
    double geometric_mean, least;
} summary;

static summary summarize(const table *ours, const table *theirs, const char *column)
{
    summary s = {.least = INFINITY};
    double logs = 0;
    for (size_t r = 0; r < theirs->n; r++) {
        double ratio = ratio_of(ours, theirs, r, column);
        if (!(ratio > 0) || !isfinite(ratio))
            continue;
        s.n++;
        logs += log(ratio);
        s.least = fmin(s.least, ratio);
    }
    s.geometric_mean = s.n ? exp(logs / (double)s.n) : NAN;
    return s;
}

static void print_summary(FILE *out, const table *ours, const table *theirs)
{
    fprintf(out, "| PyTorch | dtype | ours | shapes | forward: mean, least | backward: mean, least |\n"
                 "|---|---|---|---:|---:|---:|\n");
    values impls = table_values(theirs, "impl"), dtypes = table_values(theirs, "dtype");
    for (size_t d = 0; d < dtypes.n; d++)
        for (size_t i = 0; i < impls.n; i++) {
            table *of = table_where(theirs, "dtype", dtypes.v[d], "impl", impls.v[i], NULL);
            summary forward = summarize(ours, of, "fwd_ms"), backward = summarize(ours, of, "bwd_ms");
            if (forward.n)
                fprintf(out, "| %s | %s | %s | %zu | %sx, %sx | %sx, %sx |\n", impls.v[i], dtypes.v[d],
                        our_variant(impls.v[i]), forward.n, number(forward.geometric_mean), number(forward.least),
                        number(backward.geometric_mean), number(backward.least));
            table_free(of);
        }
    fprintf(out, "\n");
    values_free(&impls);
    values_free(&dtypes);
}

static void print_comparison(FILE *out, const table *ours, const table *theirs)
{
    fprintf(out, "| dtype | B | H | S | D | PyTorch | forward ms: theirs, ours | ratio | backward ms: theirs, ours | "
                 "ratio |\n|---|---:|---:|---:|---:|---|---:|---:|---:|---:|\n");
    for (size_t r = 0; r < theirs->n; r++) {
        const char *impl = table_text(theirs, r, "impl");
        size_t mine = our_row(ours, theirs, r, our_variant(impl));
        if (mine == NO_ROW)
            continue;
        fprintf(out, "| %s | %s | %s | %s | %s | %s | %s, %s | %sx | %s, %s | %sx |\n", table_text(theirs, r, "dtype"),
                table_text(theirs, r, "batch"), table_text(theirs, r, "heads"), table_text(theirs, r, "seq"),
                table_text(theirs, r, "head_dim"), impl, number(table_real(theirs, r, "fwd_ms")),
                number(table_real(ours, mine, "fwd_ms")), number(ratio_of(ours, theirs, r, "fwd_ms")),
                number(table_real(theirs, r, "bwd_ms")), number(table_real(ours, mine, "bwd_ms")),
                number(ratio_of(ours, theirs, r, "bwd_ms")));
    }
    fprintf(out, "\n");
}

void pytorch_section(FILE *out, const char *dir)
{
    table *theirs = open_result(dir, "pytorch_flash.csv"), *ours = open_result(dir, "bench_flash.csv");
    if (theirs && ours) {
        fprintf(out, "## Next to PyTorch on this machine\n\n"
                     "Causal attention, the same shapes, measured in the same run. Ratio: PyTorch's time / ours, so "
                     "above 1 ours is\nfaster; mean is the geometric mean over the shapes. Its `eager` stands "
                     "beside our unfused, `compile` beside fused,\nthe rest beside flash.\n\n");
        values benches = table_values(theirs, "bench");
        for (size_t b = 0; b < benches.n; b++) {
            table *of = table_where(theirs, "bench", benches.v[b], NULL);
            bool graph = strcmp(benches.v[b], "flash_graph") == 0;
            fprintf(out, "### %s\n\n%s\n\n", graph ? "GPU time" : "Time of a call",
                    graph ? "PyTorch replayed from a CUDA graph: no launch is in it."
                          : "PyTorch by CUDA events around a call: on short sequences its launches are in it.");
            print_summary(out, ours, of);
            fprintf(out, "<details><summary>every shape</summary>\n\n");
            print_comparison(out, ours, of);
            fprintf(out, "</details>\n\n");
            table_free(of);
        }
        values_free(&benches);
    }
    table_free(theirs);
    table_free(ours);
}
