/* SPDX-License-Identifier: MIT */
/* The way to rank 0 by TCP, where somebody else started the ranks. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/launch/internal.h"

static struct addrinfo *look_up(const char *host, int port, int family, char *why, size_t why_bytes)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE};
    struct addrinfo *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0)
        snprintf(why, why_bytes, "%s", gai_strerror(code));
    return code == 0 ? found : NULL;
}

/* -1 with the reason. */
static int listen_at(const struct addrinfo *a, char *why, size_t why_bytes)
{
    const int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (a->ai_family == AF_INET6) /* and IPv4 through it */
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 512) == 0)
            return fd;
    }
    snprintf(why, why_bytes, "%s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* The address that the other ranks connect to, and no other. One exception: Debian's /etc/hosts gives a host's own name an
 * address of the loopback, which other hosts cannot reach; then all interfaces are listened on, and the secret guards them. */
int launch_listen(const launch_place *place)
{
    const char *host = place->local ? "127.0.0.1" : place->master;
    char why[256] = "";
    int fd = -1;
    struct addrinfo *found = look_up(host, place->port, AF_UNSPEC, why, sizeof why);
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        if (place->local || !is_loopback(a->ai_addr))
            fd = listen_at(a, why, sizeof why);
    if (found && fd < 0 && !place->local && is_loopback(found->ai_addr)) {
        struct addrinfo *any = look_up(NULL, place->port, found->ai_family, why, sizeof why);
        fd = any ? listen_at(any, why, sizeof why) : -1;
        if (any)
            freeaddrinfo(any);
    }
    if (found)
        freeaddrinfo(found);
    if (fd < 0)
        die(EXIT_CODE_FAILURE,
            "rank 0 cannot listen at %s port %d: %s; MASTER_ADDR must be an address of the host of rank 0, and "
            "STEPBENCH_PORT names another port for all ranks",
            host, place->port, why);
    return fd;
}

/* One attempt; -1 with the reason. A connection that takes longer than 2 s is tried anew. */
static int try_connect(const launch_place *place, char *why, size_t why_bytes)
{
    struct addrinfo *to = look_up(place->master, place->port, AF_UNSPEC, why, why_bytes);
    int fd = -1;
    for (struct addrinfo *a = to; a && fd < 0; a = a->ai_next) {
        int error = 0;
        socklen_t bytes = sizeof error;
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) != 0)
            error = errno;
        if (error == EINPROGRESS) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            error = ETIMEDOUT;
            if (poll(&wait, 1, 2000) == 1)
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
        if (error) {
            snprintf(why, why_bytes, "%s", strerror(error));
            close(fd);
            fd = -1;
        }
    }
    if (to)
        freeaddrinfo(to);
    return fd;
}

static void note_address(launch *l, int fd)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) == 0)
        getnameinfo((struct sockaddr *)&own, bytes, l->address, sizeof l->address, NULL, 0, NI_NUMERICHOST);
}

/* Notices in some 20 s that a host has vanished without a word. */
static void keep_alive(int fd)
{
    const int on = 1, idle_s = 10, every_s = 3, times = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int launch_connect(launch *l, const launch_place *place)
{
    const double start = host_seconds();
    char why[256] = "no answer";
    useconds_t pause_us = 10 * 1000;
    for (;;) {
        int fd = try_connect(place, why, sizeof why);
        if (fd >= 0) {
            keep_alive(fd);
            note_address(l, fd);
            return fd;
        }
        if (l->timeout_s > 0 && host_seconds() - start > l->timeout_s)
            die(EXIT_CODE_TIMEOUT, "rank %d of %d can't reach rank 0 at %s port %d within --timeout %g s: %s", l->rank,
                l->size, place->master, place->port, l->timeout_s, why);
        usleep(pause_us);
        pause_us = pause_us < 500 * 1000 ? 2 * pause_us : pause_us;
    }
}
