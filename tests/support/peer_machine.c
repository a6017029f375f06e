/* SPDX-License-Identifier: MIT */
/* See peer_machine.h. */
#include "tests/support/test.h"

#include "tests/support/peer_machine.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "common/core/numeric.h"
#include "kernels/shared/direct.h"
#include "kernels/shared/direct_layout.h"

enum { RANKS = PEER_MACHINE_RANKS, BLOCKS = 2, THREADS = 3, MESSAGE_WORDS = 150, LOCKS = 16 };

typedef struct slot {
    uint32_t words[DIRECT_WORDS], epoch;
    bool unread;
} slot;

typedef struct mailbox {
    pthread_mutex_t locks[LOCKS]; /* a packet is one access */
    slot *slots;
} mailbox;

typedef struct machine {
    int ranks, calls, slow; /* slow: the rank that takes its time; -1: each in turn */
    bool one_half;          /* the planted mistake: the halves are one */
    size_t capacity;
    mailbox box[RANKS];
    _Atomic uint64_t state[RANKS];
    pthread_barrier_t over[RANKS]; /* a stream begins a call when the one before is over */
    float in[RANKS][RANKS * MESSAGE_WORDS], out[RANKS][RANKS * MESSAGE_WORDS];
    atomic_bool leave;
    atomic_int overwritten, wrong;
} machine;

typedef struct block {
    machine *m;
    int rank, number;
} block;

typedef struct call { /* the same on all ranks */
    sb_direct_algorithm algorithm;
    bool in_place;
    size_t words; /* of a slice, where ranks have slices */
    unsigned blocks, threads;
} call;

static uint32_t draw(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t x = a * 0x9e3779b9u ^ b * 0x85ebca6bu ^ c * 0xc2b2ae35u;
    for (int i = 0; i < 3; i++)
        x = (x ^ x >> 15) * 0x2c1b3c6du + 0x165667b1u;
    return x ^ x >> 13;
}

static call call_of(uint32_t number)
{
    const size_t sizes[] = {1, 3, 4, 31, 32, 100, MESSAGE_WORDS};
    return (call){.algorithm = draw(number, 1, 0) % 4,
                  .in_place = draw(number, 2, 0) % 2,
                  .words = sizes[draw(number, 3, 0) % 7],
                  .blocks = 1 + draw(number, 4, 0) % BLOCKS,
                  .threads = 1 + draw(number, 5, 0) % THREADS};
}

/* Values so different in size that the order of a sum shows. */
static float value_of(int rank, uint32_t number, size_t i)
{
    return (float)((int)(draw((uint32_t)rank, number, (uint32_t)i) % 2001) - 1000) * (i % 2 ? 1e-3f : 1e4f);
}

static void put(machine *m, int rank, size_t at, const uint32_t *words, uint32_t epoch)
{
    mailbox *box = &m->box[rank];
    slot *s = &box->slots[at];
    pthread_mutex_lock(&box->locks[at % LOCKS]);
    if (s->unread) {
        atomic_fetch_add(&m->overwritten, 1);
        atomic_store(&m->leave, true);
    }
    memcpy(s->words, words, sizeof s->words);
    s->epoch = epoch;
    s->unread = true;
    pthread_mutex_unlock(&box->locks[at % LOCKS]);
}

static bool take(machine *m, int rank, size_t at, uint32_t *words, uint32_t epoch)
{
    mailbox *box = &m->box[rank];
    slot *s = &box->slots[at];
    for (bool there = false; !there; sched_yield()) {
        pthread_mutex_lock(&box->locks[at % LOCKS]);
        there = s->epoch == epoch;
        if (there) {
            memcpy(words, s->words, sizeof s->words);
            s->unread = false;
        }
        pthread_mutex_unlock(&box->locks[at % LOCKS]);
        if (!there && atomic_load(&m->leave))
            return false;
    }
    return true;
}

static void load(const float *from, size_t n, size_t packet, uint32_t *words)
{
    for (size_t k = 0; k < DIRECT_WORDS; k++)
        words[k] = packet * DIRECT_WORDS + k < n ? float_bits(from[packet * DIRECT_WORDS + k]) : 0;
}

static void store(float *to, size_t n, size_t packet, const uint32_t *words)
{
    for (size_t k = 0; k < DIRECT_WORDS && packet * DIRECT_WORDS + k < n; k++)
        memcpy(&to[packet * DIRECT_WORDS + k], &words[k], 4);
}

/* A packet of the sum, of this rank's own part and of what lies at `at` in the regions of the others. */
static bool add(const block *b, size_t half, size_t at, const float *in, size_t n, size_t packet, uint32_t epoch,
                uint32_t *sum)
{
    float total[DIRECT_WORDS] = {0}, each[DIRECT_WORDS];
    for (int r = 0; r < b->m->ranks; r++) {
        uint32_t words[DIRECT_WORDS];
        if (r == b->rank)
            load(in, n, packet, words);
        else if (!take(b->m, b->rank, half + direct_region(r, b->m->capacity) + at, words, epoch))
            return false;
        memcpy(each, words, sizeof each);
        for (int k = 0; k < DIRECT_WORDS; k++)
            total[k] = r ? total[k] + each[k] : each[k];
    }
    memcpy(sum, total, sizeof total);
    return true;
}

static void send_to_others(const block *b, size_t at, const uint32_t *words, uint32_t epoch)
{
    for (int r = 0; r < b->m->ranks; r++)
        if (r != b->rank)
            put(b->m, r, at, words, epoch);
}

static void dawdle(const block *b, uint32_t number, size_t i)
{
    const int slow = b->m->slow < 0 ? (int)(number / 4) % b->m->ranks : b->m->slow;
    if (slow == b->rank && draw(number, (uint32_t)i, 7) % 4 == 0)
        usleep(draw(number, (uint32_t)i, 8) % 200);
}

static bool one_shot(const block *b, const call *c, uint32_t number, const float *in, float *out, size_t half,
                     uint32_t epoch)
{
    const size_t packets = direct_packets(4 * c->words), stride = c->blocks * c->threads;
    const size_t own = half + direct_region(b->rank, b->m->capacity);
    uint32_t words[DIRECT_WORDS];
    for (size_t t = 0; t < c->threads; t++) {
        const size_t first = (size_t)b->number * c->threads + t;
        for (size_t i = first; i < packets && i <= first; i += stride) {
            load(in, c->words, i, words);
            send_to_others(b, own + i, words, epoch);
        }
        for (size_t i = first; i < packets; i += stride) {
            if (i + stride < packets) {
                load(in, c->words, i + stride, words);
                send_to_others(b, own + i + stride, words, epoch);
            }
            dawdle(b, number, i);
            if (!add(b, half, i, in, c->words, i, epoch, words))
                return false;
            store(out, c->words, i, words);
        }
    }
    return true;
}

static bool two_shot(const block *b, const call *c, uint32_t number, const float *in, float *out, size_t half,
                     uint32_t epoch)
{
    const size_t packets = direct_packets(4 * c->words), slice = direct_slice(packets, b->m->ranks);
    const size_t own = half + direct_region(b->rank, b->m->capacity), stride = c->blocks * c->threads;
    uint32_t words[DIRECT_WORDS];
    for (size_t t = 0; t < c->threads; t++) {
        const size_t first = (size_t)b->number * c->threads + t;
        for (size_t i = first; i < slice; i += stride)
            for (int r = 0; r < b->m->ranks; r++)
                if (r != b->rank && (size_t)r * slice + i < packets) {
                    load(in, c->words, (size_t)r * slice + i, words);
                    put(b->m, r, own + i, words, epoch);
                }
        for (size_t i = first; i < slice && (size_t)b->rank * slice + i < packets; i += stride) {
            dawdle(b, number, i);
            if (!add(b, half, i, in, c->words, (size_t)b->rank * slice + i, epoch, words))
                return false;
            send_to_others(b, own + slice + i, words, epoch);
            store(out, c->words, (size_t)b->rank * slice + i, words);
        }
        for (size_t i = first; i < slice; i += stride)
            for (int r = 0; r < b->m->ranks; r++)
                if (r != b->rank && (size_t)r * slice + i < packets) {
                    dawdle(b, number, i);
                    if (!take(b->m, b->rank, half + direct_region(r, b->m->capacity) + slice + i, words, epoch))
                        return false;
                    store(out, c->words, (size_t)r * slice + i, words);
                }
    }
    return true;
}

/* Both are one trip: a slice to everyone, or everyone's slice to them. */
static bool sliced(const block *b, const call *c, uint32_t number, const float *in, float *out, size_t half,
                   uint32_t epoch)
{
    const size_t packets = direct_packets(4 * c->words), stride = c->blocks * c->threads;
    const size_t own = half + direct_region(b->rank, b->m->capacity), n = c->words;
    const bool gather = c->algorithm == SB_DIRECT_ALL_GATHER;
    uint32_t words[DIRECT_WORDS];
    for (size_t t = 0; t < c->threads; t++) {
        const size_t first = (size_t)b->number * c->threads + t;
        for (size_t i = first; i < packets; i += stride)
            for (int r = 0; r < b->m->ranks; r++) {
                load(gather ? in : in + (size_t)r * n, n, i, words);
                if (r != b->rank)
                    put(b->m, r, own + i, words, epoch);
                else if (gather)
                    store(out + (size_t)r * n, n, i, words);
            }
        for (size_t i = first; i < packets; i += stride) {
            dawdle(b, number, i);
            if (!gather && !add(b, half, i, in + (size_t)b->rank * n, n, i, epoch, words))
                return false;
            if (!gather)
                store(out, n, i, words);
            for (int r = 0; gather && r < b->m->ranks; r++) {
                if (r == b->rank)
                    continue;
                if (!take(b->m, b->rank, half + direct_region(r, b->m->capacity) + i, words, epoch))
                    return false;
                store(out + (size_t)r * n, n, i, words);
            }
        }
    }
    return true;
}

static uint32_t begin_call(machine *m, int rank, unsigned blocks)
{
    if (blocks == 1) {
        const uint64_t before = m->state[rank];
        m->state[rank] = direct_after_one_block(before);
        return direct_epoch(before);
    }
    const uint64_t before = atomic_fetch_add(&m->state[rank], 1);
    if (direct_is_last(before, blocks))
        atomic_fetch_add(&m->state[rank], direct_turn(blocks));
    return direct_epoch(before);
}

static void check_result(const block *b, const call *c, uint32_t number, const float *out)
{
    const bool gather = c->algorithm == SB_DIRECT_ALL_GATHER, scatter = c->algorithm == SB_DIRECT_REDUCE_SCATTER;
    for (size_t i = 0; i < c->words * (gather ? (size_t)b->m->ranks : 1); i++) {
        const size_t at = scatter ? (size_t)b->rank * c->words + i : i;
        float want = gather ? value_of((int)(i / c->words), number, i % c->words) : value_of(0, number, at);
        for (int r = 1; r < b->m->ranks && !gather; r++)
            want += value_of(r, number, at);
        if (float_bits(want) != float_bits(out[i]))
            atomic_fetch_add(&b->m->wrong, 1);
    }
}

static void *run_block(void *arg)
{
    const block *b = arg;
    machine *m = b->m;
    for (uint32_t number = 0; number < (uint32_t)m->calls; number++) {
        const call c = call_of(number);
        const bool gather = c.algorithm == SB_DIRECT_ALL_GATHER, scatter = c.algorithm == SB_DIRECT_REDUCE_SCATTER;
        const size_t own = c.in_place ? (size_t)b->rank * c.words : 0;
        float *in = m->in[b->rank] + (gather ? own : 0);
        float *out = (c.in_place ? m->in[b->rank] : m->out[b->rank]) + (scatter ? own : 0);
        if (b->number == 0)
            for (size_t i = 0; i < c.words * (scatter ? (size_t)m->ranks : 1); i++)
                in[i] = value_of(b->rank, number, i);
        pthread_barrier_wait(&m->over[b->rank]);
        if (b->number < (int)c.blocks) {
            const uint32_t epoch = begin_call(m, b->rank, c.blocks);
            const size_t half = m->one_half ? 0 : direct_half(epoch, m->ranks, m->capacity);
            (gather || scatter                   ? sliced
             : c.algorithm == SB_DIRECT_TWO_SHOT ? two_shot
                                                 : one_shot)(b, &c, number, in, out, half, epoch);
        }
        pthread_barrier_wait(&m->over[b->rank]);
        if (b->number == 0 && !atomic_load(&m->leave))
            check_result(b, &c, number, out);
    }
    return NULL;
}

peer_outcome peer_machine_run(int ranks, int calls, int slow, bool one_half, uint32_t epoch, uint32_t stale)
{
    OWNED machine *m = xcalloc(1, sizeof *m);
    pthread_t threads[RANKS][BLOCKS];
    block blocks[RANKS][BLOCKS];
    const size_t bytes = direct_mailbox_bytes(4 * MESSAGE_WORDS, ranks);
    m->ranks = ranks;
    m->calls = calls;
    m->slow = slow;
    m->one_half = one_half;
    m->capacity = direct_capacity(bytes, ranks);
    for (int r = 0; r < ranks; r++) {
        const size_t slots = (bytes - DIRECT_HEADER_BYTES) / DIRECT_PACKET_BYTES;
        m->box[r].slots = xcalloc(slots, sizeof(slot));
        for (size_t i = 0; i < slots; i++)
            m->box[r].slots[i].epoch = stale;
        for (int i = 0; i < LOCKS; i++)
            pthread_mutex_init(&m->box[r].locks[i], NULL);
        atomic_init(&m->state[r], (uint64_t)epoch << 32);
        pthread_barrier_init(&m->over[r], NULL, BLOCKS);
    }
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < BLOCKS; i++) {
            blocks[r][i] = (block){m, r, i};
            assert_int_equal(pthread_create(&threads[r][i], NULL, run_block, &blocks[r][i]), 0);
        }
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < BLOCKS; i++)
            pthread_join(threads[r][i], NULL);
    for (int r = 0; r < ranks; r++) { /* only now: a rank writes to the mailboxes of those that have ended */
        pthread_barrier_destroy(&m->over[r]);
        for (int i = 0; i < LOCKS; i++)
            pthread_mutex_destroy(&m->box[r].locks[i]);
        free(m->box[r].slots);
    }
    peer_outcome got = {.overwritten = m->overwritten, .wrong = m->wrong, .states_right = true};
    for (int r = 0; r < ranks; r++)
        got.states_right = got.states_right && m->state[r] == (uint64_t)(uint32_t)(epoch + (uint32_t)calls) << 32;
    return got;
}
