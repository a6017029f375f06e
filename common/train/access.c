/* SPDX-License-Identifier: MIT */
/* What comes into a trainer and out of it: initial values, tokens, parameters, gradients, logits, the loss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "common/model/dtypes.h"
#include "common/step/step.h"

/* ---- host arrays of floats and device arrays of a dtype ---- */

enum { PIECE = 1 << 24 }; /* elements that are converted at once: fresh host memory is slow to come by */

static void read_floats(trainer *t, sb_dtype dtype, const void *from, size_t n, float *out)
{
    const size_t bytes = (size_t)sb_dtype_bytes(dtype), piece = n < PIECE ? n : PIECE;
    device_sync(t->dev);
    if (dtype == SB_FP32) {
        device_download(t->dev, out, from, n * bytes);
        return;
    }
    void *raw = xmalloc(piece * bytes);
    for (size_t first = 0; first < n; first += piece) {
        const size_t count = n - first < piece ? n - first : piece;
        device_download(t->dev, raw, (const char *)from + first * bytes, count * bytes);
        dtype_load(dtype, out + first, raw, count);
    }
    free(raw);
}

static void write_floats(trainer *t, sb_dtype dtype, const float *in, size_t n, void *to)
{
    void *raw = xmalloc(n * (size_t)sb_dtype_bytes(dtype));
    dtype_store(dtype, raw, in, n);
    device_upload(t->dev, to, raw, n * (size_t)sb_dtype_bytes(dtype));
    free(raw);
}

/* ---- parameters ---- */

static char *param_at(const trainer *t, const param_tensor *p)
{
    return t->param + p->first * t->param_element;
}

static char *master_at(const trainer *t, const param_tensor *p)
{
    return t->master + p->first * precision_master_bytes(t->o.precision);
}

/* With the state of some ranges alone, a parameter's value is what the model computes with. */
static bool whole_master(const trainer *t)
{
    return t->master && !t->o.state_elements;
}

/* What no rank holds whole can't be read or written by one alone. */
static void expect_whole(bool sharded, const param_tensor *p)
{
    if (sharded)
        die(EXIT_CODE_FAILURE, "bug: %s is asked of a rank that has a slice of it", p->name);
}

void trainer_write_param(trainer *t, const param_tensor *p, const float *in)
{
    const size_t n = (size_t)p->count;
    expect_whole(t->o.shard.params, p);
    device_sync(t->dev);
    if (whole_master(t) && t->o.precision->master == SB_MASTER_SPLIT) {
        uint16_t *high = xmalloc(n * sizeof *high);
        int16_t *rest = xmalloc(n * sizeof *rest);
        for (size_t i = 0; i < n; i++)
            float_split(in[i], &high[i], &rest[i]);
        device_upload(t->dev, param_at(t, p), high, n * sizeof *high);
        device_upload(t->dev, master_at(t, p), rest, n * sizeof *rest);
        free(high);
        free(rest);
        return;
    }
    write_floats(t, t->param_dtype, in, n, param_at(t, p));
    if (whole_master(t))
        device_upload(t->dev, master_at(t, p), in, n * sizeof *in);
}

void trainer_read_param(trainer *t, const param_tensor *p, float *out)
{
    const size_t n = (size_t)p->count;
    expect_whole(t->o.shard.params, p);
    device_sync(t->dev);
    if (whole_master(t) && t->o.precision->master == SB_MASTER_SPLIT) {
        uint16_t *high = xmalloc(n * sizeof *high);
        int16_t *rest = xmalloc(n * sizeof *rest);
        device_download(t->dev, high, param_at(t, p), n * sizeof *high);
        device_download(t->dev, rest, master_at(t, p), n * sizeof *rest);
        for (size_t i = 0; i < n; i++)
            out[i] = float_join(high[i], rest[i]);
        free(high);
        free(rest);
    } else if (whole_master(t)) {
        device_download(t->dev, out, master_at(t, p), n * sizeof *out);
    } else {
        read_floats(t, t->param_dtype, param_at(t, p), n, out);
    }
}

/* Caller frees. */
static float *ones_of(size_t n)
{
    float *ones = xmalloc(n * sizeof *ones);
    for (size_t e = 0; e < n; e++)
        ones[e] = 1;
    return ones;
}

static sb_status fill_ones(trainer *t, sb_dtype dtype, size_t n, char *to)
{
    float *ones = ones_of(n);
    write_floats(t, dtype, ones, n, to);
    free(ones);
    return SB_OK;
}

static sb_status fill_whole_ones(trainer *t, const param_tensor *p)
{
    float *ones = ones_of((size_t)p->count);
    trainer_write_param(t, p, ones);
    free(ones);
    return SB_OK;
}

/* Drawn on the device, so that large models start soon. Values depend on the seed and the tensor's name alone. */
static sb_status fill(trainer *t, const param_tensor *p, char *to)
{
    const float std = params_initial_std(p);
    const uint64_t seed = rng_hash(t->o.seed, p->name);
    const size_t n = (size_t)p->count;
    if (std == 0)
        return fill_whole_ones(t, p);
    if (!t->master || t->o.state_elements || t->o.precision->master == SB_MASTER_SPLIT)
        return t->k->fill_normal(t->ctx, t->param_dtype, to, n, seed, 0, std, t->main);
    const sb_status s = t->k->fill_normal(t->ctx, SB_FP32, master_at(t, p), n, seed, 0, std, t->main);
    const sb_pointwise copy = {.op = SB_POINT_COPY,
                               .dtype_a = SB_FP32,
                               .dtype_out = t->param_dtype,
                               .rows = p->rows,
                               .columns = p->columns,
                               .lda = p->columns,
                               .ld_out = p->columns,
                               .a = master_at(t, p),
                               .out = to};
    return s != SB_OK ? s : t->k->train->pointwise(t->ctx, &copy, t->main);
}

static sb_status fill_all(trainer *t)
{
    sb_status s = SB_OK;
    device_memset(t->dev, t->param, 0, (size_t)t->params->elements * (size_t)t->param_element);
    for (int i = 0; i < t->params->count && s == SB_OK; i++)
        s = fill(t, &t->params->tensors[i], param_at(t, &t->params->tensors[i]));
    return s;
}

/* Elements [first, first + n) of a tensor, in `dtype` at `to`. They are drawn at the start of the block, which no step uses
 * yet, from a draw on with which a kernel can begin. */
static sb_status fill_piece(trainer *t, const param_tensor *p, int64_t first, int64_t n, sb_dtype dtype, char *to)
{
    const size_t element = (size_t)sb_dtype_bytes(dtype);
    const int64_t skipped = first % 8;
    const float std = params_initial_std(p);
    if (std == 0)
        return fill_ones(t, dtype, (size_t)n, to);
    const sb_status s =
        t->k->fill_normal_from(t->ctx, dtype, t->block, (size_t)(skipped + n), rng_hash(t->o.seed, p->name), 0,
                               (uint64_t)(first - skipped), std, t->main);
    device_copy(t->dev, to, (const char *)t->block + (size_t)skipped * element, (size_t)n * element);
    return s;
}

/* The slices that this rank holds, in `dtype` in an arena of slices. */
static sb_status fill_slices(trainer *t, sb_dtype dtype, char *arena)
{
    const int ranks = t->o.shard.ranks;
    const size_t element = (size_t)sb_dtype_bytes(dtype);
    const param_tensor *p = t->params->tensors, *end = p + t->params->count;
    sb_status s = SB_OK;
    device_memset(t->dev, arena, 0, (size_t)units_held(t) * element);
    device_sync(t->dev); /* an upload does not wait for the stream */
    for (; p < end && s == SB_OK; p++) {
        const int unit = params_unit_of(t->params, p);
        const step_unit *u = &t->units[unit];
        const bool whole = unit == params_gains(t->params);
        const int64_t slice = whole ? u->count : u->count / ranks;
        const int64_t from = u->first + (whole ? 0 : t->o.shard.rank * slice), to = from + slice;
        const int64_t first = p->first > from ? p->first : from, tensor_end = p->first + p->count;
        const int64_t last = tensor_end < to ? tensor_end : to;
        if (first < last)
            s = fill_piece(t, p, first - p->first, last - first, dtype,
                           arena + (size_t)(u->first / ranks + first - from) * element);
    }
    return s;
}

/* Of separate fp32 weights the parameters are the nearest values: those that the same draws give in their dtype. */
static sb_status fill_sharded(trainer *t)
{
    sb_status s = t->o.shard.params ? fill_slices(t, t->param_dtype, t->param) : fill_all(t);
    if (s == SB_OK && t->master && t->o.precision->master == SB_MASTER_FP32)
        s = fill_slices(t, SB_FP32, t->master);
    return s;
}

static void fill_rope(trainer *t)
{
    const int half = t->head_dim / 2;
    float *table = xmalloc((size_t)t->o.seq * (size_t)t->head_dim * sizeof *table);
    for (int s = 0; s < t->o.seq; s++)
        for (int i = 0; i < half; i++) {
            const double angle = s * pow(t->o.config.rope_theta, -2.0 * i / t->head_dim);
            table[((size_t)s * (size_t)half + (size_t)i) * 2] = (float)cos(angle);
            table[((size_t)s * (size_t)half + (size_t)i) * 2 + 1] = (float)sin(angle);
        }
    device_upload(t->dev, t->rope_table, table, (size_t)t->o.seq * (size_t)t->head_dim * sizeof *table);
    free(table);
}

static void fill_tokens(trainer *t)
{
    const int64_t n = (int64_t)t->tokens * t->micro_batches;
    int32_t *ids = xmalloc(2 * (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < 2 * n; i++)
        ids[i] = (int32_t)(rng_uniform(t->o.seed, 0x70cef5, (uint64_t)i) * t->vocab);
    trainer_set_tokens(t, ids, ids + n);
    free(ids);
}

static size_t state_elements(const trainer *t)
{
    return (size_t)(t->o.state_elements ? t->o.state_elements : t->params->elements);
}

void trainer_zero_moments(trainer *t)
{
    const size_t bytes = state_elements(t) * (size_t)t->moment_element;
    if (!t->m)
        return;
    device_memset(t->dev, t->m, 0, bytes);
    device_memset(t->dev, t->v, 0, bytes);
}

sb_status trainer_initialize(trainer *t)
{
    if (t->master)
        device_memset(t->dev, t->master, 0, state_elements(t) * (size_t)precision_master_bytes(t->o.precision));
    trainer_zero_moments(t);
    const sb_status s = t->o.shard.grads ? fill_sharded(t) : fill_all(t);
    fill_rope(t);
    fill_tokens(t);
    const sb_optimizer_state state = {
        .lr = (float)t->o.lr, .loss_scale = t->o.precision->loss_scaling ? 65536 : 1, .grad_factor = 1};
    device_upload(t->dev, t->state, &state, sizeof state);
    if (t->range_state)
        device_upload(t->dev, t->range_state, &(sb_optimizer_state){.loss_scale = 1}, sizeof state);
    device_sync(t->dev);
    return s;
}

/* ---- the rest ---- */

void trainer_set_tokens(trainer *t, const int32_t *ids, const int32_t *targets)
{
    device_sync(t->dev);
    const size_t n = (size_t)t->tokens * (size_t)t->micro_batches;
    device_upload(t->dev, t->ids, ids, n * sizeof *ids);
    device_upload(t->dev, t->targets, targets, n * sizeof *targets);
}

void trainer_optimizer_state(trainer *t, sb_optimizer_state *out)
{
    device_sync(t->dev);
    device_download(t->dev, out, t->state, sizeof *out);
}

static void set_state(trainer *t, const sb_optimizer_state *state)
{
    device_upload(t->dev, t->state, state, sizeof *state);
}

void trainer_set_lr(trainer *t, double lr)
{
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    state.lr = (float)lr;
    set_state(t, &state);
}

void trainer_set_loss_scale(trainer *t, double scale)
{
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    state.loss_scale = (float)scale;
    set_state(t, &state);
}

double trainer_loss(trainer *t)
{
    const size_t n = (size_t)t->micro_batches;
    float *loss = xmalloc(n * sizeof *loss);
    double sum = 0;
    device_sync(t->dev);
    device_download(t->dev, loss, t->loss, n * sizeof *loss);
    for (size_t i = 0; i < n; i++)
        sum += loss[i];
    free(loss);
    return sum / (double)n;
}

void trainer_read_grad(trainer *t, const param_tensor *p, float *out)
{
    sb_optimizer_state state;
    expect_whole(t->o.shard.grads, p);
    trainer_optimizer_state(t, &state);
    read_floats(t, t->grad_dtype, (char *)trainer_grad_arena(t) + p->first * t->grad_element, (size_t)p->count, out);
    const float factor = 1 / (t->o.mode == STEP_TRAIN ? state.grad_scale : state.loss_scale);
    for (int64_t i = 0; i < p->count; i++)
        out[i] *= factor;
}

void trainer_read_moments(trainer *t, const param_tensor *p, void *m, void *v)
{
    const size_t bytes = (size_t)(p->count * t->moment_element), at = (size_t)(p->first * t->moment_element);
    expect_whole(t->o.state_elements, p);
    device_sync(t->dev);
    device_download(t->dev, m, t->m + at, bytes);
    device_download(t->dev, v, t->v + at, bytes);
}

void trainer_write_grad(trainer *t, const param_tensor *p, const float *in)
{
    expect_whole(t->o.shard.grads, p);
    device_sync(t->dev);
    write_floats(t, t->grad_dtype, in, (size_t)p->count, (char *)trainer_grad_arena(t) + p->first * t->grad_element);
}

bool trainer_read_logits(trainer *t, float *out)
{
    arena_slot logits;
    if (t->o.loss_chunk)
        die(EXIT_CODE_FAILURE, "bug: logits that are made in chunks cannot be read");
    t->status = SB_OK;
    t->micro = 0;
    arena_run_begin(t->arena);
    transformer_forward(t, &logits);
    transformer_loss(t, logits, false);
    if (t->status != SB_OK)
        return false;
    read_floats(t, t->dtype, step_pointer(t, logits), (size_t)t->tokens * (size_t)t->vocab, out);
    return true;
}

const params *trainer_params(const trainer *t)
{
    return t->params;
}

const step_options *trainer_options_of(const trainer *t)
{
    return &t->o;
}

void *trainer_stream(const trainer *t)
{
    return t->main;
}

void *trainer_grad_arena(const trainer *t)
{
    return t->grad_sums ? t->grad_sums : t->block;
}

void *trainer_grad_at(const trainer *t, int64_t element)
{
    const param_tensor *p = t->params->tensors, *end = p + t->params->count;
    while (p + 1 < end && p[1].first <= element)
        p++;
    return unit_grad(t, params_unit_of(t->params, p), element);
}

void *trainer_scratch(const trainer *t)
{
    return t->block;
}

void *trainer_param_arena(const trainer *t)
{
    return t->param;
}

sb_dtype trainer_grad_dtype(const trainer *t)
{
    return t->grad_dtype;
}

sb_dtype trainer_moments_dtype(const trainer *t)
{
    return t->moment_dtype;
}

sb_dtype trainer_param_dtype(const trainer *t)
{
    return t->param_dtype;
}
