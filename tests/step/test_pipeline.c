/* SPDX-License-Identifier: MIT */
/* A model in parts that hand each other x and its gradient, in the order of one table or another: the loss, the gradients
 * and the parameters after three updates have the bits of the whole model with the same micro-batches. Parts are on one
 * rank, which hands on their slots; or each rank is a thread, and a tensor is copied from one to the other as early as the
 * hooks allow, or as late. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include <pthread.h>

enum { RANKS_MAX = 3, PARTS_MAX = 4, ACTIONS_MAX = 64, LAYERS = 4, MICROS = 4, HOPS = 2 * MICROS * (LAYERS + 1) };

/* ---- tables ---- */

/* What a rank does: "F0 B0 W0" are a forward, a backward and its weight gradients, "F0b" is in its second part. */
typedef struct stage {
    int parts;
    model_part part[PARTS_MAX];
    const char *actions;
} stage;

typedef struct schedule {
    const char *name;
    int ranks;
    stage stage[RANKS_MAX];
} schedule;

#define FIRST(end)                                                                                                     \
    {                                                                                                                  \
        1, {{0, end, true, false}},
#define MIDDLE(first, end)                                                                                             \
    {                                                                                                                  \
        1, {{first, end, false, false}},
#define LAST(first)                                                                                                    \
    {                                                                                                                  \
        1, {{first, LAYERS, false, true}},

static const schedule schedules[] = {
    {"gpipe", 2, {FIRST(2) "F0 F1 F2 F3 B0 B1 B2 B3"}, LAST(2) "F0 F1 F2 F3 B0 B1 B2 B3"}}
}
, {"gpipe", 3, {FIRST(1) "F0 F1 F2 F3 B0 B1 B2 B3"}, MIDDLE(1, 3) "F0 F1 F2 F3 B0 B1 B2 B3"},
    LAST(3) "F0 F1 F2 F3 B0 B1 B2 B3"
}
}
}
,
{
    "1f1b", 2, {FIRST(1) "F0 F1 B0 F2 B1 F3 B2 B3"}, LAST(1) "F0 B0 F1 B1 F2 B2 F3 B3"
}
}
}
, {"1f1b", 3, {FIRST(2) "F0 F1 F2 B0 F3 B1 B2 B3"}, MIDDLE(2, 3) "F0 F1 B0 F2 B1 F3 B2 B3"},
    LAST(3) "F0 B0 F1 B1 F2 B2 F3 B3"
}
}
}
,
{
    "zb-h1", 2, {FIRST(2) "F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3"}, LAST(2) "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"
}
}
}
, {"zb-h1", 3, {FIRST(1) "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"}, MIDDLE(1, 2) "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3"},
    LAST(2) "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"
}
}
}
,
    {"there and back", /* the first rank has both ends, the second one two neighbours */
     2,
     {{2,
       {{0, 1, true, false}, {3, LAYERS, false, true}},
       "F0a F1a F0b B0b F2a F1b B1b B0a W0b F3a F2b B2b B1a W0a W1b F3b B3b B2a W2b W1a B3a W3b W2a W3a"},
      {2,
       {{1, 2, false, false}, {2, 3, false, false}},
       "F0a F0b F1a F1b B0b B0a F2a F2b B1b W0b B1a F3a F3b W0a B2b W1b B2a W1a B3b W2b B3a W2a W3b W3a"}}},
    {"interleaved", /* no W, two parts a rank that are no neighbours */
     2,
     {{2,
       {{0, 1, true, false}, {2, 3, false, false}},
       "F0a F1a F0b F1b F2a F3a B0b F2b B1b F3b B0a B1a B2b B3b B2a B3a"},
      {2,
       {{1, 2, false, false}, {3, LAYERS, false, true}},
       "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"}}},
    {"two parts of one rank",
     1,
     {{2,
       {{0, 3, true, false}, {3, LAYERS, false, true}},
       "F0a F0b F1a B0b B0a F1b B1b F2a F3a B1a F2b B2b B2a F3b B3b B3a"}}},
    {"three parts of one rank",
     1,
     {{3,
       {{0, 1, true, false}, {1, 3, false, false}, {3, LAYERS, false, true}},
       "F0a F0b F0c B0c W0c F1a B0b F1b F1c B0a B1c W0a B1b W0b W1c B1a W1b W1a "
       "F2a F3a F2b F3b F3c F2c B2c B3c B2b B3b B2a B3a W2c W3c W2b W3b W2a W3a"}}},
}
;
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static int parse(const char *text, step_action *out)
{
    int n = 0;
    for (int used; *text; text += used, n++) {
        char work, part[2] = "a";
        used = 0;
        if (sscanf(text, " %c%d%n%1[a-d]%n", &work, &out[n].micro, &used, part, &used) < 2 || n == ACTIONS_MAX - 1)
            fail_msg("no action: %s", text);
        out[n].work = work == 'F' ? STEP_F : work == 'B' ? STEP_B : STEP_W;
        out[n].part = part[0] - 'a';
        used += text[used] == ' ';
    }
    return n;
}

/* ---- tensors between threads ---- */

typedef struct tensor {
    int of; /* how often it has gone before */
    void *to;
    const void *from;
    bool full;
} tensor;

typedef struct way { /* of one tensor, step after step; a rank may be one step ahead of the other */
    tensor tensors[2];
    int opened, received, sending, sent;
} way;

typedef struct network {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    way ways[HOPS];
    bool late; /* copied when one of both needs it, not when it can be */
} network;

static way *enter(network *n, const step_hop *h)
{
    assert_true(h->bytes > 0 && h->at && h->layer > 0 && h->layer < LAYERS);
    pthread_mutex_lock(&n->lock);
    return &n->ways[(h->backward * MICROS + h->micro) * (LAYERS + 1) + h->layer];
}

static tensor *nth(way *w, int n)
{
    tensor *t = &w->tensors[n % 2];
    if (t->of != n)
        *t = (tensor){.of = n};
    return t;
}

static void copy(tensor *t, const step_hop *h)
{
    if (t->to && t->from && !t->full) {
        memcpy(t->to, t->from, h->bytes);
        t->full = true;
    }
}

static void leave(network *n, tensor *t, const step_hop *h, bool may_copy)
{
    if (may_copy)
        copy(t, h);
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void on_open(void *user, const step_hop *h)
{
    network *n = user;
    way *w = enter(n, h);
    tensor *t = nth(w, w->opened++);
    t->to = h->at;
    memset(h->at, 0xff, h->bytes); /* NaN: what lay here is done with */
    leave(n, t, h, !n->late);
}

static void on_receive(void *user, const step_hop *h)
{
    network *n = user;
    way *w = enter(n, h);
    tensor *t = nth(w, w->received++);
    assert_true(t->to == h->at);
    while (!t->full && !(n->late && t->from))
        pthread_cond_wait(&n->changed, &n->lock);
    leave(n, t, h, true);
}

static void on_send(void *user, const step_hop *h)
{
    network *n = user;
    way *w = enter(n, h);
    tensor *t = nth(w, w->sending++);
    t->from = h->at;
    leave(n, t, h, !n->late);
}

static void on_sent(void *user, const step_hop *h)
{
    network *n = user;
    way *w = enter(n, h);
    tensor *t = nth(w, w->sent++);
    assert_true(t->from == h->at);
    while (!t->full && !t->to)
        pthread_cond_wait(&n->changed, &n->lock);
    copy(t, h);
    memset(h->at, 0xff, h->bytes); /* nobody reads it again */
    leave(n, t, h, false);
}

/* ---- ranks ---- */

typedef struct rank {
    step_options o;
    step_table table;
    step_action actions[ACTIONS_MAX];
    model_bed own;
    trainer *t;
    network *net;
    double losses[OUTCOME_STEPS];
    char why[256];
    bool ok;
} rank;

static void rank_create(rank *r, const step_options *o, const stage *s, network *net)
{
    *r = (rank){.o = *o, .net = net};
    r->table = (step_table){s->part, s->parts, r->actions, parse(s->actions, r->actions)};
    r->o.table = &r->table;
    r->t = own_trainer(&r->own, &r->o);
    trainer_set_hops(
        r->t, &(step_hops){.user = net, .open = on_open, .receive = on_receive, .send = on_send, .sent = on_sent});
}

static void set_up(trainer *t)
{
    if (trainer_options_of(t)->precision->loss_scaling)
        trainer_set_loss_scale(t, 1024);
}

static void *run(void *arg)
{
    rank *r = arg;
    set_up(r->t);
    r->ok = golden_steps(r->t, r->losses);
    if (!r->ok)
        snprintf(r->why, sizeof r->why, "%s", sb_last_message());
    return NULL;
}

/* ---- comparing ---- */

static void same_tensor(trainer *want, trainer *got, const param_tensor *p, const char *what)
{
    const param_tensor *same = params_find(trainer_params(want), p->kind, p->layer);
    const size_t bytes = (size_t)p->count * sizeof(float);
    OWNED float *a = xmalloc(bytes), *b = xmalloc(bytes);
    for (int grads = 0; grads < 2; grads++) {
        (grads ? trainer_read_grad : trainer_read_param)(want, same, a);
        (grads ? trainer_read_grad : trainer_read_param)(got, p, b);
        if (memcmp(a, b, bytes) != 0)
            fail_msg("%s: %s of %s is not that of the whole model, bit for bit", what,
                     grads ? "the gradient" : "the value", p->name);
    }
}

static void same_as_whole(const step_options *o, const schedule *x, bool late)
{
    network net = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .late = late};
    rank *ranks = xcalloc(RANKS_MAX + 1, sizeof *ranks), *whole = &ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    char what[160];
    int tensors = 0;
    snprintf(what, sizeof what, "%s on %d ranks, %s, fusion %d, recompute %d/%d, chunk %d, sums %d, %s", x->name,
             x->ranks, o->precision->name, o->fusion, o->recompute, o->recompute_every, o->loss_chunk, o->sums,
             late ? "late" : "early");
    *whole = (rank){.t = create(o)};
    run(whole);
    assert_true(whole->ok);
    for (int r = 0; r < x->ranks; r++)
        rank_create(&ranks[r], o, &x->stage[r], &net);
    for (int r = 0; r < x->ranks; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, &ranks[r]), 0);
    for (int r = 0; r < x->ranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < x->ranks; r++) {
        const params *p = trainer_params(ranks[r].t);
        const bool head = params_find(p, PARAM_LM_HEAD, -1);
        if (!ranks[r].ok)
            fail_msg("%s: %s", what, ranks[r].why);
        for (int s = 0; s < OUTCOME_STEPS; s++)
            if (head ? ranks[r].losses[s] != whole->losses[s] : !isnan(ranks[r].losses[s]))
                fail_msg("%s: the loss of rank %d is %.9g, not %.9g", what, r, ranks[r].losses[s], whole->losses[s]);
        for (int i = 0; i < p->count; i++, tensors++)
            same_tensor(whole->t, ranks[r].t, &p->tensors[i], what);
    }
    assert_int_equal(tensors, trainer_params(whole->t)->count);
    for (int i = 0; i < HOPS; i++) {
        const way *w = &net.ways[i];
        assert_true(w->opened == w->received && w->sending == w->opened && w->sent == w->sending);
    }
    for (int r = 0; r < x->ranks; r++)
        own_trainer_free(&ranks[r].own, ranks[r].t);
    trainer_free(whole->t);
    free(ranks);
}

static step_options four_blocks(const char *precision)
{
    step_options o = three_blocks(precision);
    o.config.layers = LAYERS;
    o.batch = 1;
    o.micro_batches = MICROS;
    return o;
}

TEST(same_bits_in_any_order)
{
    for (int i = 0; i < POLICIES; i++)
        for (int x = 0; x < SCHEDULES; x++)
            for (int late = 0; late < 2; late++) {
                step_options o = four_blocks(policies[i]);
                const int nth = i * SCHEDULES + x + late;
                o.fusion = nth % 3 == 2 ? FUSION_NONE : FUSION_KERNELS;
                o.overlap = nth % 2 ? OVERLAP_ALL : OVERLAP_NONE;
                o.recompute =
                    (recompute[]){RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_BLOCK,        RECOMPUTE_NESTED,
                                  RECOMPUTE_MLP,  RECOMPUTE_ATTN,      RECOMPUTE_BUT_ATTENTION}[nth % 7];
                o.recompute_every = 1 + nth % 4;
                o.loss_chunk = nth % 4 == 1 ? 5 : 0;
                o.moments = nth % 3 == 1 ? MOMENTS_BF16 : MOMENTS_POLICY;
                o.sums = o.precision->grad == SB_BF16 && nth % 2 ? SUMS_FP32 : SUMS_AS_MADE;
                same_as_whole(&o, &schedules[x], late);
            }
}

/* ---- memory ---- */

static int64_t planned(const step_options *o, const char *actions, int first, int end)
{
    step_action list[ACTIONS_MAX];
    const model_part part = {first, end, first == 0, end == LAYERS};
    const step_table table = {&part, 1, list, parse(actions, list)};
    step_options with = *o;
    with.table = &table;
    return trainer_planned_bytes(bed.dev, bed.kernels, bed.ctx, &with);
}

/* As many micro-batches as are in flight, and what a W still reads, is what the plan holds. */
TEST(memory_follows_the_table)
{
    step_options o = four_blocks("fp32");
    o.seq = 64;
    const int64_t alternate = planned(&o, "F0 B0 F1 B1 F2 B2 F3 B3", 0, LAYERS);
    const int64_t one_more = planned(&o, "F0 F1 B0 F2 B1 F3 B2 B3", 0, LAYERS);
    const int64_t all = planned(&o, "F0 F1 F2 F3 B0 B1 B2 B3", 0, LAYERS);
    const int64_t waiting = planned(&o, "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3", 0, LAYERS);
    assert_int_equal(alternate, trainer_planned_bytes(bed.dev, bed.kernels, bed.ctx, &o));
    assert_int_equal(alternate, planned(&o, "F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3", 0, LAYERS));
    const int64_t step = one_more - alternate;
    assert_true(step > 0 && waiting > alternate && waiting < one_more + step / 2);
    assert_true(all - one_more > 1.8 * (double)step && all - one_more < 2.2 * (double)step);
    const int64_t half = planned(&o, "F0 F1 F2 F3 B0 B1 B2 B3", 0, LAYERS / 2);
    assert_true(half < 0.65 * (double)all);
}

/* ---- tables that cannot be ---- */

TEST(refused)
{
    static const struct {
        const char *actions, *why;
    } bad[] = {{"F0 B0 F1 B1 F2 B2 F3", "lacks an F or a B"},
               {"F0 B0 F1 B1 F2 B2 F3 B3 W3", "lacks an F, a B or a W"},
               {"F0 B0 B0 F1 B1 F2 B2 F3 B3", "twice"},
               {"B0 F0 F1 B1 F2 B2 F3 B3", "a B before its F"},
               {"F0 W0 B0 F1 B1 F2 B2 F3 B3", "a W before its B"},
               {"F0 B0 F1 B1 F2 B2 F4 B3", "not there"},
               {"F0b B0 F1 B1 F2 B2 F3 B3", "not there"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        step_options o = four_blocks("fp32");
        step_action list[ACTIONS_MAX];
        const model_part part = {0, LAYERS, true, true};
        const step_table table = {&part, 1, list, parse(bad[i].actions, list)};
        char why[256] = "";
        o.table = &table;
        assert_null(trainer_create(bed.dev, bed.mem, bed.kernels, bed.ctx, &o, why, sizeof why));
        if (!strstr(why, bad[i].why))
            fail_msg("%s: %s", bad[i].actions, why);
    }
    const model_part bad_parts[][2] = {{{0, 2, true, false}, {1, 4, false, true}},
                                       {{0, 2, true, true}, {2, 4, false, false}},
                                       {{0, 2, true, false}, {2, 4, true, true}},
                                       {{0, 2, true, false}, {3, 3, false, false}},
                                       {{0, 2, true, false}, {2, 5, false, true}}};
    for (size_t i = 0; i < sizeof bad_parts / sizeof *bad_parts; i++) {
        step_options o = four_blocks("fp32");
        step_action list[ACTIONS_MAX];
        const char *actions = "F0a F0b B0b B0a F1a F1b B1b B1a F2a F2b B2b B2a F3a F3b B3b B3a";
        const step_table table = {bad_parts[i], 2, list, parse(actions, list)};
        char why[256] = "";
        o.table = &table;
        assert_null(trainer_create(bed.dev, bed.mem, bed.kernels, bed.ctx, &o, why, sizeof why));
        assert_true(strlen(why) > 20);
    }
}

TESTS_WITH(bed_create, bed_destroy)
