/* SPDX-License-Identifier: MIT */
/* The edges between the streams of a step, on a device that runs every op at once and keeps a vector clock for each stream
 * (Mattern, 1989): an op may read memory only behind all ops that wrote it, and write it only behind all that read or
 * wrote it. Products, norms, the embedding, sums and AdamW are followed. A step takes a made-up time, by which a way of
 * overlap is chosen. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include "common/device/internal.h"
#include "common/train/tune/tune.h"

/* Main, side and background: the last one that a step uses is its way of overlap. */
enum { MAIN = OVERLAP_NONE, STREAMS = OVERLAP_ALL + 1, POOL = 1 << 19 };

typedef struct clock_vector {
    int at[STREAMS];
} clock_vector;

struct device_event {
    clock_vector seen;
};

typedef struct cell { /* of a float of the pool */
    int write_by, write_at, read_at[STREAMS];
} cell;

static _Alignas(256) float pool[POOL]; /* the device's memory */
static cell cells[POOL];

static struct {
    device dev;
    device_ops ops;
    memory *mem;
    const sb_train_ops *cpu;
    sb_train_ops train;
    sb_kernels kernels;
    size_t taken; /* of the pool */
    clock_vector now[STREAMS];
    char names[STREAMS]; /* a stream is a pointer into it; main is NULL */
    int streams;         /* beside main, in the order in which a trainer makes them */
    int used;            /* the last stream that the step has used so far */
    const double *ms;    /* a step takes, by that stream */
    int way, before;     /* that stream in the last steps, and in those of another way before them */
    const char *race;
} fake;
static bool hungry; /* whether steps with everything beside the backward leave a low clock to those that follow */

static int index_of(const void *stream)
{
    return stream ? (int)((const char *)stream - fake.names) : MAIN;
}

/* ---- the device ---- */

static void *take(device *d, size_t bytes)
{
    (void)d;
    float *p = pool + fake.taken;
    fake.taken += bytes / sizeof *pool; /* of a memory, which asks for multiples of 256 bytes */
    return fake.taken <= POOL ? p : NULL;
}

static void give_back(device *d, void *p)
{
    (void)d, (void)p;
}

static device_event *event_create(device *d)
{
    (void)d;
    return xcalloc(1, sizeof(device_event));
}

static void event_destroy(device *d, device_event *e)
{
    (void)d;
    free(e);
}

static double event_ms(device *d, device_event *from, device_event *to)
{
    (void)d, (void)from, (void)to;
    if (fake.used != fake.way)
        fake.before = fake.way, fake.way = fake.used;
    return fake.ms[fake.used] * (hungry && fake.before == OVERLAP_ALL ? 1.1 : 1);
}

static void *stream_create(device *d, stream_priority p, const char *name)
{
    (void)d, (void)p, (void)name;
    return fake.names + ++fake.streams;
}

static void stream_destroy(device *d, void *stream)
{
    (void)d, (void)stream;
}

static void stream_record(device *d, void *stream, device_event *e)
{
    (void)d;
    e->seen = fake.now[index_of(stream)];
}

static void stream_wait(device *d, void *stream, device_event *e)
{
    (void)d;
    clock_vector *now = &fake.now[index_of(stream)];
    for (int s = 0; s < STREAMS; s++)
        now->at[s] = e->seen.at[s] > now->at[s] ? e->seen.at[s] : now->at[s];
}

/* ---- its ops ---- */

static void op_on(void *stream)
{
    const int s = index_of(stream);
    fake.now[s].at[s]++;
    fake.used = s > fake.used ? s : fake.used;
}

static void touch(void *stream, const void *p, int64_t rows, int64_t columns, int64_t ld, bool writes, const char *what)
{
    const int s = index_of(stream);
    const clock_vector *now = &fake.now[s];
    for (int64_t i = 0; p && i < rows * columns; i++) {
        cell *c = &cells[(const float *)p - pool + i / columns * ld + i % columns];
        bool ordered = now->at[c->write_by] >= c->write_at;
        for (int r = 0; writes && r < STREAMS; r++)
            ordered = ordered && now->at[r] >= c->read_at[r];
        fake.race = ordered ? fake.race : what;
        if (writes)
            c->write_by = s, c->write_at = now->at[s];
        else
            c->read_at[s] = now->at[s];
    }
}

static void reads(void *stream, const void *p, int64_t rows, int64_t columns, int64_t ld, const char *what)
{
    touch(stream, p, rows, columns, ld, false, what);
}

static void writes(void *stream, const void *p, int64_t rows, int64_t columns, int64_t ld, const char *what)
{
    touch(stream, p, rows, columns, ld, true, what);
}

static sb_status matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    const int a_rows = p->transpose_a ? p->k : p->m, b_rows = p->transpose_b ? p->n : p->k;
    op_on(stream);
    reads(stream, p->a, a_rows, p->m + p->k - a_rows, p->lda, "a product reads");
    reads(stream, p->b, b_rows, p->n + p->k - b_rows, p->ldb, "a product reads");
    reads(stream, p->c, p->m, p->n, p->ldc, "a product reads");
    writes(stream, p->d, p->m, p->n, p->ldd, "a product writes");
    return fake.cpu->matmul(ctx, p, stream);
}

static sb_status rmsnorm_forward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    op_on(stream);
    reads(stream, p->weight, 1, p->d, p->d, "a norm reads");
    writes(stream, p->y, p->rows, p->d, p->d, "a norm writes");
    return fake.cpu->rmsnorm_forward(ctx, p, stream);
}

static sb_status rmsnorm_backward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    op_on(stream);
    reads(stream, p->weight, 1, p->d, p->d, "a norm's backward reads");
    writes(stream, p->dx, p->rows, p->d, p->d, "a norm's backward writes");
    writes(stream, p->dweight, 1, p->d, p->d, "a norm's backward writes");
    return fake.cpu->rmsnorm_backward(ctx, p, stream);
}

/* The first op of a step. */
static sb_status embedding_forward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    fake.used = MAIN;
    op_on(stream);
    reads(stream, p->table, p->vocab, p->d, p->d, "the embedding reads");
    return fake.cpu->embedding_forward(ctx, p, stream);
}

static sb_status embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    op_on(stream);
    writes(stream, p->d_table, p->vocab, p->d, p->d, "the embedding's backward writes");
    return fake.cpu->embedding_backward(ctx, p, stream);
}

static sb_status pointwise(sb_context *ctx, const sb_pointwise *p, void *stream)
{
    op_on(stream);
    reads(stream, p->a, p->rows, p->columns, p->lda, "a sum reads");
    reads(stream, p->b, p->rows, p->columns, p->ldb, "a sum reads");
    writes(stream, p->out, p->rows, p->columns, p->ld_out, "a sum writes");
    return fake.cpu->pointwise(ctx, p, stream);
}

static sb_status grad_stats(sb_context *ctx, const sb_grad_stats *p, void *stream)
{
    op_on(stream);
    reads(stream, p->grad, 1, (int64_t)p->n, 0, "the norm of all gradients reads");
    return fake.cpu->grad_stats(ctx, p, stream);
}

static sb_status adamw(sb_context *ctx, const sb_adamw *p, void *stream)
{
    op_on(stream);
    reads(stream, p->grad, 1, (int64_t)p->n, 0, "AdamW reads");
    writes(stream, p->param, 1, (int64_t)p->n, 0, "AdamW writes");
    return fake.cpu->adamw(ctx, p, stream);
}

/* ---- trainers on it ---- */

static trainer *fake_open(const step_options *o)
{
    char why[256] = "";
    memset(&fake, 0, sizeof fake);
    memset(cells, 0, sizeof cells);
    fake.ops = *bed.dev->ops;
    fake.ops.malloc = take, fake.ops.free = give_back;
    fake.ops.event_create = event_create, fake.ops.event_destroy = event_destroy;
    fake.ops.event_mark = stream_record, fake.ops.event_ms = event_ms;
    fake.ops.stream_create = stream_create, fake.ops.stream_destroy = stream_destroy;
    fake.ops.stream_record = stream_record, fake.ops.stream_wait = stream_wait;
    fake.dev = *bed.dev;
    fake.dev.ops = &fake.ops;
    fake.dev.kind = DEVICE_CUDA; /* a step on a CPU has one stream */
    fake.mem = memory_create(&fake.dev);
    fake.kernels = *bed.kernels;
    fake.cpu = fake.kernels.train;
    fake.train = *fake.cpu;
    fake.train.matmul = matmul;
    fake.train.rmsnorm_forward = rmsnorm_forward, fake.train.rmsnorm_backward = rmsnorm_backward;
    fake.train.embedding_forward = embedding_forward, fake.train.embedding_backward = embedding_backward;
    fake.train.pointwise = pointwise;
    fake.train.grad_stats = grad_stats, fake.train.adamw = adamw;
    fake.kernels.train = &fake.train;
    trainer *t = trainer_create(&fake.dev, fake.mem, &fake.kernels, bed.ctx, o, why, sizeof why);
    if (!t)
        fail_msg("no trainer: %s", why);
    return t;
}

static void fake_close(trainer *t)
{
    trainer_free(t);
    if (fake.dev.pieces)
        device_host_free(&fake.dev, fake.dev.pieces);
    memory_destroy(fake.mem);
}

static void steps_of(overlap way, bool clipped, int micro_batches, bool share, const step_table *table)
{
    step_options o = three_blocks("fp32");
    o.overlap = way;
    o.clip_norm = clipped ? 0.05 : 0;
    o.micro_batches = micro_batches;
    o.share_grad_memory = share;
    o.table = table;
    trainer *t = fake_open(&o);
    for (int i = 0; i < 3; i++) {
        step(t);
        if (fake.race)
            fail_msg("overlap %s, clip %g, %d micro-batches, share %d: %s what another stream may still use",
                     overlap_name(way), o.clip_norm, micro_batches, share, fake.race);
        assert_int_equal(fake.used, trainer_overlap(t));
        for (int s = MAIN + 1; s < STREAMS; s++) /* a graph has to end so */
            if (fake.now[MAIN].at[s] < fake.now[s].at[s])
                fail_msg("overlap %s: a step ends before its stream %d does", overlap_name(way), s);
    }
    fake_close(t);
}

TEST(edges_of_a_step)
{
    for (int way = OVERLAP_NONE; way <= OVERLAP_ALL; way++)
        for (int mask = 0; mask < 8; mask++)
            steps_of((overlap)way, mask & 1, mask & 2 ? 2 : 1, mask & 4, NULL);
}

/* Several micro-batches in flight, and weight gradients that wait: what is on the side stream in one action is done with
 * before the next one uses its memory. */
TEST(edges_of_a_table)
{
    enum { MICROS = 3 };
    static const step_action ahead[] = {{STEP_F, 0, 0}, {STEP_F, 1, 0}, {STEP_B, 0, 0},
                                        {STEP_F, 2, 0}, {STEP_B, 1, 0}, {STEP_B, 2, 0}};
    static const step_action waiting[] = {{STEP_F, 0, 0}, {STEP_B, 0, 0}, {STEP_F, 1, 0},
                                          {STEP_B, 1, 0}, {STEP_W, 0, 0}, {STEP_W, 1, 0},
                                          {STEP_F, 2, 0}, {STEP_B, 2, 0}, {STEP_W, 2, 0}};
    const model_part part = {0, 3, true, true};
    const step_table tables[] = {{&part, 1, ahead, sizeof ahead / sizeof *ahead},
                                 {&part, 1, waiting, sizeof waiting / sizeof *waiting}};
    for (int way = OVERLAP_NONE; way <= OVERLAP_ALL; way++)
        for (int i = 0; i < 2; i++)
            steps_of((overlap)way, false, MICROS, true, &tables[i]);
}

/* ---- the choice of a way ---- */

/* It leaves no trace: parameters are as before, and steps have the bits of those without it. */
static void choose(const double ms[STREAMS], bool clipped, overlap expected)
{
    step_options o = three_blocks("fp32");
    o.clip_norm = clipped ? 0.05 : 0;
    o.overlap = OVERLAP_NONE;
    outcome want = outcome_of(&o);
    o.overlap = OVERLAP_AUTO;
    trainer *t = fake_open(&o);
    fake.ms = ms;
    const int64_t bytes = trainer_memory_of(t).arena_bytes;
    golden_params(t);
    OWNED float *before = all_params(t);
    assert_true(trainer_tune(t, NULL));
    assert_string_equal(overlap_name(trainer_overlap(t)), overlap_name(expected));
    assert_int_equal(trainer_memory_of(t).arena_bytes < bytes, expected == OVERLAP_NONE);
    OWNED float *tuned = all_params(t);
    same_bits(want.p, before, tuned, "choosing a way of overlap");
    for (int s = 0; s < OUTCOME_STEPS; s++) {
        golden_tokens(t, s);
        step(t);
        assert_int_equal(fake.used, expected);
        assert_true(trainer_loss(t) == want.losses[s]);
    }
    OWNED float *after = all_params(t);
    same_bits(want.p, want.params, after, "steps after the choice of a way of overlap");
    assert_null(fake.race);
    outcome_free(&want);
    fake_close(t);
}

TEST(the_fastest_way_is_chosen)
{
    choose((double[]){1, 0.9, 0.895}, false, OVERLAP_ALL);
    choose((double[]){1, 0.89, 0.9}, false, OVERLAP_GRADIENTS);
    choose((double[]){1, 0.9, 0.8}, true, OVERLAP_GRADIENTS); /* AdamW waits for the norm of all gradients */
    choose((double[]){1, 1.1, 1.2}, false, OVERLAP_NONE);
    choose((double[]){1, 0.985, 1.2}, false, OVERLAP_NONE); /* not worth the memory, and perhaps noise */
    choose((double[]){1, 1, 1000}, false, OVERLAP_ALL);     /* not worth measuring */
    hungry = true;
    choose((double[]){1, 1, 1}, false, OVERLAP_NONE);
    hungry = false;
}

TESTS_WITH(bed_create, bed_destroy)
