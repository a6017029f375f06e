/* SPDX-License-Identifier: MIT */
/* How a save is doing, for all who work on it; see save_internal.h. */
#include <errno.h>
#include <string.h>

#include "common/checkpoint/save_internal.h"
#include "common/core/error.h"

bool saver_planted(const checkpoint_saver *s, const char *name)
{
    return s->o.plant && strcmp(s->o.plant, name) == 0;
}

void saver_give_up(checkpoint_saver *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    if (s->saved.ok)
        snprintf(s->saved.why, sizeof s->saved.why, "%s", why);
    s->saved.ok = false;
    pthread_mutex_unlock(&s->lock);
}

void saver_fail(checkpoint_saver *s, const char *what, const char *path)
{
    OWNED char *why =
        xasprintf("rank %d can't %s %s%s%s", s->o.rank, what, path, errno ? ": " : "", errno ? strerror(errno) : "");
    saver_give_up(s, why);
}

bool saver_going_well(checkpoint_saver *s)
{
    pthread_mutex_lock(&s->lock);
    const bool ok = s->saved.ok;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

void saver_await_landed(checkpoint_saver *s, int files)
{
    pthread_mutex_lock(&s->lock);
    while (s->landed < files)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

bool saver_is_pinned(const checkpoint_saver *s)
{
    return s->o.way == CHECKPOINT_ASYNC || s->o.way == CHECKPOINT_LAZY;
}
