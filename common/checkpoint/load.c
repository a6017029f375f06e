/* SPDX-License-Identifier: MIT */
/* Readers share out blocks as writers do: read, hash, and copy to whatever pieces want a part of it; see load.h. They do so in
 * parts that a processor's cache holds: memory is what all readers wait for. Copies to a device are larger: its driver takes
 * the calls of all readers in turn. */
#include "common/checkpoint/load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hash.h"
#include "common/core/clock.h"
#include "common/core/error.h"

static bool read_all(int fd, char *to, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        const ssize_t n = pread(fd, to, (size_t)bytes, (off_t)offset);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        to += n > 0 ? n : 0;
        offset += n > 0 ? n : 0;
        bytes -= n > 0 ? n : 0;
    }
    return true;
}

/* ---- opening ---- */

static int open_file(const checkpoint *c, int f)
{
    OWNED char *path = xasprintf("%s/%s", c->path, c->m.layout->file[f].name);
    return checkpoint_file_open(path);
}

static bool file_is_whole(const checkpoint *c, int f, char *why, size_t why_bytes)
{
    const checkpoint_file *x = &c->m.layout->file[f];
    const int fd = open_file(c, f);
    struct stat st;
    bool ok = false;
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_bytes, "can't read %s/%s: %s", c->path, x->name, strerror(errno));
    } else if (st.st_size != x->bytes) {
        const long long missing = (long long)(x->bytes - st.st_size);
        snprintf(why, why_bytes, "%s/%s is %lld byte%s too %s", c->path, x->name, llabs(missing),
                 llabs(missing) == 1 ? "" : "s", missing > 0 ? "short" : "long");
    } else {
        OWNED char *header = xmalloc((size_t)x->header_bytes);
        ok = read_all(fd, header, x->header_bytes, 0) && memcmp(header, x->header, (size_t)x->header_bytes) == 0;
        if (!ok)
            snprintf(why, why_bytes, "%s/%s: the header is not that of the model", c->path, x->name);
    }
    if (fd >= 0)
        close(fd);
    return ok;
}

bool checkpoint_open(const char *path, checkpoint *out, char *why, size_t why_bytes)
{
    size_t bytes;
    char sentence[300];
    *out = (checkpoint){.path = xstrdup(path)};
    OWNED char *text = checkpoint_read_text(path, "manifest.json", &bytes, why, why_bytes);
    bool ok = text && checkpoint_manifest_read(text, bytes, &out->m, sentence, sizeof sentence);
    if (text && !ok)
        snprintf(why, why_bytes, "%s/manifest.json can't be used: %s", path, sentence);
    for (int f = 0; ok && f < out->m.layout->files; f++)
        ok = file_is_whole(out, f, why, why_bytes);
    return ok;
}

void checkpoint_close(checkpoint *c)
{
    checkpoint_manifest_free(&c->m);
    free(c->path);
    *c = (checkpoint){0};
}

/* ---- blocks ---- */

typedef struct block {
    int run;
    int64_t offset, bytes;
    uint64_t hash;
} block;

typedef struct loader {
    const checkpoint *c;
    device *d;
    const checkpoint_pieces *pieces; /* NULL: blocks are hashed alone */
    block *blocks;
    int64_t n;
    int *fd;
    char **map; /* of each file that lies in memory; NULL: it is read */
    checkpoint_room room;
    int64_t copy_bytes; /* of a slot, and of a copy to the device */
    void *stream;       /* of all copies; NULL: pieces are the host's */
    atomic_llong next, read_bytes;
    pthread_mutex_t lock;
    bool failed;
    char *why;
    size_t why_bytes;
} loader;

/* A reader fills one slot, part by part, while the device takes what is in the other. All readers share a stream: copies to a
 * device take turns on one engine, which needs longer from one stream to another than to the next copy of the same. */
enum { SLOTS = 2, PART = 256 << 10, LARGEST = 4 << 20 };

typedef struct reader {
    loader *l;
    pthread_t thread;
    char *slots;
    int slot; /* that is filled next */
    device_event *sent[SLOTS];
} reader;

/* The first piece that ends behind `offset` of a file. */
static int first_piece(const checkpoint_pieces *p, int file, int64_t offset)
{
    int low = 0, high = p->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        const checkpoint_piece *x = &p->p[middle];
        if (x->file < file || (x->file == file && x->offset + x->bytes <= offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool wanted(const checkpoint_pieces *p, int file, int64_t offset, int64_t bytes)
{
    const int i = p ? first_piece(p, file, offset) : 0;
    return !p || (i < p->n && p->p[i].file == file && p->p[i].offset < offset + bytes);
}

static void collect(loader *l)
{
    const checkpoint_runs *runs = &l->c->m.runs;
    int64_t room = 0;
    for (int r = 0; r < runs->n; r++)
        room += checkpoint_blocks(runs->r[r].bytes);
    l->blocks = xcalloc((unsigned long)room + 1, sizeof *l->blocks);
    for (int r = 0; r < runs->n; r++)
        for (int64_t at = 0, b = 0; at < runs->r[r].bytes; at += CHECKPOINT_BLOCK, b++) {
            const int64_t left = runs->r[r].bytes - at, bytes = left < CHECKPOINT_BLOCK ? left : CHECKPOINT_BLOCK;
            if (wanted(l->pieces, runs->r[r].file, runs->r[r].offset + at, bytes))
                l->blocks[l->n++] = (block){r, runs->r[r].offset + at, bytes, runs->r[r].hashes[b]};
        }
}

static void hand_out(reader *r, const char *slot, int file, const block *b)
{
    loader *l = r->l;
    for (int i = first_piece(l->pieces, file, b->offset); i < l->pieces->n; i++) {
        const checkpoint_piece *p = &l->pieces->p[i];
        if (p->file != file || p->offset >= b->offset + b->bytes)
            break;
        const int64_t from = p->offset > b->offset ? p->offset : b->offset, end = p->offset + p->bytes;
        const int64_t last = end < b->offset + b->bytes ? end : b->offset + b->bytes;
        if (!l->stream)
            memcpy(p->at + from - p->offset, slot + from - b->offset, (size_t)(last - from));
        else
            device_stream_copy(l->d, l->stream, p->at + from - p->offset, slot + from - b->offset,
                               (size_t)(last - from));
    }
}

static void damaged(loader *l, int file, const block *b, const char *how)
{
    char first[96], last[96];
    const checkpoint_layout *x = l->c->m.layout;
    checkpoint_at(x, file, b->offset, first, sizeof first);
    checkpoint_at(x, file, b->offset + b->bytes - 1, last, sizeof last);
    const bool one = strcmp(first, last) == 0;
    pthread_mutex_lock(&l->lock);
    if (!l->failed)
        snprintf(l->why, l->why_bytes, "%s/%s %s in %lld bytes from byte %lld on (%s%s%s)", l->c->path,
                 x->file[file].name, how, (long long)b->bytes, (long long)b->offset, first, one ? "" : " to ",
                 one ? "" : last);
    l->failed = true;
    pthread_mutex_unlock(&l->lock);
}

/* The first read of a page in memory moves it among those in use, by a list of the whole host, which lets all ranks together
 * read 20 GB/s on 64 cores. Whoever maps pages and says that they come in order moves none. */
static void map_file(loader *l, int f)
{
    const size_t bytes = (size_t)l->c->m.layout->file[f].bytes;
    struct statfs st;
    if (fstatfs(l->fd[f], &st) != 0 || st.f_type != TMPFS_MAGIC)
        return;
    char *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, l->fd[f], 0);
    if (at == MAP_FAILED)
        return;
    madvise(at, bytes, MADV_SEQUENTIAL);
    l->map[f] = at;
}

static bool read_part(loader *l, int file, const block *part, char *to, checkpoint_hash_state *state, uint64_t *hash)
{
    if (l->map[file]) {
        *hash = checkpoint_hash_copy(state, to, l->map[file] + part->offset, (size_t)part->bytes);
        return true;
    }
    if (!read_all(l->fd[file], to, part->bytes, part->offset))
        return false;
    *hash = checkpoint_hash_more(state, to, (size_t)part->bytes);
    return true;
}

/* Pages go from the map at once, while all threads are at it; to unmap them is one thread's work. */
static void forget(loader *l, int file, const block *b)
{
    const int64_t first = b->offset / CHECKPOINT_ALIGNMENT * CHECKPOINT_ALIGNMENT;
    if (l->map[file])
        madvise(l->map[file] + first, (size_t)(b->offset + b->bytes - first), MADV_DONTNEED);
}

/* Reads and hashes what one copy takes; false: it can't be read. */
static bool fill_slot(const reader *r, int file, const block *part, char *slot, checkpoint_hash_state *state,
                      uint64_t *hash)
{
    for (int64_t done = 0; done < part->bytes; done += PART) {
        const int64_t left = part->bytes - done;
        const block next = {part->run, part->offset + done, left < PART ? left : PART, 0};
        if (!read_part(r->l, file, &next, slot + done, state, hash))
            return false;
    }
    return true;
}

/* A block is where it is wanted before its hash is known: one that is damaged ends the load. */
static void read_block(reader *r, int file, const block *b)
{
    loader *l = r->l;
    checkpoint_hash_state state = {.bytes = 0};
    uint64_t hash = 0;
    for (int64_t done = 0; done < b->bytes; done += l->copy_bytes, r->slot = (r->slot + 1) % SLOTS) {
        const int64_t left = b->bytes - done;
        const block part = {b->run, b->offset + done, left < l->copy_bytes ? left : l->copy_bytes, 0};
        char *slot = r->slots + r->slot * l->copy_bytes;
        if (l->stream)
            device_event_sync(l->d, r->sent[r->slot]);
        if (!fill_slot(r, file, &part, slot, &state, &hash)) {
            damaged(l, file, b, "can't be read");
            return;
        }
        if (l->pieces)
            hand_out(r, slot, file, &part);
        if (l->stream)
            device_stream_record(l->d, l->stream, r->sent[r->slot]);
    }
    if (hash != b->hash)
        damaged(l, file, b, "is damaged: its hash is another");
    forget(l, file, b);
}

static void *read_blocks(void *arg)
{
    reader *r = arg;
    loader *l = r->l;
    for (int64_t i = atomic_fetch_add(&l->next, 1); i < l->n; i = atomic_fetch_add(&l->next, 1)) {
        const block *b = &l->blocks[i];
        pthread_mutex_lock(&l->lock);
        const bool failed = l->failed;
        pthread_mutex_unlock(&l->lock);
        if (failed)
            break;
        read_block(r, l->c->m.runs.r[b->run].file, b);
        atomic_fetch_add(&l->read_bytes, b->bytes);
    }
    for (int at = 0; at < SLOTS && l->stream; at++)
        device_event_sync(l->d, r->sent[at]);
    return NULL;
}

/* A copy costs the device some 4 us beside its bytes, so a rank alone on its host has larger ones where lent memory takes them;
 * slots of two ranks would then leave the processor's cache. To pin memory of its own would take a small load longer than
 * larger copies save: a twelfth of it at most. */
static int64_t copy_bytes(const loader *l, int readers)
{
    int64_t bytes = 0, copy = LARGEST / 2;
    const int64_t all = SLOTS * (int64_t)readers;
    if (l->room.ranks == 1 && l->room.bytes >= all * LARGEST)
        return LARGEST;
    if (2 * l->room.bytes >= all * copy) { /* somewhat smaller copies, rather than fewer readers */
        const int64_t fit = l->room.bytes / all / PART * PART;
        return fit < copy ? fit : copy;
    }
    for (int64_t i = 0; i < l->n; i++)
        bytes += l->blocks[i].bytes;
    while (copy > PART && 12 * all * copy > bytes)
        copy /= 2;
    return copy;
}

static void run_readers(loader *l, int n)
{
    l->copy_bytes = copy_bytes(l, n);
    const size_t each = (size_t)(SLOTS * l->copy_bytes);
    const int fit = (int)(l->room.bytes / (int64_t)each);
    const bool lent = 2 * fit >= n;
    n = lent && fit < n ? fit : n;
    const bool device = l->d && l->pieces && device_kind_of(l->d) != DEVICE_CPU;
    reader *r = xcalloc((unsigned long)n, sizeof *r);
    char *slots = lent ? l->room.at : device ? device_host_malloc(l->d, (size_t)n * each) : xmalloc((size_t)n * each);
    if (!slots)
        die(EXIT_CODE_FAILURE, "the host has no pinned memory to load a checkpoint");
    l->stream = device ? device_stream_create(l->d, STREAM_NORMAL, "load") : NULL;
    for (int i = 0; i < n; i++) {
        r[i] = (reader){.l = l, .slots = slots + (size_t)i * each};
        for (int k = 0; k < SLOTS && device; k++) {
            r[i].sent[k] = device_event_create(l->d);
            device_stream_record(l->d, l->stream, r[i].sent[k]); /* the first wait is for nothing */
        }
    }
    for (int i = 1; i < n; i++)
        if (pthread_create(&r[i].thread, NULL, read_blocks, &r[i]) != 0)
            die(EXIT_CODE_FAILURE, "can't start a thread that reads a checkpoint");
    read_blocks(&r[0]);
    for (int i = 1; i < n; i++)
        pthread_join(r[i].thread, NULL);
    if (device)
        device_stream_destroy(l->d, l->stream);
    for (int i = 0; i < n && device; i++)
        for (int k = 0; k < SLOTS; k++)
            device_event_destroy(l->d, r[i].sent[k]);
    if (device && !lent)
        device_host_free(l->d, slots);
    else if (!lent)
        free(slots);
    free(r);
}

bool checkpoint_load(const checkpoint *c, device *d, const checkpoint_pieces *pieces, int readers, checkpoint_room room,
                     checkpoint_loaded *out, char *why, size_t why_bytes)
{
    const double start = host_seconds();
    const int files = c->m.layout->files;
    loader l = {.c = c,
                .d = d,
                .pieces = pieces,
                .room = room,
                .why = why,
                .why_bytes = why_bytes,
                .lock = PTHREAD_MUTEX_INITIALIZER};
    l.fd = xcalloc((unsigned long)files, sizeof *l.fd);
    l.map = xcalloc((unsigned long)files, sizeof *l.map);
    for (int f = 0; f < files; f++) {
        l.fd[f] = open_file(c, f);
        if (l.fd[f] >= 0)
            map_file(&l, f);
        if (l.fd[f] < 0 && !l.failed) {
            snprintf(why, why_bytes, "can't read %s/%s: %s", c->path, c->m.layout->file[f].name, strerror(errno));
            l.failed = true;
        }
    }
    collect(&l);
    if (!l.failed)
        run_readers(&l, readers);
    for (int f = 0; f < files; f++) {
        if (l.map[f])
            munmap(l.map[f], (size_t)c->m.layout->file[f].bytes);
        if (l.fd[f] >= 0)
            close(l.fd[f]);
    }
    *out = (checkpoint_loaded){host_seconds() - start, atomic_load(&l.read_bytes)};
    free(l.blocks);
    free(l.map);
    free(l.fd);
    return !l.failed;
}

/* ---- verifying ---- */

static bool zeros(const checkpoint *c, int f, int64_t from, int64_t to)
{
    const int fd = open_file(c, f);
    char bytes[CHECKPOINT_ALIGNMENT];
    bool ok = fd >= 0 && to - from <= (int64_t)sizeof bytes && read_all(fd, bytes, to - from, from);
    for (int64_t i = 0; i < to - from && ok; i++)
        ok = bytes[i] == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* What lies between the runs of a file is padding. */
static bool padding_is_zero(const checkpoint *c, char *why, size_t why_bytes)
{
    const checkpoint_runs *runs = &c->m.runs;
    for (int i = 1; i < runs->n; i++) {
        const checkpoint_run *x = &runs->r[i - 1], *y = &runs->r[i];
        if (x->file != y->file || zeros(c, x->file, x->offset + x->bytes, y->offset))
            continue;
        snprintf(why, why_bytes, "%s/%s is damaged: its padding at byte %lld is not zero", c->path,
                 c->m.layout->file[x->file].name, (long long)x->offset + (long long)x->bytes);
        return false;
    }
    return true;
}

static bool no_strangers(const checkpoint *c, char *why, size_t why_bytes)
{
    DIR *d = opendir(c->path);
    bool ok = d;
    for (const struct dirent *e = d ? readdir(d) : NULL; e && ok; e = readdir(d)) {
        bool known = e->d_name[0] == '.' || strcmp(e->d_name, "manifest.json") == 0 ||
                     strcmp(e->d_name, "model.safetensors.index.json") == 0;
        for (int f = 0; f < c->m.layout->files && !known; f++)
            known = strcmp(e->d_name, c->m.layout->file[f].name) == 0;
        ok = known;
        if (!ok)
            snprintf(why, why_bytes, "%s has a file that is no part of it: %s", c->path, e->d_name);
    }
    if (d)
        closedir(d);
    return ok;
}

bool checkpoint_verify_frame(const checkpoint *c, char *why, size_t why_bytes)
{
    size_t bytes;
    if (!padding_is_zero(c, why, why_bytes))
        return false;
    OWNED char *index = checkpoint_read_text(c->path, "model.safetensors.index.json", &bytes, why, why_bytes);
    OWNED char *want = checkpoint_index(c->m.layout);
    bool ok = index && strcmp(index, want) == 0;
    if (index && !ok)
        snprintf(why, why_bytes, "%s/model.safetensors.index.json is not that of the model", c->path);
    return ok && no_strangers(c, why, why_bytes);
}

bool checkpoint_verify(const checkpoint *c, int readers, char *why, size_t why_bytes)
{
    checkpoint_loaded read;
    return checkpoint_load(c, NULL, NULL, readers, (checkpoint_room){0}, &read, why, why_bytes) &&
           checkpoint_verify_frame(c, why, why_bytes);
}

/* ---- the newest one ---- */

static bool open_step(const char *folder, int64_t step, const checkpoint_model *model, checkpoint *out, char *why,
                      size_t why_bytes)
{
    char *path = checkpoint_path(folder, step), sentence[200];
    bool ok = checkpoint_open(path, out, why, why_bytes);
    if (ok && model && checkpoint_model_differs(&out->m.layout->model, model, sentence, sizeof sentence)) {
        snprintf(why, why_bytes, "%s: %s", path, sentence);
        ok = false;
    } else if (ok && out->m.state.step != step) {
        snprintf(why, why_bytes, "%s is of step %lld by its manifest", path, (long long)out->m.state.step);
        ok = false;
    }
    free(path);
    return ok;
}

bool checkpoint_open_before(const char *folder, int64_t before, const checkpoint_model *model, checkpoint *out,
                            char *why, size_t why_bytes)
{
    int64_t *steps;
    bool ok = false;
    const int n = checkpoint_folder_list(folder, &steps, why, why_bytes);
    *out = (checkpoint){0};
    for (int i = n - 1; i >= 0 && !ok; i--) {
        if (steps[i] >= before)
            continue;
        ok = open_step(folder, steps[i], model, out, why, why_bytes);
        if (!ok && i > 0) {
            warn("%s; the checkpoint before it is taken", why);
            checkpoint_close(out);
        }
    }
    if (n == 0)
        snprintf(why, why_bytes, "no complete checkpoint is in %s (%d incomplete)", folder,
                 checkpoint_folder_partial(folder));
    if (n >= 0)
        free(steps);
    return ok;
}

bool checkpoint_open_in(const char *folder, int64_t step, const checkpoint_model *model, checkpoint *out, char *why,
                        size_t why_bytes)
{
    *out = (checkpoint){0};
    return step < 0 ? checkpoint_open_before(folder, INT64_MAX, model, out, why, why_bytes)
                    : open_step(folder, step, model, out, why, why_bytes);
}
