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

enum { REPEATS = 3, BLOCK = 4 << 20 };
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
        device_transfer(d, back ? p->at : buffer + done, back ? buffer + done : p->at, (size_t)bytes);
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

typedef struct stream {
    pthread_t thread;
    const char *from;
    int64_t bytes;
    char path[600];
    bool direct, ok;
} stream;

static void *write_stream(void *arg)
{
    stream *w = arg;
    int fd = w->direct ? open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    w->ok = fd >= 0;
    for (int64_t at = 0; at < w->bytes && w->ok; at += BLOCK)
        w->ok = pwrite(fd, w->from, BLOCK, (off_t)at) == BLOCK;
    w->ok = w->ok && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* Each thread a file of its own, from touched pinned memory. Returns seconds; NAN: it could not. */
static double write_all(const saving *s, const char *from, int64_t bytes, int turn)
{
    stream *w = xcalloc((unsigned long)s->writers, sizeof *w);
    bool ok = true;
    const double start = host_seconds();
    for (int i = 0; i < s->writers; i++) {
        w[i] = (stream){.from = from, .bytes = bytes, .direct = s->direct};
        snprintf(w[i].path, sizeof w[i].path, "%s/ceiling-%d-%d", s->folder, launch_rank(s->k->l), i);
        if (turn > 0) /* fresh pages each time, as a save has them */
            unlink(w[i].path);
        if (pthread_create(&w[i].thread, NULL, write_stream, &w[i]) != 0)
            die(EXIT_CODE_FAILURE, "can't start a thread that writes");
    }
    for (int i = 0; i < s->writers; i++) {
        pthread_join(w[i].thread, NULL);
        ok = ok && w[i].ok;
    }
    const double seconds = host_seconds() - start;
    for (int i = 0; i < s->writers; i++)
        unlink(w[i].path);
    free(w);
    return ok ? seconds : NAN;
}

static double write_rate(const saving *s, const char *buffer)
{
    const int64_t all = s->x ? s->x->save.bytes : 0, capped = all < most_written ? all : most_written;
    const int64_t each = ((s->x ? capped : 0) / s->writers + BLOCK - 1) / BLOCK * BLOCK;
    double best = NAN, mine, *bytes = xcalloc((unsigned long)launch_size(s->k->l), sizeof *bytes), sum = 0;
    mine = (double)each * s->writers;
    ddp_gather(s->k, "bytes written", &mine, 1, bytes);
    for (int i = 0; i < s->k->ranks; i++)
        sum += bytes[i];
    free(bytes);
    for (int turn = 0; turn < REPEATS; turn++) {
        launch_barrier(s->k->l, "writes");
        const double seconds = ddp_most(s->k, "writing", s->x ? write_all(s, buffer, each, turn) : 0);
        best = fmin(best, seconds);
        watchdog_beat();
    }
    return sum / best / 1e9;
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
        out->write = write_rate(s, pinned);
        out->hash = pinned ? hash_rate(pinned) : NAN;
    }
    if (pinned)
        device_host_free(d, pinned);
    if (inside)
        device_free(d, inside);
    return ok;
}
