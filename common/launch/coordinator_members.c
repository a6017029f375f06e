/* SPDX-License-Identifier: MIT */
/* The coordinator's members: connections that come, close, and are told the end; see coordinator.h. */
#include "common/launch/coordinator_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"

coordinator *coordinator_create(const coordinator_options *o)
{
    coordinator *h = xcalloc(1, sizeof *h);
    h->o = *o;
    h->o.secret = o->secret ? o->secret : "";
    snprintf(h->where, sizeof h->where, "%s", o->where ? o->where : "");
    h->ranks = xcalloc((unsigned long)o->ranks, sizeof *h->ranks);
    h->places = o->ranks + MORE_STRANGERS;
    h->strangers = xcalloc((unsigned long)h->places, sizeof *h->strangers);
    h->since = h->stepped = host_seconds();
    return h;
}

void coordinator_member_close(member *m)
{
    channel_close(&m->c);
    free(m->options);
    free(m->given);
    m->options = m->given = NULL;
}

void coordinator_free(coordinator *h)
{
    for (int r = 0; r < h->o.ranks; r++)
        if (h->ranks[r].used)
            coordinator_member_close(&h->ranks[r]);
    for (int i = 0; i < h->places; i++)
        if (h->strangers[i].used)
            coordinator_member_close(&h->strangers[i]);
    for (int i = 0; i < h->listeners_n; i++)
        close(h->listeners[i]);
    free(h->ranks);
    free(h->strangers);
    free(h);
}

void coordinator_listen(coordinator *h, int fd)
{
    h->listeners[h->listeners_n++] = fd;
}

void coordinator_attach(coordinator *h, int fd)
{
    for (int i = 0; i < h->places; i++)
        if (!h->strangers[i].used) {
            h->strangers[i] = (member){.used = true, .proved = true};
            channel_open(&h->strangers[i].c, fd, CONTROL_HELLO_BYTES);
            return;
        }
    close(fd); /* more connections than ranks could make: whoever it is may try again */
}

bool coordinator_ending(const coordinator *h)
{
    return h->ending;
}
int coordinator_code(const coordinator *h)
{
    return h->code;
}

bool coordinator_over(const coordinator *h)
{
    for (int r = 0; r < h->o.ranks; r++)
        if (!h->ranks[r].gone && !h->ranks[r].left && !(h->ending && !h->ranks[r].joined))
            return false;
    return true;
}

void coordinator_tell_end(member *m, int code, const char *text)
{
    const int32_t number = code;
    channel_put(&m->c, CONTROL_END, &number, sizeof number, text, strlen(text) + 1);
}

void coordinator_end(coordinator *h, int code, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    if (h->ending)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->ending = true;
    h->code = code;
    warn("%s", text);
    for (int r = 0; r < h->o.ranks; r++)
        if (h->ranks[r].used)
            coordinator_tell_end(&h->ranks[r], code, text);
    for (int i = 0; i < h->places; i++)
        if (h->strangers[i].used)
            coordinator_tell_end(&h->strangers[i], code, text);
}
