/* SPDX-License-Identifier: MIT */
/* The closed form of a step's memory: known numbers, and every phase of many real steps on the CPU backend, to the byte. */
#include "tests/support/test.h"

#include "common/core/units.h"
#include "common/formulas/memory.h"
#include "common/formulas/offload.h"
#include "common/core/rng.h"
#include "common/device/memory.h"
#include "common/train/memory_step.h"
#include "common/train/trainer.h"

enum { CASES = 600 };

/* ---- known numbers ---- */

static memory_step step_of_size(const char *size, int64_t batch, int64_t seq, int64_t bytes)
{
    const model_config *c = model_size_find(size);
    return (memory_step){.shape = {c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, batch, seq},
                         .activation_bytes = bytes,
                         .param_bytes = bytes,
                         .master_bytes = bytes == 2 ? 2 : 0,
                         .grad_bytes = bytes,
                         .moment_bytes = 4,
                         .alignment = 64,
                         .backward = true,
                         .update = true,
                         .schedule = recompute_uniform(c->layers, RECOMPUTE_NONE, 1),
                         .share_grad_memory = true};
}

TEST(states_of_xl)
{
    memory_step s = step_of_size("xl", 4, 512, 4);
    memory_bytes b = memory_resident(&s);
    assert_true(b.param == 4 * 1998235200LL);
    assert_float_equal((double)b.param / GIB, 7.444, 5e-4);
    b.other = 0;
    assert_float_equal((double)(memory_total(&b) - b.moment1 - b.moment2) / GIB, 7.444, 5e-4);
    b.grad = b.param;
    assert_float_equal((double)(memory_total(&b) - b.moment1 - b.moment2) / GIB, 14.89, 5e-3);
    assert_float_equal((double)memory_total(&b) / GIB, 29.78, 5e-3);
    s.alignment = 128; /* a gain of 1600 then takes 1664, and there are 97 */
    assert_true(memory_resident(&s).param == 4 * (1998235200LL + 97 * 64));
    s = step_of_size("xl", 4, 512, 2); /* bf16 with bf16 gradients: 14 bytes a parameter with the remainder as master */
    b = memory_resident(&s);
    b.other = 0;
    assert_true(memory_total(&b) == (14 - 2) * 1998235200LL);
}

TEST(residual_stream_of_2_7b)
{
    for (int i = 0; i < 3; i++) {
        memory_step s = step_of_size("2.7b", 4, 128 << i, 4);
        assert_true(memory_residual(&s) == (5LL << i) << 20);
    }
    const model_config *c = model_size_find("2.7b");
    assert_true(4LL * c->d_model * c->d_ff == 100LL << 20); /* one matrix of the feed-forward part */
}

/* 8 d + 3 F elements a token, and 2 + H fp32 statistics. */
TEST(saved_by_a_block)
{
    memory_step s = step_of_size("xl", 4, 512, 2);
    assert_true(memory_saved_per_block(&s) == 2048LL * (64000 + 4 * (2 + 25)));
    s.schedule = recompute_uniform(48, RECOMPUTE_SELECTIVE, 1);
    assert_true(memory_saved_per_block(&s) == 2048LL * (64000 - 2 * (2 * 1600 + 6400) + 4 * (2 + 25)));
    s.schedule = recompute_uniform(48, RECOMPUTE_ATTN, 1);
    assert_true(memory_saved_per_block(&s) == 2048LL * (2 * (3 * 1600 + 3 * 6400) + 4));
    s.schedule = recompute_uniform(48, RECOMPUTE_MLP, 1);
    assert_true(memory_saved_per_block(&s) == 2048LL * (2 * 7 * 1600 + 4 * (1 + 25)));
    s.schedule = recompute_uniform(48, RECOMPUTE_BLOCK, 4);
    assert_true(memory_saved_per_block(&s) == memory_residual(&s));
    s.backward = false;
    assert_true(memory_saved_per_block(&s) == 0);
}

/* A write-up counts 19 d + 2 H S elements of a token and block for 2.7b in fp32 without flash (with F = 4 d): 20 GB at
 * context 512. We keep one S x S matrix where it has two, but gate, up and their product are three F. */
TEST(unfused_next_to_the_published_count)
{
    for (int64_t seq = 128; seq <= 1024; seq *= 2) {
        memory_step s = step_of_size("2.7b", 4, seq, 4);
        const int64_t tokens = 4 * seq, d = 2560, heads = 32, layers = 32;
        s.scratch.attention_saved = 4 * 4 * heads * seq * seq;
        const int64_t published = 4 * tokens * layers * (19 * d + 2 * heads * seq);
        if (seq == 512)
            assert_float_equal((double)published / 1e9, 21.3, 0.05);
        assert_true(layers * memory_saved_per_block(&s) ==
                    published + 4 * tokens * layers * (d - heads * seq + 2 + heads));
    }
}

TEST(forward_alone_keeps_nothing)
{
    memory_step s = step_of_size("2.7b", 4, 512, 4);
    s.backward = s.update = false;
    memory_peaks p = memory_predict(&s);
    assert_true(memory_total(&p.backward) == 0 && memory_total(&p.update) == 0);
    /* x_mid, a norm, gate and up, their product: the SwiGLU of any block, or the output projection after it. */
    assert_true(p.forward.activation == 2048LL * (4 * (2560 + 2560 + 3 * 10240) + 4));
    assert_true(p.forward.grad == 0 && p.forward.moment1 == 0);
    s.shape.vocab = 1000000; /* or the logits */
    p = memory_predict(&s);
    assert_true(p.forward.activation == 2048LL * (4 * (2560 + 2560 + 1000000) + 4));
}

/* ---- next to real steps ---- */

/* Workspaces that depend on the shape and the case, and may be larger than all tensors, so that every op is the worst one
 * of some case. */
static size_t matmul_scale, norm_scale, sum_scale, salt;

static size_t some_matmul_workspace(sb_context *ctx, const sb_matmul *p)
{
    (void)ctx;
    size_t mix = salt;
    const size_t parts[] = {(size_t)p->m, (size_t)p->n, (size_t)p->k, p->transpose_a, p->c != NULL};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        mix = (mix ^ parts[i]) * 0x9e3779b97f4a7c15u, mix ^= mix >> 29;
    return matmul_scale * (mix % 4096);
}

static size_t some_norm_workspace(sb_context *ctx, const sb_rmsnorm *p)
{
    (void)ctx;
    return norm_scale * (size_t)(p->rows + p->d);
}

static size_t some_reduce_workspace(sb_context *ctx, const sb_reduce *p)
{
    (void)ctx;
    return (p->over_rows ? 3 : 1) * sum_scale * (size_t)(p->rows + p->columns);
}

static size_t some_stats_workspace(sb_context *ctx, const sb_grad_stats *p)
{
    (void)ctx;
    return 4 * p->n;
}

typedef struct bench_of_steps {
    device *dev;
    memory *mem;
    sb_train_ops train;
    sb_kernels kernels;
    sb_context *ctx;
    uint32_t draws;
    recompute_schedule schedule; /* of the last options drawn */
} bench_of_steps;

/* The worst event of a phase, by kind. */
static memory_bytes measured(const trainer *t, const memory_bytes *resident, step_phase phase, bool *any)
{
    const arena_event *events;
    const size_t n = arena_events(trainer_arena(t), &events);
    int64_t live[MEMORY_KINDS] = {0};
    memory_bytes worst = {0};
    *any = false;
    for (size_t i = 0; i < n; i++) {
        live[events[i].kind] += events[i].bytes;
        const memory_bytes now = {.param = resident->param,
                                  .master = resident->master,
                                  .moment1 = resident->moment1,
                                  .moment2 = resident->moment2,
                                  .other = resident->other + live[MEMORY_OTHER],
                                  .grad = live[MEMORY_GRAD],
                                  .activation = live[MEMORY_ACTIVATION],
                                  .temporary = live[MEMORY_TEMPORARY],
                                  .workspace = live[MEMORY_WORKSPACE]};
        if (events[i].phase == phase && memory_total(&now) > memory_total(&worst)) {
            worst = now;
            *any = true;
        }
    }
    return worst;
}

static void print_case(const step_options *o)
{
    const model_config *c = &o->config;
    print_message("d %d F %d V %d L %d H %d/%d B %d S %d mode %d %s %s recompute %d/%d fusion %d overlap %d share %d\n",
                  c->d_model, c->d_ff, c->vocab, c->layers, c->heads, c->heads_kv, o->batch, o->seq, o->mode,
                  o->precision->name, o->attention, o->recompute, o->recompute_every, o->fusion, o->overlap,
                  o->share_grad_memory);
}

static void same_phase(const trainer *t, const memory_step *s, const memory_bytes *predicted, step_phase phase)
{
    const memory_bytes resident = memory_resident(s);
    const int64_t peak = trainer_memory_of(t).phase_peak[phase];
    bool any;
    const memory_bytes worst = measured(t, &resident, phase, &any);
    if (memory_total(predicted) != peak) {
        print_case(trainer_options_of(t));
        fail_msg("%s: predicted %lld, held %lld", step_phase_name(phase), (long long)memory_total(predicted),
                 (long long)peak);
    }
    if (any && memory_total(&worst) == peak && memcmp(&worst, predicted, sizeof worst) != 0) {
        print_case(trainer_options_of(t));
        fail_msg(
            "%s by kind: predicted gradients %lld, activations %lld, temporaries %lld, workspaces %lld, held %lld, "
            "%lld, %lld, %lld",
            step_phase_name(phase), (long long)predicted->grad, (long long)predicted->activation,
            (long long)predicted->temporary, (long long)predicted->workspace, (long long)worst.grad,
            (long long)worst.activation, (long long)worst.temporary, (long long)worst.workspace);
    }
}

static void same_as_trainer(bench_of_steps *b, const step_options *o)
{
    char why[512];
    trainer *t = trainer_create(b->dev, b->mem, &b->kernels, b->ctx, o, why, sizeof why);
    if (!t)
        fail_msg("no trainer: %s", why);
    const memory_step s = memory_step_of(o, &b->kernels, b->ctx);
    const memory_peaks p = memory_predict(&s);
    same_phase(t, &s, &p.forward, PHASE_FORWARD);
    if (s.backward)
        same_phase(t, &s, &p.backward, PHASE_BACKWARD);
    if (s.update)
        same_phase(t, &s, &p.update, PHASE_OPTIMIZER);
    trainer_free(t);
}

static int draw(bench_of_steps *b, int n)
{
    return (int)(rng_uniform(1, 0, b->draws++) * n);
}

static step_options draw_options(bench_of_steps *b)
{
    static const char *const policies[] = {"fp32", "bf16", "bf16-pure", "fp16"};
    static const char *const attentions[] = {"unfused", "fused", "flash"};
    static const struct {
        int d, f, vocab, heads, heads_kv;
    } widths[] = {{32, 48, 40, 2, 2}, {48, 40, 500, 3, 1}, {96, 24, 30, 4, 2}, {40, 128, 11, 1, 1}, {24, 56, 21, 0, 0}};
    step_options o = step_defaults();
    const int w = draw(b, 5);
    o.config = (model_config){"custom",        widths[w].vocab,    widths[w].d, widths[w].f, 1 + draw(b, 12),
                              widths[w].heads, widths[w].heads_kv, 10000,       1e-5f};
    o.batch = 1 + draw(b, 3);
    o.seq = (int[]){1, 7, 16, 64}[draw(b, 4)];
    o.mode = (step_mode)draw(b, 3);
    o.precision = precision_find(policies[draw(b, 4)]);
    o.grad_fp32 = draw(b, 4) == 0;
    o.moments = (moments_kind)draw(b, 3);
    o.attention = attentions[draw(b, 3)];
    o.recompute = (recompute)draw(b, RECOMPUTE_KINDS);
    o.recompute_every = 1 + draw(b, 4);
    o.fusion = draw(b, 3) ? FUSION_KERNELS : FUSION_NONE;
    o.overlap = draw(b, 2) ? OVERLAP_ALL : OVERLAP_NONE;
    o.share_grad_memory = draw(b, 4) != 0;
    o.clip_norm = draw(b, 3) ? 0 : 1;
    o.swiglu_apart = draw(b, 4) == 0;
    o.loss_chunk = o.mode != STEP_FORWARD && draw(b, 3) == 0 ? 1 + draw(b, o.batch * o.seq + 3) : 0;
    b->schedule = recompute_uniform(o.config.layers, o.recompute, o.recompute_every);
    for (int parts = draw(b, 4); parts > 0; parts--) { /* now and then, not all blocks alike */
        const int first = draw(b, o.config.layers), count = 1 + draw(b, o.config.layers - first);
        recompute_set(&b->schedule, first, count, (recompute)draw(b, RECOMPUTE_KINDS), 1 + draw(b, 3));
        o.schedule = &b->schedule;
    }
    for (int l = 0, away = draw(b, 2); l < o.config.layers && away; l++) {
        b->schedule.away[l] = (unsigned char)(draw(b, 2) * draw(b, OFFLOAD_BLOCK + 1));
        if (offload_problem(&b->schedule))
            b->schedule.away[l] = 0;
        b->schedule.behind = draw(b, 5), b->schedule.ahead = draw(b, 5);
        o.schedule = &b->schedule;
    }
    for (int l = 0; l < o.config.layers && !o.config.heads; l++) { /* what a block without attention does not have */
        b->schedule.away[l] = 0;
        b->schedule.what[l] = b->schedule.what[l] == RECOMPUTE_ATTN ? RECOMPUTE_MLP : b->schedule.what[l];
        o.schedule = &b->schedule;
    }
    return o;
}

static int open_bench(void **state)
{
    bench_of_steps *b = calloc(1, sizeof *b);
    b->dev = device_open(DEVICE_CPU, 0);
    b->mem = memory_create(b->dev);
    b->train = *sb_kernels_cpu()->train;
    b->train.matmul_workspace = some_matmul_workspace;
    b->train.rmsnorm_workspace = some_norm_workspace;
    b->train.reduce_workspace = some_reduce_workspace;
    b->train.grad_stats_workspace = some_stats_workspace;
    b->kernels = *sb_kernels_cpu();
    b->kernels.train = &b->train;
    *state = b;
    return b->kernels.create(0, &b->ctx) == SB_OK ? 0 : -1;
}

static int close_bench(void **state)
{
    OWNED bench_of_steps *b = *state;
    b->kernels.destroy(b->ctx);
    memory_destroy(b->mem);
    device_close(b->dev);
    return 0;
}

TEST_WITH(every_phase_of_a_step_is_predicted, open_bench, close_bench)
{
    bench_of_steps *b = *state;
    for (int i = 0; i < CASES; i++) {
        const step_options o = draw_options(b);
        static const size_t scales[] = {0, 1, 256};
        matmul_scale = scales[draw(b, 3)], norm_scale = scales[draw(b, 3)], sum_scale = scales[draw(b, 3)];
        salt = (size_t)i;
        same_as_trainer(b, &o);
    }
}
