/* SPDX-License-Identifier: MIT */
/* Stages that copy tensors into each other's arenas: each rank is a thread of this process with a trainer, streams and words of its
 * own. Every schedule has the bits of one rank, with micro-batches and blocks that do not divide; a place is filled with
 * NaN when it opens, so that what came too early, or is read too early, is seen. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include <pthread.h>

#include "common/replica/copies.h"
#include "common/replica/stages.h"

enum { RANKS = 4, LAYERS = 9, STAGES_MOST = 9 };

typedef struct rank {
    int number;
    model_bed own;
    step_table *table;
    trainer *t;
    copies *c;
    step_hops wire;
    uint32_t *flags;
    double losses[OUTCOME_STEPS];
    bool ok;
} rank;

static void on_place(void *user, const step_hop *h)
{
    rank *r = user;
    r->wire.place(r->wire.user, h);
}

/* Some take their time to open, others to receive. */
static void on_open(void *user, const step_hop *h)
{
    rank *r = user;
    if ((h->micro + r->number) % 3 == 0)
        usleep(500);
    memset(h->at, 0xff, h->bytes);
    r->wire.open(r->wire.user, h);
}

static void on_receive(void *user, const step_hop *h)
{
    rank *r = user;
    r->wire.receive(r->wire.user, h);
}

static void on_send(void *user, const step_hop *h)
{
    rank *r = user;
    if ((h->micro + r->number) % 3 == 1)
        usleep(500);
    r->wire.send(r->wire.user, h);
}

static void on_sent(void *user, const step_hop *h)
{
    rank *r = user;
    r->wire.sent(r->wire.user, h);
    memset(h->at, 0xff, h->bytes); /* nobody reads it again */
}

static void rank_create(rank *r, const step_options *o, const pipeline_table *all, const int *ends, int number)
{
    step_options mine = *o;
    *r = (rank){.number = number, .table = stages_table(all, ends, number)};
    mine.table = r->table;
    r->t = own_trainer(&r->own, &mine);
    r->c = copies_create(r->own.dev, &all->shape, ends, number);
    r->wire = copies_hops(r->c);
    r->flags = xcalloc(2 * (size_t)copies_count(&all->shape), sizeof *r->flags);
    trainer_set_hops(
        r->t,
        &(step_hops){
            .user = r, .place = on_place, .open = on_open, .receive = on_receive, .send = on_send, .sent = on_sent});
    trainer_rehearse(r->t);
}

static void connect(rank *ranks, const pipeline_shape *s)
{
    const int n = copies_count(s);
    copies_memory of[RANKS];
    OWNED int64_t *places = xcalloc((size_t)s->ranks * (size_t)n, sizeof *places);
    for (int r = 0; r < s->ranks; r++) {
        of[r] = (copies_memory){trainer_state_of(ranks[r].t).scratch, ranks[r].flags};
        copies_places(ranks[r].c, of[r].base, places + r * n);
    }
    for (int r = 0; r < s->ranks; r++)
        copies_connect(ranks[r].c, of, places);
}

static void *run(void *arg)
{
    rank *r = arg;
    r->ok = golden_steps(r->t, r->losses);
    return NULL;
}

static void rank_free(rank *r, int words)
{
    copies_free(r->c);
    for (int i = 0; i < words; i++)
        assert_int_equal(r->flags[i], 0); /* or a graph of the step could not run again */
    own_trainer_free(&r->own, r->t);
    stages_table_free(r->table);
    free(r->flags);
}

static void same_tensor(const rank *whole, const rank *r, const param_tensor *p, const char *schedule)
{
    const param_tensor *same = params_find(trainer_params(whole->t), p->kind, p->layer);
    const size_t bytes = (size_t)p->count * sizeof(float);
    float *a = xmalloc(2 * bytes), *b = a + p->count;
    trainer_read_param(whole->t, same, a);
    trainer_read_param(r->t, p, b);
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s: %s of rank %d is not that of the whole model, bit for bit", schedule, p->name, r->number);
    free(a);
}

static void same_as_whole(const char *schedule, int ranks_count, int chunks, int micros)
{
    const pipeline_shape s = {pipeline_schedule_find(schedule), ranks_count, chunks, micros};
    pipeline_table *all = pipeline_table_create(&s, NULL);
    step_options o = three_blocks("fp32");
    rank ranks[RANKS], whole = {.number = -1};
    pthread_t threads[RANKS];
    int ends[STAGES_MOST];
    o.config.layers = LAYERS;
    o.batch = 1;
    o.micro_batches = micros;
    whole.t = create(&o);
    run(&whole);
    o.update_units = true; /* each rank's, unit by unit */
    stages_even(&s, LAYERS, ends);
    for (int r = 0; r < s.ranks; r++)
        rank_create(&ranks[r], &o, all, ends, r);
    connect(ranks, &s);
    for (int r = 0; r < s.ranks; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, &ranks[r]), 0);
    for (int r = 0; r < s.ranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < s.ranks; r++) {
        assert_true(ranks[r].ok);
        for (int k = 0; k < OUTCOME_STEPS && r == pipeline_loss_rank(&s); k++)
            if (ranks[r].losses[k] != whole.losses[k])
                fail_msg("%s: the loss is %.9g, not %.9g", schedule, ranks[r].losses[k], whole.losses[k]);
        for (int i = 0; i < trainer_params(ranks[r].t)->count; i++)
            same_tensor(&whole, &ranks[r], &trainer_params(ranks[r].t)->tensors[i], schedule);
    }
    for (int r = 0; r < s.ranks; r++)
        rank_free(&ranks[r], 2 * copies_count(&s));
    trainer_free(whole.t);
    pipeline_table_free(all);
}

TEST(every_schedule_has_the_bits_of_one_rank)
{
    for (const pipeline_schedule *row = pipeline_schedules; row->name; row++) {
        const bool rounds = strcmp(row->name, "interleaved") == 0;
        same_as_whole(row->name, RANKS, row->chunks_most < 2 ? 1 : 2, rounds ? RANKS : 5);
    }
    same_as_whole("1f1b", 2, 1, 1);
    same_as_whole("zb-v", 2, 2, 5);
    same_as_whole("interleaved", 3, 3, 6);
}

TESTS_WITH(bed_create, bed_destroy)
