/* SPDX-License-Identifier: MIT */
/* Lists of spans, and their names; see spans.h. */
#include "common/profile/spans.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the names */
static char **names;                                     /* a table with open addressing */
static size_t name_count, name_room;                     /* room: a power of 2 */

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

static char **name_slot(const char *name)
{
    size_t at = 14695981039346656037u; /* FNV-1a */
    for (const char *c = name; *c; c++)
        at = (at ^ (unsigned char)*c) * 1099511628211u;
    for (at &= name_room - 1; names[at] && strcmp(names[at], name) != 0;)
        at = (at + 1) & (name_room - 1);
    return &names[at];
}

static void more_names(void)
{
    char **before = names;
    const size_t room = name_room;
    name_room = room ? 2 * room : 512;
    names = xcalloc(name_room, sizeof *names);
    for (size_t i = 0; i < room; i++)
        if (before[i])
            *name_slot(before[i]) = before[i];
    free(before);
}

static const char *name_held(const char *name)
{
    if (2 * (name_count + 1) > name_room)
        more_names();
    char **slot = name_slot(name);
    if (!*slot) {
        *slot = xstrdup(name);
        name_count++;
    }
    return *slot;
}

const char *timeline_name(const char *name)
{
    pthread_mutex_lock(&lock);
    const char *held = name_held(name);
    pthread_mutex_unlock(&lock);
    return held;
}
