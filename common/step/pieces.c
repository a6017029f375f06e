/* SPDX-License-Identifier: MIT */
/* Products piece by piece, where ranks that share layers put rows into each other's memory (options.windows): a product begins
 * with this rank's own rows, and goes on with those of each other rank as they come; of a sum the others' rows come first, and
 * leave while the next ones are computed. What is read of other ranks lies in windows, which are slots below -1. */
#include "common/step/exchange.h"

static bool is_window(arena_slot slot)
{
    return slot < -1;
}

static int number_of(arena_slot slot)
{
    return -2 - slot;
}

arena_slot share_spread(step *s, arena_slot x, bool whole)
{
    const int at = s->spreads++ % STEP_WINDOWS;
    s->windows[at] = x;
    if (step_launching(s) && s->share.spread)
        s->share.spread(s->share.user, at, step_pointer(s, x), (size_t)s->rows * (size_t)s->d, s->dtype, whole);
    return -2 - at;
}

void share_ahead(step *s, arena_slot n)
{
    if (s->o.windows)
        s->ahead = share_spread(s, n, true);
}

/* What share_ahead has sent of n; -1: nothing. */
arena_slot share_sent(step *s, arena_slot n)
{
    const arena_slot sent = is_window(s->ahead) && s->windows[number_of(s->ahead)] == n ? s->ahead : -1;
    s->ahead = sent == -1 ? s->ahead : -1;
    return sent;
}

void share_close(step *s, arena_slot *window)
{
    if (step_launching(s) && s->share.read)
        s->share.read(s->share.user, number_of(*window), s->side);
    *window = -1;
}

static void await(step *s, arena_slot window, int rank, void *stream)
{
    if (step_launching(s) && s->share.await)
        s->share.await(s->share.user, number_of(window), rank, stream, stream == s->side && s->side != s->main);
}

static void follow(step *s, void *to, void *from)
{
    device_stream_record(s->dev, from, s->ready);
    device_stream_wait(s->dev, to, s->ready);
}

/* The second piece comes a little later than the first, which must not wait for it. */
void share_fork(step *s, int pieces)
{
    if (pieces == 1 || !s->lane || !step_launching(s))
        return;
    follow(s, s->lane, s->main);
    if (s->share.linger)
        s->share.linger(s->share.user, s->lane);
}

void share_join(step *s, int pieces)
{
    if (pieces > 1 && s->lane && step_launching(s))
        follow(s, s->main, s->lane);
}

void share_whole(step *s, arena_slot x, void *stream)
{
    if (is_window(x))
        await(s, x, -1, stream);
}

int share_pieces(const step *s, arena_slot x, bool sum)
{
    return is_window(x) || (sum && s->o.windows) ? step_split(&s->o).ranks : 1;
}

share_piece share_begin(step *s, arena_slot x, int i, bool sum)
{
    const model_split split = step_split(&s->o);
    void *stream = i % 2 && s->lane ? s->lane : s->main;
    if (share_pieces(s, x, sum) == 1)
        return (share_piece){x, 0, 0, s->tokens, 0, s->main};
    if (sum) {
        const int rank = (split.rank + 1 + i) % split.ranks;
        return (share_piece){x, rank * s->rows, rank * s->rows, s->rows, rank, stream};
    }
    const int rank = (split.rank + split.ranks - i) % split.ranks; /* in the order in which they come */
    if (i == 0)
        return (share_piece){s->windows[number_of(x)], 0, rank * s->rows, s->rows, rank, stream};
    await(s, x, rank, stream);
    return (share_piece){x, rank * s->rows, rank * s->rows, s->rows, rank, stream};
}

void share_end(step *s, arena_slot partial, const share_piece *p, bool sum)
{
    const int64_t first = (int64_t)p->at * s->d;
    if (sum && s->o.windows && p->rank != step_split(&s->o).rank && step_launching(s) && s->share.give)
        s->share.give(s->share.user, p->rank, step_at(step_pointer(s, partial), first * s->element),
                      (size_t)s->rows * (size_t)s->d, s->dtype, p->stream);
}

void share_give(step *s, arena_slot partial)
{
    for (int i = 0; i < share_pieces(s, partial, s->o.windows) && s->o.windows; i++) {
        share_piece p = share_begin(s, partial, i, true);
        p.stream = s->main;
        share_end(s, partial, &p, true);
    }
}

void share_add_parts(step *s, arena_slot partial, arena_slot residual, arena_slot y)
{
    const size_t own = (size_t)s->rows * (size_t)s->d, first = own * (size_t)step_split(&s->o).rank;
    if (step_go(s) && s->share.add)
        s->share.add(s->share.user, step_at(step_pointer(s, partial), (int64_t)first * s->element),
                     step_pointer(s, residual), step_pointer(s, y), own, s->dtype);
}
