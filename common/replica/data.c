/* SPDX-License-Identifier: MIT */
/* The input and output of a rank's model: tokens, checksums; see replica.h. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/model/dtypes.h"
#include "common/replica/replica.h"
#include "common/session/watchdog.h"

/* ---- tokens ---- */

void replica_set_tokens(trainer *t, uint64_t seed, int rank)
{
    const step_options *o = trainer_options_of(t);
    const size_t n = (size_t)o->batch * (size_t)o->seq * (size_t)step_micro_batches(o);
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

enum { CHUNK = 64 << 20 };

static void add_memory(replica *r, uint64_t sums[4], const char *from, size_t bytes)
{
    unsigned char *host = xmalloc(bytes < CHUNK ? bytes : CHUNK);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        const size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        device_download(r->at.d, host, from + at, n);
        add_to_checksum(sums, host, n);
        watchdog_beat();
    }
    free(host);
}

/* Where the parameters of bucket i are whole until the next call; unit by unit if each rank has a slice. */
static const char *whole_bucket(replica *r, int i)
{
    if (r->plan->s->parameters == PARAMETERS_RESIDENT)
        return (const char *)trainer_param_arena(r->t) +
               r->plan->b.b[i].first * sb_dtype_bytes(trainer_param_dtype(r->t));
    parallel_gather_now(r->p, i, trainer_scratch(r->t));
    device_sync(r->at.d);
    return trainer_scratch(r->t);
}

uint64_t replica_checksum(replica *r)
{
    uint64_t sums[4] = {1, 2, 3, 4};
    if (!r->member)
        return 0;
    const size_t element = (size_t)sb_dtype_bytes(trainer_param_dtype(r->t));
    replica_settle(r);
    if (r->plan->s->parameters == PARAMETERS_RESIDENT)
        add_memory(r, sums, trainer_param_arena(r->t), (size_t)r->plan->elements * element);
    else
        for (int i = 0; i < r->plan->b.n; i++)
            add_memory(r, sums, whole_bucket(r, i), (size_t)r->plan->b.b[i].count * element);
    return sums[0] ^ sums[1] << 1 ^ sums[2] << 2 ^ sums[3] << 3;
}

/* ---- parameters and gradients ---- */

static void floats_load(const replica *r, sb_dtype dtype, const void *from, int64_t count, float *out)
{
    const size_t bytes = (size_t)count * (size_t)sb_dtype_bytes(dtype);
    if (bytes == (size_t)count * sizeof *out) {
        device_download(r->at.d, out, from, bytes);
        return;
    }
    void *raw = xmalloc(bytes);
    device_download(r->at.d, raw, from, bytes);
    dtype_load(dtype, out, raw, (size_t)count);
    free(raw);
}

void replica_read_params(replica *r, float *out)
{
    const params *p = trainer_params(r->t);
    replica_settle(r);
    if (r->plan->s->parameters == PARAMETERS_RESIDENT) {
        for (int i = 0; i < p->count; i++)
            trainer_read_param(r->t, &p->tensors[i], out + p->tensors[i].first);
        return;
    }
    for (int i = 0; i < r->plan->b.n; i++)
        floats_load(r, trainer_param_dtype(r->t), whole_bucket(r, i), r->plan->b.b[i].count,
                    out + r->plan->b.b[i].first);
}

int64_t replica_grad_elements(const replica *r)
{
    return r->plan->s->gradients == GRADIENTS_SLICED ? r->plan->own.state_elements : r->plan->elements;
}

void replica_read_grads(replica *r, float *out)
{
    const sb_dtype dtype = trainer_grad_dtype(r->t);
    const ownership *own = &r->plan->own;
    const char *grads = trainer_grad_arena(r->t);
    if (r->plan->s->gradients == GRADIENTS_RESIDENT) {
        floats_load(r, dtype, grads, r->plan->elements, out);
        return;
    }
    for (int i = 0; i < own->n; i++)
        floats_load(r, dtype, grads + own->r[i].state_first * sb_dtype_bytes(dtype), own->r[i].count,
                    out + own->r[i].first);
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
