/* SPDX-License-Identifier: MIT */
/* See signals.h. */
#include "common/core/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
enum { NUMBERS = sizeof numbers / sizeof *numbers };
static bool at_start[NUMBERS]; /* whether it was ignored */

static bool is_ignored(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

/* A library's constructor may take a signal: UCX, which MPI brings along and so does the Gloo of Debian 13, takes SIGHUP.
 * What is in this section runs before those of all libraries, a constructor of the program after them. */
static void note_start(void)
{
    for (int i = 0; i < NUMBERS; i++)
        at_start[i] = is_ignored(numbers[i]);
}
__attribute__((section(".preinit_array"), used)) static void (*first)(void) = note_start;

__attribute__((constructor)) static void take_back(void)
{
    for (int i = 0; i < NUMBERS; i++)
        signal(numbers[i], at_start[i] ? SIG_IGN : SIG_DFL);
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
