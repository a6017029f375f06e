/* SPDX-License-Identifier: MIT */
/* What every op of a walk does: takes its memory from the arena, and launches unless the arena only plans. */
#include "common/step/step.h"

#include "common/core/error.h"

const block_slots block_nothing = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, {-1, -1, -1, -1}};

arena_slot step_take(step *s, size_t bytes, memory_kind kind, int layer, const char *name)
{
    return bytes ? arena_take(s->arena, bytes, kind, layer, name) : -1;
}

void step_drop(step *s, arena_slot *slot)
{
    if (*slot >= 0)
        arena_drop(s->arena, *slot);
    *slot = -1;
}

void *step_pointer(const step *s, arena_slot slot)
{
    if (slot < -1 && step_launching(s) && s->share.window)
        return s->share.window(s->share.user, -2 - slot);
    return slot < 0 ? NULL : arena_pointer(s->arena, slot);
}

bool step_launching(const step *s)
{
    return !arena_planning(s->arena) && !s->rehearsing && s->status == SB_OK;
}

bool step_go(step *s)
{
    arena_op(s->arena);
    return step_launching(s);
}

void step_done(step *s, sb_status status)
{
    if (s->status == SB_OK)
        s->status = status;
}

void step_sum(step *s, void *to, sb_dtype kept, const void *from, sb_dtype given, bool onto, int rows, int columns,
              void *stream)
{
    const sb_pointwise p = {.op = onto ? SB_POINT_ADD : SB_POINT_COPY,
                            .dtype_a = given,
                            .dtype_b = kept,
                            .dtype_out = kept,
                            .rows = rows,
                            .columns = columns,
                            .lda = columns,
                            .ldb = columns,
                            .ld_out = columns,
                            .a = from,
                            .b = onto ? to : NULL,
                            .out = to};
    step_done(s, s->k->train->pointwise(s->ctx, &p, stream));
}

size_t step_rows(const step *s, int64_t columns)
{
    return (size_t)s->tokens * (size_t)columns * (size_t)s->element;
}

size_t step_stream(const step *s)
{
    return (size_t)s->rows * (size_t)s->d * (size_t)s->element;
}

void step_defer(step *s, step_note note)
{
    step_micro *m = s->micro;
    LIST_ADD(m->notes, m->note_count, m->note_room, note);
}
