/* SPDX-License-Identifier: MIT */
/* See signals.h. */
#include "common/core/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static bool is_ignored(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void signal_catch(int number, void (*handler)(int number), int flags)
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (!is_ignored(number))
        sigaction(number, &action, NULL);
}

void signal_release(int number)
{
    if (!is_ignored(number))
        signal(number, SIG_DFL);
}
