/* SPDX-License-Identifier: MIT */
/* Parameters of a CSV file; see params.h. */
#include "common/compare/params.h"

#include <string.h>

#include "common/core/text.h"

/* Dimensions of attention whose 0 means: as the others say; and attention without a window or documents. */
static const char *const unset[][2] = {
    {"heads_kv", "0"},  {"seq_k", "0"},       {"window", "-1"},    {"window_right", "-1"},
    {"documents", "0"}, {"lengths", "equal"}, {"head_dim_v", "0"}, {NULL, NULL},
};

/* Parameters of the benches of a whole model at the value that goes without saying. */
static const char *const usual[][2] = {
    {"mode", "train-step"},
    {"attention", "flash"},
    {"recompute", "none"},
    {"recompute_every", "1"},
    {"fp32_products", "fma"},
    {"grad_dtype", "policy"},
    {"overlap", "auto"},
    {"warmup", "5"},
    {"share_grads", "1"},
    {"loss_chunk", "0"},
    {"cold", "0"},
    {"reduce_dtype", "grad"},
    {"small", "sharded"},
    {"gather", "nccl"},
    {"moments", "policy"},
    {"offload", "none"},
    {"offload_every", "1"},
    {"micro_batches", "1"},
    {"clip", "0"},
    {"reduce", "nccl"},
    {NULL, NULL},
};

/* NULL: it has none. */
static const char *plain_value(const char *name)
{
    for (size_t i = 0; unset[i][0]; i++)
        if (strcmp(name, unset[i][0]) == 0)
            return unset[i][1];
    for (size_t i = 0; usual[i][0]; i++)
        if (strcmp(name, usual[i][0]) == 0)
            return usual[i][1];
    return NULL;
}

bool param_departs(const char *name, const char *value)
{
    const char *plain = plain_value(name);
    return *value && plain && strcmp(value, plain) != 0;
}

static bool is_measured(const char *column)
{
    static const char *const units[] = {"_ms", "_us", "_s", "_bytes", "_gib", "_gb_s", "_tflops", "_pct", "_mhz"};
    size_t i = 0;
    while (i < sizeof units / sizeof *units && !text_ends(column, units[i]))
        i++;
    return i < sizeof units / sizeof *units;
}

void params_of(const csv *file, int *first, int *end)
{
    *first = *end = csv_column(file, "reason") + 1;
    while (*end < (int)file->columns && !is_measured(file->header[*end]))
        ++*end;
}
