/* SPDX-License-Identifier: MIT */
/* The clock of a collective. A sample starts after a barrier, so that a late rank does not count as the op's time.
 * It is one call, or as many calls back to back as fill a millisecond: between two events on the stream of a GPU, by
 * the host's clock on a CPU. A graph of the calls is replayed twice and the second replay counts, because its launch
 * is hidden behind the first one. So at least some twenty calls of a small op lie between two events, on up to eight
 * ranks. */
#include "bench/collective/collective.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/session/watchdog.h"

/* To the next rank, from the one before, at the same time. */
static void pass_on(const collective *k, void *stream)
{
    const int rank = comm_rank(k->c), n = comm_size(k->c);
    comm_group_begin(k->c);
    comm_send(k->c, k->send, k->count, k->t, (rank + 1) % n, stream);
    comm_recv(k->c, k->recv, k->count, k->t, (rank + n - 1) % n, stream);
    comm_group_end(k->c);
}

void collective_enqueue(collective *k, int calls)
{
    void *stream = device_stream(k->s->dev);
    for (int i = 0; i < calls && k->p; i++)
        peers_collective(k->p, k->algorithm, k->send, k->recv, k->count, k->t, stream);
    for (int i = 0; i < calls && !k->p; i++)
        switch (k->op) {
        case COLLECTIVE_ALL_REDUCE: comm_all_reduce(k->c, k->send, k->recv, k->count, k->t, COMM_SUM, stream); break;
        case COLLECTIVE_ALL_GATHER: comm_all_gather(k->c, k->send, k->recv, k->count, k->t, stream); break;
        case COLLECTIVE_REDUCE_SCATTER:
            comm_reduce_scatter(k->c, k->send, k->recv, k->count, k->t, COMM_SUM, stream);
            break;
        case COLLECTIVE_BROADCAST: comm_broadcast(k->c, k->send, k->recv, k->count, k->t, 0, stream); break;
        case COLLECTIVE_REDUCE: comm_reduce(k->c, k->send, k->recv, k->count, k->t, COMM_SUM, 0, stream); break;
        case COLLECTIVE_ALL_TO_ALL: comm_all_to_all(k->c, k->send, k->recv, k->count, k->t, stream); break;
        case COLLECTIVE_SEND_RECV: pass_on(k, stream); break;
        }
}

void collective_wait(collective *k)
{
    device_sync(k->s->dev);
    watchdog_beat();
}

double collective_estimate(collective *k)
{
    double total = 0;
    int n = 0;
    for (int i = 0; i < k->warmup || n == 0; i++) {
        const double start = host_seconds();
        collective_enqueue(k, 1);
        collective_wait(k);
        if (i == 0 && k->warmup > 1)
            continue;
        total += host_seconds() - start;
        n++;
    }
    return total * 1e3 / n;
}

double collective_burst(collective *k, int calls)
{
    const double start = host_seconds();
    collective_enqueue(k, calls);
    collective_wait(k);
    return (host_seconds() - start) * 1e3 / calls;
}

bool collective_capture(collective *k)
{
    if (!device_graph_begin(k->s->dev))
        return false;
    collective_enqueue(k, k->calls);
    k->replay = device_graph_end(k->s->dev);
    return k->replay;
}

static void restore(collective *k)
{
    const size_t bytes = k->send_n * comm_dtype_bytes(k->t);
    if (k->source) /* summed up again and again it would overflow */
        device_copy(k->s->dev, k->send, k->source, bytes);
    if (k->s->timing.cold_l2)
        device_l2_flush(k->s->dev);
}

static double one_sample(collective *k, device_event *from, device_event *to)
{
    device *d = k->s->dev;
    restore(k);
    comm_barrier(k->c, device_stream(d));
    if (k->lead_in)
        device_graph_launch(d, k->replay);
    device_event_record(d, from);
    if (k->replay)
        device_graph_launch(d, k->replay);
    else
        collective_enqueue(k, k->calls);
    device_event_record(d, to);
    const double ms = device_event_ms(d, from, to);
    collective_wait(k);
    return ms / k->calls;
}

void collective_sample(collective *k, samples *out_ms)
{
    device *d = k->s->dev;
    device_event *from = device_event_create(d), *to = device_event_create(d);
    if (k->graph && !k->replay)
        die(EXIT_CODE_FAILURE, "bug: a graph was asked for and there is none");
    one_sample(k, from, to); /* the graph's first launch uploads it */
    device_sense_begin(d);
    for (int i = 0; i < k->samples; i++)
        samples_add(out_ms, one_sample(k, from, to));
    device_sense_end(d, true);
    device_event_destroy(d, from);
    device_event_destroy(d, to);
}
