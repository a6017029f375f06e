/* SPDX-License-Identifier: MIT */
/* How the index space of a model (model/params.h) is cut for data parallelism: buckets, each of which
 * one collective carries, and the part that a rank updates. Plain arithmetic, the same on every rank; it needs no model, only
 * the places where tensors start.
 *
 * Gradients get ready from index 0 on. A bucket is closed at the end of the last tensor that fits in `bucket_bytes`; a
 * larger tensor is a bucket of its own. Where buckets are cut in equal slices for the ranks, their ends are moved down to
 * a multiple of BUCKET_ALIGNMENT x ranks: what is left of the last tensor belongs to the next bucket, and the index space
 * itself must be a multiple of that. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { BUCKET_ALIGNMENT = 64 };

/* Tensors of the index space: tensor i is [starts[i], starts[i + 1]), padding included; starts[tensors] is all. */
typedef struct index_space {
    const int64_t *starts;
    int tensors;
    const int64_t *units; /* where units of the model start, each with a tensor, and the end; NULL: it has none */
    int unit_count;
    int whole_units;       /* this many of the last ones are never cut in slices: every rank has them whole */
    const bool *elsewhere; /* (tensors) they are counted by another rank when norms are added up; NULL: none is */
} index_space;

typedef struct bucket {
    int64_t first, count; /* elements */
} bucket;

typedef struct buckets {
    bucket *b;
    int n;
} buckets;

/* One bucket per unit; greedy by size, a cap of elements (0: one bucket per tensor, INT64_MAX: everything in one). */
buckets buckets_by_unit(const index_space *s);
buckets buckets_by_size(const index_space *s, int64_t cap);
/* Moves ends to multiples of BUCKET_ALIGNMENT x ranks; drops buckets that become empty. */
void buckets_align(buckets *b, int ranks);
void buckets_free(buckets *b);

/* A range whose optimizer state this rank holds, and where in the rank's own state arenas it starts. */
typedef struct owned_range {
    int64_t first, count, state_first;
} owned_range;

typedef struct ownership {
    owned_range *r;
    int n;
    int64_t state_elements; /* of this rank */
    int *owner;             /* of each tensor, for whole tensors; else NULL */
} ownership;

ownership own_all(const index_space *s);
/* Slice `rank` of each of the aligned buckets, but the last `whole` ones whole; range i is that of bucket i. */
ownership own_slices(const buckets *b, int rank, int ranks, int whole);
/* Whole tensors, the largest first to the rank that holds least (the lowest of equal ones); neighbours are joined. */
ownership own_tensors(const index_space *s, int rank, int ranks);
void ownership_free(ownership *o);
