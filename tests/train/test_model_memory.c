/* SPDX-License-Identifier: MIT */
/* A training step's memory timeline, its callbacks and times, and the options that it refuses. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

/* ---- callbacks, times, memory ---- */

typedef struct tiles {
    int64_t next;
    int calls;
} tiles;

static void on_ready(void *user, int64_t first, int64_t count, void *stream)
{
    tiles *seen = user;
    (void)stream;
    /* What lies between two ranges is padding. */
    assert_true(first == (seen->next + PARAMS_ALIGNMENT - 1) / PARAMS_ALIGNMENT * PARAMS_ALIGNMENT && count > 0);
    seen->next = first + count;
    seen->calls++;
}

TEST(callbacks)
{
    for (int mask = 0; mask < 8; mask++) {
        step_options o = three_blocks("bf16");
        o.mode = mask & 1 ? STEP_TRAIN : STEP_FORWARD_BACKWARD;
        o.overlap = mask & 2 ? OVERLAP_ALL : OVERLAP_NONE;
        o.fusion = mask & 4 ? FUSION_NONE : FUSION_KERNELS;
        OWNED_TRAINER trainer *t = create(&o);
        tiles seen = {0, 0};
        trainer_set_hooks(t, &(step_hooks){.user = &seen, .ready = on_ready});
        step(t);
        const param_tensor *last = &trainer_params(t)->tensors[trainer_params(t)->count - 1];
        assert_true(seen.next == last->first + last->count && seen.calls >= o.config.layers + 2);
        step_times times = trainer_times(t);
        assert_true(times.forward > 0 && times.backward > 0 && (times.optimizer > 0 || !(mask & 1)));
        assert_true(times.step >= 0.999 * (times.forward + times.backward + times.optimizer));
    }
}

static void check_timeline(trainer *t, size_t held_before)
{
    const trainer_memory m = trainer_memory_of(t);
    const step_options *o = trainer_options_of(t);
    const arena_event *e;
    const size_t n = arena_events(trainer_arena(t), &e);
    int64_t held = 0, live = 0, peak[STEP_PHASES] = {0};
    for (int k = 0; k < MEMORY_KINDS; k++)
        held += m.resident[k];
    bool entered[STEP_PHASES] = {false};
    for (size_t i = 0; i < n; i++) {
        if (!entered[e[i].phase] && live > peak[e[i].phase])
            peak[e[i].phase] = live;
        entered[e[i].phase] = true;
        live += e[i].bytes;
        if (live > peak[e[i].phase])
            peak[e[i].phase] = live;
    }
    for (int p = PHASE_FORWARD; p < STEP_PHASES; p++)
        if (entered[p])
            assert_true(m.phase_peak[p] == held + peak[p]);
    if (o->mode == STEP_TRAIN) /* with events of its own or without, all gradients are there */
        assert_true(m.phase_peak[PHASE_OPTIMIZER] >= held + live);
    /* The block is hardly larger than what lives in it at once; tensors of a few rows are rounded up to 256 bytes. */
    int64_t most = 0;
    for (int p = 0; p < STEP_PHASES; p++)
        most = peak[p] > most ? peak[p] : most;
    assert_true((double)m.arena_bytes <= 1.05 * (double)most + 256 * 40);
    const params *p = trainer_params(t);
    const bool brief = o->moments == MOMENTS_BF16 || (!o->moments && strcmp(o->precision->name, "bf16-pure") == 0);
    const int moment = o->mode != STEP_TRAIN ? 0 : brief ? 2 : 4;
    assert_true(m.resident[MEMORY_PARAM] == p->elements * sb_dtype_bytes(o->precision->param));
    assert_true(m.resident[MEMORY_MOMENT1] == p->elements * moment);
    assert_true(m.resident[MEMORY_MOMENT2] == p->elements * moment);
    assert_true(m.resident[MEMORY_MASTER] ==
                (o->mode == STEP_TRAIN ? p->elements * precision_master_bytes(o->precision) : 0));
    assert_true(m.resident[MEMORY_GRAD] == 0);
    /* Gradients are all there is at the end of a step with a backward. */
    const int grad = o->grad_fp32 ? 4 : sb_dtype_bytes(o->precision->grad);
    assert_true(live == (o->mode == STEP_FORWARD ? 0 : p->elements * grad));
    const int64_t skipped = m.allocated - held - m.arena_bytes; /* a few pages in front of each arena */
    assert_true(skipped > 0 && skipped <= 16 * 4096);
    const int64_t taken = (int64_t)(memory_current(bed.mem) - held_before);
    assert_true(taken >= m.allocated && taken < m.allocated + 20 * 256);
}

TEST(memory_history)
{
    for (int i = 0; i < POLICIES; i++)
        for (int mode = STEP_FORWARD; mode <= STEP_TRAIN; mode++)
            for (int mask = 0; mask < 16; mask++) {
                step_options o = three_blocks(policies[i]);
                o.mode = (step_mode)mode;
                o.fusion = mask & 1 ? FUSION_NONE : FUSION_KERNELS;
                o.share_grad_memory = mask & 2;
                o.overlap = mask & 4 ? OVERLAP_ALL : OVERLAP_NONE;
                o.recompute = mask & 8 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
                o.grad_fp32 = mask & 8;
                o.moments = mask & 2 ? mask & 4 ? MOMENTS_BF16 : MOMENTS_FP32 : MOMENTS_POLICY;
                const size_t before = memory_current(bed.mem);
                trainer *t = create(&o);
                check_timeline(t, before);
                trainer_free(t);
                assert_int_equal(memory_current(bed.mem), before);
            }
}

/* What recomputing and sharing are for: less memory at the worst op. */
static int64_t bytes_of(const step_options *o)
{
    OWNED_TRAINER trainer *t = create(o);
    const int64_t bytes = trainer_memory_of(t).arena_bytes;
    return bytes;
}

TEST(memory_order)
{
    step_options o = small_options();
    o.config.layers = 12;
    o.batch = 8;
    o.seq = 32;
    o.overlap = OVERLAP_NONE;
    const int64_t all = bytes_of(&o);
    o.share_grad_memory = false;
    assert_true(bytes_of(&o) > all);
    o.share_grad_memory = true;
    for (int mode = RECOMPUTE_SELECTIVE; mode <= RECOMPUTE_BLOCK; mode++) {
        o.recompute = (recompute)mode;
        assert_true(bytes_of(&o) < all);
    }
    o.recompute = RECOMPUTE_NONE;
    o.mode = STEP_FORWARD;
    assert_true(bytes_of(&o) < all / 4);
}

/* ---- refusals ---- */

static void refused(const step_options *o, const char *words)
{
    char why[256] = "";
    if (trainer_create(bed.dev, bed.mem, bed.kernels, bed.ctx, o, why, sizeof why))
        fail_msg("a trainer where \"%s\" was expected", words);
    if (!strstr(why, words))
        fail_msg("the reason is \"%s\", want \"%s\"", why, words);
}

TEST(refusals)
{
    step_options o = small_options();
    o.config.heads = 3;
    refused(&o, "not a multiple of heads");
    o = small_options();
    o.config.heads = o.config.heads_kv = 4;
    refused(&o, "head_dim 8");
    o = small_options();
    o.config.heads = o.config.heads_kv = 0;
    o.precision = precision_find("fp8-block");
    refused(&o, "neither products in float8");
    o.precision = precision_find("bf16");
    o.offload = OFFLOAD_RESIDUAL;
    refused(&o, "nor offloaded");
    o.offload = 0;
    o.recompute = RECOMPUTE_ATTN;
    refused(&o, "no attention");
    o = small_options();
    o.attention = "magic";
    refused(&o, "magic");
    o = small_options();
    o.recompute_every = 0;
    refused(&o, "at least 1");
    o = small_options();
    o.precision = precision_find("bf16");
    o.split = SB_FP16X3_FAST;
    refused(&o, "fp32");
    o = small_options();
    o.precision = precision_find("fp8-tensorwise");
    o.config.layers = 1000, o.micro_batches = 1 << 16;
    refused(&o, "2^25 blocks");
    o = small_options();
    o.config.vocab = 1 << 20;
    o.config.d_model = 1 << 16;
    o.config.heads = o.config.heads_kv = 1 << 9;
    o.config.layers = 1000;
    refused(&o, "memory");
    size_t asked;
    const char *tag;
    assert_true(memory_failed(bed.mem, &asked, &tag));
    memory_failed_clear(bed.mem);
    assert_int_equal(memory_current(bed.mem), 0);
    trainer_free(NULL);
}

TESTS_WITH(bed_create, bed_destroy)
