/* SPDX-License-Identifier: MIT */
/* Links: copies between the GPUs of every ordered pair, one pair at a time, and the all-reduce of groups. See qualify.h. */
#include "bench/qualify/qualify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/collective/collective.h"
#include "common/core/error.h"
#include "common/core/stats.h"

/* ---- pairs: rank 0 opens all GPUs, since a copy between two needs both in one process ---- */

static void pair_run(qualify *q, const bench_case *c, qualify_item *item, int from, int to)
{
    row *scratch = row_begin(q->s->rows, c);
    const size_t bytes = (size_t)case_int(c, "bytes");
    double ms = NAN;
    bool direct = true;
    q->r.w = scratch;
    const bool ok =
        roofline_p2p_time(&q->r, from, to, false, bytes, (uint64_t)option_int(q->s->opt, "seed"), &ms, &direct);
    qualify_item_fill(q, item, scratch, ok, (double)bytes / (ms * 1e6));
    if (ok && !direct)
        snprintf(item->why, sizeof item->why, "without peer access: through the host");
    row_drop(scratch);
}

void qualify_pairs_run(qualify *q, const bench_case *c, qualify_set *set, const bool *wanted)
{
    const bool cpu = device_kind_of(q->s->dev) == DEVICE_CPU, here = device_get_info(q->s->dev)->count >= q->ranks;
    if (launch_rank(q->l) == 0 && (cpu || q->ranks < 2 || !here))
        for (size_t i = 0; i < set->n; i++)
            snprintf(set->items[i].why, sizeof set->items[i].why, "%s",
                     cpu || q->ranks < 2 ? "p2p needs two GPUs" : "rank 0 does not see the GPUs of the other ranks");
    else if (launch_rank(q->l) == 0)
        for (int from = 0; from < q->ranks; from++)
            for (int to = 0; to < q->ranks; to++)
                if (from != to && wanted[qualify_pair_index(q->ranks, from, to)])
                    pair_run(q, c, &set->items[qualify_pair_index(q->ranks, from, to)], from, to);
    roofline_peers_close(&q->r);
    device_sync(q->s->dev); /* the runtime's current device is this rank's again: NCCL asks for it */
    launch_share(q->l, "pairs", set->items, set->n * sizeof *set->items, 0);
}

/* ---- groups ---- */

static void verify(qualify *q, collective *k, row *scratch)
{
    collective_fill(k);
    if (!option_flag(q->s->opt, "check"))
        return;
    comm_barrier(k->c, device_stream(q->s->dev));
    collective_enqueue(k, 1);
    collective_wait(k);
    const size_t wrong = collective_wrong(k, 1);
    if (wrong)
        row_status_set(scratch, ROW_FAIL, "%zu elements of the sum are wrong", wrong);
}

/* Milliseconds of a call here, the same number of calls on all members. */
static double time_calls(qualify *q, collective *k)
{
    samples x = {0};
    k->calls = 1;
    k->warmup = q->s->timing.warmup > 0 ? q->s->timing.warmup : 1;
    k->samples = q->s->timing.iters;
    collective_estimate(k);
    collective_sample(k, &x);
    const double ms = stats_of(&x).median;
    samples_free(&x);
    return ms;
}

static void group_run(qualify *q, const bench_case *c, qualify_item *item, int first, int count)
{
    char why[512];
    row *scratch = row_begin(q->s->rows, c);
    OWNED int *members = xcalloc((unsigned long)count, sizeof *members);
    for (int i = 0; i < count; i++)
        members[i] = first + i;
    comm *between = comm_create(q->l, q->s->dev, &(comm_options){.name = "group", .members = members, .ranks = count},
                                why, sizeof why);
    const size_t bytes = 4 * (size_t)case_int(c, "bytes"), n = bytes / sizeof(float);
    collective k = {.s = q->s,
                    .l = q->l,
                    .k = c,
                    .w = scratch,
                    .c = between,
                    .op = COLLECTIVE_ALL_REDUCE,
                    .t = COMM_FP32,
                    .count = n,
                    .send_n = n,
                    .recv_n = n,
                    .bytes = (double)bytes};
    double ms = NAN;
    size_t asked = 0;
    if (!between) {
        row_status_set(scratch, ROW_SKIP, "%s", why);
    } else {
        const bool member = comm_rank(between) >= 0;
        if (!launch_all(q->l, "memory", !member || collective_allocate(&k, &asked))) {
            row_status_set(scratch, ROW_OOM, "a rank has no memory for buffers of %zu bytes", asked);
        } else if (member) {
            verify(q, &k, scratch);
            ms = time_calls(q, &k);
        }
        launch_barrier(q->l, "group");
        comm_destroy(between);
    }
    const double bus = collective_gb_s((double)bytes, ms) * collective_bus_factor(COLLECTIVE_ALL_REDUCE, count);
    qualify_item_fill(q, item, scratch, isfinite(ms), bus);
    row_drop(scratch);
    memory_release_all(q->s->mem);
}

/* The group is as fast as its slowest member, and right when all are. */
static void group_join(qualify *q, qualify_item *item, int first, int count)
{
    OWNED qualify_item *all = launch_gathered(q->l, "group", item, sizeof *item);
    *item = all[first];
    for (int r = first; r < first + count; r++) {
        const bool worse = all[r].status == ROW_FAIL && item->status != ROW_FAIL;
        if (worse || (item->status == ROW_OK && all[r].status == ROW_OK && all[r].value < item->value))
            *item = all[r];
    }
}

void qualify_groups_run(qualify *q, const bench_case *c, qualify_set *set, const bool *wanted)
{
    for (size_t i = 0; i < set->n; i++) {
        int first, count;
        if (!wanted[i])
            continue;
        if (!qualify_group_parse(option_text_at(q->s->opt, "group", i), q->ranks, &first, &count)) {
            snprintf(set->items[i].why, sizeof set->items[i].why, "an all-reduce needs two ranks");
            continue;
        }
        group_run(q, c, &set->items[i], first, count);
        group_join(q, &set->items[i], first, count);
    }
}
