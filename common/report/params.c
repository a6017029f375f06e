/* SPDX-License-Identifier: MIT */
/* Values of parameters that go without saying; see params.h. */
#include "common/report/params.h"

#include <string.h>

/* Dimensions whose 0 means: as the others say; and attention without a window or documents. */
static const char *const unset[][2] = {
    {"heads_kv", "0"},    {"seq_k", "0"},      {"heads", "0"},   {"d_model", "0"},       {"d_ff", "0"},
    {"layers", "0"},      {"vocab", "0"},      {"window", "-1"}, {"window_right", "-1"}, {"documents", "0"},
    {"lengths", "equal"}, {"head_dim_v", "0"}, {NULL, NULL},
};

/* Parameters of the benches of a whole model at the value that goes without saying. */
static const char *const usual[][2] = {
    {"mode", "train-step"},   {"attention", "flash"},   {"recompute", "none"}, {"recompute_every", "1"},
    {"fp32_products", "fma"}, {"grad_dtype", "policy"}, {"overlap", "auto"},   {"warmup", "5"},
    {"share_grads", "1"},     {"loss_chunk", "0"},      {"cold", "0"},         {"reduce_dtype", "grad"},
    {"small", "sharded"},     {"gather", "nccl"},       {"moments", "policy"}, {"offload", "none"},
    {"offload_every", "1"},   {"micro_batches", "1"},   {"clip", "0"},         {NULL, NULL},
};

/* NULL: the list does not have it. */
static const char *value_in(const char *const list[][2], const char *name)
{
    for (size_t i = 0; list[i][0]; i++)
        if (strcmp(name, list[i][0]) == 0)
            return list[i][1];
    return NULL;
}

bool param_is_unset(const char *name, const char *value)
{
    const char *without = value_in(unset, name);
    return without && strcmp(value, without) == 0;
}

static const char *plain_value(const char *name)
{
    const char *without = value_in(unset, name);
    return without ? without : value_in(usual, name);
}

bool param_is_plain(const char *name, const char *value)
{
    const char *plain = plain_value(name);
    return plain && strcmp(value, plain) == 0;
}

bool param_departs(const char *name, const char *value)
{
    return *value && plain_value(name) && !param_is_plain(name, value);
}
