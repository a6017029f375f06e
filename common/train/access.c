/* SPDX-License-Identifier: MIT */
/* What comes into a trainer and out of it: initial values, tokens, parameters, gradients, logits, the loss. */
#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "common/core/spread.h"
#include "common/device/pieces.h"
#include "common/model/dtypes.h"
#include "common/step/linear_float8.h"
#include "common/step/offload.h"
#include "common/step/transformer.h"
#include "common/step/units.h"
#include "common/train/codes.h"
#include "common/train/internal.h"

/* ---- parameters ---- */

static char *param_at(const step *s, const param_tensor *p)
{
    return s->param + p->first * s->param_element;
}

static char *master_at(const step *s, const param_tensor *p)
{
    return s->master + p->first * precision_master_bytes(s->o.precision);
}

/* With the state of some ranges alone, a parameter's value is what the model computes with. */
static bool whole_master(const step *s)
{
    return s->master && !s->o.state_elements;
}

/* What no rank holds whole can't be read or written by one alone. */
static void expect_whole(bool sharded, const param_tensor *p)
{
    if (sharded)
        die(EXIT_CODE_FAILURE, "bug: %s is asked of a rank that has a slice of it", p->name);
}

static void write_param(step *s, const param_tensor *p, const float *in)
{
    const size_t n = (size_t)p->count;
    expect_whole(s->o.shard.params, p);
    device_sync(s->dev);
    if (whole_master(s) && s->o.precision->master == SB_MASTER_SPLIT) {
        OWNED uint16_t *high = xmalloc(n * sizeof *high);
        OWNED int16_t *rest = xmalloc(n * sizeof *rest);
        for (size_t i = 0; i < n; i++)
            float_split(in[i], &high[i], &rest[i]);
        device_upload(s->dev, param_at(s, p), high, n * sizeof *high);
        device_upload(s->dev, master_at(s, p), rest, n * sizeof *rest);
        return;
    }
    dtype_upload(s->dev, s->param_dtype, param_at(s, p), in, n);
    if (whole_master(s))
        device_upload(s->dev, master_at(s, p), in, n * sizeof *in);
}

typedef struct rests {
    float *whole;
    const int16_t *rest;
} rests;

static void add_rest(void *arg, size_t first, size_t count)
{
    const rests *r = arg;
    for (size_t i = first; i < first + count; i++)
        r->whole[i] = float_join((uint16_t)(float_bits(r->whole[i]) >> 16), r->rest[i]);
}

/* To upper halves that are there as floats. */
static void add_rests(void *arg, const void *piece, size_t at, size_t bytes)
{
    rests r = {(float *)arg + at / sizeof *r.rest, piece};
    spread_pieces(bytes / sizeof *r.rest, SPREAD_PIECE, add_rest, &r);
}

void trainer_read_param(trainer *t, const param_tensor *p, float *out)
{
    step *s = &t->step;
    const size_t n = (size_t)p->count;
    expect_whole(s->o.shard.params, p);
    device_sync(s->dev);
    const bool split = whole_master(s) && s->o.precision->master == SB_MASTER_SPLIT;
    if (whole_master(s) && !split)
        dtype_download(s->dev, SB_FP32, out, master_at(s, p), n);
    else
        dtype_download(s->dev, s->param_dtype, out, param_at(s, p), n);
    if (split)
        pieces_read(s->dev, master_at(s, p), n * sizeof(int16_t), add_rests, out);
}

/* Caller frees. */
static float *ones_of(size_t n)
{
    float *ones = xmalloc(n * sizeof *ones);
    for (size_t e = 0; e < n; e++)
        ones[e] = 1;
    return ones;
}

static sb_status fill_ones(step *s, sb_dtype dtype, size_t n, char *to)
{
    OWNED float *ones = ones_of(n);
    dtype_upload(s->dev, dtype, to, ones, n);
    return SB_OK;
}

static sb_status fill_whole_ones(step *s, const param_tensor *p)
{
    OWNED float *ones = ones_of((size_t)p->count);
    write_param(s, p, ones);
    return SB_OK;
}

/* Drawn on the device, so that large models start soon. Values depend only on the seed and the tensor's name. */
static sb_status fill(step *s, const param_tensor *p, char *to)
{
    const float std = params_initial_std(p);
    const uint64_t seed = rng_hash(s->o.seed, p->name);
    const size_t n = (size_t)p->count;
    if (std == 0)
        return fill_whole_ones(s, p);
    if (!s->master || s->o.state_elements || s->o.precision->master == SB_MASTER_SPLIT)
        return s->k->fill_normal(s->ctx, s->param_dtype, to, n, seed, 0, std, s->main);
    const sb_status done = s->k->fill_normal(s->ctx, SB_FP32, master_at(s, p), n, seed, 0, std, s->main);
    const sb_pointwise copy = {.op = SB_POINT_COPY,
                               .dtype_a = SB_FP32,
                               .dtype_out = s->param_dtype,
                               .rows = p->rows,
                               .columns = p->columns,
                               .lda = p->columns,
                               .ld_out = p->columns,
                               .a = master_at(s, p),
                               .out = to};
    return done != SB_OK ? done : s->k->train->pointwise(s->ctx, &copy, s->main);
}

/* Elements [first, first + n) of a tensor, in `dtype` at `to`. They are drawn at the start of the block, which no step uses
 * yet, as many at a time as it has room for, from a draw on with which a kernel can begin. */
static sb_status fill_piece(step *s, const param_tensor *p, int64_t first, int64_t n, sb_dtype dtype, char *to)
{
    const size_t element = (size_t)sb_dtype_bytes(dtype);
    const int64_t room = (int64_t)(arena_bytes(s->arena) / element), end = first + n;
    const float std = params_initial_std(p);
    sb_status done = SB_OK;
    if (std == 0)
        return fill_ones(s, dtype, (size_t)n, to);
    for (int64_t at = first, count; at < end && done == SB_OK; at += count) {
        const int64_t skipped = at % 8, most = room - skipped;
        count = end - at < most ? end - at : most;
        done = s->k->fill_normal_from(s->ctx, dtype, s->block, (size_t)(skipped + count), rng_hash(s->o.seed, p->name),
                                      0, (uint64_t)(at - skipped), std, s->main);
        device_copy(s->dev, to + (size_t)(at - first) * element, (const char *)s->block + (size_t)skipped * element,
                    (size_t)count * element);
    }
    return done;
}

/* Elements [first, first + n) of what is held of a tensor that ranks share: rows [row_first, ...) of it, or columns, with the
 * draws of the whole one. Rows past its last are padding, and stay as they are. */
static sb_status fill_part(step *s, const param_tensor *p, int64_t first, int64_t n, sb_dtype dtype, char *to)
{
    const int64_t rows = p->whole_rows - p->row_first, end = first + n, most = rows * p->columns;
    const int64_t stop = end < most ? end : most, width = p->columns;
    const bool columns = p->columns < p->whole_columns;
    sb_status done = SB_OK;
    for (int64_t at = first, next; at < stop && done == SB_OK; at = next) {
        const int64_t row = at / width, row_end = (row + 1) * width;
        next = columns && row_end < stop ? row_end : stop;
        done = fill_piece(s, p, (p->row_first + row) * p->whole_columns + p->column_first + at % width, next - at,
                          dtype, to + (size_t)(at - first) * (size_t)sb_dtype_bytes(dtype));
    }
    return done;
}

static sb_status fill_all(step *s)
{
    const bool parts = s->o.split_layers.ranks > 1;
    sb_status done = SB_OK;
    device_memset(s->dev, s->param, 0, (size_t)s->params->elements * (size_t)s->param_element);
    for (int i = 0; i < s->params->count && done == SB_OK; i++) {
        const param_tensor *p = &s->params->tensors[i];
        done = parts ? fill_part(s, p, 0, p->count, s->param_dtype, param_at(s, p)) : fill(s, p, param_at(s, p));
    }
    return done;
}

/* The slices that this rank holds, in `dtype` in an arena of slices. */
static sb_status fill_slices(step *s, sb_dtype dtype, char *arena)
{
    const int ranks = s->o.shard.ranks;
    const size_t element = (size_t)sb_dtype_bytes(dtype);
    const param_tensor *p = s->params->tensors, *end = p + s->params->count;
    sb_status done = SB_OK;
    device_memset(s->dev, arena, 0, (size_t)units_held(s) * element);
    device_sync(s->dev); /* an upload does not wait for the stream */
    for (; p < end && done == SB_OK; p++) {
        const int unit = params_unit_of(s->params, p);
        const step_unit *u = &s->units[unit];
        const bool whole = unit == params_gains(s->params);
        const int64_t slice = whole ? u->count : u->count / ranks;
        const int64_t from = u->first + (whole ? 0 : s->o.shard.rank * slice), to = from + slice;
        const int64_t first = p->first > from ? p->first : from, tensor_end = p->first + p->count;
        const int64_t last = tensor_end < to ? tensor_end : to;
        if (first < last)
            done = fill_part(s, p, first - p->first, last - first, dtype,
                             arena + (size_t)(u->first / ranks + first - from) * element);
    }
    return done;
}

/* Where fp32 weights are separate, each parameter is the value nearest to its weight: the same draws give it in its own
 * dtype. */
static sb_status fill_sharded(step *s)
{
    sb_status done = s->o.shard.params ? fill_slices(s, s->param_dtype, s->param) : fill_all(s);
    if (done == SB_OK && s->master && s->o.precision->master == SB_MASTER_FP32)
        done = fill_slices(s, SB_FP32, s->master);
    return done;
}

/* Where in the whole sequence a token is that is `at` here. */
static int position(const step *s, int at)
{
    const context_shape shape = step_context_shape(&s->o);
    const int rows = s->o.seq / 2, rank = s->o.context.rank;
    if (shape.ranks == 1 || (s->o.context.fault == CONTEXT_POSITION && rank == shape.ranks - 1))
        return at;
    return context_chunk(&shape, rank, at / rows) * rows + at % rows;
}

static void fill_rope(step *s)
{
    const int half = s->head_dim / 2;
    if (!half)
        return;
    OWNED float *table = xmalloc((size_t)s->o.seq * (size_t)s->head_dim * sizeof *table);
    for (int i = 0; i < half; i++) {
        const double turn = pow(s->o.config.rope_theta, -2.0 * i / s->head_dim);
        for (int at = 0; at < s->o.seq; at++) {
            const double angle = position(s, at) * turn;
            table[((size_t)at * (size_t)half + (size_t)i) * 2] = (float)cos(angle);
            table[((size_t)at * (size_t)half + (size_t)i) * 2 + 1] = (float)sin(angle);
        }
    }
    device_upload(s->dev, s->rope_table, table, (size_t)s->o.seq * (size_t)s->head_dim * sizeof *table);
}

static void set_tokens(step *s, const int32_t *ids, const int32_t *targets)
{
    device_sync(s->dev);
    const size_t n = (size_t)s->tokens * (size_t)s->micro_batches;
    device_upload(s->dev, s->ids, ids, n * sizeof *ids);
    device_upload(s->dev, s->targets, targets, n * sizeof *targets);
}

static void fill_tokens(step *s)
{
    const int64_t n = (int64_t)s->tokens * s->micro_batches;
    OWNED int32_t *ids = xmalloc(2 * (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < 2 * n; i++)
        ids[i] = (int32_t)(rng_uniform(s->o.seed, 0x70cef5, (uint64_t)i) * s->o.config.vocab);
    set_tokens(s, ids, ids + n);
}

static size_t state_elements(const step *s)
{
    return (size_t)(s->o.state_elements ? s->o.state_elements : s->params->elements);
}

void trainer_zero_moments(trainer *t)
{
    step *s = &t->step;
    const size_t bytes = state_elements(s) * (size_t)s->moment_element;
    if (!s->m)
        return;
    device_memset(s->dev, s->m, 0, bytes);
    device_memset(s->dev, s->v, 0, bytes);
}

sb_status trainer_initialize(trainer *t)
{
    step *s = &t->step;
    if (s->master)
        device_memset(s->dev, s->master, 0, state_elements(s) * (size_t)precision_master_bytes(s->o.precision));
    trainer_zero_moments(t);
    codes_place(s, s->float8_weights);
    const sb_status done = s->o.shard.grads || s->o.shard.params ? fill_sharded(s) : fill_all(s);
    fill_rope(s);
    fill_tokens(s);
    const sb_optimizer_state state = {
        .lr = (float)s->o.lr, .loss_scale = s->o.precision->loss_scaling ? 65536 : 1, .grad_factor = 1};
    device_upload(s->dev, s->state, &state, sizeof state);
    if (s->range_state)
        device_upload(s->dev, s->range_state, &(sb_optimizer_state){.loss_scale = 1}, sizeof state);
    device_sync(s->dev);
    return done;
}

/* ---- the rest ---- */

void trainer_write_param(trainer *t, const param_tensor *p, const float *in)
{
    write_param(&t->step, p, in);
}

void trainer_set_tokens(trainer *t, const int32_t *ids, const int32_t *targets)
{
    set_tokens(&t->step, ids, targets);
}

void trainer_optimizer_state(trainer *t, sb_optimizer_state *out)
{
    step *s = &t->step;
    device_sync(s->dev);
    device_download(s->dev, out, s->state, sizeof *out);
}

void trainer_set_optimizer_state(trainer *t, const sb_optimizer_state *state)
{
    device_sync(t->step.dev);
    device_upload(t->step.dev, t->step.state, state, sizeof *state);
}

void trainer_set_lr(trainer *t, double lr)
{
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    state.lr = (float)lr;
    trainer_set_optimizer_state(t, &state);
}

void trainer_set_loss_scale(trainer *t, double scale)
{
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    state.loss_scale = (float)scale;
    trainer_set_optimizer_state(t, &state);
}

double trainer_loss(trainer *t)
{
    step *s = &t->step;
    const size_t n = (size_t)s->micro_batches;
    if (!s->parts[s->part_count - 1].holds.head)
        return NAN;
    OWNED float *loss = xmalloc(n * sizeof *loss);
    double sum = 0;
    device_sync(s->dev);
    device_download(s->dev, loss, s->loss, n * sizeof *loss);
    for (size_t i = 0; i < n; i++)
        sum += loss[i];
    return sum / (double)n;
}

void trainer_read_grad(trainer *t, const param_tensor *p, float *out)
{
    step *s = &t->step;
    sb_optimizer_state state;
    expect_whole(s->o.shard.grads, p);
    trainer_optimizer_state(t, &state);
    dtype_download(s->dev, s->grad_dtype, out, (char *)trainer_state_of(t).grad + p->first * s->grad_element,
                   (size_t)p->count);
    const float factor = 1 / (s->o.mode == STEP_TRAIN ? state.grad_scale : state.loss_scale);
    for (int64_t i = 0; factor != 1 && i < p->count; i++)
        out[i] *= factor;
}

void trainer_read_moments(trainer *t, const param_tensor *p, void *m, void *v)
{
    step *s = &t->step;
    const size_t bytes = (size_t)(p->count * s->moment_element), at = (size_t)(p->first * s->moment_element);
    expect_whole(s->o.state_elements, p);
    device_sync(s->dev);
    device_download(s->dev, m, s->m + at, bytes);
    device_download(s->dev, v, s->v + at, bytes);
}

bool trainer_read_logits(trainer *t, float *out)
{
    step *s = &t->step;
    step_part *p = &s->parts[0];
    if (s->part_count > 1 || !p->holds.embedding || !p->holds.head)
        die(EXIT_CODE_FAILURE, "bug: logits are read of a whole model");
    if (s->o.loss_chunk)
        die(EXIT_CODE_FAILURE, "bug: logits that are made in chunks cannot be read");
    s->status = SB_OK;
    arena_run_begin(s->arena);
    trainer_walk_begin(t);
    float8_history(s);
    part_forward(s, p, &p->micros[0]);
    part_loss(s, p, &p->micros[0], false);
    if (s->status != SB_OK)
        return false;
    device_sync(s->dev);
    dtype_download(s->dev, s->dtype, out, step_pointer(s, p->micros[0].logits), (size_t)s->tokens * (size_t)s->vocab);
    return true;
}

const params *trainer_params(const trainer *t)
{
    return t->step.params;
}

const step_options *trainer_options_of(const trainer *t)
{
    return &t->step.o;
}

trainer_state trainer_state_of(const trainer *t)
{
    const step *s = &t->step;
    return (trainer_state){.stream = s->main,
                           .param = s->param,
                           .grad = s->grad_sums ? s->grad_sums : s->block,
                           .master = s->master,
                           .m = s->m,
                           .v = s->v,
                           .scratch = s->block,
                           .elements = (int64_t)state_elements(s),
                           .gathered_bytes = s->gathered_bytes,
                           .param_dtype = s->param_dtype,
                           .grad_dtype = s->grad_dtype,
                           .moments_dtype = s->moment_dtype,
                           .codes = codes_of(s),
                           .context = s->context};
}

void *trainer_grad_at(const trainer *t, int64_t element)
{
    const step *s = &t->step;
    const param_tensor *p = s->params->tensors, *end = p + s->params->count;
    while (p + 1 < end && p[1].first <= element)
        p++;
    return unit_grad(s, params_unit_of(s->params, p), element);
}

int trainer_products(const trainer *t, const tuned_product **out)
{
    *out = t->step.products.list;
    return t->step.products.count;
}

int64_t trainer_offloaded_bytes(const trainer *t)
{
    return offload_moved_bytes(&t->step);
}

double trainer_offload_exposed_ms(trainer *t)
{
    return offload_waited_ms(&t->step);
}
