/* SPDX-License-Identifier: MIT */
/* Collectives by packets (kernels/shared/direct.h) on a single GPU: every rank has memory, a mailbox and a stream of its own
 * there. Results must have the bits of sums in fp32 in the order of ranks, rounded once, and of slices. Calls that are not
 * in place follow one another without a wait. All ranks' kernels run side by side, so no case is for --small: a sanitizer
 * lets one kernel run at a time.
 *
 * Run: build/tests/gpu/test_packets [--op NAME] [--dtype NAME] [--case TEXT] [--list]
 * Exit code 0, 2 for bad input, 3 when a case failed, 77 when there is no GPU. */
#include "common/core/error.h"
#include "common/model/dtypes.h"
#include "kernels/shared/direct.h"
#include "tests/gpu/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 5 };
static const char *const ops[] = {"one_shot", "two_shot", "all_gather", "reduce_scatter",
                                  NULL}; /* as sb_direct_algorithm */
static const sb_dtype dtypes[] = {SB_FP32, SB_BF16, SB_FP16};
/* Slices of an odd number of 16-bit elements begin between two words. The largest leaves room for two calls of 8 ranks. */
static const size_t sizes[] = {1, 5, 254, 255, 9001};

typedef struct test_case {
    sb_direct_algorithm algorithm;
    sb_dtype dtype;
    int ranks;
    size_t n;
    bool in_place;
    char name[64];
} test_case;

typedef struct problem {
    runner *r;
    const test_case *c;
    size_t e, in_n, out_n, stride; /* stride: bytes from the output of a call to that of the next */
    float *in, *want;              /* (ranks, in_n), (out_n) of a rank */
    char *raw;
    void *leave, *mailbox[SB_DIRECT_RANKS_MAX], *stream[SB_DIRECT_RANKS_MAX];
    char *memory[SB_DIRECT_RANKS_MAX]; /* the input, then the outputs; in place one for both */
} problem;

static bool gathers(const test_case *c)
{
    return c->algorithm == SB_DIRECT_ALL_GATHER;
}

static bool scatters(const test_case *c)
{
    return c->algorithm == SB_DIRECT_REDUCE_SCATTER;
}

static char *input_of(const problem *p, int rank)
{
    const size_t own = (size_t)rank * p->c->n * p->e;
    return p->memory[rank] + (p->c->in_place && gathers(p->c) ? own : 0);
}

static char *output_of(const problem *p, int rank, int call)
{
    const size_t own = (size_t)rank * p->c->n * p->e, behind = (p->in_n * p->e + 15) / 16 * 16;
    return p->memory[rank] + (!p->c->in_place ? behind + (size_t)call * p->stride : scatters(p->c) ? own : 0);
}

static void *device_bytes(const problem *p, size_t bytes, int value)
{
    void *out = device_malloc(p->r->dev, bytes);
    if (!out)
        die(EXIT_CODE_FAILURE, "test_packets: no memory for %zu bytes", bytes);
    device_memset(p->r->dev, out, value, bytes);
    return out;
}

/* Values so different in size that the order of a sum shows. */
static float value_of(int rank, size_t i)
{
    const uint32_t x = ((uint32_t)i + 1) * 0x9e3779b9u ^ ((uint32_t)rank + 1) * 0x85ebca6bu;
    return (float)((int)((x ^ x >> 15) * 0x2c1b3c6du >> 8) % 1000 - 500) * (i % 2 ? 1e-3f : 8.0f);
}

static problem make(runner *r, const test_case *c)
{
    problem p = {.r = r, .c = c, .e = (size_t)sb_dtype_bytes(c->dtype)};
    const size_t all = c->n * (size_t)c->ranks;
    p.in_n = scatters(c) ? all : c->n;
    p.out_n = gathers(c) ? all : c->n;
    p.stride = (p.out_n * p.e + 15) / 16 * 16;
    p.in = xmalloc((size_t)c->ranks * p.in_n * sizeof *p.in);
    p.want = xmalloc(p.out_n * sizeof *p.want);
    p.raw = xmalloc(2 * all * p.e);
    p.leave = device_bytes(&p, sizeof(uint32_t), 0);
    for (int k = 0; k < c->ranks; k++) {
        float *in = p.in + (size_t)k * p.in_n;
        for (size_t i = 0; i < p.in_n; i++)
            in[i] = value_of(k, i);
        dtype_store(c->dtype, p.raw, in, p.in_n);
        dtype_load(c->dtype, in, p.raw, p.in_n);
        const size_t mailbox = sb_direct_mailbox_bytes(all * p.e, c->ranks);
        p.mailbox[k] = device_bytes(&p, mailbox, 0);
        p.memory[k] = device_bytes(&p, (all * p.e + 16) * (CALLS + 1), 0xff);
        p.stream[k] = device_stream_create(r->dev, STREAM_URGENT, "rank");
        device_upload(r->dev, input_of(&p, k), p.raw, p.in_n * p.e);
    }
    device_sync(r->dev);
    return p;
}

static void drop(problem *p)
{
    for (int k = 0; k < p->c->ranks; k++) {
        device_stream_destroy(p->r->dev, p->stream[k]);
        device_free(p->r->dev, p->mailbox[k]);
        device_free(p->r->dev, p->memory[k]);
    }
    device_free(p->r->dev, p->leave);
    free(p->in);
    free(p->want);
    free(p->raw);
}

/* One call of all ranks. A kernel that is launched for the first time may wait for the device, so no rank is a call ahead. */
static void enqueue(const problem *p, int call)
{
    for (int k = 0; k < p->c->ranks; k++) {
        sb_direct_collective x = {.algorithm = p->c->algorithm,
                                  .rank = k,
                                  .ranks = p->c->ranks,
                                  .dtype = p->c->dtype,
                                  .n = p->c->n,
                                  .in = input_of(p, k),
                                  .out = output_of(p, k, call),
                                  .mailbox_bytes =
                                      sb_direct_mailbox_bytes(p->c->n * (size_t)p->c->ranks * p->e, p->c->ranks),
                                  .leave = p->leave};
        memcpy(x.mailboxes, p->mailbox, sizeof x.mailboxes);
        if (sb_cuda_direct_collective(&x, p->stream[k]) != SB_OK)
            die(EXIT_CODE_FAILURE, "test_packets: %s", sb_last_message());
    }
}

static void settle(const problem *p)
{
    for (int k = 0; k < p->c->ranks; k++) {
        device_event *e = device_event_create(p->r->dev);
        device_stream_record(p->r->dev, p->stream[k], e);
        device_event_wait(p->r->dev, e);
        device_sync(p->r->dev);
        device_event_destroy(p->r->dev, e);
    }
}

static void want_of(problem *p, int rank)
{
    const size_t n = p->c->n;
    for (size_t i = 0; i < p->out_n; i++) {
        const size_t at = scatters(p->c) ? (size_t)rank * n + i : i;
        p->want[i] = p->in[at]; /* of a gather, the slices lie as their inputs do */
        for (int k = 1; k < p->c->ranks && !gathers(p->c); k++)
            p->want[i] += p->in[(size_t)k * p->in_n + at];
    }
    dtype_store(p->c->dtype, p->raw, p->want, p->out_n);
}

static bool right(problem *p, int rank, int call)
{
    const size_t bytes = p->out_n * p->e;
    char *got = p->raw + bytes;
    want_of(p, rank);
    device_download(p->r->dev, got, output_of(p, rank, call), bytes);
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != p->raw[i])
            return runner_fail(p->r, ops[p->c->algorithm], sb_dtype_name(p->c->dtype), p->c->name,
                               "call %d on rank %d differs at byte %zu of %zu", call + 1, rank, i, bytes);
    return true;
}

static bool run_case(runner *r, const test_case *c)
{
    problem p = make(r, c);
    const int calls = c->in_place ? 1 : CALLS;
    bool ok = true;
    for (int call = 0; call < calls; call++)
        enqueue(&p, call);
    settle(&p);
    for (int rank = 0; rank < c->ranks; rank++)
        for (int call = 0; call < calls && ok; call++)
            ok = right(&p, rank, call);
    drop(&p);
    return ok;
}

static void one(runner *r, const arguments *x, const test_case *c)
{
    const char *op = ops[c->algorithm], *dtype = sb_dtype_name(c->dtype);
    if (!arguments_want(x, op, dtype, c->name, false))
        return;
    if (x->list) {
        printf("%s %s %s\n", op, dtype, c->name);
        return;
    }
    tally *t = runner_tally(r, op, dtype);
    if (run_case(r, c))
        t->passed++;
    else
        t->failed++;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"bf16", "fp16", "fp32", NULL};
    program_name_set(argv[0]);
    const arguments x = arguments_parse(argc, argv, ops, names);
    runner r = {0};
    if (x.kind != DEVICE_CUDA)
        die(EXIT_CODE_USAGE, "--device cpu: peers are GPUs");
    if (!x.list)
        r = runner_open(&x, argv[0]);
    for (int a = SB_DIRECT_ONE_SHOT; a <= SB_DIRECT_REDUCE_SCATTER; a++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int ranks = 2; ranks <= SB_DIRECT_RANKS_MAX; ranks++)
                for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
                    test_case c = {(sb_direct_algorithm)a, dtypes[d], ranks, sizes[k / 2], k % 2, ""};
                    snprintf(c.name, sizeof c.name, "ranks%d-%zu%s", ranks, c.n, c.in_place ? "-in-place" : "");
                    one(&r, &x, &c);
                }
    return x.list ? EXIT_CODE_OK : runner_close(&r, "");
}
