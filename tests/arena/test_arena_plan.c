/* SPDX-License-Identifier: MIT */
/* Where the planner puts tensors: no two share a byte at the same time, and the block is hardly larger than what lives at
 * once in walks like those of a transformer's step. */
#include "tests/support/test.h"

#include "common/core/rng.h"
#include "common/arena/arena.h"

#include <time.h>

/* ---- what must hold of every plan, from its events alone ---- */

typedef struct lived {
    int64_t offset, bytes;
    size_t from, to;
} lived;

/* The tensors of a timeline by id; a missing drop means to the end. Caller frees. */
static lived *lives(const arena *a, size_t *n)
{
    const arena_event *e;
    const size_t count = arena_events(a, &e);
    lived *of = xcalloc(count + 1, sizeof *of);
    *n = 0;
    for (size_t i = 0; i < count; i++)
        if (e[i].bytes > 0) {
            assert_int_equal(e[i].id, *n);
            of[(*n)++] = (lived){e[i].offset, e[i].bytes, i, count};
        } else {
            lived *l = &of[e[i].id];
            assert_true(l->offset == e[i].offset && l->bytes == -e[i].bytes && l->to == count);
            l->to = i;
        }
    return of;
}

/* Returns the most bytes that live at once, or the top of the fixed ones where that is higher. */
static int64_t check_plan(const arena *a)
{
    size_t n;
    OWNED lived *of = lives(a, &n);
    const arena_event *e;
    const size_t count = arena_events(a, &e);
    for (size_t i = 0; i < n; i++) {
        assert_true(of[i].offset >= 0 && (size_t)(of[i].offset + of[i].bytes) <= arena_bytes(a));
        for (size_t j = 0; j < i; j++) {
            const bool time = of[i].from < of[j].to && of[j].from < of[i].to;
            const bool space = of[i].offset < of[j].offset + of[j].bytes && of[j].offset < of[i].offset + of[i].bytes;
            if (time && space)
                fail_msg("%s and %s overlap", e[of[i].from].name, e[of[j].from].name);
        }
    }
    int64_t live = 0, peak = 0;
    for (size_t i = 0; i < count; i++) {
        live += e[i].bytes;
        peak = live > peak ? live : peak;
        const int64_t top = strcmp(e[i].name, "fixed") == 0 ? e[i].offset + e[i].bytes : 0;
        peak = top > peak ? top : peak;
    }
    return peak;
}

/* ---- random walks ---- */

static uint64_t draws;
static int random_below(int n)
{
    return (int)(rng_uniform(7, 0, draws++) * n);
}

/* Takes and drops at random; some of what is fixed comes on the way. */
static void random_walk(arena *a, uint64_t seed, int steps)
{
    arena_slot held[64];
    int n = 0;
    size_t fixed = 0;
    draws = seed << 20;
    for (int i = 0; i < steps; i++) {
        const int what = random_below(10);
        if (what == 0) {
            const size_t bytes = 256 * (1 + (size_t)random_below(40));
            arena_fixed(a, fixed, bytes, MEMORY_GRAD, i, "fixed");
            fixed += bytes;
        } else if (n > 0 && (what < 5 || n == 64)) {
            const int j = random_below(n);
            arena_drop(a, held[j]);
            held[j] = held[--n];
        } else {
            held[n++] = arena_take(a, 1 + (size_t)random_below(20000), MEMORY_TEMPORARY, i, "random");
        }
        arena_op(a);
    }
}

TEST(random_plans)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        arena *a = arena_create();
        const int steps = seed % 10 == 9 ? 600 : 40;
        arena_plan_begin(a);
        random_walk(a, seed, steps);
        arena_plan_end(a);
        const int64_t peak = check_plan(a);
        if (arena_bytes(a) > 1.5 * peak + 256.0 * 64) /* hard cases: greedy is not the best, but never far off */
            fail_msg("seed %d: %zu bytes for %lld", (int)seed, arena_bytes(a), (long long)peak);
        OWNED void *block = aligned_alloc(256, arena_bytes(a));
        arena_attach(a, block);
        for (int run = 0; run < 2; run++) {
            arena_run_begin(a);
            random_walk(a, seed, steps);
            arena_run_end(a);
        }
        arena_free(a);
    }
}

/* ---- walks like a transformer's step ---- */

typedef struct shape {
    const char *name;
    int layers;
    int64_t kept;      /* bytes of activations that a block keeps, in all */
    int64_t grad;      /* bytes of a block's gradients */
    int64_t logits;    /* bytes; taken last, dropped first */
    int64_t head;      /* bytes of the head's gradient, and of the embedding's */
    bool recompute;    /* a block keeps its input alone */
    bool forward_only; /* and nothing is fixed */
    bool late;         /* what a block's weight gradients read is dropped two blocks later */
} shape;

enum { PARTS = 9, QUEUE = 8 };
/* A block's activations as shares of 64: input, statistics, norm, qkv, lse, attention, middle, gate and up, product. */
static const int shares[PARTS] = {4, 1, 4, 12, 1, 4, 4, 22, 11};
static const char *const parts[PARTS] = {"residual", "rstd", "norm", "qkv", "lse", "att", "mid", "gate_up", "swiglu"};

static arena_slot take_part(arena *a, const shape *s, int layer, int part)
{
    return arena_take(a, (size_t)(s->kept / 64 * shares[part] + 4), MEMORY_ACTIVATION, layer, parts[part]);
}

static void block_forward(arena *a, const shape *s, int layer, arena_slot *slots)
{
    for (int i = 1; i < PARTS; i++) {
        slots[i] = take_part(a, s, layer, i);
        arena_slot workspace = arena_take(a, 1 << 20, MEMORY_WORKSPACE, layer, "matmul");
        arena_op(a);
        arena_drop(a, workspace);
    }
}

typedef struct queue { /* what another stream still reads */
    arena_slot slots[3][QUEUE];
    int count[3];
} queue;

static void later(arena *a, const shape *s, queue *q, int layer, arena_slot slot)
{
    if (s->late)
        q->slots[layer % 3][q->count[layer % 3]++] = slot;
    else
        arena_drop(a, slot);
}

static void drain(arena *a, queue *q, int layer)
{
    for (int i = 0; i < q->count[layer % 3]; i++)
        arena_drop(a, q->slots[layer % 3][i]);
    q->count[layer % 3] = 0;
}

/* Gradients come at growing offsets while the block's activations and temporaries go. */
static void block_backward(arena *a, const shape *s, int layer, arena_slot *slots, arena_slot *dy, queue *q,
                           int64_t *grad)
{
    const size_t row = (size_t)(s->kept / 16);
    drain(a, q, layer);
    if (s->recompute)
        block_forward(a, s, layer, slots);
    for (int i = PARTS - 1; i >= 0; i--) {
        arena_slot d = arena_take(a, row * (i == 7 ? 4 : 1), MEMORY_TEMPORARY, layer, "d_part");
        arena_slot workspace = arena_take(a, 32 << 20, MEMORY_WORKSPACE, layer, "matmul");
        arena_op(a);
        if (shares[i] > 1) {
            arena_fixed(a, (size_t)*grad, (size_t)(s->grad / 7), MEMORY_GRAD, layer, "fixed");
            *grad += s->grad / 7;
            arena_op(a);
        }
        arena_drop(a, workspace);
        if (i % 2)
            later(a, s, q, layer, slots[i]);
        else
            arena_drop(a, slots[i]);
        if (i % 4 == 0) {
            later(a, s, q, layer, *dy);
            *dy = d;
        } else {
            arena_drop(a, d);
        }
    }
}

static void step_walk(arena *a, const shape *s)
{
    arena_slot(*slots)[PARTS] = xcalloc((size_t)s->layers, sizeof *slots);
    queue q = {.count = {0}};
    int64_t grad = 0;
    arena_phase(a, PHASE_FORWARD);
    for (int l = 0; l < s->layers; l++) {
        slots[l][0] = take_part(a, s, l, 0);
        block_forward(a, s, l, slots[l]);
        for (int i = s->forward_only ? 0 : 1; (s->recompute || s->forward_only) && i < PARTS; i++)
            arena_drop(a, slots[l][i]);
    }
    arena_slot logits = arena_take(a, (size_t)s->logits, MEMORY_ACTIVATION, -1, "logits");
    arena_op(a);
    if (!s->forward_only) {
        arena_phase(a, PHASE_BACKWARD);
        arena_fixed(a, 0, (size_t)s->head, MEMORY_GRAD, -1, "fixed");
        grad = s->head;
        arena_op(a);
        arena_slot dy = arena_take(a, (size_t)(s->kept / 16), MEMORY_TEMPORARY, -1, "d_residual");
        arena_op(a);
        arena_drop(a, logits);
        for (int l = s->layers - 1; l >= 0; l--)
            block_backward(a, s, l, slots[l], &dy, &q, &grad);
        arena_fixed(a, (size_t)grad, (size_t)s->head, MEMORY_GRAD, s->layers, "fixed");
        arena_op(a);
        arena_drop(a, dy);
        for (int i = 0; i < 3; i++)
            drain(a, &q, i);
    } else {
        arena_drop(a, logits);
    }
    free(slots);
}

TEST(transformers)
{
    enum { MIB = 1 << 20 };
    const int64_t m = MIB;
    const shape shapes[] = {
        {"activations weigh more", 32, 640 * m, 200 * m, 100 * m, 98 * m, false, false, false},
        {"gradients weigh more", 32, 80 * m, 200 * m, 20 * m, 98 * m, false, false, false},
        {"both the same", 48, 130 * m, 131 * m, 40 * m, 60 * m, false, false, false},
        {"10b", 50, 1800 * m, 972 * m, 160 * m, 176 * m, false, false, false},
        {"8b", 34, 2000 * m, 772 * m, 4800 * m, 2400 * m, false, false, false},
        {"8b, gradients late", 34, 2000 * m, 772 * m, 4800 * m, 2400 * m, false, false, true},
        {"8b, blocks again", 34, 2000 * m, 772 * m, 4800 * m, 2400 * m, true, false, false},
        {"gradients late", 32, 640 * m, 200 * m, 100 * m, 98 * m, false, false, true},
        {"light, gradients late", 32, 100 * m, 200 * m, 100 * m, 98 * m, false, false, true},
        {"blocks again", 32, 640 * m, 200 * m, 100 * m, 98 * m, true, false, false},
        {"forward", 32, 640 * m, 200 * m, 100 * m, 98 * m, false, true, false},
        {"small", 12, 20 * m, 27 * m, 10 * m, 29 * m, false, false, true},
        {"deep", 100, 333 * m, 77 * m, 100 * m, 98 * m, false, false, true},
        {"one block", 1, 333 * m, 77 * m, 100 * m, 98 * m, false, false, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        arena *a = arena_create();
        struct timespec t0, t1;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        arena_plan_begin(a);
        step_walk(a, &shapes[i]);
        arena_plan_end(a);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        const double seconds = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
        const int64_t peak = check_plan(a);
        size_t tensors;
        free(lives(a, &tensors));
        print_message("%-24s %5zu tensors, %.4f of what lives at once, planned in %.1f ms\n", shapes[i].name, tensors,
                      (double)arena_bytes(a) / (double)peak, 1e3 * seconds);
        assert_true((double)arena_bytes(a) <= 1.02 * (double)peak);
        assert_true(arena_peak(a, shapes[i].forward_only ? PHASE_FORWARD : PHASE_BACKWARD, MEMORY_KINDS) <= peak);
        assert_true(seconds < 10); /* a bound for sanitizers on a busy machine, too */
        arena_free(a);
    }
}

/* Micro-batches one after another: each like the one before it lies where that did, the block is as large as for one, and
 * one more costs no more planning. */
TEST(periods)
{
    enum { MIB = 1 << 20, MOST = 40 };
    shape s = {"forward",           24, 640 * (int64_t)MIB, 200 * (int64_t)MIB, 100 * (int64_t)MIB, 98 * (int64_t)MIB,
               .forward_only = true};
    size_t one = 0, one_count = 0;
    for (int n = 1; n <= MOST; n += MOST - 1) {
        arena *a = arena_create();
        const arena_event *e;
        arena_plan_begin(a);
        for (int i = 0; i < n; i++) {
            s.logits = n > 1 && i == n / 2 ? 3 * MIB : 100 * MIB; /* one is not like the others */
            arena_slot held = arena_take(a, 5 * MIB, MEMORY_ACTIVATION, -1, "held");
            step_walk(a, &s);
            arena_drop(a, held);
        }
        arena_plan_end(a);
        const size_t count = arena_events(a, &e) / (size_t)n;
        one = n == 1 ? arena_bytes(a) : one, one_count = n == 1 ? count : one_count;
        assert_true(arena_bytes(a) == one && count == one_count);
        for (size_t i = count; i < count * (size_t)(n / 2); i++)
            assert_true(e[i].offset == e[i - count].offset);
        if (n == 1)
            check_plan(a);
        arena_free(a);
    }
}
