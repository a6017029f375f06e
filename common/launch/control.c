/* SPDX-License-Identifier: MIT */
/* Framing on a non-blocking socket; see control.h. */
#include "common/launch/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/core/error.h"

void channel_open(channel *c, int fd, size_t limit)
{
    *c = (channel){.fd = fd, .limit = limit};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void channel_close(channel *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c->in);
    free(c->out);
    *c = (channel){.fd = -1, .broken = true};
}

static void append(channel *c, const void *data, size_t bytes)
{
    if (!bytes)
        return;
    if (c->out_bytes + bytes > c->out_capacity) {
        c->out_capacity = 2 * (c->out_bytes + bytes);
        c->out = xrealloc(c->out, c->out_capacity);
    }
    memcpy(c->out + c->out_bytes, data, bytes);
    c->out_bytes += bytes;
}

void channel_put(channel *c, control_kind kind, const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const control_head head = {CONTROL_MAGIC, kind, a_bytes + b_bytes};
    if (c->fd < 0 || c->broken)
        return;
    append(c, &head, sizeof head);
    append(c, a, a_bytes);
    append(c, b, b_bytes);
    channel_flush(c);
}

void channel_flush(channel *c)
{
    size_t sent = 0;
    while (c->fd >= 0 && !c->broken && sent < c->out_bytes) {
        ssize_t n = send(c->fd, c->out + sent, c->out_bytes - sent, MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            break;
        else if (errno != EINTR)
            c->broken = true;
    }
    if (sent) {
        c->out_bytes -= sent;
        memmove(c->out, c->out + sent, c->out_bytes);
    }
}

void channel_fill(channel *c)
{
    const size_t most = sizeof(control_head) + c->limit; /* what lies behind one message waits in the socket */
    while (c->fd >= 0 && !c->broken && c->in_bytes < most) {
        if (c->in_capacity == c->in_bytes) {
            c->in_capacity = 2 * c->in_capacity + 4096;
            c->in = xrealloc(c->in, c->in_capacity);
        }
        const size_t room = c->in_capacity - c->in_bytes, wanted = most - c->in_bytes;
        ssize_t n = recv(c->fd, c->in + c->in_bytes, room < wanted ? room : wanted, 0);
        if (n > 0) {
            c->in_bytes += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            c->broken = true;
        break;
    }
}

const void *channel_next(channel *c, control_kind *kind, size_t *bytes)
{
    control_head head;
    c->in_bytes -= c->in_taken;
    if (c->in_taken)
        memmove(c->in, c->in + c->in_taken, c->in_bytes);
    c->in_taken = 0;
    if (c->in_bytes < sizeof head)
        return NULL;
    memcpy(&head, c->in, sizeof head);
    if (head.magic != CONTROL_MAGIC || head.bytes > c->limit) {
        c->broken = c->foreign = true;
        c->in_bytes = 0;
        return NULL;
    }
    if (c->in_bytes - sizeof head < head.bytes)
        return NULL;
    c->in_taken = sizeof head + head.bytes;
    *kind = head.kind;
    *bytes = head.bytes;
    return c->in + sizeof head;
}
