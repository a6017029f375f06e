/* SPDX-License-Identifier: MIT */
/* A mesh of 2 x 2 x 2 CPU ranks, one of which is killed, stopped or delayed for ever before an op of one axis: that rank is
 * named. The ranks of the second stage have more collectives than those of the first, so that the smallest number is no
 * guide. */
#include "tests/support/test.h"

#include <signal.h>

#include "common/comm/comm.h"
#include "tests/support/ranks.h"
#include "tests/support/streams.h"

/* ---- what the ranks run ---- */

static option_spec option_table[] = {
    LAUNCH_RANKS("8", "8"),
    {"victim", OPTION_INT, 0, "0", .help = "the rank whose fate it is", .max = 7},
    {"axis", OPTION_CHOICE, 0, "pp", .help = "before an op of which it happens", .choices = "pp|dp|tp"},
    {0}};
static const variant_spec variant_table[] = {{"killed", ""}, {"stopped", ""}, {"delayed", ""}, {0}};
static const column_spec column_table[] = {{"steps", COLUMN_INT, true, "made"}, {0}};
static const bench_info info = TOY_BENCH("bench_mesh_stuck", "Who holds a mesh up?");

enum { N = 20000, FATAL_STEP = 5 };

typedef struct rank_of_mesh {
    device *d;
    comm *pp, *dp, *tp;
    void *compute, *sends, *sums;
    float *x, *y, *z;
    bool victim;
    const char *axis, *fate;
    int step;
} rank_of_mesh;

static void meet_fate(const rank_of_mesh *k, const char *axis)
{
    if (!k->victim || k->step != FATAL_STEP || strcmp(axis, k->axis) != 0)
        return;
    if (strcmp(k->fate, "delayed") != 0)
        raise(strcmp(k->fate, "killed") == 0 ? SIGKILL : SIGSTOP);
    for (;;)
        pause();
}

/* Three layers of the second stage, one of the first; activations there and gradients back; the sum of gradients. */
static void make_step(const rank_of_mesh *k)
{
    const int stage = comm_rank(k->pp);
    for (int layer = 0; layer < (stage ? 3 : 1); layer++) {
        if (layer == 0)
            meet_fate(k, "tp");
        comm_all_reduce(k->tp, k->x, k->x, N, COMM_FP32, COMM_MAX, k->compute);
    }
    meet_fate(k, "pp");
    for (int way = 0; way < 2; way++)
        if (stage == way)
            comm_send(k->pp, k->y, N, COMM_FP32, 1 - stage, k->sends);
        else
            comm_recv(k->pp, k->y, N, COMM_FP32, 1 - stage, k->sends);
    meet_fate(k, "dp");
    comm_all_reduce(k->dp, k->z, k->z, N, COMM_FP32, COMM_MAX, k->sums);
    if (k->step % 2)
        for (int i = 0; i < 3; i++)
            stream_sync(k->d, (void *[]){k->compute, k->sends, k->sums}[i]);
}

static comm *open(launch *l, device *d, mesh m, unsigned axes, const char *name)
{
    char why[512];
    comm *c;
    if (!comm_open_axes(l, d, NULL, m, axes, &(comm_options){.name = name}, &c, why, sizeof why))
        die(EXIT_CODE_FAILURE, "no communicator: %s", why);
    return c;
}

static void run(session *s, const bench_case *c, row *w)
{
    launch *l = launch_of(s);
    const mesh m = {2, 1, 2, 1, 2};
    rank_of_mesh k = {.d = s->dev,
                      .pp = open(l, s->dev, m, MESH_PP, "pp"),
                      .dp = open(l, s->dev, m, MESH_DATA, "dp"),
                      .tp = open(l, s->dev, m, MESH_TP, "tp"),
                      .compute = device_stream_create(s->dev, STREAM_NORMAL, "compute"),
                      .sends = device_stream_create(s->dev, STREAM_URGENT, "sends"),
                      .sums = device_stream_create(s->dev, STREAM_URGENT, "sums"),
                      .x = xcalloc(N, sizeof *k.x),
                      .y = xcalloc(N, sizeof *k.y),
                      .z = xcalloc(N, sizeof *k.z),
                      .victim = launch_rank(l) == option_int(s->opt, "victim"),
                      .axis = option_text(s->opt, "axis"),
                      .fate = case_variant(c)};
    for (;; k.step++)
        make_step(&k);
    row_int(w, "steps", k.step);
}

/* ---- the tests ---- */

TEST_IN_RANKS_FOLDER(the_rank_is_named)
{
    needs_gloo();
    static const char *const axes[] = {"pp", "dp", "tp"}, *const fates[] = {"killed", "stopped", "delayed"},
                             *const says[] = {"was killed by signal 9", "does not run", "makes no progress"};
    for (int axis = 0; axis < 3; axis++)
        for (int fate = 0; fate < 3; fate++) {
            char arguments[200], want[80];
            const int victim = (3 * axis + 5 * fate + 4) % 8; /* of both stages */
            snprintf(arguments, sizeof arguments,
                     "--device cpu --csv rows.csv --timeout 1.5 --ranks 8 --victim %d --axis %s --variant %s", victim,
                     axes[axis], fates[fate]);
            snprintf(want, sizeof want, "rank %d of 8 %s", victim, says[fate]);
            assert_int_equal(ranks_run("bench_mesh_stuck", arguments), EXIT_CODE_TIMEOUT);
            if (!strstr(ranks_text("err.txt"), want))
                fail_msg("%s on %s: not '%s' but %s", fates[fate], axes[axis], want, ranks_text("err.txt"));
        }
}

static int stuck_main(int argc, char **argv)
{
    return launch_main(&info, &(session_hooks){.run = run}, argc, argv);
}
PROGRAM("bench_mesh_stuck", stuck_main)
