/* SPDX-License-Identifier: MIT */
/* A GPU in one word, from all that was found; see qualify.h. */
#include "bench/qualify/qualify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef struct text {
    char *out;
    size_t bytes;
} text;

static void say(text *t, const char *before, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(text *t, const char *before, const char *fmt, ...)
{
    va_list args;
    size_t used = strlen(t->out);
    snprintf(t->out + used, t->bytes - used, "%s", used ? before : "");
    used = strlen(t->out);
    va_start(args, fmt);
    vsnprintf(t->out + used, t->bytes - used, fmt, args);
    va_end(args);
}

void qualify_explain(const qualify_set *set, const qualify_item *item, char *out, size_t bytes)
{
    text t = {out, bytes};
    out[0] = 0;
    if (item->status != ROW_OK) {
        say(&t, "", "%s", item->why);
        return;
    }
    if (item->j.word == VERDICT_NOT_CHECKED)
        say(&t, "", "nothing to compare with");
    else if (item->j.word == VERDICT_SLOW)
        say(&t, "", "%.4g, %.1f %% behind %s; the bound is %.4g", item->value, item->j.behind_pct,
            strcmp(item->j.against, "peers") == 0  ? "the median of all"
            : strcmp(item->j.against, "past") == 0 ? "its own earlier runs"
                                                   : "the reference",
            item->j.bound);
    if (isfinite(item->again) && item->j.word == VERDICT_SLOW)
        say(&t, "; ", "%s again: %.4g", set->by_rank ? "alone" : "measured", item->again);
    if (*item->why)
        say(&t, "; ", "%s", item->why);
}

/* The verdict on a GPU's links. */
static verdict of_links(qualify *q, int rank, text *t)
{
    const size_t n = (size_t)q->ranks;
    bool *slow = xcalloc(n * n, sizeof *slow), any = false;
    for (size_t s = 0; s < q->sets_n; s++)
        for (int from = 0; from < q->ranks && strcmp(q->sets[s].name, "p2p") == 0; from++)
            for (int to = 0; to < q->ranks; to++)
                if (from != to)
                    any |= slow[(size_t)from * n + (size_t)to] =
                        verdict_missed(q->sets[s].items[qualify_pair_index(q->ranks, from, to)].j.word);
    const bool blamed = any && qualify_links_slow(slow, n, (size_t)rank);
    free(slow);
    if (blamed)
        say(t, "; ", "most of its links are slow");
    return blamed ? VERDICT_SLOW : VERDICT_NOT_CHECKED;
}

/* The hardware's reasons to throttle that were seen in any measurement. */
static void throttle_of(const qualify *q, int rank, char *out, size_t bytes)
{
    text t = {out, bytes};
    out[0] = 0;
    for (size_t s = 0; s < q->sets_n; s++)
        if (q->sets[s].by_rank && *q->sets[s].items[rank].throttle)
            say(&t, "+", "%s", q->sets[s].items[rank].throttle);
}

verdict qualify_of_gpu(qualify *q, int rank, char *why, size_t why_bytes)
{
    char part[512], throttle[1024], unknown[512] = "";
    text t = {why, why_bytes}, missing = {unknown, sizeof unknown};
    why[0] = 0;
    throttle_of(q, rank, throttle, sizeof throttle);
    const verdict health = qualify_health(q->health, (size_t)q->ranks, (size_t)rank, throttle, part, sizeof part);
    verdict v = VERDICT_NOT_CHECKED;
    if (verdict_missed(health))
        say(&t, "", "%s", part);
    for (size_t s = 0; s < q->sets_n; s++) {
        const qualify_set *set = &q->sets[s];
        const qualify_item *item = &set->items[rank];
        if (!set->by_rank)
            continue;
        v = verdict_join(v, item->j.word);
        qualify_explain(set, item, part, sizeof part);
        if (verdict_missed(item->j.word))
            say(&t, "; ", "%s %s", item->status == ROW_OK ? set->metric->name : set->name, part);
        else if (item->j.word == VERDICT_NOT_CHECKED)
            say(&missing, ", ", "%s", set->name);
    }
    v = verdict_join(v, of_links(q, rank, &t));
    if (health == VERDICT_NOT_CHECKED)
        say(&missing, ", ", "NVML's counters");
    if (!q->health[rank].xids_known)
        say(&missing, ", ", "Xid errors, as the kernel log can't be read");
    if (*unknown)
        say(&t, "; ", "no verdict on %s", unknown);
    /* Speed alone does not make a GPU well. */
    return verdict_missed(v) || verdict_missed(health) ? verdict_join(v, health)
           : health == VERDICT_NOT_CHECKED             ? VERDICT_NOT_CHECKED
                                                       : v;
}
