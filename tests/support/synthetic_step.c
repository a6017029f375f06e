/* SPDX-License-Identifier: MIT */
/* See synthetic_step.h. */
#include "tests/support/synthetic_step.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "tests/support/streams.h"

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

static bool sliced_grads(const synthetic *s)
{
    return s->plan && s->plan->s->gradients == GRADIENTS_SLICED;
}

static bool sliced_params(const synthetic *s)
{
    return s->plan && s->plan->s->parameters != PARAMETERS_RESIDENT;
}

static int unit_of(const synthetic *s, int64_t i)
{
    int unit = 0;
    while (s->units[unit + 1] <= i)
        unit++;
    return unit;
}

/* As a step reads and makes them: where they lie, in the slot of their unit or in the arena. */
static double get_param(const synthetic *s, int64_t i)
{
    const int u = unit_of(s, i);
    return sliced_params(s) ? get(s->param_slots[u % SYNTHETIC_SLOTS], s->param_dtype, i - s->units[u])
                            : get(s->param, s->param_dtype, i);
}

static void put_grad(synthetic *s, int64_t i, double value)
{
    const int u = unit_of(s, i);
    if (sliced_grads(s))
        put(s->grad_slots[u % SYNTHETIC_SLOTS], s->grad_dtype, i - s->units[u], value);
    else
        put(s->grad, s->grad_dtype, i, value);
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
        put_grad(t->s, i, grad_of(t->s, t->s->rank, t->step, i));
}

/* Another use of a unit's slot, before it is the unit's again. */
static void scribble(void *arg)
{
    const task *t = arg;
    const int u = (int)t->first, slot = u % SYNTHETIC_SLOTS;
    const bool params = t->state_first;
    for (int64_t i = 0; i < t->s->units[u + 1] - t->s->units[u]; i++)
        put(params ? t->s->param_slots[slot] : t->s->grad_slots[slot], params ? t->s->param_dtype : t->s->grad_dtype, i,
            garbage);
}

/* Takes its time over it: who writes too early is seen. */
static void read_params(void *arg)
{
    const task *t = arg;
    const synthetic *s = t->s;
    for (int64_t i = t->first; i < t->first + t->count && !s->compute_only; i++) {
        if (i == t->first + t->count / 2)
            usleep((unsigned)t->delay_us);
        if (get_param(s, i) != param_of(s, t->step, i))
            die(EXIT_CODE_VERIFY, "rank %d of %d, %s: step %d reads %g at %lld, not %d", s->rank, s->ranks,
                s->plan->o.strategy, t->step, get_param(s, i), (long long)i, param_of(s, t->step, i));
    }
}

static void update(void *arg)
{
    const task *t = arg;
    synthetic *s = t->s;
    usleep((unsigned)s->slow_us);
    for (int64_t k = 0; k < t->count; k++) {
        const int64_t i = t->first + k, in_slices = t->state_first + k;
        const int64_t grad_at = sliced_grads(s) ? in_slices : i, param_at = sliced_params(s) ? in_slices : i;
        const double grad = get(s->grad, s->grad_dtype, grad_at);
        const bool stale = sliced_grads(s) && s->compute_only; /* nobody has reduced them */
        if ((grad != summed_grad(s, t->step, i) && !stale) || s->updates[i]++ != t->step ||
            s->state[t->state_first + k]++ != t->step)
            die(EXIT_CODE_VERIFY, "rank %d of %d, %s: update %d at %lld: gradient %g, not %d; %d and %d updates",
                s->rank, s->ranks, s->plan->o.strategy, t->step, (long long)i, grad, summed_grad(s, t->step, i),
                s->updates[i], s->state[t->state_first + k]);
        put(s->param, s->param_dtype, param_at, get(s->param, s->param_dtype, param_at) + grad);
    }
}

static void check_param(const synthetic *s, int step, int64_t i, int64_t at)
{
    if (get(s->param, s->param_dtype, at) != param_of(s, step, i))
        die(EXIT_CODE_VERIFY, "rank %d of %d, %s: after %d steps parameter %lld is %g, not %d", s->rank, s->ranks,
            s->plan->o.strategy, step, (long long)i, get(s->param, s->param_dtype, at), param_of(s, step, i));
}

static void check_params(const synthetic *s, int step)
{
    const ownership *own = &s->plan->own;
    for (int64_t i = 0; i < s->elements && !sliced_params(s); i++)
        check_param(s, step, i, i);
    for (int r = 0; r < own->n && sliced_params(s); r++)
        for (int64_t k = 0; k < own->r[r].count; k++)
            check_param(s, step, own->r[r].first + k, own->r[r].state_first + k);
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
        if (!sliced_grads(s) || i < s->plan->own.state_elements)
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
    device_stream_run(s->d, stream, fn, &(task){s, first, count, 0, s->steps, delay_us}, sizeof(task));
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
    device_stream_run(s->d, stream, update, &(task){s, first, count, state_first, s->steps, 0}, sizeof(task));
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
                            .peers = s->shared ? s->peers : NULL,
                            .received = s->shared ? s->received : NULL,
                            .param_dtype = s->param_dtype,
                            .scratch = s->param_slots[0],
                            .user = s,
                            .update_begin = model_begin,
                            .update = model_update,
                            .update_all = s->all_at_once ? model_update_all : NULL};
}

/* ---- a step ---- */

static void follow(synthetic *s, void *to, void *from, device_event *e)
{
    if (to == from)
        return;
    device_stream_record(s->d, from, e);
    device_stream_wait(s->d, to, e);
}

/* The unit of a pass and the one after it are gathered, each behind another use of its slot. */
static void acquire(synthetic *s, parallel *p, int unit, int next)
{
    for (int u = unit; sliced_params(s); u = next) {
        if (u >= 0 && u < SYNTHETIC_UNITS && !s->gathered[u]) {
            device_stream_run(s->d, s->main, scribble, &(task){s, u, 0, 1, s->steps, 0}, sizeof(task));
            parallel_gather(p, u, s->param_slots[u % SYNTHETIC_SLOTS]);
            s->gathered[u] = true;
            for (int other = 0; other < SYNTHETIC_UNITS; other++)
                if (other != u && other % SYNTHETIC_SLOTS == u % SYNTHETIC_SLOTS)
                    s->gathered[other] = false;
        }
        if (u == next)
            break;
    }
    if (sliced_params(s))
        parallel_await(p, unit);
}

static void release(synthetic *s, int unit)
{
    if (sliced_params(s) && s->plan->s->parameters == PARAMETERS_GATHERED)
        s->gathered[unit] = false;
}

static void grads_begin(synthetic *s, parallel *p, int unit)
{
    if (!sliced_grads(s))
        return;
    if (unit >= SYNTHETIC_SLOTS)
        parallel_reduced(p, unit - SYNTHETIC_SLOTS);
    device_stream_run(s->d, s->main, scribble, &(task){s, unit, 0, 0, s->steps, 0}, sizeof(task));
    parallel_grads(p, unit, s->grad_slots[unit % SYNTHETIC_SLOTS]);
}

static void forward(synthetic *s, parallel *p)
{
    for (int i = SYNTHETIC_TENSORS - 1; i >= 0; i--) {
        const int unit = unit_of(s, s->starts[i]);
        if (s->starts[i + 1] == s->units[unit + 1])
            acquire(s, p, unit, unit - 1);
        void *stream = i % 4 == 2 ? s->side[0] : s->main;
        follow(s, stream, s->main, s->fork);
        parallel_need(p, s->starts[i], s->counts[i], stream);
        run(s, stream, read_params, s->starts[i], s->counts[i], delay(s, i, 100));
        follow(s, s->main, stream, s->join[0]);
        if (s->starts[i] == s->units[unit] && unit > 0) /* the first of backward stays */
            release(s, unit);
    }
}

/* Two tensors at once now and then, as one product makes the gradients of several. In every other step the streams
 * that make gradients read weights, too, and are joined at the end; else nobody joins them but who waits for the
 * gradients. */
static void backward(synthetic *s, parallel *p)
{
    const bool joined = s->steps % 2 && !sliced_params(s); /* in slots main alone reads parameters */
    for (int i = 0, last; i < SYNTHETIC_TENSORS; i = last + 1) {
        last = i % 5 == 3 ? i + 1 : i;
        void *stream = i % 3 ? s->side[i % 3 - 1] : s->main;
        const int64_t first = s->starts[i], end = s->starts[last] + s->counts[last];
        const int unit = unit_of(s, first);
        if (first == s->units[unit]) {
            acquire(s, p, unit, unit + 1);
            grads_begin(s, p, unit);
        }
        follow(s, stream, s->main, s->fork);
        run(s, stream, produce, first, s->starts[last + 1] - first,
            delay(s, 31 * i, 300) + (last == SYNTHETIC_TENSORS - 1 ? s->late_us : 0));
        parallel_ready(p, first, end - first, stream);
        /* One of them takes longer than a collective. */
        run(s, s->main, read_params, first, end - first, i == 5 ? 3000 : delay(s, 17 * i, 200));
        if (s->starts[last + 1] == s->units[unit + 1])
            release(s, unit);
        if (joined)
            run(s, stream, read_params, first, end - first, delay(s, 13 * i, 200));
    }
    for (int k = 0; k < SYNTHETIC_SIDES && joined; k++)
        follow(s, s->main, s->side[k], s->join[k]);
}

void synthetic_step(synthetic *s, parallel *p)
{
    memset(s->gathered, 0, sizeof s->gathered);
    parallel_begin_batch(p, true, true);
    forward(s, p);
    backward(s, p);
    parallel_update(p);
    run(s, s->main, end_step, 0, s->elements, 0);
    s->steps++;
}

void synthetic_wait(synthetic *s)
{
    stream_sync(s->d, s->main);
}

/* ---- between steps ---- */

void synthetic_check_params(const synthetic *s)
{
    check_params(s, s->steps);
}

void synthetic_set_params(synthetic *s, int add)
{
    for (int64_t i = 0; i < s->elements && !sliced_params(s); i++)
        put(s->param, s->param_dtype, i, param_of(s, 0, i) + add);
    for (int r = 0; sliced_params(s) && r < s->plan->own.n; r++) /* no rank could give them to another */
        for (int64_t k = 0; k < s->plan->own.r[r].count; k++)
            put(s->param, s->param_dtype, s->plan->own.r[r].state_first + k,
                param_of(s, 0, s->plan->own.r[r].first + k));
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
    static const int units[SYNTHETIC_UNITS] = {0, 5, 8};    /* their first tensors */
    for (int i = 0, unit = 1; i < SYNTHETIC_TENSORS; i++) { /* 3 lies against 2's end, 4 against 3's */
        const bool ends = i + 1 == (unit < SYNTHETIC_UNITS ? units[unit] : SYNTHETIC_TENSORS);
        const int64_t of = ends ? last : i == 3 ? 1 : 64, end = s->starts[i] + counts[i];
        s->counts[i] = counts[i];
        s->starts[i + 1] = (end + of - 1) / of * of;
        if (ends)
            s->units[unit++] = s->starts[i + 1];
    }
    s->elements = s->starts[SYNTHETIC_TENSORS];
    s->grad = xcalloc((unsigned long)s->elements, 4);
    s->param = xcalloc((unsigned long)s->elements, 4);
    for (int i = 0; i < SYNTHETIC_SLOTS; i++) {
        s->param_slots[i] = xcalloc((unsigned long)s->elements, 4);
        s->grad_slots[i] = xcalloc((unsigned long)s->elements, 4);
    }
    s->updates = xcalloc((unsigned long)s->elements, sizeof *s->updates);
    if (streams)
        s->main = device_stream_create(s->d, STREAM_NORMAL, "main");
    s->fork = device_event_create(d);
    for (int i = 0; i < SYNTHETIC_SIDES; i++) {
        s->side[i] = device_stream_create(s->d, STREAM_NORMAL, "side");
        s->join[i] = device_event_create(d);
    }
    synthetic_set_params(s, 0);
    return s;
}

static void drop_params(synthetic *s);

void synthetic_free(synthetic *s)
{
    for (int i = 0; i < SYNTHETIC_SIDES; i++) {
        device_stream_destroy(s->d, s->side[i]);
        device_event_destroy(s->d, s->join[i]);
    }
    device_stream_destroy(s->d, s->main);
    device_event_destroy(s->d, s->fork);
    for (int i = 0; i < SYNTHETIC_SLOTS; i++) {
        free(s->param_slots[i]);
        free(s->grad_slots[i]);
    }
    free(s->grad);
    drop_params(s);
    free(s->updates);
    free(s->state);
    free(s);
}

/* Parameters, and behind them what is received of two units. */
static size_t shared_bytes(const synthetic *s)
{
    return 3 * (size_t)s->elements * 4;
}

static void *map_rank(const synthetic *s, int of)
{
    char path[64];
    const size_t bytes = shared_bytes(s);
    snprintf(path, sizeof path, "params-of-%d", of);
    const int fd = open(path, O_RDWR | O_CREAT, 0666);
    void *at = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                   ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED)
        die(EXIT_CODE_FAILURE, "can't share %s", path);
    close(fd);
    return at;
}

void synthetic_share(synthetic *s)
{
    for (int r = 0; r < s->ranks; r++)
        s->peers[r] = map_rank(s, r), s->received[r] = (char *)s->peers[r] + (size_t)s->elements * 4;
    free(s->param);
    s->param = s->rank < s->ranks ? s->peers[s->rank] : xcalloc((unsigned long)s->elements, 4);
    s->shared = true;
}

static void drop_params(synthetic *s)
{
    for (int r = 0; r < s->ranks && s->shared; r++)
        munmap(s->peers[r], shared_bytes(s));
    if (!s->shared || s->rank >= s->ranks)
        free(s->param);
}

index_space synthetic_space(const synthetic *s)
{
    return (index_space){s->starts, SYNTHETIC_TENSORS, s->units, SYNTHETIC_UNITS, s->whole_units, NULL};
}
