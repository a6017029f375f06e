/* SPDX-License-Identifier: MIT */
/* Saving: the copy of the state, the thread of a save, and waiting for it; see save.h. A copy is made file by file in the
 * order in which they are written, and each is written as soon as its bytes have landed. */
#include "common/checkpoint/save.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/save_internal.h"
#include "common/core/clock.h"
#include "common/core/error.h"

checkpoint_way checkpoint_way_parse(const char *name)
{
    static const char *const names[] = {"sync", "async", "lazy", "device"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return (checkpoint_way)i;
    die(EXIT_CODE_USAGE, "there is no way '%s' to save a checkpoint", name);
}

/* ---- the copy of the state ---- */

enum { AHEAD = 3 };

/* Longer than any step of a test, whose copies are over before the update even where it does not wait. */
static void be_late(void *arg)
{
    (void)arg;
    usleep(200 * 1000);
}

static void copy_file(checkpoint_saver *s, int file)
{
    for (int r = 0; r < s->runs.n; r++)
        for (int i = s->run[r].first; s->runs.r[r].file == file && i < s->run[r].first + s->run[r].count; i++) {
            const checkpoint_piece *p = &s->pieces->p[i];
            if (!saver_left_out(s, p))
                device_stream_copy(s->d, s->stream, s->copy + s->run[r].at + p->offset - s->runs.r[r].offset, p->at,
                                   (size_t)p->bytes);
        }
    device_stream_record(s->d, s->stream, s->lanes[file].landed);
}

static void tell(checkpoint_saver *s, int landed, bool enqueued)
{
    pthread_mutex_lock(&s->lock);
    s->landed = landed;
    s->enqueued = enqueued;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The only thread that waits for the device: many would keep from it the one that launches steps. It is a few files ahead,
 * since whoever fills a queue waits. A lazy copy gives the step that follows a start of 2 ms: now and then a device began
 * with a step only when all copies to the host were over, if they had the link first. */
static void *copy_files(void *arg)
{
    checkpoint_saver *s = arg;
    const int n = s->ordered;
    bool enqueued = s->o.way == CHECKPOINT_DEVICE;
    if (s->o.way == CHECKPOINT_LAZY)
        usleep(2000);
    for (int i = 0; i < n + AHEAD; i++) {
        if (i < n && !enqueued)
            copy_file(s, s->order[i]);
        if (i == n - 1 && !enqueued) {
            device_stream_record(s->d, s->stream, s->copied);
            enqueued = true;
        }
        const int landed = i < AHEAD ? 0 : i - AHEAD + 1;
        if (landed > 0)
            device_event_sync(s->d, s->lanes[s->order[landed - 1]].landed);
        if (landed == n)
            s->saved.copied_s = host_seconds() - s->start_s;
        tell(s, landed, enqueued);
    }
    return NULL;
}

/* The compute stream goes on as soon as it likes; the copy has what it had by now. One within the device is over at once. */
static void begin_copy(checkpoint_saver *s)
{
    tell(s, 0, false);
    device_stream_follow(s->d, s->stream, device_stream(s->d));
    if ((saver_planted(s, "torn") || saver_planted(s, "slow")) && device_kind_of(s->d) == DEVICE_CPU)
        device_stream_run(s->d, s->stream, be_late, NULL, 0);
    if (s->o.way == CHECKPOINT_DEVICE) {
        for (int i = 0; i < s->ordered; i++)
            copy_file(s, s->order[i]);
        device_stream_record(s->d, s->stream, s->copied);
        device_event_wait(s->d, s->copied);
    }
    s->copying = true;
    if (pthread_create(&s->copier, NULL, copy_files, s) != 0)
        die(EXIT_CODE_FAILURE, "can't start the thread that copies a state");
    s->copier_started = true;
}

/* ---- the save ---- */

static void announce_over(checkpoint_saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->over = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *save_thread(void *arg)
{
    checkpoint_saver *s = arg;
    char *folder = checkpoint_partial_path(s->o.folder, s->state.step, s->attempt);
    checkpoint_reach("begin");
    saver_fill_lanes(s);
    if (saver_open_files(s, folder))
        saver_write_files(s);
    s->saved.written_s = host_seconds() - s->start_s;
    if (saver_going_well(s))
        saver_on_all_writers(s, saver_sync_files);
    saver_close_files(s, saver_going_well(s));
    s->saved.synced_s = host_seconds() - s->start_s;
    if (!s->copy)
        s->saved.copied_s = s->saved.written_s;
    s->saved.direct = s->o.direct && !atomic_load(&s->refused);
    checkpoint_reach("part");
    saver_write_part(s, folder);
    if (s->o.rank == 0)
        saver_commit(s, folder);
    free(folder);
    const bool ok = saver_going_well(s);
    if (s->o.way == CHECKPOINT_SYNC)
        announce_over(s); /* the caller need not wait for old ones to go */
    if (s->o.rank == 0 && ok)
        checkpoint_keep(s->o.folder, s->o.keep, s->state.step, s->l);
    announce_over(s);
    return NULL;
}

static void wait_over(checkpoint_saver *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
        if (s->o.beat)
            s->o.beat();
    }
    pthread_mutex_unlock(&s->lock);
}

void checkpoint_save(checkpoint_saver *s, const checkpoint_state *state)
{
    const double asked = host_seconds();
    checkpoint_save_wait(s);
    s->start_s = host_seconds();
    s->saved = (checkpoint_saved){.ok = true, .waited_s = s->start_s - asked};
    s->state = *state;
    s->attempt++;
    s->over = false;
    atomic_store(&s->refused, false);
    if (s->copy)
        begin_copy(s);
    else
        device_sync(s->d);
    if (pthread_create(&s->thread, NULL, save_thread, s) != 0)
        die(EXIT_CODE_FAILURE, "can't start the thread that writes a checkpoint");
    s->started = true;
    if (s->o.way == CHECKPOINT_SYNC)
        wait_over(s);
    if (s->o.way == CHECKPOINT_ASYNC && s->copy) /* files that have landed are written meanwhile */
        saver_await_landed(s, s->ordered);
}

void checkpoint_before_update(checkpoint_saver *s, void *stream)
{
    if (s->copying && s->o.way == CHECKPOINT_LAZY && !saver_planted(s, "torn")) {
        pthread_mutex_lock(&s->lock);
        while (!s->enqueued)
            pthread_cond_wait(&s->changed, &s->lock);
        pthread_mutex_unlock(&s->lock);
        device_stream_wait(s->d, stream, s->copied);
    }
    s->copying = false;
}

bool checkpoint_save_over(checkpoint_saver *s)
{
    pthread_mutex_lock(&s->lock);
    const bool over = s->over;
    pthread_mutex_unlock(&s->lock);
    return over;
}

checkpoint_saved checkpoint_save_wait(checkpoint_saver *s)
{
    wait_over(s);
    if (s->started)
        pthread_join(s->thread, NULL);
    if (s->copier_started)
        pthread_join(s->copier, NULL);
    s->started = s->copier_started = false;
    return s->saved;
}
