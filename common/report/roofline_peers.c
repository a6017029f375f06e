/* SPDX-License-Identifier: MIT */
/* PyTorch's products and copies beside ours; see roofline_peers.h. */
#include "common/report/roofline_peers.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

csv *roofline_peers_open(const char *dir)
{
    return open_peer_rows(dir, "gemm");
}

static size_t same_work(const table *t, const csv *c, size_t peer)
{
    const bool copy = cell_is(c, peer, "bench", "copy");
    return table_find(t, "variant", copy ? "copy_kernel" : "gemm", "status", "ok", copy ? "bytes" : "dtype",
                      csv_cell(c, peer, copy ? "size" : "dtype"), copy ? NULL : "size", csv_cell(c, peer, "size"),
                      NULL);
}

size_t roofline_peers_ours(const table *t, const csv *c, size_t peer)
{
    const size_t mine = same_work(t, c, peer);
    return mine != NO_ROW && peer_beside(c, peer, t, mine, "median_ms") ? mine : NO_ROW;
}

void roofline_peers_compare(comparison *to, const table *t, const csv *c, const char *kind, const char *dtype)
{
    if (strcmp(kind, "gemm") == 0)
        to->library = "cuBLAS";
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!cell_is(c, i, "bench", kind) || (dtype && !cell_is(c, i, "dtype", dtype)))
            continue;
        const size_t mine = same_work(t, c, i);
        if (mine == NO_ROW)
            continue;
        const char *why = peer_refused(c, i, t, mine, "median_ms");
        char *where =
            dtype ? xasprintf("n %s", csv_cell(c, i, "size")) : xstrdup(number_unit(csv_real(c, i, "size"), "bytes"));
        if (why)
            comparison_refuse(to, why, "PyTorch", where);
        else
            comparison_add(to, ratio_of_one(1e3 * csv_real(c, i, "median_ms") / table_real(t, mine, "time_us")),
                           "PyTorch", where);
        free(where);
    }
}
