/* SPDX-License-Identifier: MIT */
/* The table of schedules, and where their stages are; see pipeline.h. */
#include "common/pipeline/pipeline.h"

#include <stdio.h>

#include "common/core/text.h"

const pipeline_schedule pipeline_schedules[] = {
    {"gpipe", 1, 0, 0, false, 0, false, 1, 1, "all forwards, then all backwards"},
    {"1f1b", 0, 1, 0, false, 0, false, 1, 1, "a backward as soon as one is possible, then one forward, one backward"},
    {"interleaved", 0, 2, 1, false, 0, false, 2, PIPELINE_CHUNKS_MOST, "1f1b over several chunks of layers per rank"},
    {"zb-h1", 0, 1, 0, true, 1, false, 1, 1, "1f1b whose weight gradients come late, when a rank would wait"},
    {"zb-v", 0, 0, 0, true, 0, true, 2, 2, "two chunks, there and back; weight gradients fill the gaps"},
    {0},
};

const pipeline_schedule *pipeline_schedule_find(const char *name)
{
    for (const pipeline_schedule *s = pipeline_schedules; s->name; s++)
        if (text_is(s->name, name))
            return s;
    return NULL;
}

int pipeline_chunks(const pipeline_schedule *row, int asked)
{
    return asked < row->chunks_least ? row->chunks_least : asked > row->chunks_most ? row->chunks_most : asked;
}

const char *pipeline_problem(const pipeline_shape *s, char *out, size_t out_bytes)
{
    const pipeline_schedule *row = s->schedule;
    if (s->ranks < 1 || s->micros < 1)
        snprintf(out, out_bytes, "a pipeline has at least 1 stage and 1 micro-batch");
    else if (s->chunks < row->chunks_least || s->chunks > row->chunks_most)
        snprintf(out, out_bytes,
                 row->chunks_least == row->chunks_most ? "%s has %d chunk%s per rank, not %d"
                                                       : "%s has %d chunk%s or more per rank, not %d",
                 row->name, row->chunks_least, row->chunks_least == 1 ? "" : "s", s->chunks);
    else if (s->chunks > 1 && !row->there_and_back && s->micros % s->ranks != 0)
        snprintf(out, out_bytes, "micro-batches %d are not a multiple of %d pipeline ranks, as %s needs", s->micros,
                 s->ranks, row->name);
    else
        return NULL;
    return out;
}

int pipeline_stages(const pipeline_shape *s)
{
    return s->ranks * s->chunks;
}

int pipeline_stage(const pipeline_shape *s, int rank, int chunk)
{
    return s->schedule->there_and_back && chunk == 1 ? 2 * s->ranks - 1 - rank : chunk * s->ranks + rank;
}

int pipeline_rank(const pipeline_shape *s, int stage)
{
    return s->schedule->there_and_back && stage >= s->ranks ? 2 * s->ranks - 1 - stage : stage % s->ranks;
}

int pipeline_chunk(const pipeline_shape *s, int stage)
{
    return stage / s->ranks;
}

int pipeline_bound(const pipeline_shape *s, int rank)
{
    const pipeline_schedule *row = s->schedule;
    const int p = s->ranks, all = s->micros * s->chunks;
    const int most = row->there_and_back ? 2 * p
                                         : row->warm_micros * s->micros + row->warm_ranks * (p - 1 - rank) +
                                               row->warm_chunks * (s->chunks - 1) * p + 1 + row->late * rank;
    return most < all ? most : all;
}

int pipeline_loss_rank(const pipeline_shape *s)
{
    return pipeline_rank(s, pipeline_stages(s) - 1);
}
