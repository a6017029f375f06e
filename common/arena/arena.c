/* SPDX-License-Identifier: MIT */
/* The walks of an arena: noting one for the planner, then repeating it. A later walk only moves a cursor along the
 * events of the plan, so that a take costs a few compares. */
#include "common/arena/internal.h"

#include "common/core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum arena_mode { IDLE, PLANNING, RUNNING } arena_mode;

struct arena {
    arena_mode mode;
    char *block;
    size_t bytes;
    arena_tensor *tensors; /* by id */
    arena_event *events;
    int tensor_count, tensor_room, event_count, event_room;
    int cursor; /* the next event of a walk that repeats the plan */
    /* While planning: */
    step_phase phase;
    int ops;
    int64_t live[MEMORY_KINDS + 1], peak[STEP_PHASES][MEMORY_KINDS + 1]; /* the last of a row: all kinds */
};

const char *memory_kind_name(memory_kind k)
{
    static const char *const names[MEMORY_KINDS] = {"param",      "master",    "moment1",   "moment2", "grad",
                                                    "activation", "temporary", "workspace", "other"};
    return k < MEMORY_KINDS ? names[k] : "all";
}

const char *step_phase_name(step_phase p)
{
    static const char *const names[STEP_PHASES] = {"init", "forward", "backward", "optimizer"};
    return p < STEP_PHASES ? names[p] : "none";
}

arena *arena_create(void)
{
    return xcalloc(1, sizeof(arena));
}

void arena_free(arena *a)
{
    if (!a)
        return;
    free(a->tensors);
    free(a->events);
    free(a);
}

/* A walk does something (a sentence: "takes x (300 bytes)") that its plan does not have here. */
static _Noreturn void differs(const arena *a, const char *does)
{
    if (a->cursor >= a->event_count)
        die(EXIT_CODE_FAILURE, "bug: a step %s, but its plan has ended", does);
    const arena_event *e = &a->events[a->cursor];
    const char *planned = e->bytes < 0 ? "drops" : a->tensors[e->id].fixed ? "fixes" : "takes";
    die(EXIT_CODE_FAILURE, "bug: a step %s where its plan %s %s (%lld bytes, layer %d, op %d)", does, planned, e->name,
        llabs((long long)e->bytes), e->layer, e->op);
}

static _Noreturn void differs_by(const arena *a, const char *verb, const char *name, int64_t bytes)
{
    char does[160];
    snprintf(does, sizeof does, "%s %s (%lld bytes)", verb, name, (long long)bytes);
    differs(a, does);
}

static void expect_mode(const arena *a, arena_mode mode, const char *call)
{
    if (a->mode != mode)
        die(EXIT_CODE_FAILURE, "bug: %s outside of its place in a walk of the arena", call);
}

static void note_peak(arena *a)
{
    for (int k = 0; k <= MEMORY_KINDS; k++)
        if (a->live[k] > a->peak[a->phase][k])
            a->peak[a->phase][k] = a->live[k];
}

/* Appends an event of `e` with the time filled in. */
static void note(arena *a, arena_event e)
{
    e.phase = a->phase;
    e.op = a->ops;
    LIST_ADD(a->events, a->event_count, a->event_room, e);
    a->live[e.kind] += e.bytes;
    a->live[MEMORY_KINDS] += e.bytes;
    note_peak(a);
}

static int new_tensor(arena *a, arena_tensor t)
{
    t.taken = a->event_count;
    LIST_ADD(a->tensors, a->tensor_count, a->tensor_room, t);
    return a->tensor_count - 1;
}

void arena_plan_begin(arena *a)
{
    expect_mode(a, IDLE, "arena_plan_begin");
    a->mode = PLANNING;
    a->block = NULL;
    a->bytes = 0;
    a->tensor_count = a->event_count = a->ops = 0;
    a->phase = PHASE_INIT;
    memset(a->live, 0, sizeof a->live);
    memset(a->peak, 0, sizeof a->peak);
}

void arena_plan_cancel(arena *a)
{
    expect_mode(a, PLANNING, "arena_plan_cancel");
    a->tensor_count = a->event_count = 0;
    a->mode = IDLE;
}

void arena_plan_end(arena *a)
{
    expect_mode(a, PLANNING, "arena_plan_end");
    for (int i = 0; i < a->tensor_count; i++)
        if (a->tensors[i].dropped < 0)
            a->tensors[i].dropped = a->event_count;
    a->bytes = (size_t)arena_place(a->tensors, a->tensor_count);
    for (int i = 0; i < a->event_count; i++)
        a->events[i].offset = a->tensors[a->events[i].id].offset;
    a->mode = IDLE;
}

size_t arena_bytes(const arena *a)
{
    return a->bytes;
}

void arena_attach(arena *a, void *block)
{
    if ((uintptr_t)block % ARENA_ALIGNMENT != 0)
        die(EXIT_CODE_FAILURE, "bug: the block of an arena is not aligned to %d bytes", ARENA_ALIGNMENT);
    a->block = block;
}

void arena_run_begin(arena *a)
{
    if (a->mode == PLANNING) /* a walk that was given up midway, after a failure, may be followed by another */
        expect_mode(a, IDLE, "arena_run_begin");
    if (!a->block && a->bytes)
        die(EXIT_CODE_FAILURE, "bug: a step runs before its arena has a block");
    a->mode = RUNNING;
    a->cursor = 0;
}

void arena_run_end(arena *a)
{
    expect_mode(a, RUNNING, "arena_run_end");
    if (a->cursor < a->event_count)
        differs(a, "ends");
    a->mode = IDLE;
}

bool arena_planning(const arena *a)
{
    return a->mode == PLANNING;
}

void arena_phase(arena *a, step_phase p)
{
    if (a->mode != PLANNING)
        return;
    a->phase = p;
    note_peak(a); /* what earlier phases left is live in this one, too */
}

void arena_op(arena *a)
{
    if (a->mode == PLANNING)
        a->ops++;
}

/* The id of the next event of the plan, which must be this one. */
static int repeat(arena *a, const char *verb, int64_t offset, int64_t bytes, memory_kind kind, int layer,
                  const char *name)
{
    expect_mode(a, RUNNING, "a take");
    const arena_event *e = &a->events[a->cursor];
    const bool fixed = offset >= 0;
    if (a->cursor >= a->event_count || e->bytes != bytes || e->kind != kind || e->layer != layer ||
        a->tensors[e->id].fixed != fixed || (fixed && e->offset != offset) || strcmp(e->name, name) != 0)
        differs_by(a, verb, name, bytes);
    a->cursor++;
    return e->id;
}

arena_slot arena_take(arena *a, size_t bytes, memory_kind kind, int layer, const char *name)
{
    if (bytes == 0)
        die(EXIT_CODE_FAILURE, "bug: %s takes no bytes", name);
    if (a->mode != PLANNING)
        return repeat(a, "takes", -1, (int64_t)bytes, kind, layer, name);
    const int id = new_tensor(a, (arena_tensor){.offset = -1, .bytes = (int64_t)bytes, .dropped = -1});
    note(a, (arena_event){.id = id, .kind = kind, .layer = layer, .name = name, .bytes = (int64_t)bytes});
    return id;
}

void arena_fixed(arena *a, size_t offset, size_t bytes, memory_kind kind, int layer, const char *name)
{
    if (bytes == 0)
        die(EXIT_CODE_FAILURE, "bug: %s fixes no bytes", name);
    if (a->mode != PLANNING) {
        repeat(a, "fixes", (int64_t)offset, (int64_t)bytes, kind, layer, name);
        return;
    }
    const int64_t first = (int64_t)offset, end = first + (int64_t)bytes;
    for (int i = 0; i < a->tensor_count; i++) {
        const arena_tensor *t = &a->tensors[i];
        if (t->fixed && t->offset < end && first < t->offset + t->bytes)
            die(EXIT_CODE_FAILURE, "bug: %s of layer %d is fixed over bytes that are already", name, layer);
    }
    const int id =
        new_tensor(a, (arena_tensor){.offset = first, .bytes = (int64_t)bytes, .dropped = -1, .fixed = true});
    note(a, (arena_event){.id = id, .kind = kind, .layer = layer, .name = name, .bytes = (int64_t)bytes});
}

void *arena_pointer(const arena *a, arena_slot s)
{
    if (s < 0 || s >= a->tensor_count)
        die(EXIT_CODE_FAILURE, "bug: the arena has no tensor %d", s);
    return a->mode == PLANNING || !a->block ? NULL : a->block + a->tensors[s].offset;
}

void arena_drop(arena *a, arena_slot s)
{
    if (s < 0 || s >= a->tensor_count)
        die(EXIT_CODE_FAILURE, "bug: the arena has no tensor %d to drop", s);
    arena_tensor *t = &a->tensors[s];
    const arena_event *taken = &a->events[t->taken];
    if (a->mode != PLANNING) {
        expect_mode(a, RUNNING, "a drop");
        const arena_event *e = &a->events[a->cursor];
        if (a->cursor >= a->event_count || e->id != s || e->bytes >= 0)
            differs_by(a, "drops", taken->name, t->bytes);
        a->cursor++;
        return;
    }
    if (t->dropped >= 0 || t->fixed)
        die(EXIT_CODE_FAILURE, "bug: %s of layer %d is dropped %s", taken->name, taken->layer,
            t->fixed ? "though it is fixed" : "twice");
    arena_event e = *taken;
    e.bytes = -e.bytes;
    t->dropped = a->event_count;
    note(a, e);
}

size_t arena_events(const arena *a, const arena_event **out)
{
    *out = a->events;
    return (size_t)a->event_count;
}

int64_t arena_peak(const arena *a, step_phase p, memory_kind kind)
{
    return a->peak[p][kind];
}
