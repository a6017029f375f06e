/* SPDX-License-Identifier: MIT */
/* Cuts the index space; see buckets.h. */
#include "common/parallel/buckets.h"

#include <stddef.h>
#include <stdlib.h>

#include "common/core/error.h"

static int64_t size_of(const index_space *s, int tensor)
{
    return s->starts[tensor + 1] - s->starts[tensor];
}

static int64_t all_of(const index_space *s)
{
    return s->starts[s->tensors] - s->starts[0];
}

/* ---- buckets ---- */

buckets buckets_by_size(const index_space *s, int64_t cap)
{
    buckets b = {xcalloc((unsigned long)s->tensors, sizeof *b.b), 0};
    for (int i = 0; i < s->tensors; i++) {
        const int64_t size = size_of(s, i);
        bucket *open = b.n ? &b.b[b.n - 1] : NULL;
        if (open && size <= cap - open->count)
            open->count += size;
        else
            b.b[b.n++] = (bucket){s->starts[i], size};
    }
    return b;
}

buckets buckets_by_unit(const index_space *s)
{
    buckets b = {xcalloc((unsigned long)s->unit_count, sizeof *b.b), s->unit_count};
    for (int i = 0; i < s->unit_count; i++)
        b.b[i] = (bucket){s->units[i], s->units[i + 1] - s->units[i]};
    return b;
}

void buckets_align(buckets *b, int ranks)
{
    const int64_t unit = (int64_t)BUCKET_ALIGNMENT * ranks;
    int64_t first = b->b[0].first;
    const int64_t end = b->b[b->n - 1].first + b->b[b->n - 1].count;
    int kept = 0;
    if (first % unit || end % unit)
        die(EXIT_CODE_FAILURE, "bug: an index space from %lld to %lld is no multiple of %lld", (long long)first,
            (long long)end, (long long)unit);
    for (int i = 0; i < b->n; i++) {
        const int64_t cut = (b->b[i].first + b->b[i].count) / unit * unit;
        if (cut == first)
            continue;
        b->b[kept++] = (bucket){first, cut - first};
        first = cut;
    }
    b->n = kept;
}

void buckets_free(buckets *b)
{
    free(b->b);
    *b = (buckets){NULL, 0};
}

/* ---- ownership ---- */

/* Adds a range after those already owned; joins it with its neighbour if they touch. */
static void own(ownership *o, int64_t first, int64_t count, bool join)
{
    owned_range *last = o->n ? &o->r[o->n - 1] : NULL;
    if (join && last && last->first + last->count == first)
        last->count += count;
    else
        o->r[o->n++] = (owned_range){first, count, o->state_elements};
    o->state_elements += count;
}

ownership own_all(const index_space *s)
{
    ownership o = {.r = xcalloc(1, sizeof *o.r)};
    own(&o, s->starts[0], all_of(s), false);
    return o;
}

ownership own_slices(const buckets *b, int rank, int ranks, int whole)
{
    ownership o = {.r = xcalloc((unsigned long)b->n, sizeof *o.r)};
    for (int i = 0; i < b->n; i++) {
        const bool cut = i < b->n - whole;
        const int64_t slice = cut ? b->b[i].count / ranks : b->b[i].count;
        own(&o, b->b[i].first + (cut ? rank * slice : 0), slice, false);
    }
    return o;
}

typedef struct sized {
    int64_t size;
    int tensor;
} sized;

static int larger_first(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->tensor - y->tensor;
}

static void choose_owners(const index_space *s, int ranks, int *owner)
{
    OWNED sized *order = xcalloc((unsigned long)s->tensors, sizeof *order);
    OWNED int64_t *held = xcalloc((unsigned long)ranks, sizeof *held);
    for (int i = 0; i < s->tensors; i++)
        order[i] = (sized){size_of(s, i), i};
    qsort(order, (size_t)s->tensors, sizeof *order, larger_first);
    for (int i = 0; i < s->tensors; i++) {
        int least = 0;
        for (int r = 1; r < ranks; r++)
            least = held[r] < held[least] ? r : least;
        owner[order[i].tensor] = least;
        held[least] += order[i].size;
    }
}

ownership own_tensors(const index_space *s, int rank, int ranks)
{
    ownership o = {.r = xcalloc((unsigned long)s->tensors, sizeof *o.r),
                   .owner = xcalloc((unsigned long)s->tensors, sizeof *o.owner)};
    choose_owners(s, ranks, o.owner);
    for (int i = 0; i < s->tensors; i++)
        if (o.owner[i] == rank)
            own(&o, s->starts[i], size_of(s, i), true);
    return o;
}

void ownership_free(ownership *o)
{
    free(o->r);
    free(o->owner);
    *o = (ownership){.r = NULL};
}
