/* SPDX-License-Identifier: MIT */
/* Creating and freeing a training step: options checked, the step planned, memory taken, streams made. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/formulas/offload.h"
#include "common/train/memory_step.h"
#include "common/step/step.h"

static bool refuse(char *why, size_t bytes, const char *reason)
{
    snprintf(why, bytes, "%s", reason);
    return false;
}

static bool check(trainer *t, char *why, size_t why_bytes)
{
    const step_options *o = &t->o;
    char problem[200];
    if (model_config_problem(&o->config, problem, sizeof problem))
        return refuse(why, why_bytes, problem);
    if (o->batch < 1 || o->seq < 1 || (int64_t)o->batch * o->seq > INT32_MAX / 4)
        return refuse(why, why_bytes, "batch x seq must be at least 1 and below 2^29 tokens");
    if (o->micro_batches > 1 && o->mode == STEP_FORWARD)
        return refuse(why, why_bytes, "a forward alone has no gradients to add up over micro-batches");
    if (o->recompute_every < 1)
        return refuse(why, why_bytes, "blocks are recomputed in groups of at least 1");
    if (o->loss_chunk < 0 || (o->loss_chunk && o->mode == STEP_FORWARD))
        return refuse(why, why_bytes, "the loss is made in chunks together with its backward, not by a forward alone");
    if (o->config.layers > RECOMPUTE_LAYERS || (o->schedule && o->schedule->layers != o->config.layers))
        return refuse(why, why_bytes, "a schedule of recomputation describes each block of a model of at most 1024");
    const recompute_schedule schedule = step_schedule(o);
    if (offload_problem(&schedule))
        return refuse(why, why_bytes, offload_problem(&schedule));
    if (o->split && o->precision->compute != SB_FP32)
        return refuse(why, why_bytes, "products by parts are an option of the fp32 policy only");
    if (o->state_elements && !o->shard.grads && o->precision->master == SB_MASTER_FP32)
        return refuse(why, why_bytes, "separate fp32 master weights (fp16) are sharded by units only");
    if (o->shard.params && !o->shard.grads)
        return refuse(why, why_bytes, "parameters are sharded together with their gradients");
    if ((o->shard.grads || o->shard.params) && o->state_elements < 1 && o->mode == STEP_TRAIN)
        return refuse(why, why_bytes, "a rank that has slices of parameters or gradients needs their state alone");
    t->attention = sb_attention_find(t->k, o->attention);
    if (!t->attention) {
        snprintf(why, why_bytes, "the %s backend has no attention kernel '%s'", t->k->name, o->attention);
        return false;
    }
    return true;
}

static void set_dimensions(trainer *t)
{
    const model_config *c = &t->o.config;
    const precision *p = t->o.precision;
    t->tokens = t->o.batch * t->o.seq;
    t->micro_batches = step_micro_batches(&t->o);
    t->d = c->d_model, t->f = c->d_ff, t->vocab = c->vocab;
    t->heads = c->heads, t->heads_kv = c->heads_kv, t->head_dim = model_head_dim(c), t->kv = model_kv_dim(c);
    t->qkv = t->d + 2 * t->kv;
    t->dtype = p->activations, t->param_dtype = p->param;
    t->made_dtype = step_made_dtype(&t->o);
    t->grad_dtype = step_sums_dtype(&t->o);
    t->element = sb_dtype_bytes(t->dtype), t->param_element = sb_dtype_bytes(t->param_dtype);
    t->grad_element = sb_dtype_bytes(t->grad_dtype);
    t->made_element = sb_dtype_bytes(t->made_dtype);
    t->moment_dtype = moments_dtype(p, t->o.moments);
    t->moment_element = sb_dtype_bytes(t->moment_dtype);
    t->eager = t->o.fusion == FUSION_NONE;
    if (!t->o.optimizer_blocks)
        t->o.optimizer_blocks = device_get_info(t->dev)->sm_count / 3;
}

static void plan(trainer *t)
{
    t->status = SB_OK;
    units_note(t);
    t->gathered_elements = 0;
    for (int i = 0; i < t->product_count; i++)
        t->products[i].uses = 0;
    arena_plan_begin(t->arena);
    step_walk(t);
    arena_plan_end(t->arena);
}

/* Without overlap nothing must outlive its last op, and one stream needs no workspace: less memory. */
bool trainer_plan_apart(trainer *t)
{
    t->o.overlap = OVERLAP_NONE;
    plan(t);
    memory_release(t->mem, t->block);
    memory_trim(t->mem);
    t->block = memory_alloc(t->mem, arena_bytes(t->arena), "activations and gradients");
    if (t->block)
        arena_attach(t->arena, t->block);
    return t->block != NULL;
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

static bool allocate(trainer *t)
{
    const size_t n = (size_t)t->params->elements, tokens = (size_t)t->tokens, batches = (size_t)t->micro_batches;
    const size_t held = t->o.state_elements ? (size_t)t->o.state_elements : n;
    const size_t master = (size_t)precision_master_bytes(t->o.precision);
    const size_t moment = (size_t)t->moment_element;
    const size_t slices = (size_t)units_held(t);
    const bool train = t->o.mode == STEP_TRAIN;
    const bool ranges = t->o.state_elements && trainer_update_wants_all(t);
    return (t->param = resident(t, (t->o.shard.params ? slices : n) * (size_t)t->param_element, MEMORY_PARAM)) &&
           (!unit_grads_apart(t) ||
            (t->grad_sums = resident(t, (t->o.shard.grads ? slices : n) * (size_t)t->grad_element, MEMORY_GRAD))) &&
           (!train || !master || (t->master = resident(t, held * master, MEMORY_MASTER))) &&
           (!train || (t->m = resident(t, held * moment, MEMORY_MOMENT1))) &&
           (!train || (t->v = resident(t, held * moment, MEMORY_MOMENT2))) &&
           (t->ids = resident(t, batches * tokens * sizeof(int32_t), MEMORY_OTHER)) &&
           (t->targets = resident(t, batches * tokens * sizeof(int32_t), MEMORY_OTHER)) &&
           (t->rope_table = resident(t, (size_t)t->o.seq * (size_t)t->head_dim * sizeof(float), MEMORY_OTHER)) &&
           (t->row_loss = resident(t, tokens * sizeof(float), MEMORY_OTHER)) &&
           (t->loss = resident(t, batches * sizeof(float), MEMORY_OTHER)) &&
           (t->state = resident(t, sizeof(sb_optimizer_state), MEMORY_OTHER)) &&
           (!ranges || (t->range_state = resident(t, sizeof(sb_optimizer_state), MEMORY_OTHER))) &&
           (t->block = memory_alloc(t->mem, arena_bytes(t->arena), "activations and gradients"));
}

static void make_streams(trainer *t)
{
    t->main = device_stream(t->dev);
    if (t->o.overlap != OVERLAP_NONE && !t->eager) {
        t->own_side = device_stream_create(t->dev, STREAM_BACKGROUND);
        t->own_back = device_stream_create(t->dev, STREAM_BACKGROUND);
    }
    overlap_use(t, t->o.overlap == OVERLAP_AUTO ? OVERLAP_ALL : t->o.overlap);
    for (int i = 0; i < 4; i++)
        t->mark[i] = device_event_create(t->dev);
    t->ready = device_event_create(t->dev);
    t->joined = device_event_create(t->dev);
    t->side_done = xcalloc((size_t)t->o.config.layers + 1, sizeof *t->side_done);
    for (int i = 0; i <= t->o.config.layers; i++)
        t->side_done[i] = device_event_create(t->dev);
}

/* All but the memory of the device. */
static trainer *create_planned(device *d, memory *m, const sb_kernels *k, sb_context *ctx, const step_options *o,
                               char *why, size_t why_bytes)
{
    trainer *t = xcalloc(1, sizeof *t);
    *t = (trainer){.o = *o, .dev = d, .mem = m, .k = k, .ctx = ctx};
    snprintf(why, why_bytes, "not enough memory");
    if (!check(t, why, why_bytes)) {
        free(t);
        return NULL;
    }
    set_dimensions(t);
    t->schedule = step_schedule(&t->o);
    t->o.schedule = o->schedule ? &t->schedule : NULL;
    t->swiglu_matmul = step_fuses_swiglu(&t->o, k, ctx);
    const sb_attention a = step_attention(t);
    if (t->attention->supported(ctx, &a) != SB_OK) {
        snprintf(why, why_bytes, "%s", sb_last_message());
        free(t);
        return NULL;
    }
    t->params = params_create_with(&t->o.config, t->o.shard.small);
    if (t->o.shard.ranks)
        params_pad_units(t->params, t->o.granularity);
    else
        params_pad(t->params, t->o.granularity);
    units_create(t);
    t->arena = arena_create();
    t->blocks = xcalloc((size_t)t->o.config.layers + 1, sizeof *t->blocks);
    make_streams(t);
    offload_create(t);
    plan(t);
    return t;
}

int64_t trainer_planned_bytes(device *d, const sb_kernels *k, sb_context *ctx, const step_options *o)
{
    char why[256];
    trainer *t = create_planned(d, NULL, k, ctx, o, why, sizeof why);
    if (!t)
        return -1;
    const memory_step step = memory_step_of(o, k, ctx);
    memory_bytes held = memory_resident(&step);
    held.grad = 0; /* the arena has them */
    const int64_t bytes = memory_total(&held) + (int64_t)arena_bytes(t->arena);
    trainer_free(t);
    return bytes;
}

int64_t trainer_planned_offload(device *d, const sb_kernels *k, sb_context *ctx, const step_options *o)
{
    char why[256];
    trainer *t = create_planned(d, NULL, k, ctx, o, why, sizeof why);
    const int64_t bytes = t ? trainer_offloaded_bytes(t) : -1;
    trainer_free(t);
    return bytes;
}

trainer *trainer_create(device *d, memory *m, const sb_kernels *k, sb_context *ctx, const step_options *o, char *why,
                        size_t why_bytes)
{
    trainer *t = create_planned(d, m, k, ctx, o, why, why_bytes);
    if (!t)
        return NULL;
    bool ok = offload_allocate(t, why, why_bytes) && allocate(t);
    if (ok) {
        arena_attach(t->arena, t->block);
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
    device_sync(t->dev);
    if (t->graph)
        device_graph_destroy(t->dev, t->graph);
    void *const held[] = {t->ids, t->targets, t->rope_table, t->row_loss, t->loss, t->state, t->range_state, t->block};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        memory_release(t->mem, held[i]);
    release(t, t->param, MEMORY_PARAM);
    release(t, t->grad_sums, MEMORY_GRAD);
    release(t, t->master, MEMORY_MASTER);
    release(t, t->m, MEMORY_MOMENT1);
    release(t, t->v, MEMORY_MOMENT2);
    for (int i = 0; i < 4; i++)
        device_event_destroy(t->dev, t->mark[i]);
    device_event_destroy(t->dev, t->ready);
    device_event_destroy(t->dev, t->joined);
    for (int i = 0; i <= t->o.config.layers; i++)
        device_event_destroy(t->dev, t->side_done[i]);
    if (t->own_side) {
        device_stream_destroy(t->dev, t->own_side);
        device_stream_destroy(t->dev, t->own_back);
    }
    offload_free(t);
    free(t->side_done);
    free(t->blocks);
    arena_free(t->arena);
    units_free(t);
    params_free(t->params);
    free(t);
}
