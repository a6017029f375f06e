/* SPDX-License-Identifier: MIT */
/* Activations that go to pinned memory of the host behind the forward of their block and come back ahead of its backward,
 * on a stream of their own (Rajbhandari et al., 2021, "ZeRO-Infinity", does so with the inputs of blocks).
 *
 * Taking and dropping are calls of the walk like any other, so memory is planned. One rule holds across streams: a tensor
 * that left is dropped only where main has waited for its copy, and one that is to come back is written only once the
 * copying stream has waited for main at the point where it was taken. The host's memory of a block is written again by
 * the next micro-batch only, whose copies follow this one's on the same stream. */
#include "common/step/offload.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/units.h"
#include "common/device/host.h"
#include "common/formulas/offload.h"
#include "common/step/linear_float8.h"

enum { TENSORS = 13, ALIGNMENT = 256 };

typedef struct away {    /* a block */
    int64_t at[TENSORS]; /* where each tensor lies in the host's memory; -1: it stays on the device */
    size_t bytes[TENSORS];
    device_event *sent, *fetched;
    device_event *waits[4]; /* main waits for what is sent from [0] to [1], for what is fetched from [2] to [3] */
} away;

struct offload {
    away *blocks;
    char *host;
    int64_t bytes;
    void *stream;
};

typedef struct tensor {
    int kind; /* OFFLOAD_... */
    const char *name;
    arena_slot *slot;
    int64_t
        columns; /* of a (T, columns) activation; 0: what attention saves; -1 - w: the turned input of linear layer w */
} tensor;

static int tensors_of(const step *s, block_slots *b, tensor *out)
{
    const tensor all[TENSORS] = {{OFFLOAD_RESIDUAL, "residual", &b->x, s->d},
                                 {OFFLOAD_RESIDUAL, "residual_mid", &b->x_mid, s->d},
                                 {OFFLOAD_ATTN, "norm1", &b->n1, s->d},
                                 {OFFLOAD_ATTN, "qkv", &b->qkv, s->qkv},
                                 {OFFLOAD_ATTN, "attention_out", &b->att, s->width},
                                 {OFFLOAD_ATTN, "probabilities", &b->saved, 0},
                                 {OFFLOAD_MLP, "norm2", &b->n2, s->d},
                                 {OFFLOAD_MLP, "gate_up", &b->gate_up, 2 * (int64_t)s->f},
                                 {OFFLOAD_MLP, "swiglu", &b->h, s->f},
                                 {OFFLOAD_ATTN, "norm1 in float8", &b->turned[LINEAR_QKV], -1 - LINEAR_QKV},
                                 {OFFLOAD_ATTN, "attention_out in float8", &b->turned[LINEAR_O], -1 - LINEAR_O},
                                 {OFFLOAD_MLP, "norm2 in float8", &b->turned[LINEAR_GATE_UP], -1 - LINEAR_GATE_UP},
                                 {OFFLOAD_MLP, "swiglu in float8", &b->turned[LINEAR_W2], -1 - LINEAR_W2}};
    for (int i = 0; i < TENSORS; i++)
        out[i] = all[i];
    return TENSORS;
}

static size_t bytes_of(const step *s, const tensor *x)
{
    if (x->columns < 0)
        return float8_turned_bytes(s, (int)(-1 - x->columns));
    return x->columns ? step_rows(s, x->columns) : s->attention_needs.saved;
}

void offload_create(step *s)
{
    if (!offload_count(&s->schedule) || s->o.mode == STEP_FORWARD)
        return;
    s->offload = xcalloc(1, sizeof *s->offload);
    s->offload->blocks = xcalloc((size_t)s->o.config.layers, sizeof *s->offload->blocks);
}

bool offload_allocate(step *s, char *why, size_t why_bytes)
{
    offload *o = s->offload;
    if (!o)
        return true;
    /* Where less is available, the system would rather end this process than say no. Blocks that keep nothing of what is to
     * leave send nothing. */
    const size_t bytes = o->bytes ? (size_t)o->bytes : ALIGNMENT;
    if (host_available_bytes() > bytes)
        o->host = device_host_malloc(s->dev, bytes);
    if (!o->host) {
        snprintf(why, why_bytes, "the host cannot give %.3g GiB of pinned memory for offloaded activations",
                 (double)bytes / GIB);
        return false;
    }
    o->stream = device_stream_create(s->dev, STREAM_NORMAL, "offload");
    for (int l = 0; l < s->o.config.layers; l++) {
        away *a = &o->blocks[l];
        if (!s->schedule.away[l])
            continue;
        a->sent = device_event_create(s->dev);
        a->fetched = device_event_create(s->dev);
        for (int i = 0; i < 4; i++)
            a->waits[i] = device_event_create(s->dev);
    }
    return true;
}

void offload_free(step *s)
{
    OWNED offload *o = s->offload;
    if (!o)
        return;
    device_stream_destroy(s->dev, o->stream);
    for (int l = 0; l < s->o.config.layers; l++) {
        away *a = &o->blocks[l];
        device_event_destroy(s->dev, a->sent);
        device_event_destroy(s->dev, a->fetched);
        for (int i = 0; i < 4; i++)
            device_event_destroy(s->dev, a->waits[i]);
    }
    device_host_free(s->dev, o->host);
    free(o->blocks);
    s->offload = NULL;
}

static void wait_for(step *s, device_event *copied, device_event *const *between)
{
    device_event_mark(s->dev, between[0]);
    device_stream_wait(s->dev, s->main, copied);
    device_event_mark(s->dev, between[1]);
}

void offload_begin(step *s)
{
    if (s->offload && arena_planning(s->arena))
        s->offload->bytes = 0;
}

static void send(step *s, int layer)
{
    offload *o = s->offload;
    away *a = &o->blocks[layer];
    tensor x[TENSORS];
    const int n = tensors_of(s, &s->micro->blocks[layer], x);
    if (step_launching(s))
        device_stream_follow(s->dev, o->stream, s->main);
    for (int i = 0; i < n; i++) {
        const bool leaves = (x[i].kind & s->schedule.away[layer]) && *x[i].slot >= 0;
        if (arena_planning(s->arena)) {
            a->at[i] = leaves ? o->bytes : -1;
            a->bytes[i] = leaves ? bytes_of(s, &x[i]) : 0;
            o->bytes += ((int64_t)a->bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        } else if (leaves && step_launching(s)) {
            device_stream_copy(s->dev, o->stream, o->host + a->at[i], step_pointer(s, *x[i].slot), a->bytes[i]);
        }
    }
    if (step_launching(s))
        device_stream_record(s->dev, o->stream, a->sent);
}

static void drop(step *s, int layer)
{
    away *a = &s->offload->blocks[layer];
    tensor x[TENSORS];
    const int n = tensors_of(s, &s->micro->blocks[layer], x);
    if (step_launching(s))
        wait_for(s, a->sent, a->waits);
    for (int i = 0; i < n; i++)
        if (a->at[i] >= 0)
            step_drop(s, x[i].slot);
}

static int at_least_one(int blocks)
{
    return blocks > 1 ? blocks : 1;
}

void offload_send(step *s, int layer)
{
    const int old = layer - at_least_one(s->schedule.behind);
    if (!s->offload)
        return;
    if (s->schedule.away[layer])
        send(s, layer);
    if (old >= 0 && s->schedule.away[old])
        drop(s, old);
}

void offload_forward_end(step *s)
{
    const int layers = s->o.config.layers, first = layers - at_least_one(s->schedule.behind);
    for (int l = first > 0 ? first : 0; l < layers && s->offload; l++)
        if (s->schedule.away[l])
            drop(s, l);
}

static void fetch(step *s, int layer)
{
    offload *o = s->offload;
    away *a = &o->blocks[layer];
    tensor x[TENSORS];
    const int n = tensors_of(s, &s->micro->blocks[layer], x);
    if (step_launching(s))
        device_stream_follow(s->dev, o->stream, s->main);
    for (int i = 0; i < n; i++) {
        if (a->at[i] < 0)
            continue;
        *x[i].slot = step_take(s, a->bytes[i], MEMORY_ACTIVATION, layer, x[i].name);
        if (step_launching(s))
            device_stream_copy(s->dev, o->stream, step_pointer(s, *x[i].slot), o->host + a->at[i], a->bytes[i]);
    }
    if (step_launching(s))
        device_stream_record(s->dev, o->stream, a->fetched);
}

void offload_fetch(step *s, int layer)
{
    const int first = layer - at_least_one(s->schedule.ahead), top = s->o.config.layers - 1;
    if (!s->offload)
        return;
    for (int l = layer == top ? top : first; l >= 0 && l >= first; l--)
        if (s->schedule.away[l])
            fetch(s, l);
    if (s->schedule.away[layer] && step_launching(s))
        wait_for(s, s->offload->blocks[layer].fetched, s->offload->blocks[layer].waits + 2);
}

int64_t offload_moved_bytes(const step *s)
{
    return s->offload ? s->offload->bytes : 0;
}

double offload_waited_ms(step *s)
{
    double ms = 0;
    for (int l = 0; s->offload && l < s->o.config.layers; l++)
        for (int i = 0; i < 4 && s->schedule.away[l]; i += 2)
            ms += device_event_ms(s->dev, s->offload->blocks[l].waits[i], s->offload->blocks[l].waits[i + 1]);
    return ms;
}
