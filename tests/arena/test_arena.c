/* SPDX-License-Identifier: MIT */
/* The walks of planned memory: the timeline adds up, pointers lie in the block, and a walk repeats its plan or dies.
 * Where the planner puts things is the matter of test_arena_plan.c. */
#include "tests/support/test.h"

#include "common/arena/arena.h"

#include <sys/wait.h>

/* ---- the timeline ---- */

TEST(timeline)
{
    arena *a = arena_create();
    arena_plan_begin(a);
    assert_true(arena_planning(a));
    arena_phase(a, PHASE_FORWARD);
    arena_slot x = arena_take(a, 1000, MEMORY_ACTIVATION, 0, "x");
    arena_op(a);
    arena_slot y = arena_take(a, 500, MEMORY_WORKSPACE, 0, "y");
    assert_null(arena_pointer(a, x));
    arena_op(a);
    arena_drop(a, y);
    arena_phase(a, PHASE_BACKWARD);
    arena_fixed(a, 256, 2000, MEMORY_GRAD, 3, "g");
    arena_op(a);
    arena_drop(a, x);
    arena_phase(a, PHASE_OPTIMIZER);
    arena_plan_end(a);
    assert_false(arena_planning(a));

    const arena_event *e;
    assert_int_equal(arena_events(a, &e), 5);
    const arena_event want[] = {
        {PHASE_FORWARD, 0, 0, MEMORY_ACTIVATION, 0, "x", 1000, 0},
        {PHASE_FORWARD, 1, 1, MEMORY_WORKSPACE, 0, "y", 500, 0},
        {PHASE_FORWARD, 2, 1, MEMORY_WORKSPACE, 0, "y", -500, 0},
        {PHASE_BACKWARD, 2, 2, MEMORY_GRAD, 3, "g", 2000, 256},
        {PHASE_BACKWARD, 3, 0, MEMORY_ACTIVATION, 0, "x", -1000, 0},
    };
    for (int i = 0; i < 5; i++) {
        assert_true(e[i].phase == want[i].phase && e[i].op == want[i].op && e[i].id == want[i].id);
        assert_true(e[i].kind == want[i].kind && e[i].layer == want[i].layer && e[i].bytes == want[i].bytes);
        assert_string_equal(e[i].name, want[i].name);
        assert_true(e[i].offset % 256 == 0 && (e[i].id != 2 || e[i].offset == 256));
    }
    assert_true(arena_peak(a, PHASE_INIT, MEMORY_KINDS) == 0);
    assert_true(arena_peak(a, PHASE_FORWARD, MEMORY_KINDS) == 1500);
    assert_true(arena_peak(a, PHASE_FORWARD, MEMORY_WORKSPACE) == 500);
    assert_true(arena_peak(a, PHASE_BACKWARD, MEMORY_KINDS) == 3000);
    assert_true(arena_peak(a, PHASE_BACKWARD, MEMORY_WORKSPACE) == 0);
    assert_true(arena_peak(a, PHASE_OPTIMIZER, MEMORY_KINDS) ==
                2000); /* nothing happens there, but gradients are held */
    assert_true(arena_peak(a, PHASE_OPTIMIZER, MEMORY_ACTIVATION) == 0);

    arena_plan_begin(a); /* a second plan starts from nothing */
    arena_phase(a, PHASE_FORWARD);
    arena_drop(a, arena_take(a, 1, MEMORY_OTHER, -1, "z"));
    arena_plan_end(a);
    assert_int_equal(arena_bytes(a), 256);
    assert_true(arena_peak(a, PHASE_BACKWARD, MEMORY_KINDS) == 0);
    arena_plan_begin(a);
    arena_plan_end(a);
    assert_int_equal(arena_bytes(a), 0);
    arena_run_begin(a);
    arena_run_end(a);
    arena_free(a);
    arena_free(NULL);
}

TEST(names)
{
    for (int k = 0; k < MEMORY_KINDS; k++)
        for (int j = 0; j < k; j++)
            assert_string_not_equal(memory_kind_name(k), memory_kind_name(j));
    assert_string_equal(memory_kind_name(MEMORY_GRAD), "grad");
    assert_string_equal(step_phase_name(PHASE_OPTIMIZER), "optimizer");
}

/* ---- pointers, and walks that differ ---- */

TEST(pointers)
{
    arena *a = arena_create();
    OWNED char *block = NULL;
    for (int walk = 0; walk < 3; walk++) {
        walk ? arena_run_begin(a) : arena_plan_begin(a);
        arena_slot x = arena_take(a, 300, MEMORY_ACTIVATION, 0, "x"), y = arena_take(a, 10, MEMORY_OTHER, -1, "y");
        const arena_event *e;
        arena_events(a, &e);
        assert_ptr_equal(arena_pointer(a, x), walk ? block + e[0].offset : NULL);
        assert_ptr_equal(arena_pointer(a, y), walk ? block + e[1].offset : NULL);
        arena_drop(a, x);
        arena_slot z = arena_take(a, 300, MEMORY_ACTIVATION, 1, "z");
        assert_ptr_equal(arena_pointer(a, z), arena_pointer(a, x)); /* the bytes of x, again */
        if (walk) {
            arena_run_end(a);
            continue;
        }
        arena_plan_end(a);
        assert_int_equal(arena_bytes(a), 768);
        arena_attach(a, block = aligned_alloc(256, arena_bytes(a)));
    }
    arena_free(a);
}

typedef enum fault {
    NO_FAULT,
    OTHER_BYTES,
    OTHER_KIND,
    OTHER_NAME,
    OTHER_LAYER,
    OTHER_OFFSET,
    TAKE_FOR_FIXED,
    OTHER_DROP,
    EARLY_DROP,
    ONE_MORE,
    ONE_LESS,
    FAULTS
} fault;

static void faulty_walk(arena *a, fault f)
{
    arena_slot x = arena_take(a, f == OTHER_BYTES ? 301 : 300, f == OTHER_KIND ? MEMORY_OTHER : MEMORY_ACTIVATION,
                              f == OTHER_LAYER, f == OTHER_NAME ? "xx" : "x");
    if (f == EARLY_DROP)
        arena_drop(a, x);
    arena_slot y = arena_take(a, 10, MEMORY_OTHER, -1, "y");
    if (f == TAKE_FOR_FIXED)
        arena_take(a, 512, MEMORY_GRAD, 0, "fixed");
    else
        arena_fixed(a, f == OTHER_OFFSET ? 512 : 0, 512, MEMORY_GRAD, 0, "fixed");
    arena_drop(a, f == OTHER_DROP ? y : x);
    if (f != ONE_LESS)
        arena_drop(a, f == OTHER_DROP ? x : y);
    if (f == ONE_MORE)
        arena_take(a, 1, MEMORY_OTHER, -1, "more");
}

/* What a child said on stderr before it ended with `code`. */
static void dies_saying(void (*run)(int), int argument, const char *words)
{
    int ends[2], status;
    char said[1024] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        run(argument);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < sizeof said - 1 && (got = read(ends[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    assert_true(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_CODE_FAILURE || !strstr(said, words))
        fail_msg("case %d ended with status %d, saying \"%s\"; want \"%s\"", argument, status, said, words);
}

static arena *planned;
static void run_faulty(int f)
{
    arena_run_begin(planned);
    faulty_walk(planned, (fault)f);
    arena_run_end(planned);
}

TEST(walks_that_differ)
{
    static const char *const words[FAULTS] = {
        [OTHER_BYTES] = "takes x (301 bytes) where its plan takes x (300 bytes, layer 0, op 0)",
        [OTHER_KIND] = "where its plan takes x",
        [OTHER_NAME] = "takes xx (300 bytes) where its plan takes x",
        [OTHER_LAYER] = "where its plan takes x",
        [OTHER_OFFSET] = "fixes fixed (512 bytes) where its plan fixes fixed",
        [TAKE_FOR_FIXED] = "takes fixed (512 bytes) where its plan fixes fixed",
        [OTHER_DROP] = "drops y (10 bytes) where its plan drops x (300 bytes",
        [EARLY_DROP] = "drops x (300 bytes) where its plan takes y",
        [ONE_MORE] = "takes more (1 bytes), but its plan has ended",
        [ONE_LESS] = "ends where its plan drops y",
    };
    planned = arena_create();
    arena_plan_begin(planned);
    faulty_walk(planned, NO_FAULT);
    arena_plan_end(planned);
    OWNED void *block = aligned_alloc(256, arena_bytes(planned));
    arena_attach(planned, block);
    for (int f = NO_FAULT + 1; f < FAULTS; f++)
        dies_saying(run_faulty, f, words[f]);
    arena_run_begin(planned); /* given up after its first take */
    arena_take(planned, 300, MEMORY_ACTIVATION, 0, "x");
    run_faulty(NO_FAULT);
    arena_free(planned);
}

static void misuse(int which)
{
    arena *a = arena_create();
    if (which == 0)
        arena_take(a, 1, MEMORY_OTHER, -1, "x");
    arena_plan_begin(a);
    arena_slot x = arena_take(a, 1, MEMORY_OTHER, -1, "x");
    if (which == 1)
        arena_plan_begin(a);
    if (which == 2) {
        arena_drop(a, x);
        arena_drop(a, x);
    }
    if (which == 3)
        arena_drop(a, 7);
    if (which == 4)
        arena_take(a, 0, MEMORY_OTHER, -1, "x");
    arena_fixed(a, 0, 512, MEMORY_GRAD, 0, "g");
    if (which == 5)
        arena_fixed(a, 256, 512, MEMORY_GRAD, 1, "h");
    arena_plan_end(a);
    if (which == 6)
        arena_run_begin(a);
    if (which == 7)
        arena_attach(a, (void *)(uintptr_t)16); /* NOLINT(performance-no-int-to-ptr) */
}

TEST(misuses)
{
    static const char *const words[] = {"outside of its place",
                                        "outside of its place",
                                        "x of layer -1 is dropped twice",
                                        "no tensor 7",
                                        "takes no bytes",
                                        "h of layer 1 is fixed over bytes that are already",
                                        "before its arena has a block",
                                        "not aligned"};
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        dies_saying(misuse, i, words[i]);
}
