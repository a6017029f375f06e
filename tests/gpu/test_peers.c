/* SPDX-License-Identifier: MIT */
/* AdamW between peers (kernels/shared/direct_adamw.h) and its gates on a single GPU: every rank has memory and a stream of its own
 * there. The sums, and the parameters and moments after some steps, must have the bits of the op adamw on gradients that
 * the host has added up. In each step one rank is late, and gradients are overwritten as soon as a gate allows it. With
 * --small all ranks share a stream and there are no gates, since a sanitizer lets one kernel run at a time.
 *
 * Run: build/tests/gpu/test_peers [--small] [--op NAME] [--dtype NAME] [--case TEXT] [--list]
 * Exit code 0, 2 for bad input, 3 when a case failed, 77 when there is no GPU. */
#include "common/core/error.h"
#include "common/model/dtypes.h"
#include "kernels/shared/direct_adamw.h"
#include "tests/gpu/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 2, STEPS = 3, LATE = 16 << 20 /* numbers, whose drawing takes its time */ };
static const char op_name[] = "peer_adamw";

typedef struct kind {
    const char *name;
    sb_dtype param, grad, moments;
    sb_master master;
    bool stochastic;
} kind;
static const kind kinds[] = {{"fp32", SB_FP32, SB_FP32, SB_FP32, SB_MASTER_NONE, false},
                             {"bf16", SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false},
                             {"bf16", SB_BF16, SB_FP32, SB_FP32, SB_MASTER_SPLIT, false},
                             {"bf16", SB_BF16, SB_BF16, SB_BF16, SB_MASTER_SPLIT, true},
                             {"bf16", SB_BF16, SB_FP32, SB_BF16, SB_MASTER_SPLIT, true},
                             {"bf16-pure", SB_BF16, SB_BF16, SB_BF16, SB_MASTER_NONE, false},
                             {"bf16-pure", SB_BF16, SB_FP32, SB_BF16, SB_MASTER_NONE, false}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct shape {
    int ranks, blocks;
    size_t n; /* of a rank's slice of a bucket */
    bool small;
} shape;
static const shape shapes[] = {{1, 0, 6400, true},   {2, 0, 64, true},    {2, 1, 100032, true},  {2, 0, 1000000, false},
                               {2, 96, 3000, false}, {3, 7, 8000, true},  {4, 0, 200064, false}, {5, 3, 64000, true},
                               {8, 0, 64, false},    {8, 5, 30016, true}, {8, 0, 200000, false}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct rank_memory {
    char *param, *grad;   /* (BUCKETS, ranks, n) */
    char *master, *m, *v; /* (BUCKETS, n) */
    char *seen;           /* parameters, as they were behind the last gate */
    void *mailbox, *stream, *late;
    sb_optimizer_state *state;
} rank_memory;

typedef struct problem {
    runner *r;
    const kind *k;
    const shape *s;
    bool gates;
    size_t all; /* parameters */
    size_t param, grad, moment;
    rank_memory of[SB_DIRECT_RANKS_MAX];
    uint32_t *leave;
    /* What must come out. */
    char *want_param, *want_m, *want_v, *want_master; /* (BUCKETS, ranks, n), on the device */
    float *want_grad;
    sb_optimizer_state *want_state;
    float *sum, *one; /* on the host */
    char *raw;
} problem;

static void need(const problem *p, sb_status s)
{
    (void)p;
    if (s != SB_OK)
        die(EXIT_CODE_FAILURE, "test_peers: %s", sb_last_message());
}

static void *zeros(const problem *p, size_t bytes)
{
    void *out = device_malloc(p->r->dev, bytes);
    if (!out)
        die(EXIT_CODE_FAILURE, "test_peers: no memory for %zu bytes", bytes);
    device_memset(p->r->dev, out, 0, bytes);
    return out;
}

static size_t slice_at(const problem *p, int bucket, int rank)
{
    return ((size_t)bucket * (size_t)p->s->ranks + (size_t)rank) * p->s->n;
}

static void draw_grads(const problem *p, int rank, int step, void *to, void *stream)
{
    need(p,
         p->r->kernels->fill_normal(p->r->ctx, p->k->grad, to, p->all, 11 + (uint64_t)step, (uint32_t)rank, 1, stream));
}

/* ---- making ---- */

static void make_rank(problem *p, int rank)
{
    rank_memory *x = &p->of[rank];
    const size_t part = BUCKETS * p->s->n;
    x->param = zeros(p, p->all * p->param);
    x->grad = zeros(p, p->all * p->grad);
    x->seen = zeros(p, p->all * p->param);
    x->master = zeros(p, part * 2);
    x->m = zeros(p, part * p->moment);
    x->v = zeros(p, part * p->moment);
    x->mailbox = zeros(p, sb_direct_mailbox_bytes(0, p->s->ranks < 2 ? 2 : p->s->ranks));
    x->late = zeros(p, p->gates ? LATE * sizeof(float) : 16);
    x->state = zeros(p, sizeof *x->state);
    x->stream = p->gates ? device_stream_create(p->r->dev, STREAM_URGENT, "rank") : device_stream(p->r->dev);
    device_memset(p->r->dev, x->param, 0xff, p->all * p->param); /* what this rank does not own must be sent to it */
    for (int b = 0; b < BUCKETS; b++)
        device_copy(p->r->dev, x->param + slice_at(p, b, rank) * p->param,
                    p->want_param + slice_at(p, b, rank) * p->param, p->s->n * p->param);
    device_upload(p->r->dev, x->state, &(sb_optimizer_state){.lr = 0.01f, .loss_scale = 1}, sizeof *x->state);
}

static problem make(runner *r, const kind *k, const shape *s, bool gates)
{
    problem p = {.r = r, .k = k, .s = s, .gates = gates && s->ranks > 1, .all = BUCKETS * (size_t)s->ranks * s->n};
    p.param = (size_t)sb_dtype_bytes(k->param);
    p.grad = (size_t)sb_dtype_bytes(k->grad);
    p.moment = (size_t)sb_dtype_bytes(k->moments);
    p.want_param = zeros(&p, p.all * p.param);
    p.want_m = zeros(&p, p.all * p.moment);
    p.want_v = zeros(&p, p.all * p.moment);
    p.want_master = zeros(&p, p.all * 2);
    p.want_grad = zeros(&p, p.all * sizeof(float));
    p.want_state = zeros(&p, sizeof *p.want_state);
    p.leave = zeros(&p, sizeof *p.leave);
    p.sum = xmalloc(p.all * sizeof *p.sum);
    p.one = xmalloc(p.all * sizeof *p.one);
    p.raw = xmalloc(p.all * sizeof(float));
    device_upload(r->dev, p.want_state, &(sb_optimizer_state){.lr = 0.01f, .loss_scale = 1}, sizeof *p.want_state);
    need(&p, r->kernels->fill_normal(r->ctx, k->param, p.want_param, p.all, 7, 0, 1, device_stream(r->dev)));
    /* A kernel that is launched for the first time is loaded, which may wait for the device; gates may wait by then. */
    draw_grads(&p, 0, 0, p.want_grad, device_stream(r->dev));
    need(&p, r->kernels->fill_normal(r->ctx, SB_FP32, p.want_grad, p.all, 7, 0, 1, device_stream(r->dev)));
    for (int i = 0; i < s->ranks; i++)
        make_rank(&p, i);
    device_sync(r->dev);
    return p;
}

static void drop(problem *p)
{
    device *d = p->r->dev;
    for (int i = 0; i < p->s->ranks; i++) {
        rank_memory *x = &p->of[i];
        void *const held[] = {x->param, x->grad, x->seen, x->master, x->m, x->v, x->mailbox, x->late, x->state};
        for (size_t k = 0; k < sizeof held / sizeof *held; k++)
            device_free(d, held[k]);
        if (p->gates)
            device_stream_destroy(d, x->stream);
    }
    void *const held[] = {p->want_param, p->want_m, p->want_v, p->want_master, p->want_grad, p->want_state, p->leave};
    for (size_t k = 0; k < sizeof held / sizeof *held; k++)
        device_free(d, held[k]);
    free(p->sum);
    free(p->one);
    free(p->raw);
}

/* ---- the ranks ---- */

static void gate(const problem *p, int rank)
{
    sb_direct_gate g = {.rank = rank, .ranks = p->s->ranks, .leave = p->leave};
    for (int i = 0; i < p->s->ranks; i++)
        g.mailboxes[i] = p->of[i].mailbox;
    if (p->gates)
        need(p, sb_cuda_direct_gate(&g, p->of[rank].stream));
}

static sb_direct_adamw call_of(const problem *p, int rank, int bucket, bool sums)
{
    const kind *k = p->k;
    const rank_memory *x = &p->of[rank];
    const size_t at = slice_at(p, bucket, rank), held = (size_t)bucket * p->s->n;
    sb_direct_adamw c = {.rank = rank,
                         .ranks = p->s->ranks,
                         .update = {.state = x->state,
                                    .dtype_param = k->param,
                                    .dtype_grad = k->grad,
                                    .dtype_moments = k->moments,
                                    .master_kind = k->master,
                                    .stochastic = k->stochastic,
                                    .first = at,
                                    .n = p->s->n,
                                    .master = k->master ? x->master + held * 2 : NULL,
                                    .m = x->m + held * p->moment,
                                    .v = x->v + held * p->moment,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .weight_decay = 0.1,
                                    .max_blocks = p->s->blocks},
                         .sums = sums ? x->grad + at * p->grad : NULL};
    for (int i = 0; i < p->s->ranks; i++) {
        c.params[i] = p->of[i].param + at * p->param;
        c.grads[i] = p->of[i].grad + at * p->grad;
    }
    return c;
}

static void begin(const problem *p, sb_optimizer_state *state, void *stream)
{
    const sb_optimizer_begin b = {.state = state, .beta1 = 0.9, .beta2 = 0.95};
    need(p, p->r->kernels->train->optimizer_begin(p->r->ctx, &b, stream));
}

/* Without gates: the parts of a step in the order of what they need. */
static void step(const problem *p, int number, bool sums)
{
    const int late = number % p->s->ranks;
    for (int part = 0; part < 3; part++)
        for (int rank = 0; rank < p->s->ranks; rank++) {
            const rank_memory *x = &p->of[rank];
            if (part == 0) {
                if (rank == late && p->gates)
                    need(p, p->r->kernels->fill_normal(p->r->ctx, SB_FP32, x->late, LATE, 1, 0, 1, x->stream));
                draw_grads(p, rank, number, x->grad, x->stream);
                gate(p, rank);
            } else if (part == 1) {
                if (!sums)
                    begin(p, x->state, x->stream);
                if ((rank + 1) % p->s->ranks == late && p->gates)
                    need(p, p->r->kernels->fill_normal(p->r->ctx, SB_FP32, x->late, LATE, 1, 0, 1, x->stream));
                for (int b = 0; b < BUCKETS; b++) {
                    const sb_direct_adamw c = call_of(p, rank, b, sums);
                    need(p, sb_cuda_direct_adamw(&c, x->stream));
                }
                gate(p, rank);
            } else {
                device_stream_copy(p->r->dev, x->stream, x->seen, x->param, p->all * p->param);
            }
        }
}

static void settle(const problem *p)
{
    for (int rank = 0; rank < p->s->ranks && p->gates; rank++) {
        device_event *e = device_event_create(p->r->dev);
        device_stream_record(p->r->dev, p->of[rank].stream, e);
        device_event_wait(p->r->dev, e);
        device_sync(p->r->dev);
        device_event_destroy(p->r->dev, e);
    }
    device_sync(p->r->dev);
}

/* ---- what must come out ---- */

static void add_up(problem *p, int number)
{
    device *d = p->r->dev;
    for (int rank = 0; rank < p->s->ranks; rank++) {
        draw_grads(p, rank, number, p->want_grad, device_stream(d));
        device_sync(d);
        device_download(d, p->raw, p->want_grad, p->all * p->grad);
        dtype_load(p->k->grad, p->one, p->raw, p->all);
        for (size_t i = 0; i < p->all; i++)
            p->sum[i] = rank == 0 ? p->one[i] : p->sum[i] + p->one[i];
    }
}

static void want_step(problem *p, int number)
{
    const kind *k = p->k;
    add_up(p, number);
    device_upload(p->r->dev, p->want_grad, p->sum, p->all * sizeof *p->sum);
    begin(p, p->want_state, device_stream(p->r->dev));
    const sb_adamw c = {.state = p->want_state,
                        .dtype_param = k->param,
                        .dtype_grad = SB_FP32,
                        .dtype_moments = k->moments,
                        .master_kind = k->master,
                        .stochastic = k->stochastic,
                        .n = p->all,
                        .param = p->want_param,
                        .master = k->master ? p->want_master : NULL,
                        .grad = p->want_grad,
                        .m = p->want_m,
                        .v = p->want_v,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .weight_decay = 0.1};
    need(p, p->r->kernels->train->adamw(p->r->ctx, &c, device_stream(p->r->dev)));
    device_sync(p->r->dev);
}

/* The first byte that differs, or -1. */
static long difference(const problem *p, const void *got, const void *want, size_t bytes)
{
    char *a = xmalloc(2 * bytes), *b = a + bytes;
    long at = -1;
    device_download(p->r->dev, a, got, bytes);
    device_download(p->r->dev, b, want, bytes);
    for (size_t i = 0; i < bytes && at < 0; i++)
        if (a[i] != b[i])
            at = (long)i;
    free(a);
    return at;
}

static bool same(const problem *p, const char *name, int rank, const char *what, const void *got, const void *want,
                 size_t bytes)
{
    const long at = difference(p, got, want, bytes);
    return at < 0 || runner_fail(p->r, op_name, p->k->name, name, "%s of rank %d differ at byte %ld of %zu", what, rank,
                                 at, bytes);
}

static bool right_params(const problem *p, const char *name)
{
    bool ok = true;
    for (int rank = 0; rank < p->s->ranks && ok; rank++)
        ok = same(p, name, rank, "parameters", p->of[rank].seen, p->want_param, p->all * p->param);
    return ok;
}

static bool right_state(const problem *p, const char *name)
{
    bool ok = true;
    for (int rank = 0; rank < p->s->ranks; rank++)
        for (int b = 0; b < BUCKETS && ok; b++) {
            const rank_memory *x = &p->of[rank];
            const size_t at = slice_at(p, b, rank), held = (size_t)b * p->s->n, n = p->s->n;
            ok = same(p, name, rank, "first moments", x->m + held * p->moment, p->want_m + at * p->moment,
                      n * p->moment) &&
                 same(p, name, rank, "second moments", x->v + held * p->moment, p->want_v + at * p->moment,
                      n * p->moment) &&
                 (!p->k->master ||
                  same(p, name, rank, "remainders", x->master + held * 2, p->want_master + at * 2, n * 2));
        }
    return ok;
}

static bool right_sums(problem *p, const char *name)
{
    bool ok = true;
    add_up(p, 0);
    dtype_store(p->k->grad, p->raw, p->sum, p->all);
    device_upload(p->r->dev, p->want_grad, p->raw, p->all * p->grad);
    for (int rank = 0; rank < p->s->ranks; rank++)
        for (int b = 0; b < BUCKETS && ok; b++) {
            const size_t at = slice_at(p, b, rank) * p->grad;
            ok = same(p, name, rank, "sums", p->of[rank].grad + at, (char *)p->want_grad + at, p->s->n * p->grad);
        }
    return ok;
}

static bool run_case(runner *r, const kind *k, const shape *s, const char *name, bool gates)
{
    problem p = make(r, k, s, gates);
    step(&p, 0, true);
    settle(&p);
    bool ok = right_sums(&p, name) && right_params(&p, name);
    for (int i = 1; i <= STEPS && ok; i++)
        step(&p, i, false);
    settle(&p);
    for (int i = 1; i <= STEPS && ok; i++)
        want_step(&p, i);
    ok = ok && right_params(&p, name) && right_state(&p, name);
    drop(&p);
    return ok;
}

int main(int argc, char **argv)
{
    static const char *const ops[] = {op_name, NULL}, *const dtypes[] = {"bf16", "bf16-pure", "fp32", NULL};
    program_name_set(argv[0]);
    const arguments x = arguments_parse(argc, argv, ops, dtypes);
    runner r = {0};
    if (x.kind != DEVICE_CUDA)
        die(EXIT_CODE_USAGE, "--device cpu: peers are GPUs");
    if (!x.list)
        r = runner_open(&x, argv[0]);
    for (int i = 0; i < KINDS; i++)
        for (int k = 0; k < SHAPES; k++) {
            char name[96];
            const shape *s = &shapes[k];
            snprintf(name, sizeof name, "g%s%s-ranks%d-%zu-blocks%d", sb_dtype_name(kinds[i].grad),
                     kinds[i].stochastic ? "-stochastic" : "", s->ranks, s->n, s->blocks);
            if (!arguments_want(&x, op_name, kinds[i].name, name, s->small))
                continue;
            if (x.list) {
                printf("%s %s %s\n", op_name, kinds[i].name, name);
                continue;
            }
            tally *t = runner_tally(&r, op_name, kinds[i].name);
            if (run_case(&r, &kinds[i], s, name, !x.small))
                t->passed++;
            else
                t->failed++;
        }
    return x.list ? EXIT_CODE_OK : runner_close(&r, "");
}
