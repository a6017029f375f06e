/* SPDX-License-Identifier: MIT */
/* Becoming a rank of a job and leaving it: the control channel, saying hello, and the coordinator where it is rank 0's. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/launch/internal.h"

/* ---- who this is ---- */

static uint64_t file_hash(const char *path)
{
    uint64_t hash = 0xcbf29ce484222325u;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size == 0) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    const size_t words = (size_t)info.st_size / sizeof(uint64_t);
    const uint64_t *text = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    for (size_t i = 0; text != MAP_FAILED && i < words; i++)
        hash = (hash ^ text[i]) * 0x100000001b3u + (hash >> 47);
    if (text != MAP_FAILED)
        munmap((void *)text, (size_t)info.st_size);
    close(fd);
    return hash ^ (uint64_t)info.st_size;
}

static int add_kernels(struct dl_phdr_info *loaded, size_t bytes, void *hash)
{
    (void)bytes;
    if (strstr(loaded->dlpi_name, "libstepbench.so"))
        *(uint64_t *)hash = *(uint64_t *)hash * 31 + file_hash(loaded->dlpi_name);
    return 0;
}

/* A hash of the program's file and of the kernels' library that it runs with: ranks of different builds would exchange nonsense. */
static uint64_t binary_hash(void)
{
    static uint64_t hash;
    if (!hash) {
        hash = file_hash("/proc/self/exe");
        dl_iterate_phdr(add_kernels, &hash);
    }
    return hash;
}

/* The boot of a machine and the network inside it: containers with networks of their own are hosts of their own. */
static uint64_t host_hash(void)
{
    char boot[64] = "";
    struct stat net = {0};
    OWNED_FILE FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(boot, sizeof boot, f))
        boot[0] = 0;
    stat("/proc/self/ns/net", &net);
    return rng_hash((uint64_t)net.st_ino, boot);
}

static void say_hello(launch *l, const launch_place *place, const options *o)
{
    OWNED char *text = options_describe(o);
    control_hello hello = {.version = CONTROL_VERSION,
                           .rank = l->rank,
                           .size = l->size,
                           .options_bytes = (uint32_t)strlen(text),
                           .run_id = place->run_id,
                           .binary = binary_hash(),
                           .host = host_hash()};
    gethostname(hello.host_name, sizeof hello.host_name - 1);
    channel_put(&l->c, CONTROL_HELLO, &hello, sizeof hello, text, hello.options_bytes);
}

/* ---- joining and leaving ---- */

static void *run_coordinator(void *arg)
{
    launch *l = arg;
    double ending = 0;
    while (!coordinator_over(l->coordinator) && !(ending > 0 && host_seconds() - ending > 1.5)) {
        coordinator_step(l->coordinator, 0.05);
        if (coordinator_ending(l->coordinator) && ending == 0)
            ending = host_seconds();
    }
    return NULL;
}

/* Rank 0 of a job that somebody else started: the coordinator is a thread here. Returns the rank's end of its channel. */
static int start_coordinator(launch *l, const launch_place *place)
{
    int pair[2], listeners[COORDINATOR_LISTENERS];
    char where[300];
    snprintf(where, sizeof where, "%s port %d", place->master, place->port);
    const int n = launch_listen(place, listeners);
    l->coordinator = coordinator_create(&(coordinator_options){
        .ranks = l->size, .timeout_s = l->timeout_s, .run_id = place->run_id, .secret = place->secret, .where = where});
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die(EXIT_CODE_FAILURE, "can't make a control channel: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        coordinator_listen(l->coordinator, listeners[i]);
    coordinator_attach(l->coordinator, pair[0]);
    if (pthread_create(&l->coordinator_thread, NULL, run_coordinator, l) != 0)
        die(EXIT_CODE_FAILURE, "can't start the thread of the coordinator");
    return pair[1];
}

static void map_board(launch *l, int fd)
{
    const size_t bytes = (size_t)l->size * sizeof(status_slot);
    status_slot *board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED)
        die(EXIT_CODE_FAILURE, "can't map what the launcher shares with its ranks: %s", strerror(errno));
    close(fd);
    l->slot = &board[l->rank];
}

/* The next message of the coordinator; NULL: the channel broke. Dies when none has come within --timeout and some seconds
 * more, in which the coordinator says whom it misses, if it can. */
static const void *next_message(launch *l, const launch_place *place, double since, control_kind *kind, size_t *bytes)
{
    static const double slack_s = 2;
    const void *data;
    while (!(data = channel_next(&l->c, kind, bytes)) && !l->c.broken) {
        struct pollfd news = {.fd = l->c.fd, .events = (short)(POLLIN | (l->c.out_bytes ? POLLOUT : 0))};
        poll(&news, 1, 100);
        channel_flush(&l->c);
        channel_fill(&l->c);
        if (place->control_fd < 0 && l->timeout_s > 0 && host_seconds() - since > l->timeout_s + slack_s)
            die(EXIT_CODE_TIMEOUT,
                "rank %d of %d heard nothing from rank 0 at %s port %d for --timeout %g s: rank 0 is stopped, its host "
                "hangs, or another program has the port",
                l->rank, l->size, place->master, place->port, l->timeout_s);
    }
    return data;
}

/* The coordinator's last word to this rank, which ends it. */
_Noreturn static void take_end(launch *l, const void *data, size_t bytes)
{
    int32_t code;
    memcpy(&code, data, sizeof code);
    /* Its own coordinator or launcher said it already. */
    if (!l->coordinator && !l->slot)
        warn("rank %d of %d: %.*s", l->rank, l->size, (int)(bytes - sizeof code), (const char *)data + sizeof code);
    channel_close(&l->c);
    if (l->coordinator) /* the others must hear of it, too */
        launch_join_within(l->coordinator_thread, 2);
    _exit(code);
}

/* Both ends prove that they know the secret, where the job has one. False: the connection was closed, as rank 0 does where too
 * many strangers connect. */
static bool prove(launch *l, const launch_place *place, double since)
{
    control_kind kind = CONTROL_END;
    size_t bytes = 0;
    control_challenge first;
    control_proof own, theirs;
    const void *data = next_message(l, place, since, &kind, &bytes);
    if (!data && !l->c.foreign)
        return false;
    if (data && kind == CONTROL_CHALLENGE && bytes == sizeof first)
        memcpy(&first, data, sizeof first);
    else
        die(EXIT_CODE_USAGE, "rank %d of %d: what listens at %s port %d is not rank 0 of this version of the program",
            l->rank, l->size, place->master, place->port);
    if (first.secret != (*place->secret != 0))
        die(EXIT_CODE_USAGE, "STEPBENCH_SECRET is set for %s but not for %s; give it to all ranks or to none",
            first.secret ? "rank 0" : "this rank", first.secret ? "this rank" : "rank 0");
    if (!first.secret)
        return true;
    first.challenge[sizeof first.challenge - 1] = 0;
    secret_answer(place->secret, SECRET_OF_RANK, first.challenge, own.answer);
    secret_challenge(own.challenge);
    channel_put(&l->c, CONTROL_PROOF, &own, sizeof own, NULL, 0);
    data = next_message(l, place, since, &kind, &bytes);
    if (!data && !l->c.foreign)
        return false;
    if (data && kind == CONTROL_END && bytes > sizeof(int32_t))
        take_end(l, data, bytes);
    if (data && kind == CONTROL_PROVED && bytes == sizeof theirs)
        memcpy(&theirs, data, sizeof theirs);
    else
        memset(&theirs, 0, sizeof theirs);
    if (!secret_proves(place->secret, SECRET_OF_COORDINATOR, own.challenge, theirs.answer))
        die(EXIT_CODE_USAGE, "rank %d of %d: what listens at %s port %d does not know STEPBENCH_SECRET", l->rank,
            l->size, place->master, place->port);
    return true;
}

/* Says hello and hears that it arrived. False: the connection was closed before that. */
static bool introduce(launch *l, const launch_place *place, const options *o, double since)
{
    control_kind kind;
    size_t bytes;
    if (!prove(l, place, since))
        return false;
    say_hello(l, place, o);
    const void *data = next_message(l, place, since, &kind, &bytes);
    if (data && kind == CONTROL_END && bytes > sizeof(int32_t))
        take_end(l, data, bytes);
    return data && kind == CONTROL_ALIVE;
}

/* The way of a rank to rank 0 by TCP: it knocks until it is heard, because strangers may keep rank 0 busy. */
static void knock(launch *l, const launch_place *place, const options *o)
{
    const double since = host_seconds();
    for (int times = 1;; times++) {
        channel_open(&l->c, launch_connect(l, place, since), CONTROL_RANK_BYTES);
        if (introduce(l, place, o, since))
            return;
        channel_close(&l->c);
        if (l->timeout_s > 0 && host_seconds() - since > l->timeout_s)
            die(EXIT_CODE_TIMEOUT,
                "rank %d of %d could not join within --timeout %g s: each of its %d connections to %s port %d was "
                "closed "
                "before rank 0 had heard it; other programs connect there all the time, or another program has the "
                "port",
                l->rank, l->size, l->timeout_s, times, place->master, place->port);
        usleep((useconds_t)(times < 20 ? times : 20) * 10 * 1000);
    }
}

/* Waits until all ranks have joined, and learns which of them are on this host. */
static void await_welcome(launch *l, const launch_place *place)
{
    const double since = host_seconds();
    control_kind kind;
    size_t bytes;
    const void *data = next_message(l, place, since, &kind, &bytes);
    while (data && kind == CONTROL_ALIVE)
        data = next_message(l, place, since, &kind, &bytes);
    if (data && kind == CONTROL_END && bytes > sizeof(int32_t))
        take_end(l, data, bytes);
    if (!data || kind != CONTROL_WELCOME || bytes != (size_t)l->size * sizeof(control_place))
        die(EXIT_CODE_TIMEOUT, "rank %d of %d lost its connection to %s while the job started", l->rank, l->size,
            l->slot ? "the launcher" : "rank 0");
    const control_place *places = data;
    l->hosts = l->local_size = 0;
    int local_rank = 0;
    for (int r = l->size - 1; r >= 0; r--)
        l->first_of_host = places[r].host == places[l->rank].host ? r : l->first_of_host;
    for (int r = 0; r < l->size; r++) {
        bool seen = false;
        for (int k = 0; k < r; k++)
            seen = seen || places[k].host == places[r].host;
        l->host = r == l->first_of_host ? l->hosts : l->host;
        l->hosts += !seen;
        l->local_size += places[r].host == places[l->rank].host;
        local_rank += r < l->rank && places[r].host == places[l->rank].host;
    }
    l->local_rank = l->local_rank < 0 ? local_rank : l->local_rank;
}

launch *launch_join(const launch_place *place, const options *o)
{
    launch *l = xcalloc(1, sizeof *l);
    l->rank = place->rank;
    l->size = place->size;
    l->local_rank = place->local_rank;
    l->timeout_s = option_real(o, "timeout");
    l->now = host_seconds;
    snprintf(l->address, sizeof l->address, "127.0.0.1");
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    signal(SIGPIPE, SIG_IGN); /* a peer that dies shows as an error of the call */

    phase_set("joining the other ranks");
    binary_hash(); /* a slow file system must not cost a connection: rank 0 gives strangers some seconds */
    const bool child = place->control_fd >= 0;
    if (child)
        map_board(l, place->board_fd);
    if (!child && l->rank > 0) {
        knock(l, place, o);
    } else {
        channel_open(&l->c, child ? place->control_fd : start_coordinator(l, place), CONTROL_RANK_BYTES);
        say_hello(l, place, o);
    }
    if (l->rank == 0 && !child && !place->local) /* the address the others know it by */
        close(launch_connect(l, place, host_seconds()));
    await_welcome(l, place);
    l->heard = host_seconds();
    launch_watch(l);
    return l;
}

void launch_leave(launch *l)
{
    pthread_mutex_lock(&l->lock);
    channel_put(&l->c, CONTROL_BYE, NULL, 0, NULL, 0);
    l->leaving = !l->coordinator; /* rank 0 may hang up as soon as it has read this */
    pthread_mutex_unlock(&l->lock);
    if (l->coordinator) { /* the others may not be done yet, and the watcher still ends this rank with them */
        pthread_join(l->coordinator_thread, NULL);
        pthread_mutex_lock(&l->lock);
        l->leaving = true;
        pthread_mutex_unlock(&l->lock);
    }
    pthread_join(l->watcher, NULL);
    channel_close(&l->c);
    if (l->coordinator)
        coordinator_free(l->coordinator);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
