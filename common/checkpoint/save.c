/* SPDX-License-Identifier: MIT */
/* A save: the copy, the writers, the part, the commit; see save.h. A file system lets one thread at a time write to a file,
 * so a rank writes several files at once, each from its first block to its last. Where there are more threads than files at
 * once, two share a file, and one fetches and hashes a block while the other writes. Ranks keep apart (order.h). A copy of
 * the state is made file by file in the order in which they are written, and each is written as soon as its bytes have
 * landed. */
#include "common/checkpoint/save.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hash.h"
#include "common/checkpoint/order.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/device/host.h"

enum { SLOT_BYTES = CHECKPOINT_BLOCK + 2 * CHECKPOINT_ALIGNMENT, PART = 1 << 20, AHEAD = 3 };

typedef struct saver_run { /* pieces that follow each other in a file */
    int first, count;      /* pieces */
    int64_t at;            /* in the copy of the state; as far behind a multiple of 4096 as in the file */
} saver_run;

typedef struct lane {     /* a file that this rank writes to */
    int64_t next, end;    /* blocks that nobody has taken */
    int threads;          /* that are at it */
    int place;            /* in the order */
    device_event *landed; /* its bytes are in the copy of the state; NULL: there is no copy */
    pthread_mutex_t writing;
} lane;

typedef struct writer {
    checkpoint_saver *s;
    pthread_t thread;
    char *slot; /* pinned: a block and room to align it; NULL: blocks are pinned where they lie */
    int run;    /* of which it waits for `bytes` from `offset` of the file on, to be at `to` */
    int64_t offset, bytes;
    char *to;
    bool asks;
    pthread_cond_t fetched;
} writer;

struct checkpoint_saver {
    checkpoint_save_options o; /* folder is the saver's own */
    device *d;
    const checkpoint_layout *l;
    const checkpoint_pieces *pieces;
    char *folder;
    checkpoint_runs runs;
    saver_run *run; /* of each of them */
    int64_t *first; /* block of each run; [runs] is the count of all */
    lane *lanes;    /* of each file, by its number */
    int *order;     /* files in the order in which they are begun */
    int ordered;
    int *file, *direct; /* descriptors of each file; -1 */
    char *copy;         /* of all pieces: pinned, or on the device; NULL: blocks come from the state */
    int64_t copy_bytes;
    writer *writers;
    char *slots;  /* of all writers */
    int threads;  /* at most twice o.writers */
    void *stream; /* of copies */
    device_event *copied;
    double pin_s;

    checkpoint_state state; /* of the save that is under way */
    int attempt;
    double start_s;
    bool copying; /* the next update waits for it */
    atomic_llong next;
    atomic_bool refused; /* O_DIRECT, by the file system */
    pthread_t thread;
    bool started;

    pthread_t copier;
    bool copier_started;

    void *fetches; /* stream of what writers ask for; NULL: blocks are pinned where they lie */
    device_event *fetched;
    pthread_cond_t asked; /* by a writer, or writers are done */

    pthread_mutex_t lock; /* of what follows, and of lanes */
    pthread_cond_t changed;
    int landed;    /* files whose bytes are in the copy, by the order */
    bool enqueued; /* all of the copy is on the stream, and so is `copied` */
    bool written;  /* writers are done */
    bool over;
    checkpoint_saved saved;
};

checkpoint_way checkpoint_way_parse(const char *name)
{
    static const char *const names[] = {"sync", "async", "lazy", "device"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return (checkpoint_way)i;
    die(EXIT_CODE_USAGE, "there is no way '%s' to save a checkpoint", name);
}

static bool planted(const checkpoint_saver *s, const char *name)
{
    return s->o.plant && strcmp(s->o.plant, name) == 0;
}

/* The first problem of a save is kept. */
static void give_up(checkpoint_saver *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    if (s->saved.ok)
        snprintf(s->saved.why, sizeof s->saved.why, "%s", why);
    s->saved.ok = false;
    pthread_mutex_unlock(&s->lock);
}

static void fail(checkpoint_saver *s, const char *what, const char *path)
{
    OWNED char *why =
        xasprintf("rank %d can't %s %s%s%s", s->o.rank, what, path, errno ? ": " : "", errno ? strerror(errno) : "");
    give_up(s, why);
}

static bool going_well(checkpoint_saver *s)
{
    pthread_mutex_lock(&s->lock);
    const bool ok = s->saved.ok;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

static void await_landed(checkpoint_saver *s, int files)
{
    pthread_mutex_lock(&s->lock);
    while (s->landed < files)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- blocks ---- */

/* A plain weight has no low half: then the fault takes the second moments. */
static bool left_out(const checkpoint_saver *s, const checkpoint_piece *p)
{
    char what[96];
    if (!planted(s, "low"))
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
        if (from < last && (staged || !left_out(s, p)))
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

static bool write_all(int fd, const char *from, int64_t bytes, int64_t offset)
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
        if (write_all(s->direct[file], from + low - offset, high - low, low))
            return write_all(s->file[file], from, low - offset, offset) &&
                   write_all(s->file[file], from + high - offset, offset + bytes - high, high);
        if (errno != EINVAL)
            return false;
        atomic_store(&s->refused, true);
    }
    return write_all(s->file[file], from, bytes, offset);
}

static bool is_pinned(const checkpoint_saver *s)
{
    return s->o.way == CHECKPOINT_ASYNC || s->o.way == CHECKPOINT_LAZY;
}

/* What an error that is planted does to the first block, behind its hash. False: it is not written. */
static bool harm(const checkpoint_saver *s, char *block, int64_t bytes)
{
    if (planted(s, "bit"))
        block[bytes / 2] ^= 1;
    for (int64_t i = 0; planted(s, "swap") && i < bytes / 2; i++) {
        const char kept = block[i];
        block[i] = block[i + bytes / 2];
        block[i + bytes / 2] = kept;
    }
    return !planted(s, "hole");
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
    char *from = is_pinned(s) ? s->copy + s->run[r].at + at : w->slot + offset % CHECKPOINT_ALIGNMENT;
    checkpoint_hash_state hash = {.bytes = 0};
    bool ok = true;
    if (s->copy)
        await_landed(s, x->place + 1);
    if (!is_pinned(s))
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
static int most_at_once(const checkpoint_saver *s)
{
    const int share = 2 * s->o.writers / s->o.ranks, most = share < 1 ? 1 : share;
    return s->o.way == CHECKPOINT_DEVICE && most > s->o.writers ? s->o.writers : most;
}

/* Under the copies of several devices to memory, which the caller waits for, few; under those of lazy saves, beside which a
 * step is at work, none at all: memory is what both want, and the files were complete no sooner. */
static int most_begun(const checkpoint_saver *s)
{
    const int most = most_at_once(s);
    return is_pinned(s) && s->o.ranks > 1 && s->landed < s->ordered && most > 4 ? 4 : most;
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
            fail(s, "write", s->l->file[s->runs.r[r].file].name);
    }
    return NULL;
}

/* All blocks are there to be taken. Runs lie in the order of files, and so do their blocks. */
static void fill_lanes(checkpoint_saver *s)
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

/* Files whose pages are to reach the disk, one after another, by whichever thread is free. */
static void *sync_files(void *arg)
{
    writer *w = arg;
    checkpoint_saver *s = w->s;
    for (int64_t f = atomic_fetch_add(&s->next, 1); f < s->l->files; f = atomic_fetch_add(&s->next, 1)) {
        checkpoint_reach("sync");
        errno = 0;
        if (s->file[f] >= 0 && fsync(s->file[f]) != 0)
            fail(s, "sync", s->l->file[f].name);
    }
    return NULL;
}

static void on_all_writers(checkpoint_saver *s, void *(*work)(void *))
{
    atomic_store(&s->next, 0);
    for (int i = 1; i < s->threads; i++)
        if (pthread_create(&s->writers[i].thread, NULL, work, &s->writers[i]) != 0)
            die(EXIT_CODE_FAILURE, "can't start a thread that writes a checkpoint");
    work(&s->writers[0]);
    for (int i = 1; i < s->threads; i++)
        pthread_join(s->writers[i].thread, NULL);
}

static void write_files(checkpoint_saver *s)
{
    pthread_t fetcher;
    s->written = false;
    if (s->fetches && pthread_create(&fetcher, NULL, fetch_blocks, s) != 0)
        die(EXIT_CODE_FAILURE, "can't start a thread that fetches a state");
    if (s->o.way == CHECKPOINT_LAZY && s->copy && s->o.ranks > 1)
        await_landed(s, s->ordered);
    on_all_writers(s, write_blocks);
    pthread_mutex_lock(&s->lock);
    s->written = true;
    pthread_cond_signal(&s->asked);
    pthread_mutex_unlock(&s->lock);
    if (s->fetches)
        pthread_join(fetcher, NULL);
}

/* ---- files ---- */

/* Rank f mod n gives file f its size and header; what nobody writes is padding, and zero. */
static bool open_file(checkpoint_saver *s, const char *folder, int f)
{
    const checkpoint_file *x = &s->l->file[f];
    OWNED char *path = xasprintf("%s/%s", folder, x->name);
    errno = 0;
    s->file[f] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool ok = s->file[f] >= 0;
    if (ok && f % s->o.ranks == s->o.rank)
        ok = ((s->o.direct && fallocate(s->file[f], 0, 0, (off_t)x->bytes) == 0) ||
              ftruncate(s->file[f], (off_t)x->bytes) == 0) &&
             write_all(s->file[f], x->header, x->header_bytes, 0);
    if (ok && s->o.direct)
        s->direct[f] = open(path, O_RDWR | O_CLOEXEC | O_DIRECT);
    if (ok && s->o.direct && s->direct[f] < 0 && errno == EINVAL)
        atomic_store(&s->refused, true);
    if (!ok)
        fail(s, "write", x->name);
    return ok;
}

static bool open_files(checkpoint_saver *s, const char *folder)
{
    bool *mine = xcalloc((unsigned long)s->l->files, sizeof *mine), ok = true;
    errno = 0;
    if (!checkpoint_begin(s->o.folder, s->state.step, s->attempt)) {
        fail(s, "make", folder);
        ok = false;
    }
    for (int r = 0; r < s->runs.n; r++)
        mine[s->runs.r[r].file] = true;
    for (int f = 0; f < s->l->files && ok; f++)
        if (mine[f] || f % s->o.ranks == s->o.rank)
            ok = open_file(s, folder, f);
    free(mine);
    return ok;
}

/* After a failure the room goes back first, so that a full disk can take the sentence that says so. */
static void close_files(checkpoint_saver *s, bool ok)
{
    for (int f = 0; f < s->l->files; f++) {
        if (s->direct[f] >= 0)
            close(s->direct[f]);
        if (s->file[f] >= 0 && !ok && ftruncate(s->file[f], 0) != 0)
            errno = 0;
        if (s->file[f] >= 0 && close(s->file[f]) != 0 && ok)
            fail(s, "close", s->l->file[f].name);
        s->file[f] = s->direct[f] = -1;
    }
}

/* ---- parts and the commit ---- */

/* Written under another name first: a part that is there is whole. */
static void write_part(checkpoint_saver *s, const char *folder)
{
    char *text, why[300];
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    const bool ok = going_well(s);
    if (!ok)
        fprintf(out, "failed %s\n", s->saved.why);
    for (int r = 0; r < s->runs.n && ok; r++) {
        const checkpoint_run *x = &s->runs.r[r];
        fprintf(out, "%d %" PRId64 " %" PRId64 "\n", x->file, x->offset, x->bytes);
        for (int64_t b = 0; b < checkpoint_blocks(x->bytes); b++)
            fprintf(out, "%016" PRIx64 "\n", x->hashes[b]);
    }
    fclose(out);
    OWNED char *begun = xasprintf("part-%d.new", s->o.rank), *from = xasprintf("%s/%s", folder, begun),
               *to = xasprintf("%s/part-%d", folder, s->o.rank);
    errno = 0;
    if (!checkpoint_write_text(folder, begun, text, why, sizeof why) || rename(from, to) != 0)
        fail(s, "write", to);
    free(text);
}

/* False and a sentence when a rank has failed; true without runs: the part is not there yet. */
static bool read_part(checkpoint_saver *s, const char *folder, int rank, checkpoint_runs *all, bool *there)
{
    char why[300];
    size_t bytes;
    OWNED char *name = xasprintf("part-%d", rank), *path = xasprintf("%s/%s", folder, name);
    *there = access(path, F_OK) == 0;
    char *text = *there ? checkpoint_read_text(folder, name, &bytes, why, sizeof why) : NULL;
    bool ok = !*there || text;
    if (text && strncmp(text, "failed ", 7) == 0) {
        text[strcspn(text, "\n")] = '\0';
        give_up(s, text + 7);
        ok = false;
    }
    for (char *at = text; ok && at && *at;) {
        char *end;
        const int file = (int)strtol(at, &end, 10);
        const int64_t offset = strtoll(end, &end, 10), length = strtoll(end, &end, 10);
        if (*end != '\n' || length < 1) {
            ok = false;
            break;
        }
        checkpoint_run *x = checkpoint_runs_add(all, file, offset, length);
        for (int64_t b = 0; b < checkpoint_blocks(length); b++)
            x->hashes[b] = strtoull(end, &end, 16);
        at = end + (*end == '\n');
    }
    free(text);
    return ok;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Also for those behind one that failed: a rank that still makes files would leave some of them behind. */
static bool wait_for_parts(checkpoint_saver *s, const char *folder, checkpoint_runs *all)
{
    const double until = host_seconds() + (s->o.timeout_s > 0 ? s->o.timeout_s : 600);
    bool ok = true;
    for (int rank = 0; rank < s->o.ranks;) {
        bool there;
        errno = 0;
        if (!read_part(s, folder, rank, all, &there)) {
            fail(s, "read the part of another rank in", folder);
            ok = false;
        }
        rank += there;
        if (!there && host_seconds() > until) {
            char what[64];
            snprintf(what, sizeof what, "wait longer for rank %d to write to", rank);
            errno = 0;
            fail(s, what, folder);
            return false;
        }
        if (!there)
            pause_ms(1);
    }
    return ok;
}

static bool finish_files(checkpoint_saver *s, const char *folder, checkpoint_runs *all, char *why, size_t why_bytes)
{
    char *index = checkpoint_index(s->l);
    bool ok = checkpoint_runs_cover(all, s->l, why, why_bytes) &&
              checkpoint_write_text(folder, "model.safetensors.index.json", index, why, why_bytes);
    free(index);
    char *manifest = ok ? checkpoint_manifest_write(s->l, &s->state, all) : NULL;
    checkpoint_reach("manifest");
    ok = ok && checkpoint_write_text(folder, "manifest.json", manifest, why, why_bytes);
    free(manifest);
    for (int rank = 0; rank < s->o.ranks && ok; rank++) {
        OWNED char *path = xasprintf("%s/part-%d", folder, rank);
        unlink(path);
    }
    return ok;
}

static void commit(checkpoint_saver *s, const char *folder)
{
    checkpoint_runs all = {0};
    char why[400] = "";
    if (wait_for_parts(s, folder, &all) &&
        (!finish_files(s, folder, &all, why, sizeof why) ||
         !checkpoint_commit(s->o.folder, s->state.step, s->attempt, why, sizeof why)))
        give_up(s, why);
    checkpoint_runs_free(&all);
    if (!going_well(s))
        checkpoint_discard(s->o.folder, s->state.step, s->attempt);
    s->saved.committed_s = host_seconds() - s->start_s;
}

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
    fill_lanes(s);
    if (open_files(s, folder))
        write_files(s);
    s->saved.written_s = host_seconds() - s->start_s;
    if (going_well(s))
        on_all_writers(s, sync_files);
    close_files(s, going_well(s));
    s->saved.synced_s = host_seconds() - s->start_s;
    if (!s->copy)
        s->saved.copied_s = s->saved.written_s;
    s->saved.direct = s->o.direct && !atomic_load(&s->refused);
    checkpoint_reach("part");
    write_part(s, folder);
    if (s->o.rank == 0)
        commit(s, folder);
    free(folder);
    const bool ok = going_well(s);
    if (s->o.way == CHECKPOINT_SYNC)
        announce_over(s); /* the caller need not wait for old ones to go */
    if (s->o.rank == 0 && ok)
        checkpoint_keep(s->o.folder, s->o.keep, s->state.step, s->l);
    announce_over(s);
    return NULL;
}

/* ---- making ---- */

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
    fill_lanes(s);
    for (int f = 0; f < s->l->files; f++)
        bytes[f] = s->l->file[f].bytes;
    checkpoint_order(bytes, s->l->files, s->o.rank, s->o.ranks, most_at_once(s), all);
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
    const bool pinned = is_pinned(s);
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

checkpoint_held checkpoint_saver_holds(const checkpoint_saver *s)
{
    return (checkpoint_held){is_pinned(s) ? s->copy_bytes : slots_of(s) * (int64_t)SLOT_BYTES,
                             s->copy && s->o.way == CHECKPOINT_DEVICE ? s->copy_bytes : 0, s->pin_s};
}

checkpoint_room checkpoint_saver_room(const checkpoint_saver *s)
{
    return (checkpoint_room){is_pinned(s) ? s->copy : s->slots, checkpoint_saver_holds(s).host_bytes, s->o.ranks};
}

/* ---- saving ---- */

/* Longer than any step of a test, whose copies are over before the update even where it does not wait. */
static void be_late(void *arg)
{
    (void)arg;
    pause_ms(200);
}

static void copy_file(checkpoint_saver *s, int file)
{
    for (int r = 0; r < s->runs.n; r++)
        for (int i = s->run[r].first; s->runs.r[r].file == file && i < s->run[r].first + s->run[r].count; i++) {
            const checkpoint_piece *p = &s->pieces->p[i];
            if (!left_out(s, p))
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
        pause_ms(2);
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
    if ((planted(s, "torn") || planted(s, "slow")) && device_kind_of(s->d) == DEVICE_CPU)
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
        await_landed(s, s->ordered);
}

void checkpoint_before_update(checkpoint_saver *s, void *stream)
{
    if (s->copying && s->o.way == CHECKPOINT_LAZY && !planted(s, "torn")) {
        pthread_mutex_lock(&s->lock);
        while (!s->enqueued)
            pthread_cond_wait(&s->changed, &s->lock);
        pthread_mutex_unlock(&s->lock);
        device_stream_wait(s->d, stream, s->copied);
    }
    s->copying = false;
}

void checkpoint_saver_move(checkpoint_saver *s, const char *folder)
{
    checkpoint_save_wait(s);
    remove_spares(s);
    free(s->folder);
    s->o.folder = s->folder = xstrdup(folder);
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
