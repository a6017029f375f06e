/* SPDX-License-Identifier: MIT */
/* Blocks of a save: who writes which, from where to which file. A file system lets one thread at a time write to a file, so
 * a rank writes several files at once, each from its first block to its last. Where there are more threads than files at
 * once, two share a file, and one fetches and hashes a block while the other writes. Ranks keep apart (order.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hash.h"
#include "common/checkpoint/save_internal.h"
#include "common/core/clock.h"
#include "common/core/error.h"

enum { PART = 1 << 20 };

/* A plain weight has no low half: then the fault takes the second moments. */
bool saver_left_out(const checkpoint_saver *s, const checkpoint_piece *p)
{
    char what[96];
    if (!saver_planted(s, "low"))
        return false;
    checkpoint_at(s->l, p->file, p->offset, what, sizeof what);
    return strstr(what, s->l->model.master == SB_MASTER_NONE ? ".exp_avg_sq" : ".master");
}

/* Enqueues what a writer asks for. */
static void enqueue(const writer *w)
{
    const checkpoint_saver *s = w->s;
    const saver_run *run = &s->run[w->run];
    const checkpoint_run *x = &s->runs.r[w->run];
    const bool staged = s->copy;
    const checkpoint_piece whole = {s->copy + run->at, x->file, x->offset, x->bytes};
    const checkpoint_piece *p = staged ? &whole : &s->pieces->p[run->first], *end = p + (staged ? 1 : run->count);
    for (; p < end; p++) {
        const int64_t from = p->offset > w->offset ? p->offset : w->offset, piece_end = p->offset + p->bytes;
        const int64_t last = piece_end < w->offset + w->bytes ? piece_end : w->offset + w->bytes;
        if (from < last && (staged || !saver_left_out(s, p)))
            device_stream_copy(s->d, s->fetches, w->to + from - w->offset, p->at + from - p->offset,
                               (size_t)(last - from));
    }
}

/* One thread calls the driver and waits for the device: the calls of many keep the driver from the thread that launches
 * steps, and their waits keep cores busy. Steps are slower while a device sends to the host, so it leaves the link to those
 * beside a save for as long as a block took. */
static void *fetch_blocks(void *arg)
{
    checkpoint_saver *s = arg;
    const bool rests = s->o.way == CHECKPOINT_DEVICE;
    int next = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->written) {
        writer *w = NULL;
        for (int i = 0; i < s->threads && !w; i++, next = (next + 1) % s->threads)
            w = s->writers[next].asks ? &s->writers[next] : NULL;
        if (!w) {
            pthread_cond_wait(&s->asked, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        const double start = host_seconds();
        enqueue(w);
        device_stream_record(s->d, s->fetches, s->fetched);
        device_event_sync(s->d, s->fetched);
        const double end = host_seconds();
        pthread_mutex_lock(&s->lock);
        w->asks = false;
        pthread_cond_signal(&w->fetched);
        pthread_mutex_unlock(&s->lock);
        while (rests && host_seconds() - end < end - start) /* a sleep would be longer */
            ;
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Waits until [offset, offset + bytes) of run r is at `to`. */
static void fetch(writer *w, int r, int64_t offset, int64_t bytes, char *to)
{
    checkpoint_saver *s = w->s;
    pthread_mutex_lock(&s->lock);
    w->run = r;
    w->offset = offset;
    w->bytes = bytes;
    w->to = to;
    w->asks = true;
    pthread_cond_signal(&s->asked);
    while (w->asks)
        pthread_cond_wait(&w->fetched, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

bool saver_write_all(int fd, const char *from, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        const ssize_t n = pwrite(fd, from, (size_t)bytes, (off_t)offset);
        if (n < 0 && errno != EINTR)
            return false;
        from += n > 0 ? n : 0;
        offset += n > 0 ? n : 0;
        bytes -= n > 0 ? n : 0;
    }
    return true;
}

static bool past_the_cache(checkpoint_saver *s, int file)
{
    return s->direct[file] >= 0 && !atomic_load(&s->refused);
}

/* The aligned middle goes past the page cache, the edges through it. */
static bool write_block(checkpoint_saver *s, int file, const char *from, int64_t bytes, int64_t offset)
{
    const int64_t unit = CHECKPOINT_ALIGNMENT, low = (offset + unit - 1) / unit * unit,
                  high = (offset + bytes) / unit * unit;
    if (past_the_cache(s, file) && low < high) {
        if (saver_write_all(s->direct[file], from + low - offset, high - low, low))
            return saver_write_all(s->file[file], from, low - offset, offset) &&
                   saver_write_all(s->file[file], from + high - offset, offset + bytes - high, high);
        if (errno != EINVAL)
            return false;
        atomic_store(&s->refused, true);
    }
    return saver_write_all(s->file[file], from, bytes, offset);
}

/* What an error that is planted does to the first block, behind its hash. False: it is not written. */
static bool harm(const checkpoint_saver *s, char *block, int64_t bytes)
{
    if (saver_planted(s, "bit"))
        block[bytes / 2] ^= 1;
    for (int64_t i = 0; saver_planted(s, "swap") && i < bytes / 2; i++) {
        const char kept = block[i];
        block[i] = block[i + bytes / 2];
        block[i + bytes / 2] = kept;
    }
    return !saver_planted(s, "hole");
}

/* Hashes and writes block b of run r, in parts that a processor's cache holds from the one to the other: memory is what all
 * writers wait for. What goes past the page cache is aligned but for its edges, and stays in one. */
static bool save_block(writer *w, int r, int64_t b)
{
    checkpoint_saver *s = w->s;
    checkpoint_run *run = &s->runs.r[r];
    lane *x = &s->lanes[run->file];
    const int64_t at = b * CHECKPOINT_BLOCK, left = run->bytes - at;
    const int64_t bytes = left < CHECKPOINT_BLOCK ? left : CHECKPOINT_BLOCK, offset = run->offset + at;
    const bool past = past_the_cache(s, run->file), first = r == 0 && b == 0;
    const int64_t most = past || (first && s->o.plant) ? bytes : PART;
    char *from = saver_is_pinned(s) ? s->copy + s->run[r].at + at : w->slot + offset % CHECKPOINT_ALIGNMENT;
    checkpoint_hash_state hash = {.bytes = 0};
    bool ok = true;
    if (s->copy)
        saver_await_landed(s, x->place + 1);
    if (!saver_is_pinned(s))
        fetch(w, r, offset, bytes, from);
    checkpoint_reach("block");
    for (int64_t done = 0; done < bytes && ok; done += most) {
        const int64_t part = bytes - done < most ? bytes - done : most;
        run->hashes[b] = checkpoint_hash_more(&hash, from + done, (size_t)part);
        if (first && !harm(s, from, bytes))
            break;
        if (!past)
            pthread_mutex_lock(&x->writing);
        ok = write_block(s, run->file, from + done, part, offset + done);
        if (!past)
            pthread_mutex_unlock(&x->writing);
    }
    if (!past && ok)
        sync_file_range(s->file[run->file], offset, bytes, SYNC_FILE_RANGE_WRITE); /* a disk begins; no promise yet */
    return ok;
}

static int run_of(const checkpoint_saver *s, int64_t block)
{
    int low = 0, high = s->runs.n; /* first[low] <= block < first[high] */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (s->first[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* How many files are written at once: twice o.writers, shared among all ranks, as they share the host's memory: two
 * ranks with 16 files each wrote half of what they did with 8. At most half as many from a device, whose steps feel the copies. */
int saver_most_at_once(const checkpoint_saver *s)
{
    const int share = 2 * s->o.writers / s->o.ranks, most = share < 1 ? 1 : share;
    return s->o.way == CHECKPOINT_DEVICE && most > s->o.writers ? s->o.writers : most;
}

/* Under the copies of several devices to memory, which the caller waits for, few; under those of lazy saves, beside which a
 * step is at work, none at all: memory is what both want, and the files were complete no sooner. */
static int most_begun(const checkpoint_saver *s)
{
    const int most = saver_most_at_once(s);
    return saver_is_pinned(s) && s->o.ranks > 1 && s->landed < s->ordered && most > 4 ? 4 : most;
}

/* A file with fewer than two threads, a new one while few enough are open; near the end whichever has the fewest. NULL: no
 * block is left. */
static lane *pick(checkpoint_saver *s)
{
    lane *fresh = NULL, *open = NULL;
    int begun = 0;
    for (int i = 0; i < s->ordered; i++) {
        lane *x = &s->lanes[s->order[i]];
        if (x->next == x->end)
            continue;
        begun += x->threads > 0;
        if (x->threads == 0 && !fresh)
            fresh = x;
        if (x->threads > 0 && (!open || x->threads < open->threads))
            open = x;
    }
    return fresh && begun < most_begun(s) ? fresh : open ? open : fresh;
}

/* The block that a thread at `at` writes next, which may be of another file; -1: all are taken, or a save has failed. */
static int64_t take_block(checkpoint_saver *s, lane **at)
{
    pthread_mutex_lock(&s->lock);
    if (*at && ((*at)->next == (*at)->end || (*at)->threads > 2)) {
        (*at)->threads--;
        *at = NULL;
    }
    if (!*at) {
        *at = pick(s);
        if (*at)
            (*at)->threads++;
    }
    const int64_t block = *at && s->saved.ok ? (*at)->next++ : -1;
    pthread_mutex_unlock(&s->lock);
    return block;
}

static void *write_blocks(void *arg)
{
    writer *w = arg;
    checkpoint_saver *s = w->s;
    lane *at = NULL;
    for (int64_t b = take_block(s, &at); b >= 0; b = take_block(s, &at)) {
        const int r = run_of(s, b);
        errno = 0;
        if (!save_block(w, r, b - s->first[r]))
            saver_fail(s, "write", s->l->file[s->runs.r[r].file].name);
    }
    return NULL;
}

/* Runs lie in the order of files, and so do their blocks. */
void saver_fill_lanes(checkpoint_saver *s)
{
    for (int f = 0; f < s->l->files; f++)
        s->lanes[f].next = s->lanes[f].end = s->lanes[f].threads = 0;
    for (int r = 0; r < s->runs.n; r++) {
        lane *x = &s->lanes[s->runs.r[r].file];
        if (x->end == 0)
            x->next = s->first[r];
        x->end = s->first[r + 1];
    }
}

void saver_on_all_writers(checkpoint_saver *s, void *(*work)(void *))
{
    atomic_store(&s->next, 0);
    for (int i = 1; i < s->threads; i++)
        if (pthread_create(&s->writers[i].thread, NULL, work, &s->writers[i]) != 0)
            die(EXIT_CODE_FAILURE, "can't start a thread that writes a checkpoint");
    work(&s->writers[0]);
    for (int i = 1; i < s->threads; i++)
        pthread_join(s->writers[i].thread, NULL);
}

void saver_write_files(checkpoint_saver *s)
{
    pthread_t fetcher;
    s->written = false;
    if (s->fetches && pthread_create(&fetcher, NULL, fetch_blocks, s) != 0)
        die(EXIT_CODE_FAILURE, "can't start a thread that fetches a state");
    if (s->o.way == CHECKPOINT_LAZY && s->copy && s->o.ranks > 1)
        saver_await_landed(s, s->ordered);
    saver_on_all_writers(s, write_blocks);
    pthread_mutex_lock(&s->lock);
    s->written = true;
    pthread_cond_signal(&s->asked);
    pthread_mutex_unlock(&s->lock);
    if (s->fetches)
        pthread_join(fetcher, NULL);
}
