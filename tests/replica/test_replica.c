/* SPDX-License-Identifier: MIT */
/* A replica without a bench: alone in a process, where it is the trainer that it holds, and on CPU ranks over Gloo, where
 * its parameters stay equal, a rank that is not a member only takes part in exchanges, and what can't be made is a
 * sentence on every rank. */
#include "tests/support/test.h"

#include "common/replica/replica.h"
#include "tests/support/model_problem.h"
#include "tests/support/ranks.h"

/* ---- alone ---- */

static replica_place alone(cache *kept)
{
    return (replica_place){.d = bed.dev, .mem = bed.mem, .kernels = bed.kernels, .ctx = bed.ctx, .kept = kept};
}

/* The hash of parameters after two steps of a trainer by itself, by a replica that takes none. */
TEST_WITH(a_process_alone_has_a_replica, bed_create, bed_destroy)
{
    cache *kept = cache_create();
    const replica_place at = alone(kept);
    const parallel_options one = {.strategy = "naive", .ranks = 1};
    const step_options o = small_options();
    replica_problem problem = {.text = ""};
    replica *r = replica_create(&at, &o, &one, &problem);
    assert_non_null(r);
    assert_true(r->member && !r->p && r->t);
    step_options padded = o;
    padded.granularity = parallel_granularity(1);
    trainer *t = create(&padded);
    replica_set_tokens(r->t, 7, 0);
    replica_set_tokens(t, 7, 0);
    const uint64_t first = replica_checksum(r);
    for (int i = 0; i < 2; i++) {
        replica_step(r);
        step(t);
    }
    replica_settle(r);
    device_sync(bed.dev);
    assert_true(replica_checksum(r) != first);
    assert_int_equal(replica_odd_rank(r, replica_checksum(r)), -1);
    const size_t bytes = (size_t)r->plan->elements * 4;
    assert_int_equal(r->plan->elements, trainer_params(t)->elements);
    assert_memory_equal(trainer_state_of(r->t).param, trainer_state_of(t).param, bytes);
    assert_false(replica_capture(r, &problem)); /* the CPU has no graphs */
    assert_non_null(strstr(problem.text, "graph"));
    trainer_free(t);
    replica_free(r);
    replica_free(NULL);
    cache_free(kept);
}

TEST_WITH(what_cannot_be_made_is_a_sentence, bed_create, bed_destroy)
{
    cache *kept = cache_create();
    const replica_place at = alone(kept);
    step_options o = small_options();
    replica_problem problem = {.text = ""};
    assert_null(replica_create(&at, &o, &(parallel_options){.strategy = "naive", .ranks = 2}, &problem));
    assert_non_null(strstr(problem.text, "one rank"));
    o.fusion = FUSION_GRAPH;
    assert_null(replica_create(&at, &o, &(parallel_options){.strategy = "naive", .ranks = 2}, &problem));
    assert_non_null(strstr(problem.text, "captures"));
    o = small_options();
    assert_null(replica_create(&at, &o, &(parallel_options){.strategy = "nothing", .ranks = 1}, &problem));
    assert_non_null(strstr(problem.text, "'nothing'"));
    assert_false(problem.no_memory);
    cache_free(kept);
}

/* ---- on ranks ---- */

static option_spec option_table[] = {LAUNCH_RANKS("2", "2"), {0}};
static const variant_spec variant_table[] = {{"equal", "steps leave equal parameters"},
                                             {"odd", "a rank whose parameters differ is found"},
                                             {"sentence", "what can't be made is said on every rank"},
                                             {0}};
static const column_spec column_table[] = {{"checksum", COLUMN_TEXT, true, "of the parameters"}, {0}};
static const bench_info info = TOY_BENCH("bench_replica", "Is a replica the same on all ranks?");

static void require(bool right, const char *what)
{
    if (!right)
        die(EXIT_CODE_VERIFY, "%s", what);
}

static void steps(replica *r, bool odd)
{
    const launch *l = r->at.l;
    const bool last = launch_rank(l) == r->plan->o.ranks - 1;
    require(r->member == (launch_rank(l) < r->plan->o.ranks) && !r->member == !r->t, "who is a member");
    if (r->member)
        replica_set_tokens(r->t, 7, launch_rank(l));
    for (int i = 0; i < 3; i++) {
        r->hold = i == 1;
        const uint64_t before = replica_checksum(r);
        replica_step(r);
        replica_settle(r);
        require(!r->member || (replica_checksum(r) == before) == r->hold, "a step updates, unless it is held");
        require(replica_odd_rank(r, replica_checksum(r)) == -1, "equal parameters");
    }
    if (odd && last)
        *(float *)trainer_state_of(r->t).param += 1;
    require(replica_odd_rank(r, replica_checksum(r)) == (odd && r->plan->o.ranks > 1 ? r->plan->o.ranks - 1 : -1),
            "the odd rank");
}

static void sentences(const replica_place *at, const step_options *o, int ranks)
{
    replica_problem problem;
    char want[64];
    require(!replica_create(at, o, &(parallel_options){.strategy = "nothing", .ranks = ranks}, &problem) &&
                strstr(problem.text, "rank 0: there is no strategy"),
            problem.text);
    snprintf(want, sizeof want, "rank %d: it hurts", ranks - 1);
    require(!replica_agree(at, "test", launch_rank(at->l) != ranks - 1, "it hurts", &problem) &&
                strcmp(problem.text, want) == 0 && !problem.no_memory,
            problem.text);
    require(replica_agree(at, "test", true, "", &problem), "all agree");
}

static void run(session *s, const bench_case *c, row *w)
{
    const int ranks = (int)case_int(c, "ranks");
    char text[20];
    sb_context *ctx;
    require(sb_kernels_cpu()->create(0, &ctx) == SB_OK, "a context");
    const replica_place at = {
        .l = launch_of(s), .d = s->dev, .mem = s->mem, .kernels = sb_kernels_cpu(), .ctx = ctx, .kept = s->kept};
    step_options o = small_options();
    o.deterministic = true;
    o.overlap = OVERLAP_GRADIENTS;
    if (strcmp(case_variant(c), "sentence") == 0) {
        sentences(&at, &o, ranks);
    } else {
        replica_problem problem;
        const parallel_options p = {.strategy = "bucketed", .ranks = ranks, .bucket_bytes = 4096};
        replica *r = replica_create(&at, &o, &p, &problem);
        require(r, problem.text);
        steps(r, strcmp(case_variant(c), "odd") == 0);
        snprintf(text, sizeof text, "%016llx", (unsigned long long)replica_checksum(r));
        row_text(w, "checksum", text);
        replica_free(r);
    }
    sb_kernels_cpu()->destroy(ctx);
}

static int rank_main(int argc, char **argv)
{
    return launch_main(&info, &(session_hooks){.run = run}, argc, argv);
}

TEST_IN_RANKS_FOLDER(replicas_on_ranks)
{
    needs_gloo();
    const int code = ranks_run("bench_replica", "--device cpu --csv rows.csv --ranks 1,2,3");
    if (code != EXIT_CODE_OK)
        fail_msg("exit code %d: %s", code, ranks_text("err.txt"));
    assert_int_equal(ranks_lines("rows.csv"), 1 + 9);
}

PROGRAM("bench_replica", rank_main)
