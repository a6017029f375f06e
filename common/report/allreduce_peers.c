/* SPDX-License-Identifier: MIT */
/* All-reduces of others beside ours; see allreduce_peers.h. */
#include "common/report/allreduce_peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

static const struct {
    const char *name, *peer, *old; /* the files' names: with --peers, and before there was that */
    const char *time, *old_time;   /* their columns */
    double ms;                     /* of their unit */
    bool of_nccl;
} peers[ALLREDUCE_PEERS] = {
    {"PyTorch", "allreduce", "pytorch_allreduce.csv", "median_ms", "ms", 1, false},
    {"nccl-tests", "nccl_tests", "nccl_tests.csv", "median_us", "us", 1e-3, true},
};

allreduce_peers allreduce_peers_open(const char *dir)
{
    allreduce_peers p;
    for (size_t i = 0; i < ALLREDUCE_PEERS; i++)
        p.files[i] = open_peer_rows(dir, peers[i].peer, peers[i].old);
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

/* A row of the same case: old files have neither its mode nor whether it was in place. */
static size_t peer_row(const csv *c, const table *t, size_t row)
{
    static const char *const same[] = {"ranks", "bytes", "mode", "in_place"};
    for (size_t i = 0; i < c->rows; i++) {
        bool found = peer_beside(c, i, t, row) && same_dtype(c, i, t, row);
        for (size_t k = 0; found && k < sizeof same / sizeof *same; k++)
            found = csv_column(c, same[k]) < 0 || cell_is(c, i, same[k], table_text(t, row, same[k]));
        if (found && (csv_column(c, "backend") < 0 || cell_is(c, i, "backend", library_of(t, row))))
            return i;
    }
    return NO_ROW;
}

double allreduce_peer_ratio(const allreduce_peers *p, size_t which, const table *t, size_t row)
{
    const csv *c = p->files[which];
    if (!c || row == NO_ROW || (peers[which].of_nccl && strcmp(library_of(t, row), "nccl") != 0))
        return NAN;
    if (!peers[which].of_nccl && csv_column(c, "mode") < 0 && strcmp(table_text(t, row, "mode"), "eager") != 0)
        return NAN; /* an old file of PyTorch's, all eager */
    const size_t theirs = peer_row(c, t, row);
    if (theirs == NO_ROW)
        return NAN;
    const char *column = csv_column(c, peers[which].time) < 0 ? peers[which].old_time : peers[which].time;
    return peers[which].ms * csv_real(c, theirs, column) / table_real(t, row, "median_ms");
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
    for (size_t i = 0; i < t->n; i++) {
        char *where =
            xasprintf("%s, %s, %s%s", table_text(t, i, "size"), table_text(t, i, "dtype"), table_text(t, i, "mode"),
                      strcmp(table_text(t, i, "in_place"), "0") == 0 ? ", not in place" : "");
        for (size_t which = 0; which < ALLREDUCE_PEERS && is_fastest(t, i); which++)
            comparison_add(to, allreduce_peer_ratio(p, which, t, i), peers[which].name, where);
        free(where);
    }
}
