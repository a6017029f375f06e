/* SPDX-License-Identifier: MIT */
/* Memory of a step, planned before it runs. The step's own code is walked twice: once to plan, when every arena_take and
 * arena_drop is only noted, then any number of times to run. The planner gives each tensor an offset in one block so
 * that tensors which live at the same time never overlap; nothing is allocated while a step runs. Gradients are notes at
 * fixed offsets (arena_fixed): activations share the bytes of gradients that are not written yet.
 *
 * The notes are also the exact memory timeline of the step: what was held, by whom, at each op. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum memory_kind { /* what a byte is for; the tags of the memory reports */
                           MEMORY_PARAM,
                           MEMORY_MASTER,
                           MEMORY_MOMENT1,
                           MEMORY_MOMENT2,
                           MEMORY_GRAD,
                           MEMORY_ACTIVATION, /* made by forward, kept for backward */
                           MEMORY_TEMPORARY,  /* made and dropped within a forward or a backward */
                           MEMORY_WORKSPACE,  /* scratch of one op */
                           MEMORY_OTHER,      /* tokens, losses, tables, the optimizer state */
                           MEMORY_KINDS
} memory_kind;
const char *memory_kind_name(memory_kind k);

typedef enum step_phase { PHASE_INIT, PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER, STEP_PHASES } step_phase;
const char *step_phase_name(step_phase p);

typedef struct arena_event { /* one allocation or release, in program order */
    step_phase phase;
    int op; /* how many ops of the step were enqueued before it */
    int id; /* of the tensor: its take and its drop share it */
    memory_kind kind;
    int layer;        /* -1: outside the blocks */
    const char *name; /* "qkv", "gate_up", ...: a constant */
    int64_t bytes;    /* positive taken, negative dropped */
    int64_t offset;   /* from the start of the arena; -1 for what lies outside it (parameters, moments) */
} arena_event;

typedef struct arena arena;
typedef int arena_slot; /* a tensor taken in this walk */

arena *arena_create(void);
void arena_free(arena *a);

void arena_plan_begin(arena *a);
void arena_plan_cancel(arena *a); /* forgets what the walk has noted */
/* Assigns offsets. The bytes that the block must have: arena_bytes. */
void arena_plan_end(arena *a);
size_t arena_bytes(const arena *a);
void arena_attach(arena *a, void *block); /* 256-byte aligned, arena_bytes of it */
void arena_run_begin(arena *a);           /* before each later walk */
void arena_run_end(arena *a);             /* dies when the walk differed from the plan: a bug */
bool arena_planning(const arena *a);

void arena_phase(arena *a, step_phase p);
void arena_op(arena *a); /* one more op was enqueued */
arena_slot arena_take(arena *a, size_t bytes, memory_kind kind, int layer, const char *name);
void *arena_pointer(const arena *a, arena_slot s); /* NULL while planning */
void arena_drop(arena *a, arena_slot s);
/* Bytes at a fixed offset become live here and stay so to the end of the walk (gradients). */
void arena_fixed(arena *a, size_t offset, size_t bytes, memory_kind kind, int layer, const char *name);

/* The timeline of the plan. */
size_t arena_events(const arena *a, const arena_event **out);
/* Bytes live at the worst op of a phase, in all or of one kind (MEMORY_KINDS: all). */
int64_t arena_peak(const arena *a, step_phase p, memory_kind kind);
