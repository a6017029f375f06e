/* SPDX-License-Identifier: MIT */
/* See synthetic_step.h. */
#include "tests/support/synthetic_step.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/stream/cpu_stream.h"

/* ---- values ---- */

static const int garbage = 99;

static double get(const void *arena, comm_dtype t, int64_t i)
{
    return t == COMM_FP32 ? (double)((const float *)arena)[i] : (double)bf16_to_float(((const uint16_t *)arena)[i]);
}

static void put(void *arena, comm_dtype t, int64_t i, double value)
{
    if (t == COMM_FP32)
        ((float *)arena)[i] = (float)value;
    else
        ((uint16_t *)arena)[i] = bf16_from_float((float)value);
}

static int tensor_of(const synthetic *s, int64_t i)
{
    int tensor = 0;
    while (s->starts[tensor + 1] <= i)
        tensor++;
    return tensor;
}

/* -4 to 4; padding has none. */
static int grad_of(const synthetic *s, int rank, int step, int64_t i)
{
    const int tensor = tensor_of(s, i);
    if (i >= s->starts[tensor] + s->counts[tensor])
        return 0;
    return (int)((i * 7 + i / 5 + rank * 11 + step * 3) % 9) - 4;
}

static int summed_grad(const synthetic *s, int step, int64_t i)
{
    int sum = 0;
    for (int r = 0; r < s->ranks; r++)
        sum += grad_of(s, r, step, i);
    return s->compute_only ? grad_of(s, s->rank, step, i) : sum;
}

static int param_of(const synthetic *s, int step, int64_t i) /* before that step */
{
    const int tensor = tensor_of(s, i);
    int value = i < s->starts[tensor] + s->counts[tensor] ? (int)(i % 5) : 0;
    for (int before = 0; before < step; before++)
        value += summed_grad(s, before, i);
    return value;
}

/* ---- what runs on the streams ---- */

typedef struct task {
    synthetic *s;
    int64_t first, count, state_first;
    int step, delay_us;
} task;

static void produce(void *arg)
{
    const task *t = arg;
    usleep((unsigned)t->delay_us);
    for (int64_t i = t->first; i < t->first + t->count; i++)
        put(t->s->grad, t->s->grad_dtype, i, grad_of(t->s, t->s->rank, t->step, i));
}

/* Takes its time over it: who writes too early is seen. */
static void read_params(void *arg)
{
    const task *t = arg;
    const synthetic *s = t->s;
    for (int64_t i = t->first; i < t->first + t->count && !s->compute_only; i++) {
        if (i == t->first + t->count / 2)
            usleep((unsigned)t->delay_us);
        if (get(s->param, s->param_dtype, i) != param_of(s, t->step, i))
            die(EXIT_CODE_VERIFY, "rank %d of %d, %s: step %d reads %g at %lld, not %d", s->rank, s->ranks,
                s->plan->o.strategy, t->step, get(s->param, s->param_dtype, i), (long long)i, param_of(s, t->step, i));
    }
}

static void update(void *arg)
{
    const task *t = arg;
    synthetic *s = t->s;
    for (int64_t k = 0; k < t->count; k++) {
        const int64_t i = t->first + k;
        const double grad = get(s->grad, s->grad_dtype, i);
        if (grad != summed_grad(s, t->step, i) || s->updates[i]++ != t->step ||
            s->state[t->state_first + k]++ != t->step)
            die(EXIT_CODE_VERIFY, "rank %d of %d, %s: update %d at %lld: gradient %g, not %d; %d and %d updates",
                s->rank, s->ranks, s->plan->o.strategy, t->step, (long long)i, grad, summed_grad(s, t->step, i),
                s->updates[i], s->state[t->state_first + k]);
        put(s->param, s->param_dtype, i, get(s->param, s->param_dtype, i) + grad);
    }
}

static void check_params(const synthetic *s, int step)
{
    for (int64_t i = 0; i < s->elements; i++)
        if (get(s->param, s->param_dtype, i) != param_of(s, step, i))
            die(EXIT_CODE_VERIFY, "rank %d of %d, %s: after %d steps parameter %lld is %g, not %d", s->rank, s->ranks,
                s->plan->o.strategy, step, (long long)i, get(s->param, s->param_dtype, i), param_of(s, step, i));
}

/* What comes after an update: it has been everywhere, once, and nobody needs the gradients. */
static void end_step(void *arg)
{
    const task *t = arg;
    synthetic *s = t->s;
    int64_t updated = 0;
    for (int64_t i = 0; i < s->elements; i++) {
        if (s->updates[i] != t->step + 1 && s->updates[i] != 0)
            die(EXIT_CODE_VERIFY, "%s: element %lld has %d updates after step %d", s->plan->o.strategy, (long long)i,
                s->updates[i], t->step);
        updated += s->updates[i] != 0;
        put(s->grad, s->grad_dtype, i, garbage);
    }
    if (updated != s->plan->own.state_elements)
        die(EXIT_CODE_VERIFY, "%s: %lld elements were updated, and %lld are owned", s->plan->o.strategy,
            (long long)updated, (long long)s->plan->own.state_elements);
    const bool gathered_later = s->plan->s->share == SHARE_GATHER && !s->plan->o.join;
    if (!gathered_later && !s->compute_only)
        check_params(s, t->step + 1);
}

/* Between 0 and most, other for each task of a step, and on each rank. */
static int delay(const synthetic *s, int salt, int most)
{
    return (salt * 7919 + s->rank * 104729 + s->steps * 1299709) % 1000 * most / 1000;
}

static void run(synthetic *s, void *stream, void (*fn)(void *), int64_t first, int64_t count, int delay_us)
{
    cpu_stream_run(stream, fn, &(task){s, first, count, 0, s->steps, delay_us}, sizeof(task));
}

/* ---- the model's side of parallel/parallel.h ---- */

static void model_begin(void *user, void *stream)
{
    (void)stream;
    ((synthetic *)user)->begun++;
}

static void model_update(void *user, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    synthetic *s = user;
    (void)max_blocks;
    if (s->begun != s->steps + 1)
        die(EXIT_CODE_VERIFY, "%s: update %d was begun %d times", s->plan->o.strategy, s->steps, s->begun);
    cpu_stream_run(stream, update, &(task){s, first, count, state_first, s->steps, 0}, sizeof(task));
}

static void model_update_all(void *user)
{
    synthetic *s = user;
    s->begun++;
    model_update(user, 0, s->elements, 0, 0, s->main);
}

parallel_model synthetic_model(synthetic *s, const parallel_plan *plan)
{
    s->plan = plan;
    s->state = xcalloc((unsigned long)plan->own.state_elements + 1, sizeof *s->state);
    return (parallel_model){.d = s->d,
                            .main = s->main,
                            .grad = s->grad,
                            .grad_dtype = s->grad_dtype,
                            .param = s->param,
                            .param_dtype = s->param_dtype,
                            .user = s,
                            .update_begin = model_begin,
                            .update = model_update,
                            .update_all = s->all_at_once ? model_update_all : NULL};
}

/* ---- a step ---- */

static void follow(synthetic *s, void *to, void *from, dist_event *e)
{
    if (to == from)
        return;
    dist_event_record(s->d, e, from);
    dist_event_wait(s->d, e, to);
}

static void forward(synthetic *s, parallel *p)
{
    for (int i = SYNTHETIC_TENSORS - 1; i >= 0; i--) {
        void *stream = i % 4 == 2 ? s->side[0] : s->main;
        follow(s, stream, s->main, s->fork);
        parallel_need(p, s->starts[i], s->counts[i], stream);
        run(s, stream, read_params, s->starts[i], s->counts[i], delay(s, i, 100));
        follow(s, s->main, stream, s->join[0]);
    }
}

/* Two tensors at once now and then, as one product makes the gradients of several. In every other step the streams
 * that make gradients read weights, too, and are joined at the end; else nobody joins them but who waits for the
 * gradients. */
static void backward(synthetic *s, parallel *p)
{
    const bool joined = s->steps % 2;
    for (int i = 0, last; i < SYNTHETIC_TENSORS; i = last + 1) {
        last = i % 5 == 3 ? i + 1 : i;
        void *stream = i % 3 ? s->side[i % 3 - 1] : s->main;
        const int64_t first = s->starts[i], end = s->starts[last] + s->counts[last];
        follow(s, stream, s->main, s->fork);
        run(s, stream, produce, first, s->starts[last + 1] - first,
            delay(s, 31 * i, 300) + (last == SYNTHETIC_TENSORS - 1 ? s->late_us : 0));
        parallel_ready(p, first, end - first, stream);
        /* One of them takes longer than a collective. */
        run(s, s->main, read_params, first, end - first, i == 5 ? 3000 : delay(s, 17 * i, 200));
        if (joined)
            run(s, stream, read_params, first, end - first, delay(s, 13 * i, 200));
    }
    for (int k = 0; k < SYNTHETIC_SIDES && joined; k++)
        follow(s, s->main, s->side[k], s->join[k]);
}

void synthetic_step(synthetic *s, parallel *p)
{
    parallel_begin(p);
    forward(s, p);
    backward(s, p);
    parallel_update(p);
    run(s, s->main, end_step, 0, s->elements, 0);
    s->steps++;
}

void synthetic_wait(synthetic *s)
{
    cpu_stream_sync(s->main);
}

/* ---- between steps ---- */

void synthetic_check_params(const synthetic *s)
{
    check_params(s, s->steps);
}

void synthetic_set_params(synthetic *s, int add)
{
    for (int64_t i = 0; i < s->elements; i++)
        put(s->param, s->param_dtype, i, param_of(s, 0, i) + add);
}

void synthetic_set_grads(synthetic *s)
{
    for (int64_t i = 0; i < s->elements; i++)
        put(s->grad, s->grad_dtype, i, grad_of(s, s->rank, s->steps, i));
}

void synthetic_check_grads(const synthetic *s, const bucket *summed, int n)
{
    for (int b = 0; b < n; b++)
        for (int64_t i = summed[b].first; i < summed[b].first + summed[b].count; i++)
            if (get(s->grad, s->grad_dtype, i) != summed_grad(s, s->steps, i))
                die(EXIT_CODE_VERIFY, "rank %d of %d, %s: the sum of gradients at %lld is %g, not %d", s->rank,
                    s->ranks, s->plan->o.strategy, (long long)i, get(s->grad, s->grad_dtype, i),
                    summed_grad(s, s->steps, i));
}

/* ---- making ---- */

synthetic *synthetic_create(device *d, int rank, int ranks, bool wide_grads, bool streams)
{
    static const int64_t counts[SYNTHETIC_TENSORS] = {700, 64, 4000, 129, 1, 333, 900, 64, 64, 2500, 1111};
    synthetic *s = xcalloc(1, sizeof *s);
    const int64_t last = parallel_granularity(ranks);
    *s = (synthetic){.d = d,
                     .rank = rank,
                     .ranks = ranks,
                     .grad_dtype = wide_grads ? COMM_FP32 : COMM_BF16,
                     .param_dtype = wide_grads ? COMM_BF16 : COMM_FP32};
    for (int i = 0; i < SYNTHETIC_TENSORS; i++) { /* 3 lies against 2's end, 4 against 3's */
        const int64_t unit = i + 1 == SYNTHETIC_TENSORS ? last : i == 3 ? 1 : 64, end = s->starts[i] + counts[i];
        s->counts[i] = counts[i];
        s->starts[i + 1] = (end + unit - 1) / unit * unit;
    }
    s->elements = s->starts[SYNTHETIC_TENSORS];
    s->grad = xcalloc((unsigned long)s->elements, 4);
    s->param = xcalloc((unsigned long)s->elements, 4);
    s->updates = xcalloc((unsigned long)s->elements, sizeof *s->updates);
    if (streams)
        s->main = cpu_stream_create("main");
    s->fork = dist_event_create(d);
    for (int i = 0; i < SYNTHETIC_SIDES; i++) {
        s->side[i] = cpu_stream_create("side");
        s->join[i] = dist_event_create(d);
    }
    synthetic_set_params(s, 0);
    return s;
}

void synthetic_free(synthetic *s)
{
    for (int i = 0; i < SYNTHETIC_SIDES; i++) {
        cpu_stream_destroy(s->side[i]);
        dist_event_destroy(s->d, s->join[i]);
    }
    cpu_stream_destroy(s->main);
    dist_event_destroy(s->d, s->fork);
    free(s->grad);
    free(s->param);
    free(s->updates);
    free(s->state);
    free(s);
}

index_space synthetic_space(const synthetic *s)
{
    return (index_space){s->starts, SYNTHETIC_TENSORS};
}
