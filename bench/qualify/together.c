/* SPDX-License-Identifier: MIT */
/* What all GPUs do at once, for as long as it takes until power and temperature have settled: large products, and training
 * steps. No GPU waits for another, so that each shows its own pace. The steps are those of the same model on the same tokens:
 * afterwards the parameters must agree in every bit. See qualify.h. */
#include "bench/qualify/qualify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/replica/replica.h"
#include "common/session/measure.h"

enum { WARMUP = 3, STEPS_MIN = 5, ALONE_STEPS = 20 };
static const double gemm_share = 0.25; /* of --sustain, for the products */

static qualify_item *own_item(qualify *q, qualify_set *set)
{
    return &set->items[launch_rank(q->l)];
}

/* ---- products ---- */

void qualify_gemm_together(qualify *q, const bench_case *c, qualify_set *set)
{
    const double n = 2 * (double)case_int(c, "gemm-size");
    const char *dtype = option_text_at(q->s->opt, "dtype", 0);
    const uint64_t seed = (uint64_t)option_int(q->s->opt, "seed");
    measure_how how = measure_default(q->s);
    row *scratch = row_begin(q->s->rows, c);
    roofline_gemm g;
    double ms = NAN;
    how.timing.kind = device_kind_of(q->s->dev) == DEVICE_CPU ? TIMER_HOST : TIMER_EVENT;
    how.timing.max_s = gemm_share * option_real(q->s->opt, "sustain");
    how.timing.settle_s = 0; /* it is sustained */
    how.timing.iters = how.timing.max_s > 0 ? 1000000 : STEPS_MIN;
    q->r.w = scratch;
    const bool ready = roofline_gemm_make(&q->r, dtype, (int)n, seed, &g);
    launch_barrier(q->l, "together");
    const bool ok = ready && measure_with(q->s, NULL, "gemm-together", &how, roofline_gemm_run, &g, &ms);
    qualify_item_fill(q, own_item(q, set), scratch, ok, 2 * n * n * n / (ms * 1e9));
    launch_barrier(q->l, "together");
    row_drop(scratch);
    memory_release_all(q->s->mem);
}

/* ---- steps ---- */

typedef struct stepping {
    replica *r;
    int64_t steps; /* enqueued so far */
} stepping;

static bool step(void *arg)
{
    stepping *x = arg;
    replica_step(x->r);
    x->steps++;
    return true;
}

static step_options together_options(const qualify *q, const bench_case *c)
{
    const bool cpu = device_kind_of(q->s->dev) == DEVICE_CPU;
    step_options o = step_defaults();
    o.config = *model_size_find(case_text(c, "model"));
    o.batch = 2;
    o.seq = cpu ? 32 : 512;
    o.precision = precision_find(cpu ? "fp32" : "bf16");
    o.fusion = FUSION_KERNELS;
    o.overlap = OVERLAP_NONE;
    o.deterministic = true;
    o.lr = 1e-5; /* thousands of steps on the same tokens */
    o.seed = (uint64_t)option_int(q->s->opt, "seed");
    return o;
}

static replica *make(qualify *q, const bench_case *c, row *scratch)
{
    const step_options o = together_options(q, c);
    const replica_place at = {.l = q->ranks > 1 ? q->l : NULL,
                              .d = q->s->dev,
                              .mem = q->s->mem,
                              .kernels = q->r.kernels,
                              .ctx = q->r.ctx,
                              .kept = q->s->kept,
                              .known = q->known};
    const parallel_options p = {.strategy = "flat", .ranks = q->ranks, .update = UPDATE_AFTER, .join = true};
    replica_problem problem;
    replica *r = replica_create(&at, &o, &p, &problem);
    if (!r)
        row_status_set(scratch, problem.no_memory ? ROW_OOM : ROW_SKIP, "%s", problem.text);
    return r;
}

/* Milliseconds of a step, after a few that are not measured. */
static double warm_up(qualify *q, stepping *x)
{
    replica_problem ignored;
    double ms = 0;
    for (int i = 0; i < WARMUP; i++) {
        const double start = host_seconds();
        step(x);
        replica_settle(x->r);
        ms = (host_seconds() - start) * 1e3;
        if (i == 0 && device_kind_of(q->s->dev) == DEVICE_CUDA)
            replica_capture(x->r, &ignored); /* else it is launched op by op */
        replica_communicate(x->r, false);
    }
    return launch_most(q->l, "estimate", ms, q->ranks);
}

/* Everyone does as many steps as the one who did most: what the timer needs to find its way differs. */
static void even_out(qualify *q, stepping *x)
{
    const int64_t all = (int64_t)launch_most(q->l, "steps", (double)x->steps, q->ranks);
    while (x->steps < all)
        step(x);
    replica_settle(x->r);
}

static void compare(qualify *q, const bench_case *c, stepping *x, row *scratch)
{
    if (strcmp(case_text(c, "plant-error"), "bits") == 0 && launch_rank(q->l) == q->ranks - 1)
        device_memset(q->s->dev, trainer_state_of(x->r->t).param, 0x5a, 1);
    const size_t n = (size_t)q->ranks;
    const uint64_t mine = replica_checksum(x->r);
    OWNED uint64_t *all = xcalloc(n, sizeof *all);
    OWNED bool *odd = xcalloc(n, sizeof *odd);
    launch_gather(q->l, "checksums", &mine, sizeof mine, all);
    if (qualify_odd(all, n, odd) && odd[launch_rank(q->l)])
        row_status_set(scratch, ROW_FAIL, "after %lld equal steps its parameters are not those of the other GPUs",
                       (long long)x->steps);
}

static double time_steps(qualify *q, stepping *x)
{
    const double estimate_ms = warm_up(q, x), wanted = option_real(q->s->opt, "sustain") * 1e3 / estimate_ms;
    const timing t = {.kind = device_kind_of(q->s->dev) == DEVICE_CPU ? TIMER_HOST : TIMER_EVENT,
                      .iters = (int)fmin(1e6, fmax(STEPS_MIN, ceil(wanted)))};
    const char *used;
    samples ms = {0};
    launch_barrier(q->l, "together");
    measure_samples(q->s->dev, &t, step, x, &ms, &used);
    const double median = stats_of(&ms).median;
    samples_free(&ms);
    return median;
}

/* Each suspect once more, while the others stand still: whether it is slow alone, too. */
static void step_alone(qualify *q, const bench_case *c, qualify_set *set, stepping *x)
{
    const timing t = {.kind = device_kind_of(q->s->dev) == DEVICE_CPU ? TIMER_HOST : TIMER_EVENT, .iters = ALONE_STEPS};
    qualify_exchange(q, set);
    qualify_judge_set(q, c, set);
    for (int r = 0; r < q->ranks; r++) {
        samples ms = {0};
        const char *used;
        launch_barrier(q->l, "in turn");
        if (r == launch_rank(q->l) && set->items[r].j.word == VERDICT_SLOW) {
            measure_samples(q->s->dev, &t, step, x, &ms, &used);
            set->items[r].again = stats_of(&ms).median;
            samples_free(&ms);
        }
    }
    launch_barrier(q->l, "in turn");
}

void qualify_step_together(qualify *q, const bench_case *c, qualify_set *set)
{
    row *scratch = row_begin(q->s->rows, c);
    stepping x = {.r = make(q, c, scratch)};
    double ms = NAN;
    if (x.r) {
        ms = time_steps(q, &x);
        even_out(q, &x);
        if (option_flag(q->s->opt, "check"))
            compare(q, c, &x, scratch);
    }
    qualify_item_fill(q, own_item(q, set), scratch, isfinite(ms), ms);
    if (x.r)
        step_alone(q, c, set, &x);
    replica_free(x.r);
    row_drop(scratch);
    memory_release_all(q->s->mem);
}
