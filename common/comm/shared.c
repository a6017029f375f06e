/* SPDX-License-Identifier: MIT */
/* Memory of several ranks; see shared.h. */
#include "common/comm/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/comm/peer.h"
#include "common/core/error.h"

struct shared {
    launch *l;
    device *d;
    peer_memory *peers; /* NULL on the CPU */
    void *block;        /* this rank's own; NULL: no member */
    int rank, ranks;
    size_t bytes;
    void *at[SB_DIRECT_RANKS_MAX];
};

static bool on_cpu(const device *d)
{
    return device_kind_of(d) == DEVICE_CPU;
}

/* A page for which the file system had no room would end the process when it is first used. */
static bool reserve(int fd, size_t bytes)
{
    int e;
    while ((e = posix_fallocate(fd, 0, (off_t)bytes)) == EINTR)
        ;
    return e == 0;
}

/* On the CPU: a name that is gone once all ranks have opened it. */
static void *map_block(const char *name, size_t bytes, bool make)
{
    const int fd = shm_open(name, make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0)
        return NULL;
    const bool sized = !make || reserve(fd, bytes);
    void *at = sized ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (make && at == MAP_FAILED)
        shm_unlink(name);
    return at == MAP_FAILED ? NULL : at;
}

static bool share_on_cpu(shared *s, const int *members, char *why, size_t why_bytes)
{
    static int opened;
    long own = getpid(), *all = xcalloc((unsigned long)launch_size(s->l), sizeof *all);
    char name[64];
    const int number = opened++;
    launch_gather(s->l, "shared memory", &own, sizeof own, all);
    snprintf(name, sizeof name, "/stepbench-%ld-%d", own, number);
    s->block = s->rank < 0 ? NULL : map_block(name, s->bytes, true);
    bool ok = launch_all(s->l, "shared memory is made", s->rank < 0 || s->block);
    for (int r = 0; r < s->ranks && ok && s->rank >= 0; r++) {
        char of[64];
        snprintf(of, sizeof of, "/stepbench-%ld-%d", all[members ? members[r] : r], number);
        s->at[r] = r == s->rank ? s->block : map_block(of, s->bytes, false);
        ok = s->at[r];
    }
    ok = launch_all(s->l, "shared memory is open", ok);
    if (s->block)
        shm_unlink(name);
    if (!ok)
        snprintf(why, why_bytes, "no shared memory of %zu bytes for each rank in /dev/shm", s->bytes);
    free(all);
    return ok;
}

static bool share_on_gpu(shared *s, const int *members, char *why, size_t why_bytes)
{
    s->block = s->rank < 0 ? NULL : device_malloc(s->d, s->bytes);
    if (!launch_all(s->l, "shared memory is made", s->rank < 0 || s->block)) {
        snprintf(why, why_bytes, "no memory for %zu bytes that other ranks reach", s->bytes);
        return false;
    }
    if (s->block) {
        device_memset(s->d, s->block, 0, s->bytes);
        device_sync(s->d);
    }
    s->peers = peer_memory_open(s->l, s->d, members, s->ranks, s->block, why, why_bytes);
    for (int r = 0; r < s->ranks && s->peers; r++)
        s->at[r] = peer_memory_at(s->peers)[r];
    return s->peers;
}

shared *shared_open(launch *l, device *d, const int *members, int ranks, size_t bytes, char *why, size_t why_bytes)
{
    if (ranks < 2 || ranks > SB_DIRECT_RANKS_MAX || launch_hosts(l) > 1) {
        snprintf(why, why_bytes, "memory is shared by 2 to %d ranks of one host", SB_DIRECT_RANKS_MAX);
        return NULL;
    }
    shared *s = xcalloc(1, sizeof *s);
    *s = (shared){.l = l, .d = d, .rank = -1, .ranks = ranks, .bytes = bytes};
    for (int r = 0; r < ranks; r++)
        s->rank = (members ? members[r] : r) == launch_rank(l) ? r : s->rank;
    if ((on_cpu(d) ? share_on_cpu : share_on_gpu)(s, members, why, why_bytes))
        return s;
    shared_close(s);
    return NULL;
}

void *const *shared_at(const shared *s)
{
    return s->at;
}

int shared_rank(const shared *s)
{
    return s->rank;
}

void shared_close(shared *s)
{
    if (!s)
        return;
    device_sync(s->d);
    launch_barrier(s->l, "shared memory is done with"); /* none may still write where another unmaps or frees */
    peer_memory_close(s->peers);
    for (int r = 0; r < s->ranks && on_cpu(s->d); r++)
        if (s->at[r])
            munmap(s->at[r], s->bytes);
    launch_barrier(s->l, "shared memory is apart");
    if (s->block && !on_cpu(s->d))
        device_free(s->d, s->block);
    free(s);
}
