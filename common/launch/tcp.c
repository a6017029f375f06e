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

static struct addrinfo *look_up(const char *host, int port, char *why, size_t why_bytes)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE};
    struct addrinfo *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0)
        snprintf(why, why_bytes, "%s", gai_strerror(code));
    return code == 0 ? found : NULL;
}

/* The socket, or minus the error. `v6_only`: IPv4 has a socket of its own; else it comes through this one. */
static int listen_at(const struct addrinfo *a, int v6_only)
{
    const int on = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 512) == 0)
        return fd;
    const int error = errno;
    close(fd);
    return -error;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;
    return a->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127));
}

static bool is_repeated(const struct addrinfo *list, const struct addrinfo *a)
{
    while (list != a && (list->ai_addrlen != a->ai_addrlen || memcmp(list->ai_addr, a->ai_addr, a->ai_addrlen) != 0))
        list = list->ai_next;
    return list != a;
}

/* At every address of the list that is of the loopback, or is not, and of this host: a name may have one of each family, and
 * the other ranks may use any of them. Hence none may have its port taken by another program. Returns their number. */
static int listen_at_all(const struct addrinfo *list, bool loopback, int *fds, char *why, size_t why_bytes)
{
    int n = 0;
    for (const struct addrinfo *a = list; a && n < COORDINATOR_LISTENERS; a = a->ai_next) {
        if (is_loopback(a->ai_addr) != loopback || is_repeated(list, a))
            continue;
        const int fd = listen_at(a, n > 0);
        if (fd >= 0)
            fds[n++] = fd;
        else
            snprintf(why, why_bytes, "%s", strerror(-fd));
        if (fd == -EADDRINUSE)
            return 0;
    }
    return n;
}

/* The addresses that the other ranks connect to, and no other. One exception: Debian's /etc/hosts gives a host's own name an
 * address of the loopback, which other hosts cannot reach; then all interfaces are listened on, and the secret guards them. */
int launch_listen(const launch_place *place, int *fds)
{
    char why[256] = "it has no address of the loopback";
    struct addrinfo *found = look_up(place->master, place->port, why, sizeof why);
    int n = listen_at_all(found, place->local, fds, why, sizeof why);
    if (found && n == 0 && !place->local && is_loopback(found->ai_addr)) {
        struct addrinfo *any = look_up(NULL, place->port, why, sizeof why);
        n = listen_at_all(any, false, fds, why, sizeof why);
        if (any)
            freeaddrinfo(any);
    }
    if (found)
        freeaddrinfo(found);
    if (n == 0)
        die(EXIT_CODE_FAILURE,
            "rank 0 cannot listen at %s port %d: %s; MASTER_ADDR must be an address of the host of rank 0, and "
            "STEPBENCH_PORT names another port for all ranks",
            place->master, place->port, why);
    return n;
}

/* One attempt; -1 with the reason. A connection that takes longer than 2 s is tried anew. */
static int try_connect(const launch_place *place, char *why, size_t why_bytes)
{
    struct addrinfo *to = look_up(place->master, place->port, why, why_bytes);
    int fd = -1;
    for (struct addrinfo *a = to; a && fd < 0; a = a->ai_next) {
        int error = 0;
        socklen_t bytes = sizeof error;
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            snprintf(why, why_bytes, "%s", strerror(errno));
            continue;
        }
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

int launch_connect(launch *l, const launch_place *place, double since)
{
    char why[256] = "no answer";
    useconds_t pause_us = 10 * 1000;
    for (;;) {
        int fd = try_connect(place, why, sizeof why);
        if (fd >= 0) {
            keep_alive(fd);
            if (!place->local) /* else all ranks have one and the same, of one family */
                note_address(l, fd);
            return fd;
        }
        if (l->timeout_s > 0 && host_seconds() - since > l->timeout_s)
            die(EXIT_CODE_TIMEOUT, "rank %d of %d can't reach rank 0 at %s port %d within --timeout %g s: %s", l->rank,
                l->size, place->master, place->port, l->timeout_s, why);
        usleep(pause_us);
        pause_us = pause_us < 500 * 1000 ? 2 * pause_us : pause_us;
    }
}
