/* SPDX-License-Identifier: MIT */
/* Samples of a file or of generated tokens; see data.h. */
#include "common/data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/data/order.h"
#include "common/data/tokens.h"

struct data {
    made *made;
    token_file *file;
    int seq;
    int64_t windows;
    uint64_t seed, print;
    bool repeats;
};

static bool print_of(const data *d, uint64_t *out)
{
    enum { SAMPLES = 64, TOKENS = 1 << 20 };
    const int64_t n = d->seq + 1;
    OWNED int32_t *tokens = xmalloc((size_t)n * sizeof *tokens);
    uint64_t print = 0xcbf29ce484222325u; /* FNV-1a, a token at a time */
    for (int64_t i = 0; i < SAMPLES && i * n < TOKENS; i++) {
        if (!data_sample(d, i, tokens))
            return false;
        for (int64_t t = 0; t < n; t++)
            print = (print ^ (uint32_t)tokens[t]) * 0x100000001b3u;
    }
    *out = print;
    return true;
}

data *data_open(const char *name, int symbols, int seq, uint64_t seed, char *why, size_t why_bytes)
{
    data *d = xcalloc(1, sizeof *d);
    d->seq = seq, d->seed = rng_hash(seed, "order of samples");
    if (strcmp(name, "made") == 0)
        d->made = made_create(symbols, seed);
    else
        d->file = tokens_open(name, why, why_bytes);
    d->windows = d->file ? (tokens_count(d->file) - 1) / seq : 0;
    if (d->file && d->windows < 1)
        snprintf(why, why_bytes, "%s has %lld tokens, fewer than a window of %d and its target", name,
                 (long long)tokens_count(d->file), seq);
    const bool ok = d->made || d->windows > 0;
    if (ok && print_of(d, &d->print))
        return d;
    if (ok)
        snprintf(why, why_bytes, "%s: " DATA_UNREADABLE, name);
    data_close(d);
    return NULL;
}

void data_close(data *d)
{
    if (!d)
        return;
    made_free(d->made);
    tokens_close(d->file);
    free(d);
}

const made *data_made(const data *d)
{
    return d->made;
}

uint64_t data_print(const data *d)
{
    return d->print;
}

static uint64_t with_repeat(uint64_t i, uint64_t n, uint64_t key)
{
    return order_of(i == 1 ? 0 : i, n, key);
}

bool data_sample(const data *d, int64_t sample, int32_t *out)
{
    if (d->made) {
        made_window(d->made, sample, d->seq + 1, out);
        return true;
    }
    const uint64_t n = (uint64_t)d->windows, key = d->seed + (uint64_t)sample / n;
    const uint64_t at = (d->repeats ? with_repeat : order_of)((uint64_t)sample % n, n, key);
    return tokens_read(d->file, (int64_t)at * d->seq, d->seq + 1, out);
}

bool data_order_is_whole(const data *d)
{
    return d->made || order_is_whole(d->repeats ? with_repeat : order_of, (uint64_t)d->windows, d->seed);
}

void data_plant_repeat(data *d)
{
    d->repeats = true;
}
