/* SPDX-License-Identifier: MIT */
/* PyTorch's products and copies beside ours; see roofline_peers.h. */
#include "common/report/roofline_peers.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

csv *roofline_peers_open(const char *dir)
{
    return open_peer_rows(dir, "gemm", "peer_gemm.csv");
}

static bool is_settled(const csv *c, size_t peer)
{
    const char *policy = csv_cell(c, peer, "policy");
    return policy && strstr(policy, "samples after");
}

/* The same work on the same GPU in the same run, however it was sampled. */
static size_t same_work(const table *t, const csv *c, size_t peer)
{
    const bool copy = cell_is(c, peer, "bench", "copy");
    const size_t mine =
        table_find(t, "variant", copy ? "copy_kernel" : "gemm", "status", "ok", copy ? "bytes" : "dtype",
                   csv_cell(c, peer, copy ? "size" : "dtype"), copy ? NULL : "size", csv_cell(c, peer, "size"), NULL);
    return mine != NO_ROW && peer_beside(c, peer, t, mine) ? mine : NO_ROW;
}

static bool sampled_alike(const table *t, size_t row, const csv *c, size_t peer)
{
    return is_settled(c, peer) == (table_real(t, row, "settle_s") > 0);
}

size_t roofline_peers_ours(const table *t, const csv *c, size_t peer)
{
    const size_t mine = same_work(t, c, peer);
    return mine != NO_ROW && sampled_alike(t, mine, c, peer) ? mine : NO_ROW;
}

roofline_sampled roofline_peers_compare(comparison *to, const table *t, const csv *c, const char *kind,
                                        const char *dtype)
{
    roofline_sampled apart = SAMPLED_ALIKE;
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!cell_is(c, i, "bench", kind) || (dtype && !cell_is(c, i, "dtype", dtype)))
            continue;
        const size_t mine = same_work(t, c, i);
        if (mine == NO_ROW)
            continue;
        if (!sampled_alike(t, mine, c, i)) {
            apart = is_settled(c, i) ? SAMPLED_SETTLED : SAMPLED_UNSETTLED;
            continue;
        }
        char *where =
            dtype ? xasprintf("n %s", csv_cell(c, i, "size")) : xstrdup(number_unit(csv_real(c, i, "size"), "bytes"));
        comparison_add(to, 1e3 * csv_real(c, i, "median_ms") / table_real(t, mine, "time_us"), "PyTorch", where);
        free(where);
    }
    return apart;
}
