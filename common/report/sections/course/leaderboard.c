/* SPDX-License-Identifier: MIT */
/* The leaderboards: attention in the edition of 2025, a whole step of a model in that of 2026. */
#include <math.h>

#include "common/report/sections/course/course.h"

/* 16 heads of causal attention in bf16. */
static void attention(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_flash.csv");
    if (!t)
        return;
    table_keep_plain_attention(t);
    const size_t r = table_find(t, "variant", "flash", "status", "ok", "batch", "1", "heads", "16", "head_dim", "64",
                                "seq", "16384", "dtype", "bf16", "causal", "1", "deterministic", "0", NULL);
    if (r != NO_ROW)
        doc_bullet(doc,
                   "2025, 16 heads, D 64, S 16384, bf16, causal: forward and backward take %s ms; %s ms the forward "
                   "alone (%s TFLOP/s), %s ms the backward (%s TFLOP/s).",
                   number(table_real(t, r, "fwd_bwd_ms")), number(table_real(t, r, "fwd_ms")),
                   number(table_real(t, r, "fwd_tflops")), number(table_real(t, r, "bwd_ms")),
                   number(table_real(t, r, "bwd_tflops")));
    table_free(t);
}

/* The 8B model at context 32768, by the row of most tokens a second: on one GPU, or sharded. */
static void whole_step(document *doc, const char *dir, const char *file, const char *on)
{
    table *all = open_result(dir, file);
    if (!all)
        return;
    table *t = table_where(all, "status", "ok", "size", "8b", "seq", "32768", "layers", "0", NULL);
    const size_t r = largest(t, "tokens_per_s");
    if (r != NO_ROW)
        doc_bullet(doc, "2026, 8b, context 32768, batch %s, %s, on %s%s: a step takes %s ms = %s tokens/s.",
                   table_text(t, r, "batch"), table_text(t, r, "precision"), table_text(t, r, "ranks"), on,
                   number(table_real(t, r, "step_ms")), number(table_real(t, r, "tokens_per_s")));
    table_free(t);
    table_free(all);
}

static void leaderboard(document *doc, const char *dir)
{
    document *steps = doc_create("");
    attention(doc, dir);
    whole_step(steps, dir, "bench_transformer.csv", "one GPU");
    whole_step(steps, dir, "bench_fsdp.csv", " ranks");
    if (doc_empty(steps) && !doc_empty(doc))
        doc_bullet(doc, "2026: there are no rows of the 8B model at context 32768 here.");
    doc_append(doc, steps);
}

const course_problem course_leaderboard[] = {
    {"leaderboard", "2025, 2026",
     "Other shapes; bench_transformer: a whole training step; Sharded training: nothing is whole on any "
     "rank",
     leaderboard},
    {.name = NULL}};
