/* SPDX-License-Identifier: MIT */
/* Bandwidth of collectives; see collective.h. */
#include "common/formulas/collective.h"

#include <inttypes.h>
#include <stdio.h>

double collective_bus_factor(collective_op op, int ranks)
{
    const double share = (double)(ranks - 1) / ranks;
    switch (op) {
    case COLLECTIVE_ALL_REDUCE: return 2 * share;
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER: return share;
    default: return 1;
    }
}

double collective_gb_s(double bytes, double ms)
{
    return bytes / ms * 1e-6;
}

void collective_size_text(int64_t bytes, char *out, size_t out_bytes)
{
    static const struct {
        int64_t bytes;
        const char *name;
    } units[] = {{1 << 30, "GiB"}, {1000000000, "GB"}, {1 << 20, "MiB"}, {1000000, "MB"},
                 {1 << 10, "KiB"}, {1000, "kB"},       {1, "B"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (bytes % units[i].bytes == 0 && (bytes || units[i].bytes == 1)) {
            snprintf(out, out_bytes, "%" PRId64 " %s", bytes / units[i].bytes, units[i].name);
            return;
        }
}
