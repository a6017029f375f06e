/* SPDX-License-Identifier: MIT */
/* All-reduces of others beside ours; see allreduce_peers.h. */
#include "common/report/allreduce_peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

static const struct {
    const char *name, *file, *time; /* time: its column */
    double ms;                      /* of its unit */
    bool of_nccl;
} peers[ALLREDUCE_PEERS] = {
    {"PyTorch", "allreduce", "median_ms", 1, false},
    {"nccl-tests", "nccl_tests", "median_us", 1e-3, true},
};

allreduce_peers allreduce_peers_open(const char *dir)
{
    allreduce_peers p;
    for (size_t i = 0; i < ALLREDUCE_PEERS; i++)
        p.files[i] = open_peer_rows(dir, peers[i].file);
    return p;
}

void allreduce_peers_free(const allreduce_peers *p)
{
    for (size_t i = 0; i < ALLREDUCE_PEERS; i++)
        csv_free(p->files[i]);
}

const char *allreduce_peer_name(size_t which)
{
    return peers[which].name;
}

/* The library that did it, or that an op of our own stands in for. */
static const char *library_of(const table *t, size_t row)
{
    return strncmp(table_text(t, row, "backend"), "gloo", 4) == 0 ? "gloo" : "nccl";
}

/* Peers are measured in fp32 where a file does not say otherwise. */
static bool same_dtype(const csv *c, size_t peer, const table *t, size_t row)
{
    const char *ours = table_text(t, row, "dtype");
    return csv_column(c, "dtype") < 0 ? strcmp(ours, "fp32") == 0 : cell_is(c, peer, "dtype", ours);
}

/* A row of the same case, whatever its origin; a file without in_place has calls in place alone, and one without a backend is of
 * NCCL. */
static size_t same_call(const csv *c, const table *t, size_t row)
{
    static const char *const same[] = {"ranks", "bytes", "mode", "in_place"};
    for (size_t i = 0; c && i < c->rows; i++) {
        bool found = same_dtype(c, i, t, row);
        for (size_t k = 0; found && k < sizeof same / sizeof *same; k++)
            found = csv_column(c, same[k]) < 0 || cell_is(c, i, same[k], table_text(t, row, same[k]));
        if (found && (csv_column(c, "backend") < 0 || cell_is(c, i, "backend", library_of(t, row))))
            return i;
    }
    return NO_ROW;
}

static size_t peer_row(const allreduce_peers *p, size_t which, const table *t, size_t row)
{
    if (row == NO_ROW || (peers[which].of_nccl && strcmp(library_of(t, row), "nccl") != 0))
        return NO_ROW;
    return same_call(p->files[which], t, row);
}

double allreduce_peer_ratio(const allreduce_peers *p, size_t which, const table *t, size_t row)
{
    const csv *c = p->files[which];
    const size_t theirs = peer_row(p, which, t, row);
    if (theirs == NO_ROW || !peer_beside(c, theirs, t, row, peers[which].time))
        return NAN;
    return peers[which].ms * csv_real(c, theirs, peers[which].time) / table_real(t, row, "median_ms");
}

/* Whether no row of the same case is faster. */
static bool is_fastest(const table *t, size_t row)
{
    static const char *const same[] = {"ranks", "bytes", "dtype", "mode", "in_place"};
    for (size_t i = 0; i < t->n; i++) {
        bool alike = true;
        for (size_t k = 0; alike && k < sizeof same / sizeof *same; k++)
            alike = strcmp(table_text(t, i, same[k]), table_text(t, row, same[k])) == 0;
        if (alike && table_real(t, i, "median_ms") < table_real(t, row, "median_ms"))
            return false;
    }
    return true;
}

void allreduce_peers_compare(comparison *to, const allreduce_peers *p, const table *t)
{
    to->library = "NCCL";
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(table_text(t, i, "mode"), "graph") != 0 || !is_fastest(t, i))
            continue; /* a call of the host has its launch in its time, which Python makes longer than C does */
        char *where = xasprintf("%s, %s%s", table_text(t, i, "size"), table_text(t, i, "dtype"),
                                strcmp(table_text(t, i, "in_place"), "0") == 0 ? ", not in place" : "");
        for (size_t which = 0; which < ALLREDUCE_PEERS; which++) {
            const size_t theirs = peer_row(p, which, t, i);
            const char *why = theirs == NO_ROW ? NULL : peer_refused(p->files[which], theirs, t, i, peers[which].time);
            if (why)
                comparison_refuse(to, why, peers[which].name, where);
            comparison_add(to, ratio_of_one(allreduce_peer_ratio(p, which, t, i)), peers[which].name, where);
        }
        free(where);
    }
}
