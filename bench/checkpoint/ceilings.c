/* SPDX-License-Identifier: MIT */
/* What copies, storage and hashes reach here, in the same run and on the same ranks: what a save is compared with. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/checkpoint/checkpoint.h"
#include "common/checkpoint/hash.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/session/watchdog.h"

enum { REPEATS = 3, BLOCK = 4 << 20, PART = 256 << 10 };
static const int64_t most_copied = 256 << 20, most_written = (int64_t)4 << 30;

/* Seconds of copying up to `most` bytes of the state: to the buffer, or back to where they came from. */
static double copy_state(const saving *s, char *buffer, int64_t most, bool back)
{
    device *d = s->r->at.d;
    int64_t done = 0;
    device_sync(d);
    const double start = host_seconds();
    for (int i = 0; i < s->x->save.n && done < most; i++) {
        const checkpoint_piece *p = &s->x->save.p[i];
        const int64_t bytes = p->bytes < most - done ? p->bytes : most - done;
        device_copy(d, back ? p->at : buffer + done, back ? buffer + done : p->at, (size_t)bytes);
        done += bytes;
    }
    device_sync(d);
    return host_seconds() - start;
}

static double best_rate(const saving *s, char *buffer, int64_t bytes, bool back)
{
    double least = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        launch_barrier(s->k->l, "copies");
        if (s->x && buffer)
            least = fmin(least, copy_state(s, buffer, bytes, back));
    }
    return s->x && buffer ? (double)bytes / least / 1e9 : NAN;
}

static double least_of(const saving *s, const char *name, double mine)
{
    return 1 / ddp_most(s->k, name, 1 / mine);
}

/* ---- storage ---- */

typedef struct stream { /* a thread, and which blocks of a file it writes, or reads */
    pthread_t thread;
    char *memory; /* to write, `rooms` blocks that it goes through from block `room` on, as a state lies in no cache */
    char *part;   /* to read: where each part comes, as a load's slots lie in a cache */
    int64_t room, rooms, first, stride, bytes;
    char path[600];
    bool reading, direct, ok;
} stream;

static bool read_block(int fd, char *part, int64_t block)
{
    bool ok = true;
    for (int64_t at = 0; at < BLOCK && ok; at += PART)
        ok = pread(fd, part, PART, block * BLOCK + at) == PART;
    return ok;
}

static void *run_stream(void *arg)
{
    stream *w = arg;
    const int flags = O_CLOEXEC | (w->reading ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC);
    int fd = w->direct ? open(w->path, flags | O_DIRECT, 0666) : -1;
    if (fd < 0)
        fd = open(w->path, flags, 0666);
    w->ok = fd >= 0;
    for (int64_t b = w->first; b * BLOCK < w->bytes && w->ok; b += w->stride) {
        char *at = w->memory + (w->room + b) % w->rooms * BLOCK;
        w->ok = w->reading ? read_block(fd, w->part, b) : pwrite(fd, at, BLOCK, b * BLOCK) == BLOCK;
    }
    w->ok = w->ok && (w->reading || fsync(fd) == 0);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void path_of(const saving *s, int file, char out[600])
{
    snprintf(out, 600, "%s/.trash-ceiling-%d-%d", s->folder, launch_rank(s->k->l), file);
}

/* A file for each writer, written by it alone; all readers share them. Returns seconds; NAN: it could not. */
static double on_streams(const saving *s, bool reading, char *memory, int64_t rooms, int64_t bytes)
{
    const int threads = reading ? s->readers : s->writers;
    stream *w = xcalloc((unsigned long)threads, sizeof *w);
    bool ok = true;
    const double start = host_seconds();
    for (int i = 0; i < threads; i++) {
        w[i] = (stream){.memory = memory,
                        .part = memory + i * PART % (rooms * BLOCK),
                        .room = i * rooms / threads,
                        .rooms = rooms,
                        .first = i / s->writers,
                        .stride = threads / s->writers,
                        .bytes = bytes,
                        .reading = reading,
                        .direct = s->direct && !reading};
        path_of(s, i % s->writers, w[i].path);
        if (pthread_create(&w[i].thread, NULL, run_stream, &w[i]) != 0)
            die(EXIT_CODE_FAILURE, "can't start a thread that writes or reads");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        ok = ok && w[i].ok;
    }
    const double seconds = host_seconds() - start;
    free(w);
    return ok ? seconds : NAN;
}

static void on_files(const saving *s, void (*work)(const char *path))
{
    char path[600];
    for (int i = 0; i < s->writers && s->x; i++) {
        path_of(s, i, path);
        work(path);
    }
}

static void remove_file(const char *path)
{
    unlink(path);
}

/* Plain files from touched pinned memory of `rooms` blocks, synced, on fresh pages each time, as a save has them; then read. */
static void measure_storage(const saving *s, char *memory, int64_t rooms, saving_ceilings *out)
{
    const int64_t all = s->x ? s->x->save.bytes : 0, capped = all < most_written ? all : most_written;
    const int64_t each = (capped / s->writers + BLOCK - 1) / BLOCK * BLOCK;
    const double mine = (double)each * s->writers;
    double writing = NAN, reading = NAN;
    const double sum = launch_sum(s->k->l, "bytes written", mine, s->k->ranks);
    for (int turn = 0; turn < 2 * REPEATS; turn++) {
        const bool back = turn >= REPEATS;
        on_files(s, back ? saving_forget : remove_file);
        launch_barrier(s->k->l, "files");
        const double seconds = ddp_most(s->k, "files", s->x ? on_streams(s, back, memory, rooms, each) : 0);
        *(back ? &reading : &writing) = fmin(back ? reading : writing, seconds);
        watchdog_beat();
    }
    on_files(s, remove_file);
    out->write = sum / writing / 1e9;
    out->read = mine / reading / 1e9;
}

static double hash_rate(const char *buffer)
{
    double best = INFINITY;
    uint64_t sum = 0;
    for (int i = 0; i < REPEATS; i++) {
        const double start = host_seconds();
        for (int k = 0; k < 4; k++)
            sum += checkpoint_hash(buffer, BLOCK);
        best = fmin(best, host_seconds() - start);
    }
    return sum == 1 ? NAN : 4. * BLOCK / best / 1e9; /* the sum is used, so that nothing is left out */
}

bool saving_measure_ceilings(saving *s, saving_ceilings *out)
{
    device *d = s->r->at.d;
    const int64_t bytes = s->x ? (s->x->save.bytes < most_copied ? s->x->save.bytes : most_copied) : 0;
    const size_t room = (size_t)(bytes > BLOCK ? bytes : BLOCK);
    char *pinned = s->x ? device_host_malloc(d, room) : NULL, *inside = s->x ? device_malloc(d, room) : NULL;
    const bool ok =
        saving_agree(s, "ceilings", !s->x || pinned, "the host has no pinned memory for the ceilings", ROW_OOM);
    if (ok && pinned)
        memset(pinned, 1, room);
    if (ok) {
        out->down = least_of(s, "down", best_rate(s, pinned, bytes, false));
        out->up = least_of(s, "up", best_rate(s, pinned, bytes, true));
        out->within = least_of(s, "within", best_rate(s, inside, bytes, false));
        measure_storage(s, pinned, (int64_t)(room / BLOCK), out);
        out->hash = pinned ? hash_rate(pinned) : NAN;
    }
    if (pinned)
        device_host_free(d, pinned);
    if (inside)
        device_free(d, inside);
    return ok;
}
