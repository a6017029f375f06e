/* SPDX-License-Identifier: MIT */
/* Threads that share out the blocks of a state as they come; see hasher.h. */
#include "common/checkpoint/hasher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/checkpoint/hash.h"
#include "common/checkpoint/manifest.h"
#include "common/core/error.h"

typedef struct worker {
    checkpoint_hasher *h;
    pthread_t thread;
    void (*beat)(void);
    char *slot; /* pinned; NULL: the device's memory is the host's */
    void *stream;
    device_event *fetched;
} worker;

struct checkpoint_hasher {
    device *d;
    int threads;
    worker *workers;
    const checkpoint_pieces *pieces; /* of the call that is under way */
    uint64_t *out;
    atomic_llong next;
};

checkpoint_hasher *checkpoint_hasher_create(device *d, int threads)
{
    checkpoint_hasher *h = xcalloc(1, sizeof *h);
    *h = (checkpoint_hasher){.d = d, .threads = threads};
    h->workers = xcalloc((unsigned long)threads, sizeof *h->workers);
    for (int i = 0; i < threads; i++) {
        worker *w = &h->workers[i];
        w->h = h;
        if (device_kind_of(d) == DEVICE_CPU)
            continue;
        w->slot = device_host_malloc(d, CHECKPOINT_BLOCK);
        w->stream = device_stream_create(d, STREAM_NORMAL, "hash");
        w->fetched = device_event_create(d);
        if (!w->slot)
            die(EXIT_CODE_FAILURE, "the host has no pinned memory to hash a state");
    }
    return h;
}

void checkpoint_hasher_free(checkpoint_hasher *h)
{
    if (!h)
        return;
    for (int i = 0; i < h->threads && h->workers[i].slot; i++) {
        device_host_free(h->d, h->workers[i].slot);
        device_stream_destroy(h->d, h->workers[i].stream);
        device_event_destroy(h->d, h->workers[i].fetched);
    }
    free(h->workers);
    free(h);
}

/* ---- blocks of pieces ---- */

int64_t checkpoint_pieces_blocks(const checkpoint_pieces *p)
{
    int64_t blocks = 0;
    for (int i = 0; i < p->n; i++)
        blocks += checkpoint_blocks(p->p[i].bytes);
    return blocks;
}

/* The piece of a block, which becomes the block's number within it. */
static const checkpoint_piece *piece_of(const checkpoint_pieces *p, int64_t *block)
{
    const checkpoint_piece *x = p->p;
    for (; *block >= checkpoint_blocks(x->bytes); x++)
        *block -= checkpoint_blocks(x->bytes);
    return x;
}

const char *checkpoint_pieces_at(const checkpoint_pieces *p, const checkpoint_layout *l, int64_t block, char *out,
                                 size_t out_bytes)
{
    const checkpoint_piece *x = piece_of(p, &block);
    return checkpoint_at(l, x->file, x->offset + block * CHECKPOINT_BLOCK, out, out_bytes);
}

static void hash_block(worker *w, int64_t block)
{
    const checkpoint_hasher *h = w->h;
    int64_t within = block;
    const checkpoint_piece *x = piece_of(h->pieces, &within);
    const int64_t at = within * CHECKPOINT_BLOCK, left = x->bytes - at;
    const size_t bytes = (size_t)(left < CHECKPOINT_BLOCK ? left : CHECKPOINT_BLOCK);
    const char *from = x->at + at;
    if (w->slot) {
        device_stream_copy(h->d, w->stream, w->slot, from, bytes);
        device_stream_record(h->d, w->stream, w->fetched);
        device_event_sync(h->d, w->fetched);
        from = w->slot;
    }
    h->out[block] = checkpoint_hash(from, bytes);
}

static void *hash_blocks(void *arg)
{
    worker *w = arg;
    const int64_t blocks = checkpoint_pieces_blocks(w->h->pieces);
    for (int64_t b = atomic_fetch_add(&w->h->next, 1); b < blocks; b = atomic_fetch_add(&w->h->next, 1)) {
        hash_block(w, b);
        if (w->beat)
            w->beat();
    }
    return NULL;
}

void checkpoint_hasher_run(checkpoint_hasher *h, const checkpoint_pieces *p, uint64_t *out, void (*beat)(void))
{
    h->pieces = p;
    h->out = out;
    h->workers[0].beat = beat;
    atomic_store(&h->next, 0);
    for (int i = 1; i < h->threads; i++)
        if (pthread_create(&h->workers[i].thread, NULL, hash_blocks, &h->workers[i]) != 0)
            die(EXIT_CODE_FAILURE, "can't start a thread that hashes a state");
    hash_blocks(&h->workers[0]);
    for (int i = 1; i < h->threads; i++)
        pthread_join(h->workers[i].thread, NULL);
}
