/* SPDX-License-Identifier: MIT */
/* What a power cut may leave: every change of files by four saves is recorded, with what was synced when; then folders are
 * built as they may look after a cut at any point, and each must load the last checkpoint that was reported, or a newer
 * one; an older one that opens is whole. Of a file's changes since its last sync any 4096 bytes may be there or not; of a folder's, the first so many. Kills
 * never find a missing sync; this does. */
#include "tests/support/test.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>

#include "common/core/rng.h"
#include "tests/checkpoint/saved_state.h"

enum { OPS = 8000, NODES = 400, FDS = 1024, PAGE = 4096, RANKS = 3 };

typedef enum op_kind { OP_WRITE, OP_SIZE, OP_SYNC, OP_ADD, OP_REMOVE, OP_MOVE, OP_SWAP, OP_REPORT } op_kind;

typedef struct op {
    op_kind kind;
    int node; /* whose change it is */
    int64_t offset, bytes;
    char *data;
    char name[64], to[64];
    int what; /* the node that is added, or the step that is reported */
} op;

static op ops[OPS];
static int op_count, node_count, node_of_fd[FDS];
static char root[512];
static bool recording;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct entry {
    char name[64];
    int node;
} entry;
typedef struct folder {
    entry e[64];
    int n;
} folder;
static folder now[NODES]; /* of nodes that are folders, as the process sees them; 0 is the root */

static op *record(op_kind kind, int node)
{
    if (op_count == OPS)
        die(EXIT_CODE_FAILURE, "more than %d changes", OPS);
    ops[op_count] = (op){.kind = kind, .node = node};
    return &ops[op_count++];
}

/* ---- folders ---- */

static int find(const folder *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->e[i].name, name) == 0)
            return i;
    return -1;
}

static void apply(folder *f, const op *x)
{
    const int at = find(f, x->name), to = find(f, x->to);
    if (x->kind == OP_ADD && at < 0) {
        snprintf(f->e[f->n].name, sizeof f->e[f->n].name, "%s", x->name);
        f->e[f->n++].node = x->what;
    } else if (x->kind == OP_REMOVE && at >= 0) {
        f->e[at] = f->e[--f->n];
    } else if (x->kind == OP_SWAP && at >= 0 && to >= 0) {
        const int kept = f->e[at].node;
        f->e[at].node = f->e[to].node;
        f->e[to].node = kept;
    } else if (x->kind == OP_MOVE && at >= 0) {
        if (to >= 0)
            f->e[to].node = f->e[at].node, f->e[at] = f->e[--f->n];
        else
            snprintf(f->e[at].name, sizeof f->e[at].name, "%s", x->to);
    }
}

/* The folder that a path below the root lies in, and its name there; -1: elsewhere. Of the root itself the name is "". */
static int place(const char *path, char *name)
{
    const size_t n = strlen(root);
    if (!recording || strncmp(path, root, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return -1;
    const char *rest = path[n] ? path + n + 1 : "", *slash = strchr(rest, '/');
    int node = 0;
    if (slash) {
        char first[64];
        snprintf(first, sizeof first, "%.*s", (int)(slash - rest), rest);
        const int at = find(&now[0], first);
        node = at < 0 ? -1 : now[0].e[at].node;
        rest = slash + 1;
    }
    snprintf(name, 64, "%s", rest);
    return node;
}

static void change(op_kind kind, const char *from, const char *to, int what)
{
    char name[64], other[64] = "";
    const int node = place(from, name);
    if (node < 0 || (to && place(to, other) != node))
        return;
    op *x = record(kind, node);
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->to, sizeof x->to, "%s", other);
    x->what = what;
    apply(&now[node], x);
}

/* ---- between the savers and libc ---- */

int __real_open(const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_unlink(const char *path);
int __real_ftruncate(int fd, off_t bytes);
int __real_fsync(int fd);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);

int __wrap_open(const char *path, int flags, ...)
{
    char name[64];
    pthread_mutex_lock(&lock);
    const int fd = __real_open(path, flags, 0666), node = fd < 0 ? -1 : place(path, name);
    if (fd >= 0)
        node_of_fd[fd] = -1;
    if (node >= 0) {
        if (*name && find(&now[node], name) < 0 && flags & O_CREAT)
            change(OP_ADD, path, NULL, node_count++);
        const int at = find(&now[node], name);
        node_of_fd[fd] = *name ? at < 0 ? -1 : now[node].e[at].node : node;
        if (flags & O_TRUNC)
            record(OP_SIZE, node_of_fd[fd]);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    pthread_mutex_lock(&lock);
    const int failed = __real_mkdir(path, mode);
    if (!failed)
        change(OP_ADD, path, NULL, node_count++);
    pthread_mutex_unlock(&lock);
    return failed;
}

int __wrap_rename(const char *from, const char *to)
{
    pthread_mutex_lock(&lock);
    const int failed = __real_rename(from, to);
    if (!failed)
        change(OP_MOVE, from, to, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    pthread_mutex_lock(&lock);
    const int failed = __real_renameat2(a, from, b, to, flags);
    if (!failed)
        change(OP_SWAP, from, to, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int __wrap_unlink(const char *path)
{
    pthread_mutex_lock(&lock);
    change(OP_REMOVE, path, NULL, 0);
    const int failed = __real_unlink(path);
    pthread_mutex_unlock(&lock);
    return failed;
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    pthread_mutex_lock(&lock);
    if (recording && node_of_fd[fd] >= 0)
        record(OP_SIZE, node_of_fd[fd])->bytes = bytes;
    pthread_mutex_unlock(&lock);
    return __real_ftruncate(fd, bytes);
}

int __wrap_fsync(int fd)
{
    pthread_mutex_lock(&lock);
    if (recording && node_of_fd[fd] >= 0)
        record(OP_SYNC, node_of_fd[fd]);
    pthread_mutex_unlock(&lock);
    return __real_fsync(fd);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    pthread_mutex_lock(&lock);
    if (recording && node_of_fd[fd] >= 0) {
        op *x = record(OP_WRITE, node_of_fd[fd]);
        x->offset = at;
        x->bytes = (int64_t)bytes;
        x->data = xmalloc(bytes + 1);
        memcpy(x->data, data, bytes);
    }
    pthread_mutex_unlock(&lock);
    return __real_pwrite(fd, data, bytes, at);
}

/* ---- after a cut ---- */

typedef struct cut {
    int at; /* operations before it */
    uint64_t seed;
    int mode;          /* of what is not synced: 0 nothing, 1 all, 2 by chance */
    int synced[NODES]; /* operations on it up to here are on the disk */
} cut;

static double chance(const cut *c, uint64_t stream, uint64_t i)
{
    return c->mode < 2 ? c->mode == 1 ? 0 : 1 : rng_uniform(c->seed, (uint32_t)stream, i);
}

static void build_file(const cut *c, int node, const char *path)
{
    static char bytes[1 << 20];
    int64_t size = 0;
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < c->at; i++) {
        const op *x = &ops[i];
        const bool sure = i <= c->synced[node];
        if (x->node != node || (x->kind != OP_WRITE && x->kind != OP_SIZE))
            continue;
        if (x->kind == OP_SIZE && (sure || chance(c, 7, (uint64_t)i) < 0.5)) {
            memset(bytes + x->bytes, 0, sizeof bytes - (size_t)x->bytes);
            size = x->bytes;
        }
        for (int64_t at = 0; x->kind == OP_WRITE && at < x->bytes;
             at = (x->offset + at + PAGE) / PAGE * PAGE - x->offset) {
            const int64_t end = (x->offset + at + PAGE) / PAGE * PAGE - x->offset,
                          n = (end < x->bytes ? end : x->bytes) - at;
            if (!sure && chance(c, 8, (uint64_t)i << 20 | (uint64_t)at) >= 0.5)
                continue;
            memcpy(bytes + x->offset + at, x->data + at, (size_t)n);
            size = x->offset + at + n > size ? x->offset + at + n : size;
        }
    }
    const int fd = __real_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_int_equal(__real_pwrite(fd, bytes, (size_t)size, 0), size);
    close(fd);
}

static void build_folder(const cut *c, int node, const char *path)
{
    folder f = {.n = 0};
    int pending = 0, kept = 0;
    for (int i = 0; i < c->at; i++)
        pending += ops[i].node == node && ops[i].kind >= OP_ADD && ops[i].kind <= OP_SWAP && i > c->synced[node];
    kept = c->mode == 0 ? 0 : c->mode == 1 ? pending : (int)(chance(c, 9, (uint64_t)node) * (pending + 1));
    for (int i = 0; i < c->at; i++)
        if (ops[i].node == node && ops[i].kind >= OP_ADD && ops[i].kind <= OP_SWAP &&
            (i <= c->synced[node] || kept-- > 0))
            apply(&f, &ops[i]);
    __real_mkdir(path, 0777);
    for (int i = 0; i < f.n; i++) {
        OWNED char *below = xasprintf("%s/%s", path, f.e[i].name);
        if (strchr(f.e[i].name, '-') && !strchr(f.e[i].name, '.'))
            build_folder(c, f.e[i].node, below); /* step-N; a partial or removed one is not looked into */
        else if (!strchr(f.e[i].name, '/') && strncmp(f.e[i].name, "step-", 5) != 0 &&
                 strncmp(f.e[i].name, ".trash", 6) != 0 && strncmp(f.e[i].name, ".spare", 6) != 0)
            build_file(c, f.e[i].node, below);
    }
}

static void expect_whole(const cut *c, const checkpoint *k)
{
    char why[512];
    checkpoint_loaded loaded;
    saved_rank r = saved_rank_create(k->m.layout, 0, 1);
    if (!checkpoint_verify(k, 1, why, sizeof why) ||
        !checkpoint_load(k, NULL, &r.pieces, 1, (checkpoint_room){0}, &loaded, why, sizeof why))
        fail_msg("cut at %d of %d, mode %d: %s", c->at, op_count, c->mode, why);
    saved_expect(&r, k->m.state.step);
    saved_rank_free(&r);
}

static void expect_loads(const cut *c, const char *path)
{
    char why[512];
    checkpoint k;
    int64_t *steps;
    int reported = 0;
    for (int i = 0; i < c->at; i++)
        reported = ops[i].kind == OP_REPORT ? ops[i].what : reported;
    const bool any = checkpoint_open_in(path, -1, &saved_model, &k, why, sizeof why);
    if (reported && (!any || k.m.state.step < reported))
        fail_msg("cut at %d of %d, mode %d: step %d was reported, and %s", c->at, op_count, c->mode, reported,
                 any ? "an older one is there" : why);
    if (any)
        expect_whole(c, &k);
    checkpoint_close(&k);
    const int n = checkpoint_folder_list(path, &steps, why, sizeof why);
    for (int i = 0; i < n; i++) {
        if (checkpoint_open_in(path, steps[i], &saved_model, &k, why, sizeof why))
            expect_whole(c, &k);
        checkpoint_close(&k);
    }
    free(steps);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_all(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void report(int64_t step)
{
    record(OP_REPORT, -1)->what = (int)step;
}

/* The third is written over the files of the first, and comes again. */
static void record_saves(const char *folder)
{
    char why[400];
    const int64_t steps[] = {1, 2, 3, 3};
    const checkpoint_save_options o = {
        .folder = folder, .way = CHECKPOINT_ASYNC, .writers = 2, .keep = 1, .timeout_s = 5};
    snprintf(root, sizeof root, "%s", folder);
    checkpoint_folder_close(checkpoint_folder_open(folder, why, sizeof why));
    recording = true;
    node_count = 1;
    assert_true(saved_steps(&saved_model, &o, RANKS, steps, 4, report).ok);
    recording = false;
}

TEST_IN_FOLDER(every_cut_loads_the_last_commit)
{
    char *folder = folder_path(*state, "saves"), *after = folder_path(*state, "after");
    record_saves(folder);
    int folders = 0;
    for (int at = 0; at <= op_count; at++) {
        if (at > 0 && at % 4 && ops[at - 1].kind <= OP_SIZE) /* of writes in a row a few */
            continue;
        for (int mode = 0; mode < 3; mode++) {
            cut c = {.at = at, .mode = mode, .seed = (uint64_t)at};
            memset(c.synced, -1, sizeof c.synced);
            for (int i = 0; i < at; i++)
                if (ops[i].kind == OP_SYNC)
                    c.synced[ops[i].node] = i;
            build_folder(&c, 0, after);
            expect_loads(&c, after);
            remove_all(after);
            folders++;
        }
    }
    print_message("%d changes, %d folders\n", op_count, folders);
    for (int i = 0; i < op_count; i++)
        free(ops[i].data);
    free(folder), free(after);
}
