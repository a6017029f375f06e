/* SPDX-License-Identifier: MIT */
/* Selections that several problems share; see rows.h. */
#include <string.h>

#include "common/model/config.h"
#include "common/report/sections/course/rows.h"

const char *value_or_last(const table *t, const char *column, const char *wanted)
{
    if (table_find(t, column, wanted, NULL) != NO_ROW)
        return wanted;
    values all = table_values(t, column);
    const char *last = all.n ? all.v[all.n - 1] : "";
    values_free(&all);
    return last;
}

table *plain_rows(const table *t)
{
    const char *const plain[][2] = {
        {"status", "ok"},
        {"attention", "flash"},
        {"recompute", "none"},
        {"recompute_every", "1"},
        {"offload", "none"},
        {"fp32_products", "fma"},
        {"moments", "policy"},
        {"grad_dtype", "policy"},
        {"loss_chunk", "0"},
        {"micro_batches", "1"},
        {"clip", "0"},
        {"d_model", "0"},
        {"d_ff", "0"},
        {"layers", "0"},
        {"heads", "0"},
        {"heads_kv", "0"},
        {"vocab", "0"},
        {"deterministic", "0"},
        {"overlap", value_or_last(t, "overlap", "auto")}, /* the default is not the same in all benches */
        {"cold", "0"},
        {"batch", "4"},
    };
    enum { PLAIN = sizeof plain / sizeof *plain };
    const char *columns[PLAIN], *wanted[PLAIN];
    size_t n = 0;
    for (size_t i = 0; i < PLAIN; i++)
        if (csv_column(t->file, plain[i][0]) >= 0) {
            columns[n] = plain[i][0];
            wanted[n++] = plain[i][1];
        }
    return table_where_pairs(t, n, columns, wanted);
}

const char *main_level(const table *t)
{
    const bool graph = table_find(t, "variant", "graph", "status", "ok", NULL) != NO_ROW;
    const bool kernels = table_find(t, "variant", "kernels", "status", "ok", NULL) != NO_ROW;
    return kernels && !graph ? "kernels" : "graph";
}

values sizes_in_order(const table *t)
{
    values sizes = table_values(t, "size");
    size_t n = 0;
    for (const model_config *c = model_sizes; c->name; c++)
        for (size_t i = n; i < sizes.n; i++)
            if (strcmp(sizes.v[i], c->name) == 0) {
                const char *swap = sizes.v[n];
                sizes.v[n++] = sizes.v[i];
                sizes.v[i] = swap;
            }
    return sizes;
}

const char *range_text(double low, double high)
{
    static char text[64];
    const char *from = number(low), *to = number(high);
    if (strcmp(from, to) == 0)
        snprintf(text, sizeof text, "%s", from);
    else
        snprintf(text, sizeof text, "%s to %s", from, to);
    return text;
}
