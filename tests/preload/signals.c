/* SPDX-License-Identifier: MIT */
/* A library that takes the signals of a job before the program's main, as UCX takes SIGHUP. */
#include <signal.h>

static void do_nothing(int number)
{
    (void)number;
}

__attribute__((constructor)) static void take(void)
{
    signal(SIGHUP, do_nothing);
    signal(SIGINT, do_nothing);
    signal(SIGTERM, do_nothing);
}
