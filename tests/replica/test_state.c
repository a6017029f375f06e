/* SPDX-License-Identifier: MIT */
/* A state goes through every strategy and several numbers of CPU ranks, loaded and saved again without a step between: the
 * files must be those of the first save, byte for byte. */
#include "tests/support/test.h"

#include "common/checkpoint/folder.h"
#include "common/launch/launch.h"
#include "common/replica/state.h"
#include "tests/support/model_problem.h"
#include "tests/support/ranks.h"

static option_spec option_table[] = {LAUNCH_RANKS("4", "4"), {0}};
static const variant_spec variant_table[] = {{"equal", "every strategy and number of ranks writes the same bytes"},
                                             {0}};
static const column_spec column_table[] = {{"saves", COLUMN_INT, true, "that were compared"}, {0}};
static const bench_info info = TOY_BENCH("bench_state", "Is a checkpoint the same from all ranks?");

static const struct {
    const char *strategy;
    int ranks, replicas;
    bool small;
} ways[] = {{"naive", 1, 0, false}, {"zero1", 2, 0, false},           {"fsdp", 4, 0, false},
            {"hsdp", 4, 2, true},   {"zero1-broadcast", 3, 0, false}, {"fused", 2, 0, false},
            {"zero2", 3, 0, true},  {"fsdp-keep", 1, 0, false},       {"bucketed", 4, 0, false}};
enum { WAYS = sizeof ways / sizeof *ways };

static void require(bool right, const char *what)
{
    if (!right)
        die(EXIT_CODE_VERIFY, "%s", what);
}

static void save(replica_state *x, const char *folder, checkpoint_way way, int64_t name)
{
    char why[400];
    checkpoint_state note = {.step = 0};
    const checkpoint_save_options o = {.folder = folder,
                                       .way = way,
                                       .writers = 2,
                                       .keep = 100,
                                       .rank = launch_rank(x->r->at.l),
                                       .ranks = x->r->plan->o.ranks,
                                       .timeout_s = 20};
    checkpoint_saver *s = checkpoint_saver_create(&o, x->r->at.d, x->layout, &x->save, why, sizeof why);
    require(s, "a saver");
    replica_state_note(x, &note);
    require(name == 0 || note.optimizer.step == 2, "the optimizer's step came along");
    note.step = name;
    checkpoint_save(s, &note);
    const checkpoint_saved saved = checkpoint_save_wait(s);
    if (!saved.ok)
        die(EXIT_CODE_VERIFY, "%s", saved.why);
    checkpoint_saver_free(s);
}

/* The replica of a way; the state of the one before is loaded, the first one takes two steps. */
static void pass_on(const replica_place *at, int i)
{
    step_options o = small_options();
    replica_problem problem = {.text = ""};
    char why[400];
    o.precision = precision_find("bf16");
    o.overlap = OVERLAP_GRADIENTS;
    o.shard.ranks = ways[i].ranks;
    o.shard.small = ways[i].small;
    o.shard.free_every = 1;
    o.seed = 5 + (uint64_t)i; /* what is not loaded differs */
    const strategy *st = parallel_strategy(ways[i].strategy);
    if (st->grouping != GROUP_UNIT)
        o.shard = (step_sharding){.ranks = 0};
    const parallel_options p = {.strategy = ways[i].strategy,
                                .ranks = ways[i].ranks,
                                .bucket_bytes = 20000,
                                .update = UPDATE_BUCKETS,
                                .micro_batches = 1,
                                .replicas = ways[i].replicas};
    replica *r = replica_create(at, &o, &p, &problem);
    if (!r)
        die(EXIT_CODE_VERIFY, "%s: %s", ways[i].strategy, problem.text);
    if (r->member) {
        replica_state *x = replica_state_create(r);
        checkpoint c = {0};
        checkpoint_loaded loaded;
        for (int n = 0; i == 0 && n < 2; n++)
            replica_step(r);
        replica_settle(r);
        const checkpoint_model want = replica_model(r);
        if (i > 0 && (!checkpoint_open_in("saves", i - 1, &want, &c, why, sizeof why) ||
                      !replica_state_load(x, &c, 2, &loaded, why, sizeof why)))
            die(EXIT_CODE_VERIFY, "%s: %s", ways[i].strategy, why);
        checkpoint_close(&c);
        save(x, "saves", (checkpoint_way)(i % 4), i);
        replica_state_free(x);
    }
    launch_barrier(at->l, "saved");
    replica_free(r);
}

static void same_files(int i)
{
    char command[256];
    snprintf(command, sizeof command,
             "for f in saves/step-00000000/*.safetensors; do cmp $f saves/step-%08d/${f##*/}; done || exit 1", i);
    require(system(command) == 0, ways[i].strategy);
}

static void run(session *s, const bench_case *c, row *w)
{
    launch *l = launch_of(s);
    char why[400];
    (void)c;
    int lock = launch_rank(l) == 0 ? checkpoint_folder_open("saves", why, sizeof why) : -1;
    launch_barrier(l, "folder");
    cache *kept = cache_create();
    sb_context *ctx;
    require(sb_kernels_cpu()->create(0, &ctx) == SB_OK, "kernels");
    const replica_place at = {
        .l = l, .d = s->dev, .mem = s->mem, .kernels = sb_kernels_cpu(), .ctx = ctx, .kept = kept};
    for (int i = 0; i < WAYS; i++)
        pass_on(&at, i);
    for (int i = 1; i < WAYS && launch_rank(l) == 0; i++)
        same_files(i);
    row_int(w, "saves", WAYS);
    sb_kernels_cpu()->destroy(ctx);
    cache_free(kept);
    checkpoint_folder_close(lock);
}

TEST_IN_RANKS_FOLDER(every_way_writes_the_same_bytes)
{
    needs_gloo();
    const int code = ranks_run("bench_state", "--device cpu --ranks 4 --csv none");
    if (code != EXIT_CODE_OK)
        fail_msg("exit code %d: %s %s", code, ranks_text("out.txt"), ranks_text("err.txt"));
    assert_non_null(strstr(ranks_text("out.txt"), "ok"));
}

/* Only updates of ranks that are launched one by one can be told to wait for a copy. */
TEST(lazy_is_async_where_updates_cannot_wait)
{
    int any;
    const replica alone = {.p = NULL}, of_ranks = {.p = (parallel *)&any};
    assert_int_equal(replica_state_way(&of_ranks, CHECKPOINT_LAZY, false), CHECKPOINT_LAZY);
    assert_int_equal(replica_state_way(&of_ranks, CHECKPOINT_LAZY, true), CHECKPOINT_ASYNC);
    assert_int_equal(replica_state_way(&alone, CHECKPOINT_LAZY, false), CHECKPOINT_ASYNC);
    assert_int_equal(replica_state_way(&of_ranks, CHECKPOINT_DEVICE, true), CHECKPOINT_DEVICE);
}

int main(int argc, char **argv)
{
    if (strstr(argv[0], "bench_state"))
        return launch_main(&info, &(session_hooks){NULL, run, NULL, NULL}, argc, argv);
    return tests_run();
}
