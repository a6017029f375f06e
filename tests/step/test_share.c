/* SPDX-License-Identifier: MIT */
/* Ranks that share each layer, each a thread: loss, gradients and parameters after three updates are those of one rank
 * that has whole layers, with all rows on every rank or each rank's own. What is left out or exchanged wrongly is found. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include <pthread.h>

#include "common/model/dtypes.h"

enum { RANKS_MAX = 4, BYTES_MAX = 1 << 20 };

/* What a test breaks. */
typedef enum fault { SOUND, CHUNK, PARTIAL, GAINS, KEYS, IDS, PADDING, FAULTS } fault;

/* ---- exchanges between threads ---- */

typedef struct network {
    pthread_barrier_t met;
    int ranks, sharers;
    const void *given[RANKS_MAX];
} network;

typedef struct rank {
    step_options o;
    model_bed own;
    trainer *t;
    network *net;
    int number, sums; /* sums: of this step */
    fault fault;
    double losses[OUTCOME_STEPS];
    char why[256];
    bool ok;
} rank;

static void on_gather(void *user, const void *mine, void *all, size_t count, sb_dtype t, void *stream)
{
    rank *r = user;
    network *n = r->net;
    const size_t bytes = count * (size_t)sb_dtype_bytes(t);
    (void)stream;
    n->given[r->number] = mine;
    pthread_barrier_wait(&n->met);
    for (int k = 0; k < n->ranks; k++) {
        const int from = r->fault == CHUNK && r->number == 0 ? (k + 1) % n->ranks : k;
        if (n->given[from] != (char *)all + k * bytes)
            memcpy((char *)all + k * bytes, n->given[from], bytes);
    }
    pthread_barrier_wait(&n->met);
}

/* The sum over members [first, first + members) of elements [at, at + count), rounded after each addition. */
static void add_up(rank *r, int first, int members, size_t at, void *out, size_t count, sb_dtype t)
{
    const size_t element = (size_t)sb_dtype_bytes(t);
    OWNED float *sum = xcalloc(count, sizeof *sum), *one = xcalloc(count, sizeof *one);
    OWNED char *stored = xmalloc(count * element);
    for (int k = 0; k < members; k++) {
        if (r->fault == PARTIAL && r->sums == 0 && k == members - 1)
            continue;
        dtype_load(t, one, (const char *)r->net->given[first + k] + at * element, count);
        for (size_t i = 0; i < count; i++)
            sum[i] += one[i];
        dtype_store(t, stored, sum, count);
        dtype_load(t, sum, stored, count);
    }
    r->sums++;
    pthread_barrier_wait(&r->net->met);
    memcpy(out, stored, count * element);
    pthread_barrier_wait(&r->net->met);
}

static void on_scatter(void *user, const void *partial, void *mine, size_t count, sb_dtype t, void *stream)
{
    rank *r = user;
    (void)stream;
    r->net->given[r->number] = partial;
    pthread_barrier_wait(&r->net->met);
    add_up(r, 0, r->net->ranks, (size_t)r->number * count, mine, count, t);
}

static void on_sum(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    rank *r = user;
    (void)stream;
    r->net->given[r->number] = values;
    pthread_barrier_wait(&r->net->met);
    add_up(r, 0, r->net->ranks, 0, values, count, t);
}

static void on_gains(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    const rank *r = user;
    if (r->fault != GAINS)
        on_sum(user, values, count, t, stream);
}

static void on_kv(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    rank *r = user;
    const int first = r->number / r->net->sharers * r->net->sharers;
    (void)stream;
    if (r->fault == KEYS)
        return;
    r->net->given[r->number] = values;
    pthread_barrier_wait(&r->net->met);
    add_up(r, first, r->net->sharers, 0, values, count, t);
}

static void on_loss(void *user, sb_vocab_loss *p)
{
    const rank *r = user;
    p->first_id += r->fault == IDS && r->number > 0;
    p->columns = r->fault == PADDING ? p->ld : p->columns;
}

/* ---- ranks ---- */

static void rank_create(rank *r, const step_options *o, int number, network *net, fault f)
{
    *r = (rank){.o = *o, .net = net, .number = number, .fault = f};
    r->o.split_layers = (model_split){net->ranks, number};
    r->t = own_trainer(&r->own, &r->o);
    trainer_set_share(r->t, &(step_share){.user = r,
                                          .gather = on_gather,
                                          .scatter = on_scatter,
                                          .sum = on_sum,
                                          .sum_gains = on_gains,
                                          .sum_kv = on_kv,
                                          .loss = on_loss});
}

static void *run(void *arg)
{
    rank *r = arg;
    r->ok = true;
    for (int s = 0; s < OUTCOME_STEPS && r->ok; s++) {
        r->sums = 0;
        golden_tokens(r->t, s);
        r->ok = trainer_step(r->t);
        r->losses[s] = trainer_loss(r->t);
    }
    if (!r->ok)
        snprintf(r->why, sizeof r->why, "%s", sb_last_message());
    return NULL;
}

/* ---- comparing ---- */

/* How far a rank's part of a tensor is from the whole one's, relative to its size; padding must be zero. */
static double distance(trainer *want, trainer *got, const param_tensor *p, bool grads)
{
    const param_tensor *whole = params_find(trainer_params(want), p->kind, p->layer);
    OWNED float *a = xmalloc((size_t)whole->count * sizeof *a), *b = xmalloc((size_t)p->count * sizeof *b);
    double off = 0, size = 0;
    (grads ? trainer_read_grad : trainer_read_param)(want, whole, a);
    (grads ? trainer_read_grad : trainer_read_param)(got, p, b);
    for (int r = 0; r < p->rows; r++)
        for (int c = 0; c < p->columns; c++) {
            const int row = r + p->row_first, column = c + p->column_first;
            const double is = b[(size_t)r * (size_t)p->columns + (size_t)c];
            const double x = row < whole->rows ? a[(size_t)row * (size_t)whole->columns + (size_t)column] : 0;
            off += (is - x) * (is - x);
            size += x * x;
        }
    return off == 0 ? 0 : sqrt(off / size);
}

typedef struct distances {
    double loss, grad, param; /* the largest distances */
    char name[64];            /* whose gradient is farthest */
} distances;

static distances run_ranks(const step_options *o, int ranks, fault f)
{
    rank *all = xcalloc(RANKS_MAX + 1, sizeof *all), *whole = &all[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    const int kv = o->config.heads_kv;
    network net = {.ranks = ranks, .sharers = ranks > kv ? ranks / kv : 1};
    distances d = {0};
    step_options one = *o;
    one.rows_apart = one.keep_rows = false;
    pthread_barrier_init(&net.met, NULL, (unsigned)ranks);
    *whole = (rank){.t = create(&one)};
    run(whole);
    assert_true(whole->ok);
    for (int r = 0; r < ranks; r++)
        rank_create(&all[r], o, r, &net, f);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, &all[r]), 0);
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < ranks; r++) {
        const params *p = trainer_params(all[r].t);
        if (!all[r].ok)
            fail_msg("rank %d: %s", r, all[r].why);
        for (int s = 0; s < OUTCOME_STEPS; s++)
            d.loss = fmax(d.loss, fabs(all[r].losses[s] / whole->losses[s] - 1));
        for (int i = 0; i < p->count; i++) {
            const double grad = distance(whole->t, all[r].t, &p->tensors[i], true);
            d.param = fmax(d.param, distance(whole->t, all[r].t, &p->tensors[i], false));
            if (grad > d.grad || isnan(grad)) {
                d.grad = grad;
                snprintf(d.name, sizeof d.name, "%s", p->tensors[i].name);
            }
        }
    }
    for (int r = 0; r < ranks; r++)
        own_trainer_free(&all[r].own, all[r].t);
    pthread_barrier_destroy(&net.met);
    trainer_free(whole->t);
    free(all);
    return d;
}

static step_options shared_blocks(const char *precision)
{
    step_options o = three_blocks(precision);
    o.config.heads = 12, o.config.heads_kv = 12, o.config.d_model = 192, o.config.d_ff = 96;
    o.config.vocab = 150; /* of four ranks the last has none of it, and the one before padding */
    o.config.layers = 2;
    o.batch = 2, o.seq = 12;
    o.lr = 1e-3;
    return o;
}

static void close_to_whole(const step_options *o, int ranks, const char *what)
{
    const bool exact = o->precision->activations == SB_FP32;
    const distances d = run_ranks(o, ranks, SOUND);
    if (!(d.loss <= (exact ? 1e-6 : 2e-3) && d.grad <= (exact ? 3e-4 : 6e-2) && d.param <= (exact ? 2e-4 : 2e-2)))
        fail_msg("%s: %d ranks, %s, rows %s: the loss is off by %.2e, gradients by %.2e (%s), parameters by %.2e", what,
                 ranks, o->precision->name, o->rows_apart ? "apart" : "together", d.loss, d.grad, d.name, d.param);
}

TEST(as_one_rank)
{
    for (int apart = 0; apart < 2; apart++)
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
            step_options o = shared_blocks(ranks == 3 ? "bf16" : "fp32");
            o.rows_apart = apart;
            close_to_whole(&o, ranks, "whole");
            o.config.heads_kv = ranks == 3 ? 3 : 2; /* with four ranks two share a head */
            o.recompute = ranks == 2 ? RECOMPUTE_BLOCK : RECOMPUTE_SELECTIVE;
            close_to_whole(&o, ranks, "recompute");
            o.recompute = RECOMPUTE_BUT_ATTENTION;
            close_to_whole(&o, ranks, "recompute all but attention");
            o.recompute = RECOMPUTE_NONE;
            o.micro_batches = 2;
            o.keep_rows = apart;
            o.loss_chunk = 7;
            close_to_whole(&o, ranks, "micro-batches, chunks");
        }
}

/* Weight gradients that a W makes later read gathered rows then. */
TEST(weights_left)
{
    static const step_action actions[] = {{STEP_F, 0, 0}, {STEP_B, 0, 0}, {STEP_F, 1, 0},
                                          {STEP_B, 1, 0}, {STEP_W, 0, 0}, {STEP_W, 1, 0}};
    step_options o = shared_blocks("fp32");
    const model_part part = {0, o.config.layers, true, true};
    const step_table table = {&part, 1, actions, 6};
    o.micro_batches = 2;
    o.rows_apart = true;
    o.table = &table;
    close_to_whole(&o, 2, "W");
    o.keep_rows = true;
    close_to_whole(&o, 2, "W, rows kept");
}

/* Gathered logits give the same numbers, from the same products. */
TEST(gathered_logits)
{
    step_options o = shared_blocks("fp32");
    o.rows_apart = true;
    const distances three = run_ranks(&o, 3, SOUND);
    o.gather_logits = true;
    const distances all = run_ranks(&o, 3, SOUND);
    assert_true(three.loss == all.loss && three.grad == all.grad && three.param == all.param);
}

TEST(faults_are_found)
{
    static const char *const names[FAULTS] = {"none", "chunk", "partial", "gains", "keys", "ids", "padding"};
    for (fault f = CHUNK; f < FAULTS; f++) {
        step_options o = shared_blocks("fp32");
        o.rows_apart = true;
        o.config.heads_kv = 1;
        const distances d = run_ranks(&o, 2, f);
        if (!(d.grad > 1e-2))
            fail_msg("%s: gradients are off by %.2e alone", names[f], d.grad);
        if (f == GAINS && !strstr(d.name, "ln"))
            fail_msg("gains: %s is farthest", d.name);
        if (f == KEYS && !strstr(d.name, "k_proj") && !strstr(d.name, "v_proj"))
            fail_msg("keys: %s is farthest", d.name);
        if ((f == IDS || f == PADDING) && !(d.loss > 1e-4))
            fail_msg("%s: the loss is off by %.2e alone", names[f], d.loss);
    }
}

static void refuse(step_options o, const char *word)
{
    char why[256] = "";
    o.split_layers = o.split_layers.ranks ? o.split_layers : (model_split){2, 0};
    assert_null(trainer_create(bed.dev, bed.mem, bed.kernels, bed.ctx, &o, why, sizeof why));
    if (!strstr(why, word))
        fail_msg("\"%s\" does not say %s", why, word);
}

TEST(refused)
{
    step_options o = shared_blocks("fp32");
    o.split_layers = (model_split){5, 0};
    refuse(o, "heads");
    o = shared_blocks("fp32");
    o.rows_apart = true, o.seq = 11, o.batch = 1;
    refuse(o, "rows");
    o = shared_blocks("fp32");
    o.fusion = FUSION_NONE;
    refuse(o, "eager");
    o = shared_blocks("fp16");
    refuse(o, "loss scale");
    o = shared_blocks("fp32");
    o.shard.ranks = 2;
    refuse(o, "whole gains");
}

TESTS_WITH(bed_create, bed_destroy)
