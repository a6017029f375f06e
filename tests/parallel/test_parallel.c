/* SPDX-License-Identifier: MIT */
/* The strategies of data parallelism on CPU ranks over Gloo, each in a process of its own: the course's toy models
 * against a single process, and a step without a model, whose numbers say whether anything came too early, too late or
 * twice. */
#include "tests/support/test.h"

#include <signal.h>

#include "common/core/numeric.h"
#include "common/parallel/parallel.h"
#include "tests/support/ranks.h"
#include "tests/support/synthetic_step.h"
#include "tests/support/toy_model.h"

OWNER(parallel_plan, parallel_plan_free)
#define OWNED_PLAN OWNED_BY(parallel_plan)

/* ---- what the ranks run ---- */

static option_spec option_table[] = {LAUNCH_RANKS("2", "2"), {0}};
static const variant_spec variant_table[] = {{"toy", "the toy models against a single process"},
                                             {"steps", "sums, updates and what waits for what"},
                                             {"hybrid", "the same where several replicas are sharded"},
                                             {"compute-only", "collectives are counted, left out, and alone"},
                                             {"reads", "ranks read the slices of the others"},
                                             {"tail", "a rank that is late"},
                                             {"killed", "a rank is killed while units are gathered"},
                                             {"stopped", "it is stopped there"},
                                             {"stuck", "it goes no further there"},
                                             {0}};
static const column_spec column_table[] = {{"runs", COLUMN_INT, true, "combinations"}, {0}};
static const bench_info info = TOY_BENCH("bench_parallel", "Are the strategies right?");

static long runs;
static launch *job;
static device *dev;
static int ranks, rank;

static bool with_buckets(const char *strategy)
{
    return parallel_strategy(strategy)->grouping == GROUP_BUCKET;
}

static bool with_units(const char *strategy)
{
    return parallel_strategy(strategy)->grouping == GROUP_UNIT;
}

static void require(bool right, const parallel_options *o, const char *what)
{
    if (!right)
        die(EXIT_CODE_VERIFY, "%s, update %d, buckets of %lld bytes, rank %d of %d: %s", o->strategy, (int)o->update,
            (long long)o->bucket_bytes, rank, ranks, what);
}

static parallel_plan *plan_of(const parallel_options *o, index_space s, int grad_bytes)
{
    char why[256];
    parallel_plan *plan = parallel_plan_create(o, launch_rank(job), &s, grad_bytes, why, sizeof why);
    if (!plan)
        die(EXIT_CODE_FAILURE, "no plan: %s", why);
    runs++;
    return plan;
}

/* NULL on a rank that is no member. */
static parallel *open_parallel(const parallel_plan *plan, const parallel_model *m)
{
    char why[256] = "x";
    parallel *p = parallel_create(job, plan, m, why, sizeof why);
    if (!p && (*why || rank < ranks))
        die(EXIT_CODE_FAILURE, "no %s: %s", plan->o.strategy, why);
    require(!p || rank < ranks, &plan->o, "no member, and yet a strategy");
    return p;
}

/* ---- the toy models ---- */

enum { TOY_STEPS = 5, TOY_ADAMW_STEPS = 10, TOY_ELEMENTS = 2048 };

/* Parameters of a single process before each step and after the last, without padding between the ranks'
 * granularities. */
typedef struct toy_reference {
    float whole[TOY_ADAMW_STEPS + 1][TOY_ELEMENTS]; /* gradients of all samples at once */
    float parts[TOY_ADAMW_STEPS + 1][TOY_ELEMENTS]; /* of each rank's samples, added in the order of ranks */
} toy_reference;

static int first_sample(int r)
{
    return TOY_SAMPLES * r / ranks;
}

static void toy_alone(bool tied, bool adamw, bool in_parts, float (*out)[TOY_ELEMENTS])
{
    toy_model *t = toy_create(tied, 0, 64, TOY_ELEMENTS);
    const int64_t n = t->starts[t->tensors];
    float sum[TOY_ELEMENTS];
    for (int step = 0; step <= (adamw ? TOY_ADAMW_STEPS : TOY_STEPS); step++) {
        memcpy(out[step], t->param, (size_t)n * sizeof(float));
        memset(sum, 0, sizeof sum);
        for (int part = 0; part < (in_parts ? ranks : 1); part++) {
            toy_step(t, in_parts ? first_sample(part) : 0, in_parts ? first_sample(part + 1) : TOY_SAMPLES, NULL);
            for (int64_t i = 0; i < n; i++)
                sum[i] += t->grad[i];
        }
        memcpy(t->grad, sum, (size_t)n * sizeof(float));
        t->steps++;
        if (adamw)
            toy_adamw(t, 0, n, 0);
        else
            toy_sgd(t, 0, n);
    }
    toy_free(t);
}

typedef struct toy_run {
    toy_model *t;
    parallel *p;
    const parallel_options *o;
    const toy_reference *want;
    bool adamw;
    int step;
    uint64_t hash; /* of the parameters that the steps have seen */
} toy_run;

/* The parameters that forward reads now are those of a single process: with two ranks bit by bit. */
static void toy_compare(toy_run *r, int64_t first, int64_t count)
{
    const float *whole = r->want->whole[r->step], *parts = r->want->parts[r->step];
    double error = 0, norm = 0;
    bool same = true;
    for (int64_t i = first; i < first + count; i++) {
        const double e = (double)r->t->param[i] - (double)whole[i];
        error += e * e;
        norm += (double)whole[i] * (double)whole[i];
        same = same && float_bits(r->t->param[i]) == float_bits(parts[i]);
        r->hash = (r->hash ^ float_bits(r->t->param[i])) * 0x100000001b3u;
    }
    require(same || ranks > 2, r->o, "not the bits of a single process that adds the gradients of both ranks");
    require(r->adamw || sqrt(error) <= 1e-6 * sqrt(norm), r->o, "not the parameters of a single process");
}

static void toy_need(void *user, int64_t first, int64_t count)
{
    toy_run *r = user;
    parallel_need(r->p, first, count, NULL);
    toy_compare(r, first, count);
}

static void toy_ready(void *user, int64_t first, int64_t count)
{
    parallel_ready(((toy_run *)user)->p, first, count, NULL);
}

static void toy_begin(void *user, void *stream)
{
    (void)stream;
    ((toy_run *)user)->t->steps++;
}

static void toy_update(void *user, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    toy_run *r = user;
    (void)max_blocks, (void)stream;
    if (r->adamw)
        toy_adamw(r->t, first, count, state_first);
    else
        toy_sgd(r->t, first, count);
}

static void toy_steps(toy_run *r, const parallel_plan *plan)
{
    const toy_hooks hooks = {r, toy_need, toy_ready};
    toy_model *t = r->t;
    const float first = t->param[0];
    const parallel_model m = {.d = dev,
                              .grad = t->grad,
                              .grad_dtype = COMM_FP32,
                              .param = t->param,
                              .param_dtype = COMM_FP32,
                              .user = r,
                              .update_begin = toy_begin,
                              .update = toy_update};
    r->p = open_parallel(plan, &m);
    if (!r->p)
        return;
    require((first == t->param[0]) == (rank == 0), r->o, "ranks had other parameters, and now have those of rank 0");
    for (r->step = 0; r->step < (r->adamw ? TOY_ADAMW_STEPS : TOY_STEPS); r->step++) {
        parallel_begin_batch(r->p, true, true);
        toy_step(t, first_sample(rank), first_sample(rank + 1), &hooks);
        parallel_update(r->p);
        require(t->steps == r->step + 1, r->o, "an update was not begun once");
    }
    parallel_join(r->p);
    for (int i = 0; i < t->tensors; i++)
        toy_compare(r, t->starts[i], t->counts[i]);
    require(t->fixed[0] == 2 && t->fixed[1] == 2 && t->bias[3] == 0.01f * 3 - 0.02f, r->o, "what is frozen changed");
    parallel_free(r->p);
}

static void toy_one(const parallel_options *o, bool tied, bool adamw, const toy_reference *want)
{
    const int64_t granularity = parallel_granularity(ranks);
    toy_model *shape = toy_create(tied, 0, granularity, 0);
    OWNED_PLAN parallel_plan *plan = plan_of(o, toy_space(shape), 4);
    toy_run r = {
        .t = toy_create(tied, rank, granularity, plan->own.state_elements), .o = o, .want = want, .adamw = adamw};
    uint64_t hashes[64];
    toy_steps(&r, plan);
    launch_gather(job, "parameters", &r.hash, sizeof r.hash, hashes);
    for (int k = 1; k < ranks; k++)
        require(hashes[k] == hashes[0], o, "ranks saw different parameters");
    toy_free(shape);
    toy_free(r.t);
}

/* Every combination takes its time: where not `all` are wanted, a strategy and bucket size has one of the three
 * orders. */
static bool left_out(bool all, int strategy, int size, int order)
{
    return !all && (strategy + size + ranks) % 3 != order;
}

/* Buckets of 256, 768 and 4096 elements: three, two and one for the plain model's tensors of 256, 512 and 128. */
static void toy_all(void)
{
    static const int64_t bytes[] = {3072, 1024, 16384};
    OWNED toy_reference *want = xcalloc(1, sizeof *want);
    for (int kind = 0; kind < 3; kind++) { /* plain, tied, plain with AdamW */
        const bool tied = kind == 1, adamw = kind == 2;
        toy_alone(tied, adamw, false, want->whole);
        toy_alone(tied, adamw, true, want->parts);
        for (int i = 0; parallel_strategies[i].name && (kind == 0 || ranks < 4); i++)
            for (int k = 0; k < (kind == 0 && with_buckets(parallel_strategies[i].name) ? 3 : 1); k++)
                for (int order = UPDATE_AFTER; order <= UPDATE_BACKWARD; order++) {
                    const parallel_options o = {.strategy = parallel_strategies[i].name,
                                                .ranks = ranks,
                                                .bucket_bytes = bytes[k],
                                                .update = (update_order)order,
                                                .update_elements = 1};
                    if (with_units(o.strategy)) /* the toys have none */
                        continue;
                    if (kind == 0 ? left_out(ranks == 2 && k == 0, i, k, order) : order != UPDATE_BUCKETS)
                        continue;
                    if (!adamw || (ranks == 2 && with_buckets(o.strategy)))
                        toy_one(&o, tied, adamw, want);
                }
    }
}

/* ---- steps without a model ---- */

/* `variety` chooses dtypes, streams, joining and how updates are called. */
static void steps_one(const parallel_options *o, int variety)
{
    const int steps = ranks == 2 || o->gather != GATHER_COLLECTIVE ? 3 : 2;
    synthetic *s = synthetic_create(dev, rank, ranks, variety % 2, variety % 4 != 3);
    s->all_at_once = variety % 3 == 0;
    s->whole_units = variety / 2 % 2;
    if (o->gather != GATHER_COLLECTIVE) {
        synthetic_share(s);
        s->slow_us = rank == variety % ranks ? 3000 : 0;
    }
    OWNED_PLAN parallel_plan *plan = plan_of(o, synthetic_space(s), s->grad_dtype == COMM_FP32 ? 4 : 2);
    const parallel_model m = synthetic_model(s, plan);
    synthetic_set_params(s, 3 * rank); /* rank 0 decides */
    parallel *p = open_parallel(plan, &m);
    for (int i = 0; i < steps && p; i++)
        synthetic_step(s, p);
    if (p) {
        parallel_join(p);
        synthetic_wait(s);
        synthetic_check_params(s);
        synthetic_set_params(s, 5 * rank);
        parallel_sync(p);
        synthetic_wait(s);
        s->steps = 0;
        synthetic_check_params(s);
    }
    parallel_free(p);
    synthetic_free(s);
}

static void steps_all(void)
{
    static const int64_t bytes[] = {256, 4000, 1 << 20};
    int variety = 0;
    for (int i = 0; parallel_strategies[i].name; i++)
        for (int k = 0; k < (with_buckets(parallel_strategies[i].name) ? 3 : 1); k++)
            for (int order = UPDATE_AFTER; order <= UPDATE_BACKWARD; order++, variety++) {
                const parallel_options o = {.strategy = parallel_strategies[i].name,
                                            .ranks = ranks,
                                            .bucket_bytes = bytes[k],
                                            .update = (update_order)order,
                                            .update_blocks = 3,
                                            .replicas = 1,
                                            .join = variety % 5 == 2,
                                            .update_elements = variety % 2 ? 1 : 1500};
                if (!left_out(ranks <= 2, i, k, order))
                    steps_one(&o, variety);
            }
}

/* Replicas of one, two and all ranks. */
static void hybrid_all(void)
{
    for (int replicas = 1; replicas <= ranks; replicas *= 2)
        for (int order = UPDATE_AFTER; order <= UPDATE_BACKWARD; order++) {
            const parallel_options o = {
                .strategy = "hsdp", .ranks = ranks, .update = (update_order)order, .replicas = replicas};
            steps_one(&o, replicas + order);
        }
}

/* Parameters and received gradients in memory that all ranks map, and one rank slow with its updates. */
static void reads_all(void)
{
    static const char *const names[] = {"fsdp", "fsdp-keep", "fsdp-no-sync", "hsdp", "zero2"};
    for (int i = 0; i < 5; i++)
        for (int order = UPDATE_AFTER; order <= UPDATE_BACKWARD; order++) {
            const parallel_options o = {.strategy = names[i],
                                        .ranks = ranks,
                                        .update = (update_order)order,
                                        .gather = GATHER_COPY,
                                        .reduce = order == UPDATE_BUCKETS ? GATHER_COLLECTIVE : GATHER_COPY,
                                        .replicas = ranks % 2 ? 1 : ranks / 2};
            steps_one(&o, 3 * i + order);
        }
}

/* ---- the compute-only step ---- */

static unsigned long collectives_so_far(void)
{
    const launch_number n = launch_collective(job, &(launch_op){-1, "a test", "none", "fp32", 0, -1});
    launch_collective_done(job, -1, n);
    return n.number;
}

/* How many a step has. */
static int collectives_of(const parallel_plan *plan)
{
    const parameter_share share = plan->s->share;
    const int gathers = plan->s->parameters == PARAMETERS_GATHERED ? 2 * plan->b.n - 1 : plan->b.n + 1;
    const int sums = plan->s->reduce == REDUCE_HYBRID ? 2 : 1;
    return sums * plan->b.n + (share == SHARE_BROADCAST                        ? plan->tensors
                               : share == SHARE_GATHER || share == SHARE_FUSED ? plan->b.n
                               : share == SHARE_ON_USE                         ? gathers
                                                                               : 0);
}

static void compute_only_steps(synthetic *s, parallel *p, const parallel_plan *plan)
{
    unsigned long before = collectives_so_far();
    s->compute_only = true;
    parallel_communicate(p, false);
    for (int i = 0; i < 2; i++)
        synthetic_step(s, p);
    parallel_join(p);
    synthetic_wait(s);
    require(collectives_so_far() == before + 1, &plan->o, "the compute-only step has collectives");

    s->compute_only = false;
    synthetic_set_params(s, 0);
    synthetic_set_grads(s);
    before = collectives_so_far();
    parallel_collectives_alone(p);
    synthetic_wait(s);
    require(collectives_so_far() == before + 1 + (unsigned)collectives_of(plan), &plan->o, "collectives alone differ");
    const bool slices = strategy_slices(plan->s);
    if (!plan->s->packed &&
        plan->s->gradients == GRADIENTS_RESIDENT) /* else the collective is on the copy, or in a slot */
        for (int i = 0; i < (slices ? plan->own.n : plan->b.n); i++) {
            const bucket sum = slices ? (bucket){plan->own.r[i].first, plan->own.r[i].count} : plan->b.b[i];
            synthetic_check_grads(s, &sum, 1);
        }
    s->steps = 0; /* the updates are counted anew, too */
    synthetic_check_params(s);
    memset(s->updates, 0, (size_t)s->elements * sizeof *s->updates);
    memset(s->state, 0, (size_t)plan->own.state_elements * sizeof *s->state);
    s->begun = 0;
    parallel_communicate(p, true);
    before = collectives_so_far();
    synthetic_step(s, p);
    parallel_join(p);
    synthetic_wait(s);
    require(collectives_so_far() == before + 1 + (unsigned)collectives_of(plan), &plan->o, "a step's collectives");
    synthetic_check_params(s);
}

static void compute_only_all(void)
{
    for (const strategy *i = parallel_strategies; i->name; i++) {
        const parallel_options o = {.strategy = i->name,
                                    .ranks = ranks,
                                    .bucket_bytes = 4000,
                                    .update = (update_order)(runs % 3),
                                    .replicas = ranks, /* of hsdp: slices are whole units */
                                    .update_elements = 1};
        synthetic *s = synthetic_create(dev, rank, ranks, true, runs % 4 != 0);
        OWNED_PLAN parallel_plan *plan = plan_of(&o, synthetic_space(s), 4);
        const parallel_model m = synthetic_model(s, plan);
        parallel *p = open_parallel(plan, &m);
        if (p)
            compute_only_steps(s, p, plan);
        parallel_free(p);
        synthetic_free(s);
    }
}

/* ---- how long main stands still ---- */

/* The last rank's last gradient is 50 ms late: the others stand still for it, in whatever order updates come. (A fused
 * update after the backward sums on main, where there are no GPUs.) */
static void tail_all(void)
{
    static const char *const names[] = {"naive", "bucketed", "zero1", "fused"};
    for (int i = 0; i < 4; i++) {
        const parallel_options o = {.strategy = names[i],
                                    .ranks = ranks,
                                    .bucket_bytes = 4000,
                                    .update = i < 3 ? (update_order)i : UPDATE_BACKWARD,
                                    .join = true,
                                    .update_elements = 1};
        synthetic *s = synthetic_create(dev, rank, ranks, true, true);
        OWNED_PLAN parallel_plan *plan = plan_of(&o, synthetic_space(s), 4);
        const parallel_model m = synthetic_model(s, plan);
        parallel *p = open_parallel(plan, &m);
        require(parallel_waits_ms(p, WAIT_TAIL) == 0, &o, "a tail without a step");
        s->late_us = rank == ranks - 1 ? 50000 : 0;
        parallel_instrument(p, true);
        synthetic_step(s, p);
        const double ms = parallel_waits_ms(p, WAIT_TAIL);
        synthetic_wait(s);
        require(ms >= 0 && ms < 5000 && (rank == ranks - 1 || ms > 20), &o, "the tail");
        parallel_instrument(p, false);
        s->late_us = 0;
        synthetic_step(s, p);
        require(parallel_waits_ms(p, WAIT_TAIL) == 0, &o, "a tail that was not asked for");
        synthetic_wait(s);
        parallel_free(p);
        synthetic_free(s);
    }
}

/* ---- a rank that is lost ---- */

/* Steps without end; in the third one rank 1 meets its fate when it has begun to gather, as the others have. With four
 * ranks there are two replicas, of which the other one notices only when slices are summed. */
static void lose_a_rank(const char *fate)
{
    const parallel_options o = {.strategy = ranks < 4 ? "fsdp" : "hsdp", .ranks = ranks, .replicas = 2};
    synthetic *s = synthetic_create(dev, rank, ranks, true, true);
    parallel_plan *plan = plan_of(&o, synthetic_space(s), 4);
    const parallel_model m = synthetic_model(s, plan);
    synthetic_set_params(s, 0);
    parallel *p = open_parallel(plan, &m);
    for (int i = 0;; i++) {
        if (rank == 1 && i == 2) {
            parallel_begin_batch(p, true, true);
            parallel_gather(p, SYNTHETIC_UNITS - 1, s->param_slots[0]);
            if (strcmp(fate, "killed") == 0)
                raise(SIGKILL);
            if (strcmp(fate, "stopped") == 0)
                raise(SIGSTOP);
            for (;;)
                pause();
        }
        synthetic_step(s, p);
        synthetic_wait(s);
    }
}

static void parallel_run(session *s, const bench_case *c, row *w)
{
    const char *variant = case_variant(c);
    job = launch_of(s);
    dev = s->dev;
    rank = launch_rank(job);
    ranks = (int)case_int(c, "ranks");
    runs = 0;
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"toy", toy_all},     {"steps", steps_all}, {"hybrid", hybrid_all}, {"compute-only", compute_only_all},
               {"reads", reads_all}, {"tail", tail_all}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(variant, all[i].name) == 0)
            all[i].run();
    if (strcmp(variant, "killed") == 0 || strcmp(variant, "stopped") == 0 || strcmp(variant, "stuck") == 0)
        lose_a_rank(variant);
    row_int(w, "runs", runs);
    launch_barrier(job, "done");
}

static int rank_main(int argc, char **argv)
{
    const session_hooks hooks = {.run = parallel_run};
    return launch_main(&info, &hooks, argc, argv);
}

/* ---- plans, without ranks ---- */

static parallel_plan *plan_alone(const char *strategy, int n, int r, int64_t bucket_bytes, int64_t elements, char *why)
{
    const int64_t starts[] = {0, 256, 768, elements};
    const int64_t units[] = {0, 256, elements};
    const index_space s = {starts, 3, units, 2, 0, NULL};
    const parallel_options o = {
        .strategy = strategy, .ranks = n, .bucket_bytes = bucket_bytes, .replicas = n % 2 ? 1 : 2};
    return parallel_plan_create(&o, r, &s, 4, why, 256);
}

TEST(plans_that_cannot_be_had)
{
    char why[256] = "";
    assert_null(plan_alone("nothing", 2, 0, 4, 896, why));
    assert_non_null(strstr(why, "nothing"));
    assert_null(plan_alone("bucketed", 2, 0, 0, 896, why));
    assert_non_null(strstr(why, "bucket"));
    const parallel_options odd = {.strategy = "hsdp", .ranks = 4, .replicas = 3};
    assert_null(
        parallel_plan_create(&odd, 0, &(index_space){.starts = (int64_t[]){0, 256}, .tensors = 1}, 4, why, 256));
    assert_non_null(strstr(why, "replicas, 3, does not divide"));
    assert_null(plan_alone("zero1", 3, 0, 1024, 896, why));
    assert_non_null(strstr(why, "192"));
    for (const strategy *s = parallel_strategies; s->name; s++) {
        OWNED_PLAN parallel_plan *p = plan_alone(s->name, 2, 1, 1, 896, why);
        assert_non_null(p);
        assert_string_equal(p->o.strategy, s->name);
        assert_true(s->summary[0]);
    }
    parallel_plan *naive = plan_alone("naive", 3, 0, 0, 896, why); /* it has no buckets, and no slices */
    assert_non_null(naive);
    parallel_plan_free(naive);
    assert_int_equal(parallel_granularity(6), 384);
    assert_int_equal(update_order_parse("after"), UPDATE_AFTER);
    assert_int_equal(update_order_parse("buckets"), UPDATE_BUCKETS);
    assert_int_equal(update_order_parse("backward"), UPDATE_BACKWARD);
}

/* What strategy.h says of columns that go together. */
TEST(rows_of_the_table_make_sense)
{
    for (const strategy *s = parallel_strategies; s->name; s++) {
        assert_ptr_equal(parallel_strategy(s->name), s); /* no other has its name */
        assert_true(s->when == WHEN_AFTER || (!s->packed && !s->grouped));
        assert_true(s->reduce != REDUCE_SCATTER || strategy_slices(s));
        assert_true((s->reduce == REDUCE_FUSED) == strategy_fused(s));
        assert_true((s->share == SHARE_ON_USE) == (s->parameters != PARAMETERS_RESIDENT));
        assert_true(s->grouping == GROUP_UNIT || (s->gradients == GRADIENTS_RESIDENT && s->share != SHARE_ON_USE));
        assert_true(s->summary[0]);
    }
    assert_null(parallel_strategy("nothing"));
}

TEST(what_a_plan_says)
{
    static const struct {
        const char *strategy;
        int64_t bytes;
        int buckets;
        bool sharded;
        int64_t held; /* by rank 1 of 4 */
        double wire;  /* of 1024 elements, gradients of 4 bytes and parameters of 2 */
    } cases[] = {{"naive", 0, 3, false, 1024, 6144},
                 {"naive-grouped", 0, 3, false, 1024, 6144},
                 {"flat", 0, 1, false, 1024, 6144},
                 {"flat-copy", 0, 1, false, 1024, 6144},
                 {"overlap", 0, 3, false, 1024, 6144},
                 {"bucketed", 1024, 3, false, 1024, 6144},
                 {"bucketed", 3072, 2, false, 1024, 6144},
                 {"bucketed", 16384, 1, false, 1024, 6144},
                 {"zero1", 1024, 3, true, 256, 4608},
                 {"zero1", 16384, 1, true, 256, 4608},
                 {"fused", 1024, 3, true, 256, 4608},
                 {"fused", 16384, 1, true, 256, 4608},
                 {"zero1-broadcast", 3072, 2, true, 256, 6144 + 1536},
                 {"zero2", 0, 2, true, 256, 4608},
                 {"fsdp", 0, 2, true, 256, 3072 + 3 * 768},
                 {"fsdp-keep", 0, 2, true, 256, 3072 + 3 * 768},
                 {"fsdp-no-sync", 0, 2, true, 256, 3072 + 3 * 768},
                 {"hsdp", 0, 2, true, 512, 2048 + 2048 + 1536}};
    char why[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parallel_plan *p = plan_alone(cases[i].strategy, 4, 1, cases[i].bytes, 1024, why);
        assert_non_null(p);
        assert_int_equal(p->b.n, cases[i].buckets);
        assert_int_equal(p->sharded, cases[i].sharded);
        assert_int_equal(p->own.state_elements, cases[i].held);
        p->gathered_bytes = 2 * 1536; /* the model's answer, where it gathers */
        assert_true(parallel_wire_bytes(p, 4, 2) == cases[i].wire);
        parallel_plan_free(p);
        p = plan_alone(cases[i].strategy, 1, 0, cases[i].bytes, 1024, why);
        assert_true(parallel_wire_bytes(p, 4, 2) == 0);
        assert_int_equal(p->own.state_elements, 1024);
        parallel_plan_free(p);
        p = plan_alone(cases[i].strategy, 4, 4, cases[i].bytes, 1024, why); /* no member */
        assert_int_equal(p->own.n, 0);
        assert_int_equal(p->own.state_elements, 0);
        parallel_plan_free(p);
    }
}

/* ---- with ranks ---- */

#define CPU "--device cpu --csv rows.csv "

static void expect(const char *arguments, int rows)
{
    needs_gloo();
    const int got = ranks_run("bench_parallel", arguments);
    if (got != EXIT_CODE_OK)
        fail_msg("%s: exit code %d: %s", arguments, got, ranks_text("err.txt"));
    assert_int_equal(ranks_lines("rows.csv"), 1 + rows);
}

#define RUN(name, arguments, rows)                                                                                     \
    TEST_IN_RANKS_FOLDER(name)                                                                                         \
    {                                                                                                                  \
        expect(CPU arguments, rows);                                                                                   \
    }

RUN(toy_models_equal_a_single_process, "--ranks 2,3,4 --variant toy", 3)
RUN(sums_and_updates_are_exact, "--ranks 1,2,3 --variant steps", 3)
RUN(replicas_in_slices_are_exact, "--ranks 4 --variant hybrid", 1)
RUN(the_compute_only_step_has_no_collective, "--ranks 3,2 --variant compute-only", 2)
RUN(slices_are_read_when_they_are_updated, "--ranks 2,3,4 --variant reads", 3)
RUN(a_late_rank_makes_a_tail, "--ranks 2 --variant tail", 1)

/* The others name it within --timeout, with what it did last. */
static void expect_loss(const char *arguments, double seconds, const char *const *words)
{
    needs_gloo();
    const double start = ranks_seconds();
    const int got = ranks_run("bench_parallel", arguments);
    const char *said = ranks_text("err.txt");
    if (got != EXIT_CODE_TIMEOUT || ranks_seconds() - start > seconds)
        fail_msg("%s: exit code %d after %.1f s: %s", arguments, got, ranks_seconds() - start, said);
    for (; *words; words++)
        if (!strstr(said, *words))
            fail_msg("%s: '%s' is not in: %s", arguments, *words, said);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST_IN_RANKS_FOLDER(a_rank_lost_in_a_gather_is_named)
{
    expect_loss(CPU "--ranks 3 --variant killed", 5,
                WORDS("rank 1 of 3 was killed by signal 9", "variant=killed", "all_gather", "on params"));
    expect_loss(CPU "--ranks 4 --variant killed", 5,
                WORDS("rank 1 of 4 was killed by signal 9", "variant=killed", "all_gather", "on params"));
    expect_loss(CPU "--ranks 3 --variant stopped --timeout 1.5", 6,
                WORDS("--timeout 1.5 s: rank 1 of 3 does not run", "all_gather", "on params"));
    expect_loss(CPU "--ranks 3 --variant stuck --timeout 1.5", 6,
                WORDS("--timeout 1.5 s: rank 1 of 3 makes no progress", "all_gather", "on params"));
    expect_loss(CPU "--ranks 4 --variant stuck --timeout 1.5", 6,
                WORDS("--timeout 1.5 s: rank 1 of 4 makes no progress", "all_gather", "on params"));
}

PROGRAM("bench_parallel", rank_main)
