/* SPDX-License-Identifier: MIT */
/* Lists of spans, and their names; see spans.h. */
#include "common/profile/spans.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the names */
static char **names;
static size_t name_count;

const char *timeline_lane_name(timeline_lane lane)
{
    static const char *const lanes[] = {"compute", "communication", "copy", "wait"};
    return lanes[lane];
}

void span_list_add(span_list *l, timed_span s)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 1024;
        l->v = xrealloc(l->v, l->room * sizeof *l->v);
    }
    l->v[l->n++] = s;
}

static int by_start(const void *a, const void *b)
{
    const timed_span *x = a, *y = b;
    if (x->start_us != y->start_us)
        return x->start_us < y->start_us ? -1 : 1;
    return (x->end_us < y->end_us) - (x->end_us > y->end_us);
}

void span_list_sort(span_list *l)
{
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_start);
}

static const char *name_held(const char *name)
{
    for (size_t i = 0; i < name_count; i++)
        if (strcmp(names[i], name) == 0)
            return names[i];
    names = xrealloc(names, (name_count + 1) * sizeof *names);
    return names[name_count++] = xstrdup(name);
}

const char *timeline_name(const char *name)
{
    pthread_mutex_lock(&lock);
    const char *held = name_held(name);
    pthread_mutex_unlock(&lock);
    return held;
}
