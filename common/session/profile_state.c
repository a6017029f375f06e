/* SPDX-License-Identifier: MIT */
/* What the measuring of a session and its profile tell each other: whether this is the pass that records, and how long a
 * measurement took when nothing was recorded. */
#include <math.h>
#include <stdlib.h>

#include "common/core/cache.h"
#include "common/core/error.h"
#include "common/session/profile_internal.h"

bool session_profiling(const session *s)
{
    return s->profile != NULL;
}

double profile_noted_ms(const session *s, const char *key, const char *name)
{
    OWNED char *both = xasprintf("%s %s", key, name);
    const double *ms = cache_find(s->kept, "timed", both);
    return ms ? *ms : NAN;
}

void profile_note(session *s, const char *key, const char *name, double ms)
{
    if (!option_flag(s->opt, "profile") || session_profiling(s))
        return;
    OWNED char *both = xasprintf("%s %s", key, name);
    double *kept = cache_find(s->kept, "timed", both);
    kept = kept ? kept : cache_add(s->kept, "timed", both, sizeof *kept, NULL);
    *kept = ms;
}
