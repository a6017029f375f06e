/* SPDX-License-Identifier: MIT */
/* The input and output of a rank's model: tokens, checksums; see replica.h. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/replica/replica.h"
#include "common/session/watchdog.h"

/* ---- tokens ---- */

void replica_set_tokens(trainer *t, uint64_t seed, int rank)
{
    const trainer_options *o = trainer_options_of(t);
    const size_t n = (size_t)o->batch * (size_t)o->seq;
    int32_t *ids = xmalloc(2 * n * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        const uint64_t place = (uint64_t)rank * n + i; /* sample x seq + position: rank's samples follow each other */
        ids[i] = (int32_t)(rng_uniform(seed, 0xdd9, place) * o->config.vocab);
        ids[n + i] = (int32_t)(rng_uniform(seed, 0xdda, place) * o->config.vocab);
    }
    trainer_set_tokens(t, ids, ids + n);
    free(ids);
}

void replica_set_safe_loss_scale(trainer *t)
{
    if (trainer_options_of(t)->precision->loss_scaling)
        trainer_set_loss_scale(t, 1024);
}

/* ---- checksums ---- */

/* Four independent sums, for speed; `bytes` is a multiple of 32. */
static void add_to_checksum(uint64_t sums[4], const unsigned char *x, size_t bytes)
{
    for (size_t i = 0; i + 32 <= bytes; i += 32)
        for (int lane = 0; lane < 4; lane++) {
            uint64_t word;
            memcpy(&word, x + i + 8 * lane, sizeof word);
            sums[lane] = ((sums[lane] ^ word) * 0x9e3779b97f4a7c15u);
            sums[lane] ^= sums[lane] >> 29;
        }
}

uint64_t replica_checksum(replica *r)
{
    const size_t chunk = (size_t)64 << 20;
    uint64_t sums[4] = {1, 2, 3, 4};
    if (!r->member)
        return 0;
    const size_t bytes = (size_t)r->plan->elements * (size_t)sb_dtype_bytes(trainer_param_dtype(r->t));
    unsigned char *host = xmalloc(bytes < chunk ? bytes : chunk);
    replica_settle(r);
    for (size_t at = 0; at < bytes; at += chunk) {
        const size_t n = bytes - at < chunk ? bytes - at : chunk;
        device_download(r->at.d, host, (const char *)trainer_param_arena(r->t) + at, n);
        add_to_checksum(sums, host, n);
        watchdog_beat();
    }
    free(host);
    return sums[0] ^ sums[1] << 1 ^ sums[2] << 2 ^ sums[3] << 3;
}

int replica_odd_rank(const replica *r, uint64_t checksum)
{
    if (!r->at.l)
        return -1;
    uint64_t *all = xcalloc((unsigned long)launch_size(r->at.l), sizeof *all);
    launch_gather(r->at.l, "checksums", &checksum, sizeof checksum, all);
    int odd = -1;
    for (int k = r->plan->o.ranks - 1; k > 0; k--)
        odd = all[k] != all[0] ? k : odd;
    free(all);
    return odd;
}
