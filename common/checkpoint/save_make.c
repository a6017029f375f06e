/* SPDX-License-Identifier: MIT */
/* Making a saver: its runs and their order, and the memory that its way needs; see save.h. */
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hash.h"
#include "common/checkpoint/order.h"
#include "common/checkpoint/save_internal.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/device/host.h"

enum { SLOT_BYTES = CHECKPOINT_BLOCK + 2 * CHECKPOINT_ALIGNMENT };

static void make_runs(checkpoint_saver *s)
{
    int64_t at = 0, blocks = 0;
    for (int i = 0; i < s->pieces->n; i++) {
        const checkpoint_piece *p = &s->pieces->p[i];
        checkpoint_run *last = s->runs.n ? &s->runs.r[s->runs.n - 1] : NULL;
        if (last && last->file == p->file && last->offset + last->bytes == p->offset) {
            last->bytes += p->bytes;
            s->run[s->runs.n - 1].count++;
        } else {
            checkpoint_runs_add(&s->runs, p->file, p->offset, p->bytes);
            s->run[s->runs.n - 1] = (saver_run){.first = i, .count = 1};
        }
    }
    for (int r = 0; r < s->runs.n; r++) {
        checkpoint_run *x = &s->runs.r[r];
        const int64_t unit = CHECKPOINT_ALIGNMENT;
        free(x->hashes);
        x->hashes = xcalloc((unsigned long)checkpoint_blocks(x->bytes), sizeof *x->hashes);
        s->run[r].at = (at + unit - 1) / unit * unit + x->offset % unit;
        at = s->run[r].at + x->bytes;
        s->first[r] = blocks;
        blocks += checkpoint_blocks(x->bytes);
    }
    s->first[s->runs.n] = blocks;
    s->copy_bytes = at;
}

/* The order is of all files; this rank begins those that it writes to. */
static void make_order(checkpoint_saver *s)
{
    const unsigned long files = (unsigned long)s->l->files;
    int64_t *bytes = xcalloc(files, sizeof *bytes);
    int *all = xcalloc(files, sizeof *all);
    saver_fill_lanes(s);
    for (int f = 0; f < s->l->files; f++)
        bytes[f] = s->l->file[f].bytes;
    checkpoint_order(bytes, s->l->files, s->o.rank, s->o.ranks, saver_most_at_once(s), all);
    for (int i = 0; i < s->l->files; i++) {
        lane *x = &s->lanes[all[i]];
        x->place = s->ordered;
        if (x->next < x->end)
            s->order[s->ordered++] = all[i];
    }
    free(all);
    free(bytes);
}

/* One of each writer; a rank alone on its host lends a load two for each of its threads, which makes its copies larger. */
static int slots_of(const checkpoint_saver *s)
{
    const int lent = s->o.ranks == 1 ? 4 * s->o.writers : 0;
    return lent > s->threads ? lent : s->threads;
}

static bool take_memory(checkpoint_saver *s, char *why, size_t why_bytes)
{
    const double start = host_seconds();
    const bool pinned = saver_is_pinned(s);
    bool ok = true;
    if (pinned && s->copy_bytes)
        s->copy = device_host_malloc(s->d, (size_t)s->copy_bytes);
    if (s->o.way == CHECKPOINT_DEVICE && s->copy_bytes)
        s->copy = device_malloc(s->d, (size_t)s->copy_bytes);
    if ((pinned || s->o.way == CHECKPOINT_DEVICE) && s->copy_bytes && !s->copy) {
        ok = false;
        snprintf(why, why_bytes, "%s has no room for a copy of the state, %.1f GB; try %s",
                 pinned ? "the host" : "the device", (double)s->copy_bytes / 1e9,
                 pinned ? "device or sync" : "lazy or sync");
    }
    if (s->copy && pinned)
        spread_touch(s->copy, (size_t)s->copy_bytes); /* where the device has not, as a CPU; first touches are slow */
    if (ok && !pinned) {
        s->slots = device_host_malloc(s->d, (size_t)slots_of(s) * SLOT_BYTES);
        ok = s->slots;
        if (ok)
            spread_touch(s->slots, (size_t)slots_of(s) * SLOT_BYTES);
        else
            snprintf(why, why_bytes, "the host has no pinned memory for %d writers", s->o.writers);
    }
    if (s->slots) {
        s->fetches = device_stream_create(s->d, STREAM_BACKGROUND, "save");
        s->fetched = device_event_create(s->d);
    }
    for (int i = 0; i < s->threads; i++)
        s->writers[i].slot = s->slots ? s->slots + (int64_t)i * SLOT_BYTES : NULL;
    s->pin_s = host_seconds() - start;
    return ok;
}

/* A virtual host hands out memory that it has never used slowly, several times more so than it is written. So what files in
 * memory will need is taken once and given back before the first save, and then to files that the first ones are written
 * over, as later ones are over those that go; where that leaves too little, they take it then. */
static void reserve(const checkpoint_saver *s)
{
    const int sets = s->o.keep + 1;
    const size_t bytes = (size_t)(s->l->bytes / s->o.ranks * sets);
    struct statfs st;
    char why[200];
    void *p = NULL;
    if (statfs(s->o.folder, &st) != 0 || st.f_type != TMPFS_MAGIC ||
        bytes >= host_available_bytes() / 2 / (size_t)s->o.ranks)
        return;
    p = spread_map(bytes);
    if (p)
        munmap(p, bytes);
    if (checkpoint_folder_room(s->o.folder, sets + 1, s->l->bytes, why, sizeof why))
        checkpoint_spares_make(s->o.folder, s->l, sets, s->o.rank, s->o.ranks);
}

/* Two cores of a rank are left to the threads that launch steps and wait for copies: a step is late if a writer has theirs. */
static int threads_of(const checkpoint_save_options *o)
{
    const int twice = 2 * o->writers, left = host_cores_allowed() / o->ranks - 2;
    return left < o->writers ? o->writers : left < twice ? left : twice;
}

checkpoint_saver *checkpoint_saver_create(const checkpoint_save_options *o, device *d, const checkpoint_layout *l,
                                          const checkpoint_pieces *pieces, char *why, size_t why_bytes)
{
    checkpoint_saver *s = xcalloc(1, sizeof *s);
    *s = (checkpoint_saver){.o = *o, .d = d, .l = l, .pieces = pieces, .over = true};
    s->o.folder = s->folder = xstrdup(o->folder);
    s->run = xcalloc((unsigned long)pieces->n + 1, sizeof *s->run);
    s->first = xcalloc((unsigned long)pieces->n + 1, sizeof *s->first);
    s->file = xcalloc((unsigned long)l->files, sizeof *s->file);
    s->direct = xcalloc((unsigned long)l->files, sizeof *s->direct);
    s->threads = threads_of(o);
    s->writers = xcalloc((unsigned long)s->threads, sizeof *s->writers);
    s->lanes = xcalloc((unsigned long)l->files, sizeof *s->lanes);
    s->order = xcalloc((unsigned long)l->files, sizeof *s->order);
    for (int f = 0; f < l->files; f++) {
        s->file[f] = s->direct[f] = -1;
        s->lanes[f].landed = o->way == CHECKPOINT_SYNC ? NULL : device_event_create(d);
        pthread_mutex_init(&s->lanes[f].writing, NULL);
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_cond_init(&s->asked, NULL);
    for (int i = 0; i < s->threads; i++) {
        s->writers[i].s = s;
        pthread_cond_init(&s->writers[i].fetched, NULL);
    }
    make_runs(s);
    make_order(s);
    s->stream = device_stream_create(d, STREAM_NORMAL, "snapshot");
    s->copied = device_event_create(d);
    if (take_memory(s, why, why_bytes)) {
        reserve(s);
        return s;
    }
    checkpoint_saver_free(s);
    return NULL;
}

static void remove_spares(const checkpoint_saver *s)
{
    if (s->o.rank == 0)
        checkpoint_spares_remove(s->o.folder);
}

void checkpoint_saver_free(checkpoint_saver *s)
{
    if (!s)
        return;
    checkpoint_save_wait(s);
    remove_spares(s);
    device_stream_destroy(s->d, s->stream);
    device_event_destroy(s->d, s->copied);
    for (int i = 0; i < s->threads; i++)
        pthread_cond_destroy(&s->writers[i].fetched);
    pthread_cond_destroy(&s->asked);
    if (s->slots) {
        device_stream_destroy(s->d, s->fetches);
        device_event_destroy(s->d, s->fetched);
    }
    if (s->slots)
        device_host_free(s->d, s->slots);
    if (s->copy && s->o.way == CHECKPOINT_DEVICE)
        device_free(s->d, s->copy);
    else if (s->copy)
        device_host_free(s->d, s->copy);
    checkpoint_runs_free(&s->runs);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->folder);
    for (int f = 0; f < s->l->files; f++) {
        if (s->lanes[f].landed)
            device_event_destroy(s->d, s->lanes[f].landed);
        pthread_mutex_destroy(&s->lanes[f].writing);
    }
    free(s->order);
    free(s->lanes);
    free(s->writers);
    free(s->direct);
    free(s->file);
    free(s->first);
    free(s->run);
    free(s);
}

void checkpoint_saver_move(checkpoint_saver *s, const char *folder)
{
    checkpoint_save_wait(s);
    remove_spares(s);
    free(s->folder);
    s->o.folder = s->folder = xstrdup(folder);
}

checkpoint_held checkpoint_saver_holds(const checkpoint_saver *s)
{
    return (checkpoint_held){saver_is_pinned(s) ? s->copy_bytes : slots_of(s) * (int64_t)SLOT_BYTES,
                             s->copy && s->o.way == CHECKPOINT_DEVICE ? s->copy_bytes : 0, s->pin_s};
}

checkpoint_room checkpoint_saver_room(const checkpoint_saver *s)
{
    return (checkpoint_room){saver_is_pinned(s) ? s->copy : s->slots, checkpoint_saver_holds(s).host_bytes, s->o.ranks};
}
