/* SPDX-License-Identifier: MIT */
/* How this host's clock stands against that of rank 0's host: pings of the coordinator, which runs there wherever ranks
 * are on several hosts; see host_clock.h of common/record. */
#include <stdlib.h>

#include "common/core/error.h"
#include "common/launch/internal.h"

enum { PINGS = 200 };

/* One round trip, into the best of them. The watcher notes when the answer came. */
static void ping(launch *l, clock_reading *best)
{
    pthread_mutex_lock(&l->lock);
    control_ping asked = {.number = ++l->pings};
    asked.asked_s = l->now();
    l->ponged = false;
    launch_publish(l);
    channel_put(&l->c, CONTROL_PING, &asked, sizeof asked, NULL, 0);
    while (!l->ponged)
        pthread_cond_wait(&l->changed, &l->lock);
    clock_reading_add(best, asked.asked_s, l->pong.given_s, l->pong_at);
    pthread_mutex_unlock(&l->lock);
}

clock_reading launch_clock(launch *l)
{
    clock_reading mine = {.at_s = l->now()};
    for (int host = 1; host < l->hosts; host++) { /* one after another: the coordinator answers at once */
        launch_barrier(l, "clock of a host");
        if (l->first_of_host != l->rank || l->host != host)
            continue;
        mine = clock_reading_none();
        for (int i = 0; i < PINGS; i++)
            ping(l, &mine);
    }
    OWNED clock_reading *all = launch_gathered(l, "clocks of hosts", &mine, sizeof mine);
    return all[l->first_of_host]; /* ranks of one host share its clock and so its reading */
}
