/* SPDX-License-Identifier: MIT */
/* Folders of checkpoints on any file system with an atomic rename; see folder.h. */
#include "common/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/core/text.h"

static const char marker[] = ".stepbench-checkpoints", trash[] = ".trash-", spare[] = ".spare-";

void (*checkpoint_point)(const char *name);

void checkpoint_reach(const char *name)
{
    if (checkpoint_point)
        checkpoint_point(name);
}

static bool fail(char *why, size_t bytes, const char *what, const char *path)
{
    snprintf(why, bytes, "can't %s %s: %s", what, path, strerror(errno));
    return false;
}

char *checkpoint_path(const char *folder, int64_t step)
{
    return xasprintf("%s/step-%08lld", folder, (long long)step);
}

char *checkpoint_partial_path(const char *folder, int64_t step, int attempt)
{
    return xasprintf("%s/step-%08lld.partial-%d", folder, (long long)step, attempt);
}

bool checkpoint_sync_folder(const char *folder, char *why, size_t why_bytes)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0;
    if (ok && fsync(fd) != 0 && errno != EINVAL) /* some file systems sync no folder */
        ok = false;
    if (!ok)
        fail(why, why_bytes, "sync", folder);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* ---- removing ---- */

/* A folder of ours has files alone. */
typedef struct folder_files {
    int fd; /* of the folder */
    char **names;
} folder_files;

static void remove_files(void *arg, size_t first, size_t count)
{
    const folder_files *f = arg;
    for (size_t i = first; i < first + count; i++)
        unlinkat(f->fd, f->names[i], 0);
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* By several threads: giving back the pages of some GB takes one of them seconds. What a link leads to is not ours. */
static void remove_folder(const char *path)
{
    size_t n = 0;
    if (unlink(path) == 0) /* a link, or a file: of a folder, it fails */
        return;
    DIR *d = opendir(path);
    folder_files f = {.fd = d ? dirfd(d) : -1};
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        f.names = xrealloc(f.names, (n + 1) * sizeof *f.names);
        f.names[n++] = xstrdup(e->d_name);
    }
    spread_pieces(n, 1, remove_files, &f); /* . and .. are no files */
    while (n > 0)
        free(f.names[--n]);
    free(f.names);
    if (d)
        closedir(d);
    rmdir(path);
}

static bool is_partial(const char *name)
{
    return strncmp(name, "step-", 5) == 0 && strstr(name, ".partial-");
}

/* The step of "step-00000012"; -1: it is another name. */
static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13 || strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    errno = 0;
    const long long step = strtoll(name + 5, &end, 10);
    return errno || *end ? -1 : step;
}

static void remove_leftovers(const char *folder, bool spares_alone)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        OWNED char *path = xasprintf("%s/%s", folder, e->d_name);
        if (text_starts(e->d_name, spare) ||
            (!spares_alone && (is_partial(e->d_name) || text_starts(e->d_name, trash))))
            remove_folder(path);
    }
    if (d)
        closedir(d);
}

void checkpoint_discard(const char *folder, int64_t step, int attempt)
{
    OWNED char *path = checkpoint_partial_path(folder, step, attempt);
    remove_folder(path);
}

/* ---- spares ---- */

/* The name of a spare that is there; caller frees. */
static char *find_spare(const char *folder)
{
    DIR *d = opendir(folder);
    char *path = NULL;
    for (const struct dirent *e = d ? readdir(d) : NULL; e && !path; e = readdir(d))
        path = text_starts(e->d_name, spare) ? xasprintf("%s/%s", folder, e->d_name) : NULL;
    if (d)
        closedir(d);
    return path;
}

/* The header fixes where everything lies, so that padding is zero already. Who has a link to a file, or reads it, keeps what it
 * had: a lease is refused while anybody else has the file open, and does not tell by the signal that ends a process. What a
 * link here leads to belongs to somebody else, too. */
static bool can_be_spare(const char *path, const checkpoint_layout *l)
{
    bool ok = !is_link(path);
    for (int f = 0; f < l->files && ok; f++) {
        const checkpoint_file *x = &l->file[f];
        OWNED char *name = xasprintf("%s/%s", path, x->name), *header = xmalloc((size_t)x->header_bytes);
        const int fd = open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;
        ok = fd >= 0 && fstat(fd, &st) == 0 && st.st_size == x->bytes && st.st_nlink == 1 &&
             pread(fd, header, (size_t)x->header_bytes, 0) == x->header_bytes &&
             memcmp(header, x->header, (size_t)x->header_bytes) == 0;
        ok = ok && fcntl(fd, F_SETSIG, SIGURG) == 0 && (fcntl(fd, F_SETLEASE, F_WRLCK) == 0 || errno != EAGAIN);
        if (fd >= 0)
            close(fd);
    }
    return ok;
}

/* A power cut must not bring back the step's name: its files are written over soon. */
static bool make_spare(const char *folder, const char *path, int64_t step, const checkpoint_layout *l)
{
    char why[256];
    OWNED char *manifest = xasprintf("%s/manifest.json", path),
               *to = xasprintf("%s/%s%lld", folder, spare, (long long)step), *there = find_spare(folder);
    bool ok =
        !there && can_be_spare(path, l) && unlink(manifest) == 0 && checkpoint_sync_folder(folder, why, sizeof why);
    checkpoint_reach("spare");
    ok = ok && rename(path, to) == 0;
    return ok;
}

void checkpoint_keep(const char *folder, int keep, int64_t last, const checkpoint_layout *l)
{
    int64_t *steps;
    char why[256];
    const int n = checkpoint_folder_list(folder, &steps, why, sizeof why);
    int until = n;
    while (until > 0 && steps[until - 1] > last)
        until--;
    for (int i = 0; i < until - keep; i++) {
        OWNED char *from = checkpoint_path(folder, steps[i]),
                   *to = xasprintf("%s/%s%lld", folder, trash, (long long)steps[i]);
        checkpoint_reach("trash");
        if (rename(from, to) == 0 && !(l && make_spare(folder, to, steps[i], l)))
            remove_folder(to);
    }
    if (n >= 0)
        free(steps);
}

bool checkpoint_begin(const char *folder, int64_t step, int attempt)
{
    OWNED char *path = checkpoint_partial_path(folder, step, attempt), *from = find_spare(folder);
    /* Neither puts a folder in place of one that has files: then another rank was first. */
    const bool ok =
        (from && access(path, F_OK) != 0 && rename(from, path) == 0) || mkdir(path, 0777) == 0 || errno == EEXIST;
    return ok;
}

typedef struct made {
    const char *folder;
    const checkpoint_layout *l;
    int rank, ranks;
} made;

static void make_files(void *arg, size_t first, size_t count)
{
    const made *m = arg;
    for (size_t i = first; i < first + count; i++) {
        const size_t f = i % (size_t)m->l->files;
        OWNED char *path = xasprintf("%s/%snew-%zu/%s", m->folder, spare, i / (size_t)m->l->files, m->l->file[f].name);
        const int fd = f % (size_t)m->ranks == (size_t)m->rank ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
        if (fd < 0)
            continue;
        fallocate(fd, 0, 0, (off_t)m->l->file[f].bytes); /* where it fails, the save asks again, and says so */
        close(fd);
    }
}

void checkpoint_spares_make(const char *folder, const checkpoint_layout *l, int sets, int rank, int ranks)
{
    for (int i = 0; i < sets; i++) {
        OWNED char *path = xasprintf("%s/%snew-%d", folder, spare, i);
        mkdir(path, 0777);
    }
    spread_pieces((size_t)sets * (size_t)l->files, 1, make_files, &(made){folder, l, rank, ranks});
}

void checkpoint_spares_remove(const char *folder)
{
    remove_leftovers(folder, true);
}

/* Whether the folder is gone. */
static bool remove_ours(const char *folder)
{
    const char *const ours[] = {marker, "losses.bin"};
    OWNED char *ladder = xasprintf("%s/ladder", folder);
    if (access(ladder, F_OK) == 0 && !is_link(ladder))
        remove_ours(ladder);
    checkpoint_keep(folder, 0, INT64_MAX, NULL);
    remove_leftovers(folder, false);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        OWNED char *path = xasprintf("%s/%s", folder, ours[i]);
        unlink(path);
    }
    return rmdir(folder) == 0 || errno == ENOENT;
}

void checkpoint_folder_remove(const char *folder)
{
    if (!remove_ours(folder))
        warn("%s is left behind", folder);
}

void checkpoint_folder_drop(void *folder)
{
    for (int tries = 1; tries < 20; tries++) {
        if (remove_ours(folder))
            return;
        usleep(50 * 1000);
    }
    checkpoint_folder_remove(folder);
}

/* Whether the number behind the prefix is that of a process which is over. */
static bool of_dead_process(const char *name, const char *prefix)
{
    const char *number = name + strlen(prefix);
    return text_starts(name, prefix) && *number && strlen(number) < 10 &&
           strspn(number, "0123456789") == strlen(number) && kill((pid_t)atol(number), 0) != 0 && errno == ESRCH;
}

void checkpoint_folder_sweep(const char *parent, const char *prefix)
{
    DIR *d = opendir(parent);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char why[400];
        struct stat st;
        OWNED char *path = xasprintf("%s/%s", parent, e->d_name), *mark = xasprintf("%s/%s", path, marker);
        if (!of_dead_process(e->d_name, prefix) || access(mark, F_OK) != 0 || lstat(path, &st) != 0 ||
            !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
            continue;
        const int lock = checkpoint_folder_open(path, why, sizeof why); /* a process of another container may hold it */
        if (lock >= 0)
            checkpoint_folder_remove(path);
        checkpoint_folder_close(lock);
    }
    if (d)
        closedir(d);
}

/* ---- opening and listing ---- */

static bool make_folders(const char *folder)
{
    OWNED char *path = xstrdup(folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    const bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
    return ok;
}

/* The folder's own entry; the first save finds it there after a power cut. */
static void sync_parent(const char *folder)
{
    char why[256], *parent = xasprintf("%s/..", folder);
    checkpoint_sync_folder(parent, why, sizeof why);
    free(parent);
}

const char *checkpoint_folder_problem(const char *folder)
{
    return strlen(folder) > CHECKPOINT_FOLDER_BYTES - 32
               ? "the name of a folder of checkpoints has at most 480 characters"
               : NULL;
}

int checkpoint_folder_open(const char *folder, char *why, size_t why_bytes)
{
    if (!make_folders(folder)) {
        fail(why, why_bytes, "make the folder of checkpoints", folder);
        return -1;
    }
    char *path = xasprintf("%s/%s", folder, marker);
    const bool ours = access(path, F_OK) == 0;
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) {
        fail(why, why_bytes, "write to the folder of checkpoints", folder);
    } else if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        snprintf(why, why_bytes, "another run writes checkpoints to %s; wait for it to end, or name another folder",
                 folder);
        close(lock);
        free(path);
        return -1;
    }
    free(path);
    if (lock >= 0)
        sync_parent(folder);
    if (ours && lock >= 0)
        remove_leftovers(folder, false);
    return lock;
}

void checkpoint_folder_close(int lock)
{
    if (lock >= 0)
        close(lock);
}

bool checkpoint_folder_room(const char *folder, int checkpoints, int64_t bytes, char *why, size_t why_bytes)
{
    struct statvfs st;
    const double needed = (double)checkpoints * (double)bytes;
    if (statvfs(folder, &st) != 0 || (double)st.f_bavail * (double)st.f_frsize >= needed)
        return true;
    snprintf(why, why_bytes, "%s has %.3g GB free, and %d checkpoints need %.3g", folder,
             (double)st.f_bavail * (double)st.f_frsize / 1e9, checkpoints, needed / 1e9);
    return false;
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int checkpoint_folder_list(const char *folder, int64_t **steps, char *why, size_t why_bytes)
{
    DIR *d = opendir(folder);
    int n = 0;
    *steps = NULL;
    if (!d) {
        fail(why, why_bytes, "read the folder of checkpoints", folder);
        return -1;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        const int64_t step = step_of(e->d_name);
        if (step < 0)
            continue;
        *steps = xrealloc(*steps, (unsigned long)(n + 1) * sizeof **steps);
        (*steps)[n++] = step;
    }
    closedir(d);
    if (n)
        qsort(*steps, (size_t)n, sizeof **steps, by_step);
    return n;
}

int checkpoint_folder_partial(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += is_partial(e->d_name);
    if (d)
        closedir(d);
    return n;
}

/* ---- small files ---- */

bool checkpoint_write_text(const char *folder, const char *name, const char *text, char *why, size_t why_bytes)
{
    OWNED char *path = xasprintf("%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const size_t bytes = strlen(text);
    bool ok = fd >= 0;
    for (size_t at = 0; ok && at < bytes;) {
        const ssize_t n = pwrite(fd, text + at, bytes - at, (off_t)at);
        ok = n > 0 || (n < 0 && errno == EINTR);
        at += n > 0 ? (size_t)n : 0;
    }
    ok = ok && fsync(fd) == 0;
    if (!ok)
        fail(why, why_bytes, "write", path);
    if (fd >= 0 && close(fd) != 0 && ok)
        ok = fail(why, why_bytes, "write", path);
    return ok;
}

int checkpoint_file_open(const char *path)
{
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

char *checkpoint_read_text(const char *folder, const char *name, size_t *bytes, char *why, size_t why_bytes)
{
    enum { MOST = 100 << 20 };
    char *path = xasprintf("%s/%s", folder, name), *text = NULL;
    const int fd = checkpoint_file_open(path);
    struct stat st;
    *bytes = 0;
    if (fd < 0 || fstat(fd, &st) != 0) {
        fail(why, why_bytes, "read", path);
    } else if (!S_ISREG(st.st_mode) || st.st_size > MOST) {
        snprintf(why, why_bytes, "%s is not a file of at most 100 MiB", path);
    } else {
        ssize_t n = 1;
        text = xmalloc((size_t)st.st_size + 1);
        while (*bytes < (size_t)st.st_size && n > 0) {
            n = read(fd, text + *bytes, (size_t)st.st_size - *bytes);
            *bytes += n > 0 ? (size_t)n : 0;
        }
        text[*bytes] = '\0';
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return text;
}

/* ---- the commit ---- */

bool checkpoint_commit(const char *folder, int64_t step, int attempt, char *why, size_t why_bytes)
{
    OWNED char *from = checkpoint_partial_path(folder, step, attempt), *to = checkpoint_path(folder, step);
    bool ok = checkpoint_sync_folder(from, why, why_bytes);
    checkpoint_reach("rename");
    /* A run that began again from an earlier step meets its own: they change places, so that one is always there. */
    const bool again = ok && access(to, F_OK) == 0;
    if (ok && (again ? renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) : rename(from, to)) != 0)
        ok = fail(why, why_bytes, "rename", from);
    checkpoint_reach("renamed");
    ok = ok && checkpoint_sync_folder(folder, why, why_bytes);
    if (ok && again)
        remove_folder(from);
    return ok;
}
