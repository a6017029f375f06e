/* SPDX-License-Identifier: MIT */
/* The host's clock; see clock.h. */
#include "common/core/clock.h"

#include <time.h>

double host_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double began;

__attribute__((constructor)) static void note_the_beginning(void)
{
    began = host_seconds();
}

double process_seconds(void)
{
    return host_seconds() - began;
}
