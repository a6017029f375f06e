/* SPDX-License-Identifier: MIT */
/* What the coordinator does with news of its members; see coordinator.h. One loop over non-blocking channels, so that a rank that
 * is stopped or slow to read holds up nobody. */
#include "common/launch/coordinator_internal.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/core/clock.h"
#include "common/core/error.h"

static const double report_grace_s = 0.5, exit_grace_s = 1;

static void suspect(coordinator *h, double grace_s, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void suspect(coordinator *h, double grace_s, int code, const char *fmt, ...)
{
    va_list args;
    if (h->suspicion.set)
        return;
    va_start(args, fmt);
    vsnprintf(h->suspicion.text, sizeof h->suspicion.text, fmt, args);
    va_end(args);
    h->suspicion.set = true;
    h->suspicion.code = code;
    h->suspicion.until = host_seconds() + grace_s;
}

void coordinator_exited(coordinator *h, int rank, int status)
{
    member *m = &h->ranks[rank];
    if (!m->left && !h->ending) {
        if (WIFSIGNALED(status))
            coordinator_end(h, EXIT_CODE_TIMEOUT, "rank %d of %d was killed by signal %d (%s), %s", rank, h->o.ranks,
                            WTERMSIG(status), strsignal(WTERMSIG(status)), coordinator_doing(h, rank));
        else
            coordinator_end(h, WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_CODE_TIMEOUT,
                            "rank %d of %d ended with exit code %d before the others, %s", rank, h->o.ranks,
                            WEXITSTATUS(status), coordinator_doing(h, rank));
    }
    m->gone = true;
}

static void lost(coordinator *h, int rank)
{
    member *m = &h->ranks[rank];
    if (m->gone)
        return;
    channel_close(&m->c);
    if (h->o.board && !h->ending && !m->left) { /* the launcher will see how its process ended */
        suspect(h, exit_grace_s, EXIT_CODE_TIMEOUT, "rank %d of %d closed its control channel, %s", rank, h->o.ranks,
                coordinator_doing(h, rank));
        return;
    }
    if (!m->left)
        coordinator_end(h, EXIT_CODE_TIMEOUT, "rank %d of %d (host %s) died or lost its connection, %s", rank,
                        h->o.ranks, m->hello.host_name, coordinator_doing(h, rank));
    m->gone = !h->o.board || m->left || h->ending;
}

/* ---- exchanging ---- */

static void answer_gather(coordinator *h)
{
    member *first = &h->ranks[0];
    for (int r = 0; r < h->o.ranks; r++)
        if (!h->ranks[r].given)
            return;
    for (int r = 1; r < h->o.ranks; r++)
        if (memcmp(&h->ranks[r].asked, &first->asked, sizeof first->asked) != 0) {
            coordinator_end(h, EXIT_CODE_FAILURE,
                            "the ranks are out of step: rank %d is at '%s' (%llu bytes), rank 0 at '%s' (%llu)", r,
                            h->ranks[r].asked.name, (unsigned long long)h->ranks[r].asked.bytes, first->asked.name,
                            (unsigned long long)first->asked.bytes);
            return;
        }
    const size_t bytes = first->asked.bytes;
    OWNED char *all = xmalloc((size_t)h->o.ranks * bytes);
    for (int r = 0; r < h->o.ranks; r++) {
        memcpy(all + (size_t)r * bytes, h->ranks[r].given, bytes);
        free(h->ranks[r].given);
        h->ranks[r].given = NULL;
    }
    for (int r = 0; r < h->o.ranks; r++)
        channel_put(&h->ranks[r].c, CONTROL_GATHERED, all, (size_t)h->o.ranks * bytes, NULL, 0);
}

static void take_gather(coordinator *h, member *m, const void *data, size_t bytes)
{
    if (bytes < sizeof m->asked || m->given)
        return;
    memcpy(&m->asked, data, sizeof m->asked);
    m->asked.name[CONTROL_NAME_BYTES - 1] = 0;
    m->asked.bytes = bytes - sizeof m->asked;
    m->given = xmalloc(m->asked.bytes);
    memcpy(m->given, (const char *)data + sizeof m->asked, m->asked.bytes);
    answer_gather(h);
}

/* Somebody waits in an exchange that somebody else will never come to. */
static void check_left(coordinator *h)
{
    for (int r = 0; r < h->o.ranks; r++)
        for (int k = 0; k < h->o.ranks && !h->ending; k++)
            if (h->ranks[r].left && h->ranks[k].given)
                coordinator_end(h, EXIT_CODE_TIMEOUT, "rank %d of %d has left while rank %d waits for it at '%s'", r,
                                h->o.ranks, k, h->ranks[k].asked.name);
}

static void answer_ping(member *m, const void *data, size_t bytes)
{
    control_ping ping;
    if (bytes != sizeof ping)
        return;
    memcpy(&ping, data, sizeof ping);
    ping.given_s = host_seconds();
    channel_put(&m->c, CONTROL_PONG, &ping, sizeof ping, NULL, 0);
}

/* ---- the loop ---- */

static void take_message(coordinator *h, member *m, control_kind kind, const void *data, size_t bytes)
{
    const int rank = m->hello.rank;
    int32_t code;
    switch (kind) {
    case CONTROL_GATHER: take_gather(h, m, data, bytes); break;
    case CONTROL_STATUS: coordinator_take_status(m, data, bytes); break;
    case CONTROL_PING: answer_ping(m, data, bytes); break;
    case CONTROL_FAIL:
        if (bytes > sizeof code) {
            memcpy(&code, data, sizeof code);
            suspect(h, report_grace_s, code, "rank %d of %d: %.*s", rank, h->o.ranks, (int)(bytes - sizeof code),
                    (const char *)data + sizeof code);
        }
        break;
    case CONTROL_BYE: m->left = true; break;
    default: break;
    }
}

static void serve_rank(coordinator *h, int rank)
{
    member *m = &h->ranks[rank];
    control_kind kind;
    size_t bytes;
    if (!m->used || m->c.fd < 0)
        return;
    channel_flush(&m->c);
    channel_fill(&m->c);
    for (const void *data; (data = channel_next(&m->c, &kind, &bytes));)
        take_message(h, m, kind, data, bytes);
    if (m->c.broken)
        lost(h, rank);
}

static void serve_stranger(coordinator *h, member *m)
{
    control_kind kind;
    size_t bytes;
    if (!m->used)
        return;
    channel_flush(&m->c);
    channel_fill(&m->c);
    const void *data = channel_next(&m->c, &kind, &bytes);
    if (data && kind == CONTROL_HELLO && m->proved && !h->ending) {
        coordinator_join(h, m, data, bytes);
    } else if (data && kind == CONTROL_PROOF && !m->proved && !h->ending) {
        coordinator_take_proof(h, m, data, bytes);
    } else if (data || m->c.broken) { /* not one of ours, or gone again */
        coordinator_member_close(m);
        m->used = false;
    }
}

/* Not all at once: those who come are listened to before others take their places. */
static void accept_some(coordinator *h)
{
    for (int i = 0; i < h->listeners_n; i++)
        for (int n = 0, fd;
             n < h->places / 4 && (fd = accept4(h->listeners[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0; n++)
            coordinator_meet(h, fd);
}

/* A rank whose channel is full has been told already, or does not run. */
static void say_alive(coordinator *h, double now)
{
    static const double every_s = 0.2;
    if (h->o.board || !h->welcomed || now - h->told < every_s)
        return;
    h->told = now;
    for (int r = 0; r < h->o.ranks; r++)
        if (h->ranks[r].used && !h->ranks[r].left && !h->ranks[r].c.out_bytes)
            channel_put(&h->ranks[r].c, CONTROL_ALIVE, NULL, 0, NULL, 0);
}

static void wait_for_news(const coordinator *h, double wait_s)
{
    OWNED struct pollfd *all = xcalloc((unsigned long)h->o.ranks + h->places + h->listeners_n, sizeof *all);
    nfds_t n = 0;
    for (int i = 0; i < h->listeners_n; i++)
        all[n++] = (struct pollfd){.fd = h->listeners[i], .events = POLLIN};
    for (int i = 0; i < h->o.ranks + h->places; i++) {
        const member *m = i < h->o.ranks ? &h->ranks[i] : &h->strangers[i - h->o.ranks];
        if (m->used && m->c.fd >= 0)
            all[n++] = (struct pollfd){.fd = m->c.fd, .events = (short)(POLLIN | (m->c.out_bytes ? POLLOUT : 0))};
    }
    poll(all, n, (int)(wait_s * 1e3));
}

void coordinator_step(coordinator *h, double wait_s)
{
    wait_for_news(h, wait_s);
    const double now = host_seconds();
    coordinator_forgive_gap(h, now, wait_s);
    accept_some(h);
    for (int i = 0; i < h->places; i++)
        serve_stranger(h, &h->strangers[i]);
    for (int r = 0; r < h->o.ranks; r++)
        serve_rank(h, r);
    coordinator_check_strangers(h, now);
    coordinator_check_joining(h, now);
    check_left(h);
    say_alive(h, now);
    coordinator_check_stuck(h, now);
    if (h->suspicion.set && now > h->suspicion.until)
        coordinator_end(h, h->suspicion.code, "%s", h->suspicion.text);
}
