/* SPDX-License-Identifier: MIT */
/* What overlapped with what, by unions of spans; see timeline.h. */
#include "common/profile/timeline.h"

#include <stdlib.h>

#include "common/profile/intervals.h"

timeline_sums timeline_sum(const stream_timeline *t)
{
    timeline_sums s = {0};
    if (t->n == 0)
        return s;
    intervals compute = intervals_of(t->spans, t->n, 1u << LANE_COMPUTE, ANY_STREAM, 0);
    intervals communication = intervals_of(t->spans, t->n, 1u << LANE_COMMUNICATION, ANY_STREAM, 0);
    intervals copy = intervals_of(t->spans, t->n, 1u << LANE_COPY, ANY_STREAM, 0);
    intervals any = intervals_of(t->spans, t->n, ~0u, ANY_STREAM, 0);
    intervals exposed = intervals_minus(&communication, &compute);
    double end = t->spans[0].end_us;
    for (size_t i = 1; i < t->n; i++)
        end = t->spans[i].end_us > end ? t->spans[i].end_us : end;
    s.total_us = end - t->spans[0].start_us;
    s.compute_us = intervals_length(&compute);
    s.communication_us = intervals_length(&communication);
    s.copy_us = intervals_length(&copy);
    s.exposed_us = intervals_length(&exposed);
    s.hidden_us = s.communication_us - s.exposed_us;
    s.idle_us = s.total_us - intervals_length(&any);
    free(compute.v);
    free(communication.v);
    free(copy.v);
    free(any.v);
    free(exposed.v);
    return s;
}
