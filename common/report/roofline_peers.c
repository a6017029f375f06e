/* SPDX-License-Identifier: MIT */
/* PyTorch's products and copies beside ours; see roofline_peers.h. */
#include "common/report/roofline_peers.h"

#include <math.h>
#include <string.h>

#include "common/report/section.h"

csv *roofline_peers_open(const char *dir)
{
    return open_peer_rows(dir, "gemm", "peer_gemm.csv");
}

static bool sampled_alike(const table *t, size_t row, const csv *c, size_t peer)
{
    const char *policy = csv_cell(c, peer, "policy");
    const bool settled = policy && strstr(policy, "samples after");
    return settled == (table_real(t, row, "settle_s") > 0);
}

size_t roofline_peers_ours(const table *t, const csv *c, size_t peer)
{
    const bool copy = cell_is(c, peer, "bench", "copy");
    const size_t mine =
        table_find(t, "variant", copy ? "copy_kernel" : "gemm", "status", "ok", copy ? "bytes" : "dtype",
                   csv_cell(c, peer, copy ? "size" : "dtype"), copy ? NULL : "size", csv_cell(c, peer, "size"), NULL);
    return mine != NO_ROW && peer_beside(c, peer, t, mine) && sampled_alike(t, mine, c, peer) ? mine : NO_ROW;
}

double roofline_peers_lead(const table *t, const csv *c, const char *kind, const char *dtype, size_t *cases)
{
    double least = INFINITY;
    *cases = 0;
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!cell_is(c, i, "bench", kind) || (dtype && !cell_is(c, i, "dtype", dtype)))
            continue;
        const size_t mine = roofline_peers_ours(t, c, i);
        const double ratio = mine == NO_ROW ? NAN : 1e3 * csv_real(c, i, "median_ms") / table_real(t, mine, "time_us");
        *cases += isfinite(ratio);
        least = fmin(least, ratio);
    }
    return least;
}
