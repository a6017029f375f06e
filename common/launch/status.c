/* SPDX-License-Identifier: MIT */
/* A rank's status in shared memory; see status.h. */
#include "common/launch/status.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

void status_write(status_slot *s, const rank_status *from)
{
    uint64_t words[STATUS_WORDS];
    memcpy(words, from, sizeof words);
    unsigned version = atomic_load_explicit(&s->version, memory_order_relaxed);
    atomic_store(&s->version, version | 1);
    for (int i = 0; i < STATUS_WORDS; i++)
        atomic_store_explicit(&s->words[i], words[i], memory_order_release);
    atomic_store(&s->version, (version | 1) + 1);
}

void status_read(status_slot *s, rank_status *to)
{
    uint64_t words[STATUS_WORDS];
    for (int attempt = 0; attempt < 1000; attempt++) {
        unsigned before = atomic_load(&s->version);
        for (int i = 0; i < STATUS_WORDS; i++)
            words[i] = atomic_load_explicit(&s->words[i], memory_order_acquire);
        if (!(before & 1) && atomic_load(&s->version) == before)
            break;
        sched_yield();
    }
    memcpy(to, words, sizeof *to);
    to->phase[sizeof to->phase - 1] = 0;
    to->last[sizeof to->last - 1] = 0;
    for (int i = 0; i < STATUS_COMMUNICATORS; i++)
        to->on[i].name[sizeof to->on[i].name - 1] = 0;
}

void status_describe(const rank_status *s, char *out, unsigned long out_bytes)
{
    const char *fate = !*s->last ? "" : s->done >= s->enqueued ? ", done" : ", under way";
    snprintf(out, out_bytes, "while: %s; last collective: %s%s", *s->phase ? s->phase : "starting",
             *s->last ? s->last : "none", fate);
}
