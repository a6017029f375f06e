/* SPDX-License-Identifier: MIT */
/* A set beside its reference, its peers and its past; see qualify.h. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/qualify/qualify.h"
#include "common/core/error.h"

/* What the reference is asked for. */
static void shape_of(const qualify *q, const bench_case *c, char *out, size_t bytes)
{
    const char *v = case_variant(c);
    out[0] = 0;
    if (text_is(v, "gemm"))
        snprintf(out, bytes, "n=%lld", (long long)case_int(c, "gemm-size"));
    else if (text_is(v, "gemm-together"))
        snprintf(out, bytes, "%s n=%lld", option_text_at(q->s->opt, "dtype", 0),
                 2 * (long long)case_int(c, "gemm-size"));
    else if (text_is(v, "flash"))
        snprintf(out, bytes, "seq=%lld", (long long)case_int(c, "seq"));
    else if (text_is(v, "step"))
        snprintf(out, bytes, "model=%s", case_text(c, "model"));
    else if (text_is(v, "all-reduce"))
        snprintf(out, bytes, "bytes=%lld", 4 * (long long)case_int(c, "bytes"));
    else if (!text_is(v, "launch"))
        snprintf(out, bytes, "bytes=%lld", (long long)case_int(c, "bytes"));
}

static int gpus_of(const qualify *q, const qualify_set *set, size_t item)
{
    int first, count;
    if (set->by_rank)
        return 1;
    if (text_is(set->name, "p2p"))
        return 2;
    return qualify_group_parse(option_text_at(q->s->opt, "group", item), q->ranks, &first, &count) ? count : 0;
}

void qualify_judge_set(qualify *q, const bench_case *c, qualify_set *set)
{
    qualify_reference ref;
    OWNED double *values = xcalloc(set->n, sizeof *values);
    shape_of(q, c, set->shape, sizeof set->shape);
    for (size_t i = 0; i < set->n; i++)
        values[i] = set->items[i].value;
    const bool groups = text_is(set->name, "all-reduce"); /* groups of several sizes are no peers of one another */
    for (size_t i = 0; i < set->n; i++) {
        const bool known = reference_find(q->reference, set->metric->name, gpus_of(q, set, i), set->shape, &ref);
        set->items[i].j = groups ? qualify_judge(set->metric, known ? &ref : NULL, values + i, 1, 0)
                                 : qualify_judge(set->metric, known ? &ref : NULL, values, set->n, i);
        if (set->by_rank)
            set->items[i].j =
                qualify_judge_past(set->metric, set->items[i].j, values[i], set->items[i].past, set->items[i].past_n);
        if (set->items[i].status == ROW_FAIL)
            set->items[i].j.word = VERDICT_BROKEN;
    }
}

/* Earlier values of the set's GPUs in the CSV file: those that were ok, of this shape. Rank 0 has the file. */
static void read_past(qualify *q, const bench_case *c, qualify_set *set)
{
    OWNED_CSV csv *t = q->s->csv_path ? csv_read(q->s->csv_path) : NULL;
    char shape[64];
    shape_of(q, c, shape, sizeof shape);
    for (size_t r = t && csv_column(t, "uuid") >= 0 ? t->rows : 0; r-- > 0;) {
        bool same = text_is(csv_cell(t, r, "metric"), set->metric->name) && text_is(csv_cell(t, r, "verdict"), "ok") &&
                    csv_is(t, r, "shape", shape);
        for (size_t i = 0; same && i < options_param_count(q->s->opt); i++) {
            const char *name = options_param_name(q->s->opt, i);
            same = text_is(name, "rank") || text_is(name, "ranks") || csv_is(t, r, name, case_cell(c, i));
        }
        for (size_t i = 0; same && i < set->n; i++)
            if (*q->uuid[i] && text_is(csv_cell(t, r, "uuid"), q->uuid[i]) && set->items[i].past_n < QUALIFY_PAST)
                set->items[i].past[set->items[i].past_n++] = csv_real(t, r, "value");
    }
}

void qualify_read_past(qualify *q, const bench_case *c, qualify_set *set)
{
    if (launch_rank(q->l) == 0 && set->by_rank)
        read_past(q, c, set);
    launch_share(q->l, "past", set->items, set->n * sizeof *set->items, 0);
}

void qualify_exchange(qualify *q, qualify_set *set)
{
    const qualify_item mine = set->items[launch_rank(q->l)];
    launch_gather(q->l, "items", &mine, sizeof mine, set->items);
}
