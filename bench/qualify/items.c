/* SPDX-License-Identifier: MIT */
/* Items of a set: which GPUs each is of, and what a scratch row makes of it; see qualify.h. */
#include "bench/qualify/qualify.h"
#include "common/core/units.h"

#include <math.h>
#include <stdio.h>

bool qualify_group_parse(const char *text, int ranks, int *first, int *count)
{
    int last, length = 0;
    if (sscanf(text, "%4d..%4d%n", first, &last, &length) != 2 || text[length] || *first < 0 || last <= *first ||
        last >= ranks)
        return false;
    *count = last - *first + 1;
    return true;
}

int qualify_pairs(int ranks)
{
    return ranks * (ranks - 1);
}

size_t qualify_pair_index(int ranks, int from, int to)
{
    return (size_t)from * (size_t)(ranks - 1) + (size_t)(to > from ? to - 1 : to);
}

size_t qualify_index(const qualify *q, const bench_case *c)
{
    int from = 0, to = 0;
    if (text_is(case_variant(c), "p2p") && q->ranks < 2)
        return 0; /* the only item, which is skipped */
    if (text_is(case_variant(c), "p2p")) {
        roofline_pair_parse(case_text(c, "pair"), &from, &to);
        return qualify_pair_index(q->ranks, from, to);
    }
    if (!text_is(case_variant(c), "all-reduce"))
        return (size_t)case_int(c, "rank");
    for (size_t i = 0; i < option_count(q->s->opt, "group"); i++)
        if (text_is(option_text_at(q->s->opt, "group", i), case_text(c, "group")))
            return i;
    return 0;
}

void qualify_item_fill(qualify *q, qualify_item *item, const row *scratch, bool measured, double value)
{
    const row_status status = row_status_get(scratch);
    size_t asked;
    const char *tag;
    item->value = measured && status == ROW_OK ? value : NAN;
    item->status = status;
    snprintf(item->why, sizeof item->why, "%s", row_reason(scratch));
    if (!measured && status == ROW_OK) {
        item->status = ROW_OOM;
        snprintf(item->why, sizeof item->why, "not enough memory");
        if (memory_failed(q->s->mem, &asked, &tag))
            snprintf(item->why, sizeof item->why, "no memory: %s needs %.3g GiB", tag, (double)asked / GIB);
    }
    const device_conditions conditions = device_state(q->s->dev);
    item->sm_mhz = conditions.sm_mhz;
    snprintf(item->throttle, sizeof item->throttle, "%s", conditions.throttle);
    memory_failed_clear(q->s->mem);
}
