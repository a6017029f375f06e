/* SPDX-License-Identifier: MIT */
/* Activations that go to pinned memory of the host behind the forward of their block and come back ahead of its backward,
 * on a stream of their own (Rajbhandari et al., 2021, "ZeRO-Infinity", does so with the inputs of blocks).
 *
 * Taking and dropping are calls of the walk like any other, so memory is planned. One rule holds across streams: a tensor
 * that left is dropped only where main has waited for its copy, and one that is to come back is written only once the
 * copying stream has waited for main at the point where it was taken. The host's memory of a block is written again by
 * the next micro-batch only, whose copies follow this one's on the same stream. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/device/host.h"
#include "common/formulas/offload.h"
#include "common/stream/stream.h"
#include "common/step/step.h"

enum { TENSORS = 9, ALIGNMENT = 256 };

typedef struct away {    /* a block */
    int64_t at[TENSORS]; /* where each tensor lies in the host's memory; -1: it stays on the device */
    size_t bytes[TENSORS];
    dist_event *sent, *fetched;
    device_event *waits[4]; /* main waits for what is sent from [0] to [1], for what is fetched from [2] to [3] */
} away;

struct offload {
    away *blocks;
    char *host;
    int64_t bytes;
    void *stream;
    dist_event *reached; /* main, when a copy is enqueued */
};

typedef struct tensor {
    int kind; /* OFFLOAD_... */
    const char *name;
    arena_slot *slot;
    int64_t columns; /* of a (T, columns) activation; 0: what the attention op saves */
} tensor;

static int tensors_of(const trainer *t, block_slots *b, tensor *out)
{
    const tensor all[TENSORS] = {{OFFLOAD_RESIDUAL, "residual", &b->x, t->d},
                                 {OFFLOAD_RESIDUAL, "residual_mid", &b->x_mid, t->d},
                                 {OFFLOAD_ATTN, "norm1", &b->n1, t->d},
                                 {OFFLOAD_ATTN, "qkv", &b->qkv, t->qkv},
                                 {OFFLOAD_ATTN, "attention_out", &b->att, t->d},
                                 {OFFLOAD_ATTN, "probabilities", &b->saved, 0},
                                 {OFFLOAD_MLP, "norm2", &b->n2, t->d},
                                 {OFFLOAD_MLP, "gate_up", &b->gate_up, 2 * (int64_t)t->f},
                                 {OFFLOAD_MLP, "swiglu", &b->h, t->f}};
    for (int i = 0; i < TENSORS; i++)
        out[i] = all[i];
    return TENSORS;
}

static size_t bytes_of(const trainer *t, const tensor *x)
{
    const sb_attention shape = step_attention(t);
    return x->columns ? step_rows(t, x->columns) : t->attention->saved_bytes(t->ctx, &shape);
}

static bool launching(const trainer *t)
{
    return !arena_planning(t->arena) && t->status == SB_OK;
}

void offload_create(trainer *t)
{
    if (!offload_count(&t->schedule) || t->o.mode == STEP_FORWARD)
        return;
    t->offload = xcalloc(1, sizeof *t->offload);
    t->offload->blocks = xcalloc((size_t)t->o.config.layers, sizeof *t->offload->blocks);
}

bool offload_allocate(trainer *t, char *why, size_t why_bytes)
{
    offload *o = t->offload;
    if (!o)
        return true;
    /* Where less is available, the system would rather end this process than say no. Blocks that keep nothing of what is to
     * leave send nothing. */
    const size_t bytes = o->bytes ? (size_t)o->bytes : ALIGNMENT;
    if (host_available_bytes() > bytes)
        o->host = device_host_malloc(t->dev, bytes);
    if (!o->host) {
        snprintf(why, why_bytes, "the host cannot give %.3g GiB of pinned memory for offloaded activations",
                 (double)bytes / 0x1p30);
        return false;
    }
    o->stream = dist_stream_create(t->dev, STREAM_NORMAL, "offload");
    o->reached = dist_event_create(t->dev);
    for (int l = 0; l < t->o.config.layers; l++) {
        away *a = &o->blocks[l];
        if (!t->schedule.away[l])
            continue;
        a->sent = dist_event_create(t->dev);
        a->fetched = dist_event_create(t->dev);
        for (int i = 0; i < 4; i++)
            a->waits[i] = device_event_create(t->dev);
    }
    return true;
}

void offload_free(trainer *t)
{
    offload *o = t->offload;
    if (!o)
        return;
    if (o->stream)
        dist_stream_destroy(t->dev, o->stream);
    for (int l = 0; l < t->o.config.layers && o->stream; l++) {
        away *a = &o->blocks[l];
        if (!a->sent)
            continue;
        dist_event_destroy(t->dev, a->sent);
        dist_event_destroy(t->dev, a->fetched);
        for (int i = 0; i < 4; i++)
            device_event_destroy(t->dev, a->waits[i]);
    }
    if (o->reached)
        dist_event_destroy(t->dev, o->reached);
    if (o->host)
        device_host_free(t->dev, o->host);
    free(o->blocks);
    free(o);
    t->offload = NULL;
}

/* The stream goes on from where main is. */
static void follow_main(trainer *t)
{
    dist_event_record(t->dev, t->offload->reached, t->main);
    dist_event_wait(t->dev, t->offload->reached, t->offload->stream);
}

static void wait_for(trainer *t, dist_event *copied, device_event *const *between)
{
    device_event_mark(t->dev, between[0]);
    dist_event_wait(t->dev, copied, t->main);
    device_event_mark(t->dev, between[1]);
}

void offload_begin(trainer *t)
{
    if (t->offload && arena_planning(t->arena))
        t->offload->bytes = 0;
}

static void send(trainer *t, int layer)
{
    offload *o = t->offload;
    away *a = &o->blocks[layer];
    tensor x[TENSORS];
    const int n = tensors_of(t, &t->blocks[layer], x);
    if (launching(t))
        follow_main(t);
    for (int i = 0; i < n; i++) {
        const bool leaves = (x[i].kind & t->schedule.away[layer]) && *x[i].slot >= 0;
        if (arena_planning(t->arena)) {
            a->at[i] = leaves ? o->bytes : -1;
            a->bytes[i] = leaves ? bytes_of(t, &x[i]) : 0;
            o->bytes += ((int64_t)a->bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        } else if (leaves && launching(t)) {
            dist_stream_copy(t->dev, o->stream, o->host + a->at[i], step_pointer(t, *x[i].slot), a->bytes[i]);
        }
    }
    if (launching(t))
        dist_event_record(t->dev, a->sent, o->stream);
}

static void drop(trainer *t, int layer)
{
    away *a = &t->offload->blocks[layer];
    tensor x[TENSORS];
    const int n = tensors_of(t, &t->blocks[layer], x);
    if (launching(t))
        wait_for(t, a->sent, a->waits);
    for (int i = 0; i < n; i++)
        if (a->at[i] >= 0)
            step_drop(t, x[i].slot);
}

static int at_least_one(int blocks)
{
    return blocks > 1 ? blocks : 1;
}

void offload_send(trainer *t, int layer)
{
    const int old = layer - at_least_one(t->schedule.behind);
    if (!t->offload)
        return;
    if (t->schedule.away[layer])
        send(t, layer);
    if (old >= 0 && t->schedule.away[old])
        drop(t, old);
}

void offload_forward_end(trainer *t)
{
    const int layers = t->o.config.layers, first = layers - at_least_one(t->schedule.behind);
    for (int l = first > 0 ? first : 0; l < layers && t->offload; l++)
        if (t->schedule.away[l])
            drop(t, l);
}

static void fetch(trainer *t, int layer)
{
    offload *o = t->offload;
    away *a = &o->blocks[layer];
    tensor x[TENSORS];
    const int n = tensors_of(t, &t->blocks[layer], x);
    if (launching(t))
        follow_main(t);
    for (int i = 0; i < n; i++) {
        if (a->at[i] < 0)
            continue;
        *x[i].slot = step_take(t, a->bytes[i], MEMORY_ACTIVATION, layer, x[i].name);
        if (launching(t))
            dist_stream_copy(t->dev, o->stream, step_pointer(t, *x[i].slot), o->host + a->at[i], a->bytes[i]);
    }
    if (launching(t))
        dist_event_record(t->dev, a->fetched, o->stream);
}

void offload_fetch(trainer *t, int layer)
{
    const int first = layer - at_least_one(t->schedule.ahead), top = t->o.config.layers - 1;
    if (!t->offload)
        return;
    for (int l = layer == top ? top : first; l >= 0 && l >= first; l--)
        if (t->schedule.away[l])
            fetch(t, l);
    if (t->schedule.away[layer] && launching(t))
        wait_for(t, t->offload->blocks[layer].fetched, t->offload->blocks[layer].waits + 2);
}

int64_t trainer_offloaded_bytes(const trainer *t)
{
    return t->offload ? t->offload->bytes : 0;
}

double trainer_offload_exposed_ms(trainer *t)
{
    double ms = 0;
    for (int l = 0; t->offload && l < t->o.config.layers; l++)
        for (int i = 0; i < 4 && t->schedule.away[l]; i += 2)
            ms += device_event_ms(t->dev, t->offload->blocks[l].waits[i], t->offload->blocks[l].waits[i + 1]);
    return ms;
}
