/* SPDX-License-Identifier: MIT */
/* Sets: which there are, how they are measured, judged, and measured again where one is suspected; see qualify.h. */
#include "bench/qualify/qualify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

/* ---- which there are ---- */

static const qualify_metric *metric_of(const bench_case *c)
{
    static const struct {
        const char *variant, *metric;
    } of[] = {{"copy", "copy_gb_s"},
              {"h2d", "h2d_gb_s"},
              {"d2h", "d2h_gb_s"},
              {"launch", "launch_us"},
              {"flash", "flash_tflops"},
              {"p2p", "p2p_gb_s"},
              {"all-reduce", "all_reduce_gb_s"},
              {"gemm-together", "gemm_together_tflops"},
              {"step", "step_ms"}};
    char gemm[32];
    snprintf(gemm, sizeof gemm, "gemm_%s_tflops", case_text(c, "dtype"));
    if (text_is(case_variant(c), "gemm"))
        return qualify_metric_find(gemm);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (text_is(of[i].variant, case_variant(c)))
            return qualify_metric_find(of[i].metric);
    die(EXIT_CODE_FAILURE, "bug: '%s' measures nothing", case_variant(c));
}

static qualify_set *find(qualify *q, const bench_case *c)
{
    const qualify_metric *m = metric_of(c);
    for (size_t i = 0; i < q->sets_n; i++)
        if (q->sets[i].metric == m)
            return &q->sets[i];
    return NULL;
}

static qualify_set *set_add(qualify *q, const bench_case *c)
{
    const char *v = case_variant(c);
    if (q->sets_n == QUALIFY_SETS)
        die(EXIT_CODE_FAILURE, "bug: more than %d sets", QUALIFY_SETS);
    qualify_set *set = &q->sets[q->sets_n++];
    *set = (qualify_set){.metric = metric_of(c), .by_rank = !text_is(v, "p2p") && !text_is(v, "all-reduce")};
    snprintf(set->name, sizeof set->name, "%s%s%s", v, text_is(v, "gemm") ? " " : "",
             text_is(v, "gemm") ? case_text(c, "dtype") : "");
    set->n = set->by_rank        ? (size_t)q->ranks
             : text_is(v, "p2p") ? (size_t)qualify_pairs(q->ranks)
                                 : option_count(q->s->opt, "group");
    set->n = set->n ? set->n : 1; /* a pair of one GPU: a row that says so */
    set->items = xcalloc(set->n, sizeof *set->items);
    for (size_t i = 0; i < set->n; i++)
        set->items[i] = (qualify_item){.value = NAN, .again = NAN, .sm_mhz = NAN, .status = ROW_SKIP};
    return set;
}

/* ---- measuring ---- */

/* The wanted ranks one after the other, each alone on the machine. */
static void in_turn(qualify *q, const bench_case *c, qualify_set *set, const bool *wanted)
{
    qualify_alone *fn = qualify_alone_of(case_variant(c));
    const size_t mine = (size_t)launch_rank(q->l);
    for (size_t r = 0; r < (size_t)q->ranks; r++) {
        launch_barrier(q->l, "in turn");
        if (r != mine || !wanted[r])
            continue;
        row *scratch = row_begin(q->s->rows, c);
        double value = NAN;
        q->r.w = scratch;
        const bool measured = fn(q, c, &value);
        qualify_item_fill(q, &set->items[mine], scratch, measured, value);
        row_drop(scratch);
        memory_release_all(q->s->mem);
    }
}

static bool together(const bench_case *c)
{
    return text_is(case_variant(c), "gemm-together") || text_is(case_variant(c), "step");
}

static void measure_wanted(qualify *q, const bench_case *c, qualify_set *set, const bool *wanted)
{
    phase_set("measuring %s", set->name);
    if (text_is(case_variant(c), "p2p"))
        qualify_pairs_run(q, c, set, wanted);
    else if (text_is(case_variant(c), "all-reduce"))
        qualify_groups_run(q, c, set, wanted);
    else
        in_turn(q, c, set, wanted);
    if (set->by_rank)
        qualify_exchange(q, set);
}

static void measure_all(qualify *q, const bench_case *c, qualify_set *set)
{
    OWNED bool *all = xcalloc(set->n, sizeof *all);
    memset(all, 1, set->n * sizeof *all);
    if (text_is(case_variant(c), "gemm-together"))
        qualify_gemm_together(q, c, set);
    else if (text_is(case_variant(c), "step"))
        qualify_step_together(q, c, set);
    else
        measure_wanted(q, c, set, all);
    if (together(c))
        qualify_exchange(q, set);
}

/* ---- suspects ---- */

static double better(const qualify_metric *m, double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : m->lower_is_better ? fmin(a, b) : fmax(a, b);
}

/* A disturbance hits one of two measurements, a fault both: of a suspect the better one counts. What all measured together
 * is not replaced by what one reaches alone. */
static void measure_suspects(qualify *q, const bench_case *c, qualify_set *set)
{
    bool any = false, *suspect = xcalloc(set->n, sizeof *suspect);
    OWNED qualify_item *before = xcalloc(set->n, sizeof *before);
    memcpy(before, set->items, set->n * sizeof *before);
    for (size_t i = 0; i < set->n; i++)
        any |= suspect[i] = set->items[i].j.word == VERDICT_SLOW;
    any = any && !text_is(case_variant(c), "step"); /* which did so while it had its trainers */
    if (any)
        measure_wanted(q, c, set, suspect);
    for (size_t i = 0; any && i < set->n; i++) {
        const double again = set->items[i].value;
        if (!suspect[i])
            continue;
        if (set->items[i].status != ROW_FAIL)
            set->items[i] = before[i];
        set->items[i].again = again;
        if (!together(c) && set->items[i].status == ROW_OK)
            set->items[i].value = better(set->metric, before[i].value, again);
    }
    if (any)
        qualify_judge_set(q, c, set);
    free(suspect);
}

qualify_set *qualify_set_of(qualify *q, const bench_case *c)
{
    qualify_set *set = find(q, c);
    if (set)
        return set;
    set = set_add(q, c);
    qualify_read_past(q, c, set);
    measure_all(q, c, set);
    qualify_judge_set(q, c, set);
    measure_suspects(q, c, set);
    phase_set("%s", case_name(c));
    return set;
}
