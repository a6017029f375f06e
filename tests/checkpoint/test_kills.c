/* SPDX-License-Identifier: MIT */
/* Nothing is lost when processes die: three ranks save step after step and are killed, all at once, at a random time or one
 * of them at a named point. Then the newest complete checkpoint is whole, is no older than the last one that was
 * reported, and is loaded by another number of ranks. STEPBENCH_KILLS says how often (30). */
#include "tests/support/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "common/core/rng.h"
#include "tests/checkpoint/saved_state.h"

enum { RANKS = 3 };
static const double shortest_ms = 60, named_ms = 10000;
static double longest_ms = 60; /* until a kill; on a busy machine a save takes longer */
static const char *const points[] = {"begin",  "block",   "sync",  "part", "manifest",
                                     "rename", "renamed", "trash", "spare"};
enum { POINTS = sizeof points / sizeof *points, OF_RANK_0 = 4 /* it commits: points from here on are its own */ };

static struct shared { /* with the ranks */
    atomic_llong committed;
    atomic_int died_at[POINTS];
} * shared;
static int point = -1;   /* where this rank dies */
static atomic_int until; /* passes of it */

static void die_at(const char *name)
{
    if (point < 0 || strcmp(name, points[point]) != 0 || atomic_fetch_sub(&until, 1) != 1)
        return;
    atomic_fetch_add(&shared->died_at[point], 1);
    kill(getpid(), SIGKILL);
}

static _Noreturn void be_rank(const char *folder, int rank, int64_t step)
{
    char why[400];
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    saved_rank r = saved_rank_create(l, rank, RANKS);
    const checkpoint_save_options o = {.folder = folder,
                                       .way = (checkpoint_way)(step % 2 ? CHECKPOINT_ASYNC : CHECKPOINT_SYNC),
                                       .writers = 2,
                                       .keep = 1 + (int)(step % 2),
                                       .rank = rank,
                                       .ranks = RANKS,
                                       .timeout_s = 5};
    checkpoint_saver *s = checkpoint_saver_create(&o, device_open(DEVICE_CPU, 0), l, &r.pieces, why, sizeof why);
    checkpoint_point = die_at;
    for (;; step++) {
        const checkpoint_state note = saved_note(step, RANKS);
        saved_fill(&r, step);
        checkpoint_save(s, &note);
        const checkpoint_saved saved = checkpoint_save_wait(s);
        if (!saved.ok)
            _exit(1);
        if (rank == 0)
            atomic_store(&shared->committed, step);
        while (atomic_load(&shared->committed) < step)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static void run_and_kill(const char *folder, int turn, int64_t step)
{
    const int at = turn % 2 ? turn / 2 % POINTS : -1;
    const int victim = at < 0 ? -1 : at < OF_RANK_0 ? turn % RANKS : 0;
    pid_t ranks[RANKS];
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = fork();
        if (ranks[i] == 0) {
            point = i == victim ? at : -1;
            atomic_store(&until, 1 + turn % 5);
            be_rank(folder, i, step);
        }
    }
    const double ms = at >= 0 ? named_ms : 1 + rng_uniform(77, 1, (uint64_t)turn) * longest_ms;
    for (double waited = 0; waited < ms; waited += 0.5) {
        siginfo_t died = {.si_pid = 0};
        if (victim >= 0 && waitid(P_PID, (id_t)ranks[victim], &died, WEXITED | WNOHANG | WNOWAIT) == 0 && died.si_pid)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    for (int i = 0; i < RANKS; i++)
        kill(ranks[i], SIGKILL);
    for (int i = 0; i < RANKS; i++)
        waitpid(ranks[i], NULL, 0);
}

/* The step that is there. */
static int64_t what_is_left(const char *folder, int turn)
{
    char why[512];
    checkpoint c;
    checkpoint_loaded loaded;
    const int64_t reported = atomic_load(&shared->committed);
    const int lock = checkpoint_folder_open(folder, why, sizeof why);
    assert_true(lock >= 0);
    assert_int_equal(checkpoint_folder_partial(folder), 0);
    const bool any = checkpoint_open_in(folder, -1, &saved_model, &c, why, sizeof why);
    if (!any && reported)
        fail_msg("turn %d: step %lld is lost: %s", turn, (long long)reported, why);
    int64_t step = 0;
    if (any) {
        step = c.m.state.step;
        if (step < reported)
            fail_msg("turn %d: step %lld was reported, %lld is there", turn, (long long)reported, (long long)step);
        if (!checkpoint_verify(&c, 1, why, sizeof why))
            fail_msg("turn %d: %s", turn, why);
        for (int i = 0; i < 2; i++) {
            saved_rank r = saved_rank_create(c.m.layout, i, 2);
            assert_true(checkpoint_load(&c, NULL, &r.pieces, 1, (checkpoint_room){0}, &loaded, why, sizeof why));
            saved_expect(&r, step);
            saved_rank_free(&r);
        }
    }
    checkpoint_close(&c);
    checkpoint_folder_close(lock);
    return step;
}

TEST_IN_FOLDER(nothing_is_lost)
{
    const char *wanted = getenv("STEPBENCH_KILLS");
    const int kills = wanted ? atoi(wanted) : 30;
    int64_t step = 0, saves = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    char why[400];
    checkpoint_folder_close(checkpoint_folder_open(*state, why, sizeof why)); /* as a run does first */
    for (int turn = 0; turn < kills; turn++) {
        run_and_kill(*state, turn, step + 1);
        const int64_t now = what_is_left(*state, turn);
        saves += now - step;
        if (turn % 2 == 0)
            longest_ms = now == step ? 2 * longest_ms : fmax(shortest_ms, longest_ms / 2);
        step = now;
        atomic_store(&shared->committed, step);
    }
    print_message("%d kills, %lld steps saved\n", kills, (long long)saves);
    for (int i = 0; i < POINTS && kills >= 2 * POINTS; i++)
        if (atomic_load(&shared->died_at[i]) == 0)
            fail_msg("no rank died at '%s'", points[i]);
    assert_true(saves > kills / 4);
}
