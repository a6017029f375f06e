/* SPDX-License-Identifier: MIT */
/* Creating and freeing a training step: options checked, the step planned, memory taken, streams made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/formulas/offload.h"
#include "common/model/float8.h"
#include "common/step/linear_float8.h"
#include "common/step/offload.h"
#include "common/step/ops.h"
#include "common/step/optimizer.h"
#include "common/step/exchange.h"
#include "common/step/streams.h"
#include "common/step/table.h"
#include "common/step/units.h"
#include "common/train/codes.h"
#include "common/train/internal.h"

static bool refuse(char *why, size_t bytes, const char *reason)
{
    snprintf(why, bytes, "%s", reason);
    return false;
}

static bool check_split(const step_options *o, char *why, size_t why_bytes)
{
    const model_config *c = &o->config;
    const int n = step_split(o).ranks, kv = c->heads_kv;
    const recompute_schedule schedule = step_schedule(o);
    if (n == 1)
        return true;
    if (c->heads % n || c->d_ff % n || (kv % n && n % kv) || c->vocab < n)
        return refuse(why, why_bytes,
                      "ranks that share layers need heads and d_ff that are multiples of their number, and heads_kv "
                      "that is one or of which it is one");
    if (o->rows_apart && (int64_t)o->batch * o->seq % n)
        return refuse(why, why_bytes, "batch x seq must be a multiple of the ranks that share its rows");
    if (o->fusion == FUSION_NONE || offload_count(&schedule))
        return refuse(why, why_bytes, "ranks that share layers have neither an eager step nor offloaded activations");
    if (o->shard.ranks && !o->shard.small)
        return refuse(why, why_bytes, "ranks that share layers have whole gains, also where the rest is in slices");
    if (o->precision->loss_scaling)
        return refuse(why, why_bytes, "ranks that share layers do not agree on a loss scale yet");
    if ((o->windows && (!o->rows_apart || o->keep_rows || o->table)) || (o->push && !o->windows))
        return refuse(why, why_bytes,
                      "rows come piece by piece only where each rank has its own, and gathers them again");
    if (o->precision->float8)
        return refuse(why, why_bytes, "ranks that share layers do not agree on the scales of float8 yet");
    return true;
}

/* What blocks of feed-forward alone do not have; NULL: nothing of it is asked for. */
static const char *without_attention(const step_options *o, const recompute_schedule *schedule)
{
    if (o->config.heads)
        return NULL;
    if (step_split(o).ranks > 1 || o->context.ranks > 1)
        return "ranks share neither layers nor sequences of a model without attention";
    if (o->precision->float8 || offload_count(schedule))
        return "blocks without attention have neither products in float8 nor offloaded activations";
    return recompute_count(schedule, RECOMPUTE_ATTN) > 0 ? "there is no attention that could be recomputed" : NULL;
}

static bool check(step *s, char *why, size_t why_bytes)
{
    const step_options *o = &s->o;
    char problem[200];
    if (model_config_problem(&o->config, problem, sizeof problem))
        return refuse(why, why_bytes, problem);
    if (o->batch < 1 || o->seq < 1 || (int64_t)o->batch * o->seq > INT32_MAX / 4)
        return refuse(why, why_bytes, "batch x seq must be at least 1 and below 2^29 tokens");
    if (o->micro_batches > 1 && o->mode == STEP_FORWARD)
        return refuse(why, why_bytes, "a forward by itself has no gradients to add up over micro-batches");
    if (o->recompute_every < 1)
        return refuse(why, why_bytes, "blocks are recomputed in groups of at least 1");
    if (o->loss_chunk < 0 || (o->loss_chunk && o->mode == STEP_FORWARD))
        return refuse(why, why_bytes,
                      "the loss is made in chunks together with its backward, not in a forward without one");
    if (o->config.layers > RECOMPUTE_LAYERS || (o->schedule && o->schedule->layers != o->config.layers))
        return refuse(why, why_bytes, "a schedule of recomputation describes each block of a model of at most 1024");
    if (table_problem(o))
        return refuse(why, why_bytes, table_problem(o));
    const recompute_schedule schedule = step_schedule(o);
    if (o->table && offload_count(&schedule))
        return refuse(why, why_bytes, "activations that leave for the host do not go with a table");
    if (offload_problem(&schedule))
        return refuse(why, why_bytes, offload_problem(&schedule));
    if (o->split && o->precision->compute != SB_FP32)
        return refuse(why, why_bytes, "products by parts are an option of the fp32 policy only");
    if (o->state_elements && !o->shard.grads && o->precision->master == SB_MASTER_FP32)
        return refuse(why, why_bytes, "separate fp32 master weights (fp16) are sharded by units only");
    if ((o->shard.grads || o->shard.params) && o->state_elements < 1 && o->mode == STEP_TRAIN)
        return refuse(why, why_bytes, "a rank that has slices of parameters or gradients needs only their state");
    if (o->context.ranks > 1 && o->seq % 2)
        return refuse(why, why_bytes, "a rank that shares sequences has two chunks of as many tokens of each");
    if (!check_split(o, why, why_bytes))
        return false;
    if (!float8_supported(s->k, s->ctx, o->precision))
        return refuse(why, why_bytes, sb_last_message());
    if (o->precision->float8 && (int64_t)o->config.layers * step_micro_batches(o) > FLOAT8_MOST_BLOCKS)
        return refuse(why, why_bytes, "a step in float8 has at most 2^25 blocks, in all of its micro-batches together");
    s->attention = sb_attention_find(s->k, o->attention);
    const char *lacks = without_attention(o, &schedule);
    if (lacks)
        return refuse(why, why_bytes, lacks);
    if (!s->attention) {
        snprintf(why, why_bytes, "the %s backend has no attention kernel '%s'", s->k->name, o->attention);
        return false;
    }
    return true;
}

static void set_dimensions(step *s)
{
    const model_split split = step_split(&s->o);
    const layer_shape own = layer_shape_of(&s->o.config, split);
    const precision *p = s->o.precision;
    s->tokens = s->o.batch * s->o.seq;
    s->rows = s->o.rows_apart ? s->tokens / split.ranks : s->tokens;
    s->micro_batches = step_micro_batches(&s->o);
    s->d = s->o.config.d_model, s->f = own.d_ff, s->vocab = own.vocab;
    s->heads = own.heads, s->heads_kv = own.heads_kv, s->head_dim = own.head_dim, s->kv = own.kv;
    s->width = own.width, s->qkv = s->width + 2 * s->kv;
    s->dtype = p->activations, s->param_dtype = p->param;
    s->grad_dtype = step_sums_dtype(&s->o);
    s->sums_in_products = step_sums_in_products(&s->o);
    s->made_dtype = s->sums_in_products ? s->grad_dtype : step_made_dtype(&s->o);
    s->element = sb_dtype_bytes(s->dtype), s->param_element = sb_dtype_bytes(s->param_dtype);
    s->grad_element = sb_dtype_bytes(s->grad_dtype);
    s->made_element = sb_dtype_bytes(s->made_dtype);
    s->moment_dtype = moments_dtype(p, s->o.moments);
    s->moment_element = sb_dtype_bytes(s->moment_dtype);
    s->eager = s->o.fusion == FUSION_NONE;
    if (!s->o.optimizer_blocks)
        s->o.optimizer_blocks = device_get_info(s->dev)->sm_count / 3;
}

/* A walk that only tells which units it uses comes before the plan, which looks ahead. */
static void note_uses(trainer *t)
{
    step *s = &t->step;
    if (!s->o.shard.params)
        return;
    units_note(s, true);
    arena_plan_begin(s->arena);
    trainer_walk(t);
    arena_plan_cancel(s->arena);
    units_note(s, false);
}

static void plan(trainer *t)
{
    step *s = &t->step;
    s->status = SB_OK;
    note_uses(t);
    s->gathered_bytes = 0;
    for (int i = 0; i < s->products.count; i++)
        s->products.list[i].uses = 0;
    arena_plan_begin(s->arena);
    trainer_walk(t);
    arena_plan_end(s->arena);
}

/* Without overlap nothing must outlive its last op, and one stream needs no workspace: less memory. */
bool trainer_plan_apart(trainer *t)
{
    step *s = &t->step;
    s->o.overlap = OVERLAP_NONE;
    plan(t);
    memory_release(t->mem, s->block);
    memory_trim(t->mem);
    s->block = memory_alloc(t->mem, arena_bytes(s->arena), "activations and gradients");
    if (s->block)
        arena_attach(s->arena, s->block);
    return s->block != NULL;
}

/* AdamW reads all arenas at the same index at the same time. Where all of them begin alike, the memory's channels are not
 * shared out evenly: 2 to 3 % of its rate, measured with fp32 arenas on an H200. So each begins a few pages later. */
static size_t skew_of(memory_kind kind)
{
    static const size_t pages[MEMORY_KINDS] = {
        [MEMORY_PARAM] = 1, [MEMORY_MOMENT1] = 3, [MEMORY_MOMENT2] = 5, [MEMORY_MASTER] = 7};
    return pages[kind] * 4096;
}

static void *resident(trainer *t, size_t bytes, memory_kind kind)
{
    char *p = memory_alloc(t->mem, bytes + skew_of(kind), memory_kind_name(kind));
    if (!p)
        return NULL;
    t->resident[kind] += (int64_t)bytes;
    t->skipped += (int64_t)skew_of(kind);
    return p + skew_of(kind);
}

static void release(trainer *t, void *p, memory_kind kind)
{
    memory_release(t->mem, p ? (char *)p - skew_of(kind) : NULL);
}

/* What stays from creation to the end, in the order in which it is taken. */
enum {
    PARAMS,
    SUMS,
    MASTER,
    MOMENT1,
    MOMENT2,
    IDS,
    TARGETS,
    ANGLES,
    ROW_LOSS,
    LOSS,
    STATE,
    RANGE_STATE,
    FLOAT8,
    RESIDENTS
};
static const memory_kind resident_kinds[RESIDENTS] = {
    MEMORY_PARAM, MEMORY_GRAD,  MEMORY_MASTER, MEMORY_MOMENT1, MEMORY_MOMENT2, MEMORY_OTHER, MEMORY_OTHER,
    MEMORY_OTHER, MEMORY_OTHER, MEMORY_OTHER,  MEMORY_OTHER,   MEMORY_OTHER,   MEMORY_OTHER};

/* 0: not there. */
static void resident_bytes(const step *s, size_t out[RESIDENTS])
{
    const size_t n = (size_t)s->params->elements, tokens = (size_t)s->tokens, batches = (size_t)s->micro_batches;
    const size_t slices = (size_t)units_held(s), state = s->o.mode == STEP_TRAIN ? 1 : 0;
    const size_t held = state * (s->o.state_elements ? (size_t)s->o.state_elements : n);
    const bool ranges = (s->o.state_elements || s->o.table || share_on(s)) && optimizer_wants_statistics(s);
    const size_t bytes[RESIDENTS] = {
        [PARAMS] = (s->o.shard.params ? slices : n) * (size_t)s->param_element,
        [SUMS] = unit_grads_apart(s) ? (s->o.shard.grads ? slices : n) * (size_t)s->grad_element : 0,
        [MASTER] = held * (size_t)precision_master_bytes(s->o.precision),
        [MOMENT1] = held * (size_t)s->moment_element,
        [MOMENT2] = held * (size_t)s->moment_element,
        [IDS] = batches * tokens * sizeof *s->ids,
        [TARGETS] = batches * tokens * sizeof *s->targets,
        [ANGLES] = (size_t)s->o.seq * (size_t)s->head_dim * sizeof *s->rope_table,
        [ROW_LOSS] = tokens * sizeof *s->row_loss,
        [LOSS] = batches * sizeof *s->loss,
        [STATE] = sizeof *s->state,
        [RANGE_STATE] = ranges ? sizeof *s->range_state : 0,
        [FLOAT8] = float8_weight_bytes(s) + codes_bytes(s)};
    memcpy(out, bytes, sizeof bytes);
}

static bool allocate(trainer *t)
{
    step *s = &t->step;
    size_t bytes[RESIDENTS];
    void *p[RESIDENTS] = {NULL};
    bool ok = true;
    resident_bytes(s, bytes);
    for (int i = 0; i < RESIDENTS && ok; i++)
        ok = !bytes[i] || (p[i] = resident(t, bytes[i], resident_kinds[i]));
    s->param = p[PARAMS], s->grad_sums = p[SUMS], s->master = p[MASTER], s->m = p[MOMENT1], s->v = p[MOMENT2];
    s->ids = p[IDS], s->targets = p[TARGETS], s->rope_table = p[ANGLES], s->row_loss = p[ROW_LOSS];
    s->loss = p[LOSS], s->state = p[STATE], s->range_state = p[RANGE_STATE], s->float8_weights = p[FLOAT8];
    return ok && (s->block = memory_alloc(t->mem, arena_bytes(s->arena), "activations and gradients"));
}

static void make_streams(trainer *t)
{
    step *s = &t->step;
    s->main = device_stream(s->dev);
    /* A kernel of the CPU runs on the thread that calls it, so there all streams of a step are the main one. */
    if ((s->o.overlap != OVERLAP_NONE || s->o.update_units) && !s->eager && device_kind_of(s->dev) == DEVICE_CUDA) {
        s->own_side = device_stream_create(s->dev, STREAM_BACKGROUND, "side");
        s->own_back = device_stream_create(s->dev, STREAM_BACKGROUND, "background");
    }
    overlap_use(s, s->o.overlap == OVERLAP_AUTO ? OVERLAP_ALL : s->o.overlap);
    for (int i = 0; i < 4; i++)
        t->mark[i] = device_event_create(s->dev);
    s->side_done = xcalloc((size_t)s->o.config.layers + 1, sizeof *s->side_done);
    for (int i = 0; i <= s->o.config.layers; i++)
        s->side_done[i] = device_event_create(s->dev);
}

/* They are those of all parts of this rank. Each part keeps the input of its first block, which comes from another. */
static void create_params(step *s)
{
    OWNED model_part *held = xcalloc((size_t)s->part_count, sizeof *held);
    for (int k = 0; k < s->part_count; k++) {
        held[k] = s->parts[k].holds;
        if (held[k].first < s->o.config.layers)
            s->schedule.input[held[k].first] = true;
    }
    s->params =
        params_create_parts(&s->o.config, s->o.shard.small || share_on(s), step_split(&s->o), held, s->part_count);
    if (s->o.shard.ranks)
        params_pad_units(s->params, s->o.granularity);
    else
        params_pad(s->params, s->o.granularity);
}

static bool create_attention(step *s, char *why, size_t why_bytes)
{
    if (!s->heads)
        return true;
    const sb_attention a = step_attention(&s->o);
    if (s->attention->supported(s->ctx, &a) != SB_OK)
        return refuse(why, why_bytes, sb_last_message());
    if (s->o.context.ranks > 1 && !(s->context = step_context_create(&s->o, s->dev, s->k, s->ctx, why, why_bytes)))
        return false;
    s->attention_needs = step_attention_bytes(&s->o, s->k, s->ctx);
    return true;
}

/* All but the memory of the device. */
static trainer *create_planned(device *d, memory *m, const sb_kernels *k, sb_context *ctx, const step_options *o,
                               char *why, size_t why_bytes)
{
    trainer *t = xcalloc(1, sizeof *t);
    step *s = &t->step;
    *t = (trainer){.step = {.o = *o, .dev = d, .k = k, .ctx = ctx}, .mem = m};
    snprintf(why, why_bytes, "not enough memory");
    if (!check(s, why, why_bytes)) {
        free(t);
        return NULL;
    }
    set_dimensions(s);
    s->schedule = step_schedule(&s->o);
    s->o.schedule = o->schedule ? &s->schedule : NULL;
    s->swiglu_matmul = step_fuses_swiglu(&s->o, k, ctx);
    if (!create_attention(s, why, why_bytes)) {
        free(t);
        return NULL;
    }
    table_create(s);
    create_params(s);
    units_create(s);
    float8_create(s);
    codes_create(s);
    s->arena = arena_create();
    make_streams(t);
    offload_create(s);
    plan(t);
    return t;
}

int64_t trainer_planned_bytes(device *d, const sb_kernels *k, sb_context *ctx, const step_options *o)
{
    char why[256];
    trainer *t = create_planned(d, NULL, k, ctx, o, why, sizeof why);
    if (!t)
        return -1;
    size_t held[RESIDENTS];
    int64_t bytes = (int64_t)arena_bytes(t->step.arena);
    resident_bytes(&t->step, held);
    for (int i = 0; i < RESIDENTS; i++)
        bytes += (int64_t)held[i];
    trainer_free(t);
    return bytes;
}

int64_t trainer_planned_offload(device *d, const sb_kernels *k, sb_context *ctx, const step_options *o)
{
    char why[256];
    trainer *t = create_planned(d, NULL, k, ctx, o, why, sizeof why);
    const int64_t bytes = t ? offload_moved_bytes(&t->step) : -1;
    trainer_free(t);
    return bytes;
}

/* The same bits in the same places; with copies of an offload, or codes, places would depend on the policy. */
static bool convertible(const step *s, const precision *to)
{
    return precision_same_state(s->o.precision, to) && !s->codes && !offload_count(&s->schedule);
}

bool trainer_convert(trainer *t, const precision *to, char *why, size_t why_bytes)
{
    step *s = &t->step;
    const precision *from = s->o.precision;
    if (!convertible(s, to))
        return refuse(why, why_bytes, "only policies that keep the same numbers are converted into each other");
    s->o.precision = to;
    if (!check(s, why, why_bytes)) {
        s->o.precision = from;
        return false;
    }
    device_sync(s->dev);
    device_graph_destroy(s->dev, t->graph);
    t->graph = NULL, t->steps = 0; /* the next step warms up */
    memory_release(t->mem, s->block);
    memory_release(t->mem, s->float8_weights);
    memory_trim(t->mem);
    t->resident[MEMORY_OTHER] -= (int64_t)float8_weight_bytes(s);
    float8_free(s);
    s->float8 = NULL, s->float8_weights = NULL, s->products.count = 0;
    s->swiglu_matmul = step_fuses_swiglu(&s->o, s->k, s->ctx);
    float8_create(s);
    plan(t);
    const size_t copies = float8_weight_bytes(s);
    s->float8_weights = copies ? resident(t, copies, MEMORY_OTHER) : NULL;
    s->block = memory_alloc(t->mem, arena_bytes(s->arena), "activations and gradients");
    if (!s->block || (copies && !s->float8_weights))
        return refuse(why, why_bytes, "not enough memory");
    arena_attach(s->arena, s->block);
    return true;
}

trainer *trainer_create(device *d, memory *m, const sb_kernels *k, sb_context *ctx, const step_options *o, char *why,
                        size_t why_bytes)
{
    trainer *t = create_planned(d, m, k, ctx, o, why, why_bytes);
    if (!t)
        return NULL;
    bool ok = offload_allocate(&t->step, why, why_bytes) && allocate(t);
    if (ok) {
        arena_attach(t->step.arena, t->step.block);
        ok = trainer_initialize(t) == SB_OK;
        if (!ok)
            snprintf(why, why_bytes, "%s", sb_last_message());
    }
    if (!ok) {
        trainer_free(t);
        return NULL;
    }
    return t;
}

void trainer_free(trainer *t)
{
    if (!t)
        return;
    step *s = &t->step;
    device_sync(s->dev);
    device_graph_destroy(s->dev, t->graph);
    void *const held[] = {s->ids,         s->targets, s->rope_table, s->row_loss, s->loss,   s->state,
                          s->range_state, s->block,   s->rates,      s->norms,    s->losses, s->float8_weights};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        memory_release(t->mem, held[i]);
    release(t, s->param, MEMORY_PARAM);
    release(t, s->grad_sums, MEMORY_GRAD);
    release(t, s->master, MEMORY_MASTER);
    release(t, s->m, MEMORY_MOMENT1);
    release(t, s->v, MEMORY_MOMENT2);
    for (int i = 0; i < 4; i++)
        device_event_destroy(s->dev, t->mark[i]);
    for (int i = 0; i <= s->o.config.layers; i++)
        device_event_destroy(s->dev, s->side_done[i]);
    device_stream_destroy(s->dev, s->own_side);
    device_stream_destroy(s->dev, s->own_back);
    offload_free(s);
    free(s->side_done);
    table_free(s);
    arena_free(s->arena);
    units_free(s);
    float8_free(s);
    context_free(s->context);
    codes_free(s);
    params_free(s->params);
    free(t);
}
