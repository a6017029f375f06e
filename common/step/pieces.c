/* SPDX-License-Identifier: MIT */
/* Where ranks that share layers put rows into each other's memory (options.windows), the forward's products go piece by piece: a
 * product begins with this rank's own rows, and goes on with those of each other rank as they come; of a sum the others' rows come
 * first, and leave while the next ones are computed. The backward has whole products: weight gradients run while rows come and
 * leave (transformer.c); but with options.push nothing leaves, since each piece of a sum is written where it is added. What is read
 * of other ranks lies in windows, which are slots below -1. */
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
    s->windows[at] = (step_window){.of = x};
    if (step_launching(s) && s->share.spread)
        s->share.spread(s->share.user, at, step_pointer(s, x), (size_t)s->rows * (size_t)s->d, s->dtype, whole);
    return -2 - at;
}

void share_ahead(step *s, arena_slot n)
{
    if (s->o.windows)
        s->windows[number_of(share_spread(s, n, true))].ahead = true;
}

/* What share_ahead has sent of n; -1: nothing. */
arena_slot share_sent(step *s, arena_slot n)
{
    for (int at = 0; at < STEP_WINDOWS; at++)
        if (s->windows[at].ahead && s->windows[at].of == n) {
            s->windows[at].ahead = false;
            return -2 - at;
        }
    return -1;
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

void share_whole(step *s, arena_slot x, void *stream)
{
    step_window *w = is_window(x) ? &s->windows[number_of(x)] : NULL;
    if (!w || (w->seen && stream == s->main))
        return;
    await(s, x, -1, stream);
    w->seen = w->seen || stream == s->main;
}

int share_pieces(const step *s, arena_slot x, bool sum)
{
    return is_window(x) || (sum && s->o.windows) ? step_split(&s->o).ranks : 1;
}

share_piece share_begin(step *s, arena_slot x, int i, bool sum)
{
    const model_split split = step_split(&s->o);
    if (share_pieces(s, x, sum) == 1)
        return (share_piece){x, 0, 0, s->tokens, 0};
    if (sum) {
        const int rank = (split.rank + 1 + i) % split.ranks;
        return (share_piece){x, rank * s->rows, rank * s->rows, s->rows, rank};
    }
    const int rank = (split.rank + split.ranks - i) % split.ranks; /* in the order in which they come */
    if (i == 0)
        return (share_piece){s->windows[number_of(x)].of, 0, rank * s->rows, s->rows, rank};
    await(s, x, rank, s->main);
    return (share_piece){x, rank * s->rows, rank * s->rows, s->rows, rank};
}

/* Where the part of another rank's rows goes instead of into the slot; NULL: nowhere. */
static void *pushed(const step *s, int rank, bool sum)
{
    const bool other = sum && s->o.push && rank != step_split(&s->o).rank;
    return other && step_launching(s) && s->share.part ? s->share.part(s->share.user, rank) : NULL;
}

void *share_place(const step *s, arena_slot y, const share_piece *p, int columns, bool sum)
{
    void *there = pushed(s, p->rank, sum);
    return there ? there : step_at(step_pointer(s, y), (int64_t)p->at * columns * s->element);
}

static void give(step *s, arena_slot partial, int rank, bool there)
{
    const int64_t first = (int64_t)rank * s->rows * s->d;
    if (s->o.windows && rank != step_split(&s->o).rank && step_launching(s) && s->share.give)
        s->share.give(s->share.user, rank, there ? NULL : step_at(step_pointer(s, partial), first * s->element));
}

void share_end(step *s, arena_slot partial, const share_piece *p, bool sum)
{
    if (sum)
        give(s, partial, p->rank, pushed(s, p->rank, sum));
}

void share_give(step *s, arena_slot partial)
{
    const model_split split = step_split(&s->o);
    for (int k = 1; k < split.ranks; k++)
        give(s, partial, (split.rank + k) % split.ranks, false);
}

void share_add_parts(step *s, arena_slot partial, arena_slot residual, arena_slot y)
{
    const size_t own = (size_t)s->rows * (size_t)s->d, first = own * (size_t)step_split(&s->o).rank;
    if (step_go(s) && s->share.add)
        s->share.add(s->share.user, step_at(step_pointer(s, partial), (int64_t)first * s->element),
                     step_pointer(s, residual), step_pointer(s, y), own, s->dtype);
}
