/* SPDX-License-Identifier: MIT */
/* The arithmetic of clocks of several hosts; see host_clock.h. */
#include "common/record/host_clock.h"

#include <math.h>

clock_reading clock_reading_none(void)
{
    return (clock_reading){.round_trip_s = INFINITY};
}

void clock_reading_add(clock_reading *best, double asked_s, double given_s, double known_s)
{
    const double round_trip_s = known_s - asked_s, middle_s = asked_s + round_trip_s / 2;
    if (round_trip_s < best->round_trip_s)
        *best = (clock_reading){middle_s, given_s - middle_s, round_trip_s};
}

host_clock host_clock_of(const clock_reading *before, const clock_reading *after)
{
    const double between_s = after->at_s - before->at_s;
    return (host_clock){.at_s = before->at_s,
                        .offset_s = before->offset_s,
                        .drift = between_s > 0 ? (after->offset_s - before->offset_s) / between_s : 0,
                        .err_us = 0.5e6 * fmax(before->round_trip_s, after->round_trip_s)};
}

double host_clock_rank_0_s(const host_clock *c, double own_s)
{
    return own_s + c->offset_s + c->drift * (own_s - c->at_s);
}
