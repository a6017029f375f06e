/* SPDX-License-Identifier: MIT */
/* The clocks of hosts. host_seconds() is the same for all processes of a host and another one on each host, so what
 * several hosts recorded is moved to the clock of rank 0's host before it is set side by side. A reading is the best of
 * many questions ("what time is it with you?"): whoever answers does so between sending and receiving, so the middle is
 * off by at most half of the round trip (Cristian, 1989). Two readings, one before and one after a recording, give the
 * drift between them, which is taken to be linear. */
#pragma once

/* A reading of one host's clock: what to add to get the clock of rank 0's host, and for when that holds. On rank 0's host the
 * offset and the round trip are 0. */
typedef struct clock_reading {
    double at_s; /* by this host's clock */
    double offset_s, round_trip_s;
} clock_reading;

/* No answer yet: the worst of all readings. */
clock_reading clock_reading_none(void);
/* An answer: asked at `asked_s` and known at `known_s` of this host, given at `given_s` of the other one. The reading
 * with the smallest round trip stays. */
void clock_reading_add(clock_reading *best, double asked_s, double given_s, double known_s);

typedef struct host_clock {
    double at_s, offset_s; /* the offset at a time of this host */
    double drift;          /* seconds of offset that come with each second of this host */
    double err_us;         /* by so much at most a time between the readings is off: half of the larger round trip */
} host_clock;
host_clock host_clock_of(const clock_reading *before, const clock_reading *after);
/* A time of this host, by the clock of rank 0's host. */
double host_clock_rank_0_s(const host_clock *c, double own_s);
