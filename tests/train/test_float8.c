/* SPDX-License-Identifier: MIT */
/* Steps whose blocks multiply in float8: gradients near those of bf16, the same bits whatever is computed again, left for later or
 * run aside, copies of weights that are those of the present weights, memory as planned, and what stays in bf16. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include "common/core/numeric.h"
#include "common/model/float8.h"
#include "kernels/shared/internal.h"

enum { FLOAT8_POLICIES = 7, DELAYED = FLOAT8_POLICIES - 2 };
static const char *const float8_policies[FLOAT8_POLICIES] = {
    "fp8-tensorwise", "fp8-rowwise", "fp8-rowwise-dw16", "fp8-block", "fp8-block-dw2d", "fp8-delayed", "fp8-mx"};

/* Those that the device has: 1x32 is the CPU's alone. */
static int policy_count(void)
{
    return device_kind_of(bed.dev) == DEVICE_CPU ? FLOAT8_POLICIES : FLOAT8_POLICIES - 1;
}

/* Sizes of which all are multiples of 16, and k is more than a block in w2 alone; only blocks that end with gate's gradients have
 * SwiGLU within casts. */
static step_options float8_options(const char *policy)
{
    step_options o = three_blocks(policy);
    o.config.d_ff = strncmp(policy, "fp8-block", 9) == 0 ? 128 : 144;
    o.seq = 16;
    return o;
}

static int products_in_float8(const trainer *t)
{
    const tuned_product *p;
    int uses = 0;
    for (int i = trainer_products(t, &p); i-- > 0;)
        uses += p[i].shape.dtype == SB_E4M3 || p[i].shape.dtype == SB_E5M2 ? p[i].uses : 0;
    return uses;
}

static void gradients_are_near_those_of_bf16(void)
{
    for (int i = 0; i < policy_count(); i++) {
        step_options o = float8_options(float8_policies[i]);
        o.precision = precision_find("bf16");
        outcome want = outcome_of(&o);
        o.precision = precision_find(float8_policies[i]);
        const outcome got = outcome_of(&o);
        const double off = worst_tensor(want.p, want.grads, got.grads, NULL);
        if (!(off > 0.02 && off < 0.5))
            fail_msg("%s: gradients differ by %.2g from those of bf16", float8_policies[i], off);
        outcome_free((outcome *)&got);
        outcome_free(&want);
    }
}

/* ---- gradients beside fp32's, with and without the same roundings ---- */

static const sb_train_ops *plain;
static const float8_recipe *recipe;

/* Codes (rows, k) by their scales, of which bf16 has each exactly. Caller frees. */
static uint16_t *decoded(const uint8_t *codes, const float *scales, const float8_operand *as, int rows, int k)
{
    uint16_t *out = xmalloc((size_t)rows * (size_t)k * sizeof *out), *to = out;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < k; j++, codes++) {
            const float v = as->format == SB_E4M3 ? e4m3_to_float(*codes) : e5m2_to_float(*codes);
            *to++ = bf16_from_float(v * scales[sb_scale_place(as->scaling, rows, k, i, j)]);
        }
    return out;
}

/* What is left of an operand (rows, k) behind a cast, which bf16 has exactly; it lies (k, rows) where `turned`. Caller frees. */
static uint16_t *rounded(const void *x, int rows, int k, int ld, bool turned, const float8_operand *as)
{
    const int down = turned ? k : rows, along = turned ? rows : k;
    uint32_t all, *of_down = xmalloc((size_t)down * sizeof *of_down),
                  *of_along = xmalloc((size_t)along * sizeof *of_along);
    const sb_amax a = {.dtype = SB_BF16,
                       .rows = down,
                       .columns = along,
                       .ld = ld,
                       .x = x,
                       .of_all = &all,
                       .of_rows = of_down,
                       .of_columns = of_along};
    uint8_t *codes = xmalloc((size_t)rows * (size_t)k);
    float *scales = xcalloc(sb_scale_count(as->scaling, rows, k), sizeof *scales);
    sb_quantize q = {.dtype = SB_BF16,
                     .format = as->format,
                     .scaling = as->scaling,
                     .rows = down,
                     .columns = along,
                     .ld = ld,
                     .x = x,
                     .amax = as->scaling == SB_SCALE_TENSOR ? &all : of_down,
                     .amax_t = of_along};
    if (turned)
        q.y_t = codes, q.ld_t = k, q.scales_t = scales;
    else
        q.y = codes, q.ld_y = k, q.scales = scales;
    assert_int_equal(plain->amax(NULL, &a, NULL), SB_OK);
    assert_int_equal(plain->quantize(NULL, &q, NULL), SB_OK);
    uint16_t *out = decoded(codes, scales, as, rows, k);
    free(of_down), free(of_along), free(codes), free(scales);
    return out;
}

/* The products of the blocks, of operands that a cast by the recipe leaves. */
static sb_status rounding_matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    const char *name = p->transpose_a ? recipe->dw : p->transpose_b ? recipe->y : recipe->dx;
    const int vocab = small_options().config.vocab;
    if (!name || p->m == vocab || p->n == vocab || p->k == vocab)
        return plain->matmul(ctx, p, stream);
    const float8_product *f = float8_product_find(name);
    uint16_t *a = rounded(p->a, p->m, p->k, p->lda, p->transpose_a, &f->a),
             *b = rounded(p->b, p->n, p->k, p->ldb, !p->transpose_b, &f->b);
    sb_matmul q = *p;
    q.a = a, q.lda = p->k, q.transpose_a = false;
    q.b = b, q.ldb = p->k, q.transpose_b = true;
    const sb_status s = plain->matmul(ctx, &q, stream);
    free(a), free(b);
    return s;
}

/* The step's own codes and scales, added up in fp32 as those of `rounding_matmul` are. */
static sb_status decoding_matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    if (p->dtype != SB_E4M3 && p->dtype != SB_E5M2)
        return plain->matmul(ctx, p, stream);
    const float8_operand as_a = {p->dtype, p->scaling_a}, as_b = {p->dtype_b, p->scaling_b};
    uint16_t *a = decoded(p->a, p->scale_a, &as_a, p->m, p->k), *b = decoded(p->b, p->scale_b, &as_b, p->n, p->k);
    sb_matmul q = *p;
    q.dtype = SB_BF16, q.a = a, q.b = b;
    const sb_status s = plain->matmul(ctx, &q, stream);
    free(a), free(b);
    return s;
}

static sb_status no_fused_products(sb_context *ctx, const sb_swiglu_matmul *p)
{
    (void)ctx, (void)p;
    return SB_UNSUPPORTED;
}

static float *gradients_of(const char *policy, const char *sizes_of, const sb_kernels *kernels)
{
    const sb_kernels *before = bed.kernels;
    step_options o = float8_options(sizes_of);
    o.precision = precision_find(policy);
    o.share_grad_memory = false;
    bed.kernels = kernels;
    trainer *t = create(&o);
    golden_params(t);
    golden_tokens(t, 0);
    step(t);
    float *grads = all_grads(t);
    trainer_free(t);
    bed.kernels = before;
    return grads;
}

/* Where both add up in fp32, a step has the bits of one in bf16 whose operands are rounded at the same places. Sums of 13 bits are
 * off by 2^-13 of a product, by which the next cast turns some roundings, each by 2^-4, and so on: behind three blocks gradients of
 * two right orders have cosines down to 0.99. So what casts of a step cost is looked at with the sums that it has. */
TEST(gradients_are_those_of_the_roundings)
{
    if (device_kind_of(bed.dev) != DEVICE_CPU) { /* the host reads no operands there */
        gradients_are_near_those_of_bf16();
        return;
    }
    plain = bed.kernels->train;
    sb_train_ops rounding = *plain, decoding = *plain;
    sb_kernels rounds = *bed.kernels, decodes = *bed.kernels;
    rounding.matmul = rounding_matmul, rounding.swiglu_matmul_supported = no_fused_products;
    decoding.matmul = decoding_matmul;
    rounds.train = &rounding, decodes.train = &decoding;
    for (int i = 0; i < FLOAT8_POLICIES; i++) {
        recipe = float8_recipe_find(float8_policies[i]);
        step_options o = float8_options(recipe->name);
        params *p = params_create(&o.config);
        trainer *t = create(&o);
        assert_int_equal(products_in_float8(t), recipe->dw ? 3 * 12 : 3 * 8);
        trainer_free(t);
        float *got = gradients_of(recipe->name, recipe->name, bed.kernels),
              *same = gradients_of(recipe->name, recipe->name, &decodes),
              *exact = gradients_of("fp32", recipe->name, bed.kernels),
              *with = gradients_of("bf16", recipe->name, &rounds);
        same_bits(p, with, same, recipe->name);
        const float *g = got, *e = exact, *w = with;
        double off = 0, own = 0;
        for (int k = 0; k < p->count; k++) {
            double ge = 0, gg = 0, ee = 0, of_g = 0, of_w = 0;
            for (int64_t j = 0; j < p->tensors[k].count; j++, g++, e++, w++) {
                ge += *g * *e, gg += *g * *g, ee += *e * *e;
                of_g += (*g - *e) * (*g - *e), of_w += (*w - *e) * (*w - *e);
            }
            off += of_g / ee, own += of_w / ee;
            if (!(ge >= 0.98 * sqrt(gg * ee)))
                fail_msg("%s, gradient of %s: cosine %.4f to that of fp32", recipe->name, p->tensors[k].name,
                         ge / sqrt(gg * ee));
        }
        if (!(sqrt(off / own) > 0.8 && sqrt(off / own) < 1.25))
            fail_msg("%s: gradients are off by %.3f of what the roundings are", recipe->name, sqrt(off / own));
        free(got), free(same), free(exact), free(with);
        params_free(p);
    }
}

/* Feature OUTLIER of each layer's first norm by `gain`, and what reads it by the inverse: of parameters, or back of gradients. */
static void plant_outlier(const params *p, float *values, float gain)
{
    enum { OUTLIER = 5 };
    for (int i = 0; i < p->count; i++) {
        const param_tensor *of = &p->tensors[i];
        if (of->kind == PARAM_LN1)
            values[OUTLIER] *= gain;
        if (of->kind == PARAM_Q || of->kind == PARAM_K || of->kind == PARAM_V)
            for (int row = 0; row < of->rows; row++)
                values[row * of->columns + OUTLIER] /= gain;
        values += of->count;
    }
}

/* A scale of 128 is for half of the features. */
static step_options outlier_options(const char *policy)
{
    step_options o = float8_options(policy);
    o.config.d_model = 256, o.config.d_ff = 128, o.config.layers = 2;
    o.share_grad_memory = false;
    return o;
}

/* The function, and so what bf16 gives, is the same with any outlier. Caller frees. */
static float *gradients_with_outlier(const char *policy, float gain)
{
    const step_options o = outlier_options(policy);
    OWNED_TRAINER trainer *t = create(&o);
    golden_params(t);
    OWNED float *values = all_params(t);
    plant_outlier(trainer_params(t), values, gain);
    set_params(t, values);
    golden_tokens(t, 0);
    step(t);
    float *grads = all_grads(t);
    plant_outlier(trainer_params(t), grads, gain);
    return grads;
}

/* e4m3 has 15 binades of normal numbers, so a feature 64 times as large costs nothing. At 2^14 the small ones of those that share
 * its scale lose bits: where the whole matrix shares it, the gradients of q, k and v show that; else other roundings still hide it.
 * At 2^16 all gradients show who shares a scale: 31 other features, 127, those of a token, or those of all tokens. */
TEST(an_outlier_costs_those_who_share_its_scale)
{
    enum { PLAIN, SLIGHT, LARGE, EXTREME, GAINS };
    static const float gains[GAINS] = {1, 64, 0x1p14f, 0x1p16f};
    static const int shared_by[FLOAT8_POLICIES] = {3, 2, 2, 1, 1, 3, 0};       /* as above, in the order of policies */
    double least[4] = {INFINITY, INFINITY, INFINITY, INFINITY}, most[4] = {0}; /* what 2^16 costs, by who shares */
    double least_of_all = INFINITY, most_of_others = 0; /* 2^14, where all tokens share, and elsewhere */
    OWNED float *want = gradients_with_outlier("bf16", 1), *same = gradients_with_outlier("bf16", gains[EXTREME]);
    const step_options o = outlier_options("bf16");
    params *p = params_create(&o.config);
    same_bits(p, want, same, "bf16, in which powers of two cost nothing");
    for (int i = 0; i < policy_count(); i++) {
        double off[GAINS], worst[GAINS];
        for (int k = 0; k < GAINS; k++) {
            OWNED float *got = gradients_with_outlier(float8_policies[i], gains[k]);
            off[k] = relative_l2(want, got, p->parameters), worst[k] = worst_tensor(p, want, got, NULL);
        }
        if (!(off[SLIGHT] < 1.05 * off[PLAIN]))
            fail_msg("%s: an outlier of 64 costs %.3f, without %.3f", float8_policies[i], off[SLIGHT], off[PLAIN]);
        const double growth = worst[LARGE] / worst[SLIGHT], in_all = off[EXTREME] / off[SLIGHT];
        if (shared_by[i] == 3)
            least_of_all = fmin(least_of_all, growth);
        else
            most_of_others = fmax(most_of_others, growth);
        least[shared_by[i]] = fmin(least[shared_by[i]], in_all);
        most[shared_by[i]] = fmax(most[shared_by[i]], in_all);
    }
    if (!(1.05 * most_of_others < least_of_all))
        fail_msg("an outlier of 2^14 costs %.3f times one of 64 where the matrix shares its scale, else %.3f",
                 least_of_all, most_of_others);
    for (int k = 0; k < 3; k++)
        if (!(1.05 * most[k] < least[k + 1]))
            fail_msg("an outlier of 2^16 costs %.3f times one of 64 where more features share its scale, else %.3f",
                     least[k + 1], most[k]);
    params_free(p);
}

/* A W behind its B makes the bits of a whole B, though it casts by itself, behind a RoPE of its own. */
TEST(what_is_made_again_or_later_has_the_same_bits)
{
    const model_part part = {0, 3, true, true};
    const step_action split[] = {{STEP_F, 0, 0}, {STEP_B, 0, 0}, {STEP_F, 1, 0},
                                 {STEP_W, 0, 0}, {STEP_B, 1, 0}, {STEP_W, 1, 0}};
    const step_table table = {&part, 1, split, 6};
    static const recompute ways[] = {RECOMPUTE_SELECTIVE, RECOMPUTE_ATTN, RECOMPUTE_MLP, RECOMPUTE_BUT_ATTENTION,
                                     RECOMPUTE_BLOCK};
    for (int i = 0; i < policy_count(); i++) {
        step_options o = float8_options(float8_policies[i]);
        if (strcmp(float8_policies[i], "fp8-block") == 0) /* fp8-block-dw2d has all of its copies */
            continue;
        o.micro_batches = 2;
        o.config.heads_kv = 1; /* so that fewer columns turn than q has twice */
        const outcome want = outcome_of(&o);
        for (int k = 0; k < 5; k++) {
            o.recompute = ways[k];
            same_outcome(&want, &o, "computed again");
        }
        o.recompute = RECOMPUTE_NONE;
        o.offload = OFFLOAD_BLOCK;
        same_outcome(&want, &o, "offloaded");
        o.offload = 0;
        o.overlap = OVERLAP_NONE;
        same_outcome(&want, &o, "without overlap");
        o.table = &table;
        same_outcome(&want, &o, "gradients of weights left to a W");
        outcome_free((outcome *)&want);
    }
}

/* The gradients of a second step are those of a new trainer with the parameters that the first one left. */
TEST(copies_of_weights_follow_the_update)
{
    for (int i = 0; i < policy_count(); i++) {
        step_options o = float8_options(float8_policies[i]);
        if (i == DELAYED) /* its scales are those of an earlier step */
            continue;
        o.lr = 0.1;
        o.share_grad_memory = false;
        OWNED_TRAINER trainer *t = create(&o), *fresh = create(&o);
        step(t);
        OWNED float *after = all_params(t);
        set_params(fresh, after);
        step(t);
        step(fresh);
        OWNED float *want = all_grads(fresh), *got = all_grads(t);
        same_bits(trainer_params(t), want, got, float8_policies[i]);
    }
}

/* bf16, float8, another float8, bf16: nothing of the state moves or changes, and each step is that of a trainer which has always had
 * the policy. */
TEST(a_trainer_is_converted_in_place)
{
    static const char *const to[] = {"fp8-tensorwise", "fp8-block-dw2d", "bf16"};
    char why[256] = "";
    step_options o = float8_options("fp8-block");
    o.precision = precision_find("bf16");
    o.fusion = FUSION_GRAPH;
    o.share_grad_memory = false;
    OWNED_TRAINER trainer *t = create(&o);
    golden_params(t);
    for (int i = 0; i < 3; i++) {
        golden_tokens(t, i);
        step(t);
        step(t); /* a graph, where there are any */
        const trainer_state before = trainer_state_of(t);
        float *params = all_params(t);
        if (!trainer_convert(t, precision_find(to[i]), why, sizeof why))
            fail_msg("%s: %s", to[i], why);
        const trainer_state after = trainer_state_of(t);
        assert_true(after.param == before.param && after.master == before.master && after.m == before.m);
        assert_true(after.v == before.v && after.elements == before.elements);
        float *same = all_params(t);
        assert_memory_equal(params, same, (size_t)trainer_params(t)->parameters * sizeof *params);
        o.precision = precision_find(to[i]);
        OWNED_TRAINER trainer *fresh = create(&o);
        set_params(fresh, params);
        golden_tokens(fresh, i);
        step(fresh);
        step(t);
        float *want = all_grads(fresh), *got = all_grads(t);
        same_bits(trainer_params(t), want, got, to[i]);
        assert_int_equal(trainer_memory_of(t).resident[MEMORY_OTHER], trainer_memory_of(fresh).resident[MEMORY_OTHER]);
        free(params), free(same), free(want), free(got);
    }
    assert_false(trainer_convert(t, precision_find("fp32"), why, sizeof why));
    assert_non_null(strstr(why, "the same numbers"));
}

/* Scales of a second step are made of the first one: where nothing is learnt, they are its own. */
TEST(delayed_scales_are_those_of_earlier_steps)
{
    for (int learns = 0; learns < 2; learns++) {
        step_options o = float8_options("fp8-delayed");
        o.share_grad_memory = false;
        o.lr = learns ? 1 : 0;
        OWNED_TRAINER trainer *t = create(&o);
        o.precision = precision_find("fp8-tensorwise");
        trainer *present = create(&o), *const both[] = {t, present};
        for (int k = 0; k < 2; k++) {
            golden_params(both[k]);
            golden_tokens(both[k], 0);
        }
        for (int i = 0; i < 2; i++) {
            step(t);
            step(present);
            OWNED float *got = all_grads(t), *want = all_grads(present);
            assert_int_equal(worst_tensor(trainer_params(t), want, got, NULL) > 0, i == 1 && learns);
        }
        trainer_free(present);
    }
}

static int casts, casts_from[SB_FROM_ROPE_GRADIENT + 1], histories;
static sb_status counted_history(sb_context *ctx, const sb_float8_history *p, void *stream)
{
    histories++;
    return bed.kernels->train->float8_history(ctx, p, stream);
}

static sb_status counted_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    casts++;
    casts_from[p->from.source]++;
    return bed.kernels->train->quantize(ctx, p, stream);
}

/* A micro-batch casts inputs and gradients of each layer once, and a step each weight: what nothing else reads from what it is made
 * of. A history moves on once a step, whatever is computed again. */
TEST(everything_is_cast_once)
{
    sb_train_ops ops = *bed.kernels->train;
    sb_kernels counting = *bed.kernels;
    ops.quantize = counted_quantize, ops.float8_history = counted_history;
    counting.train = &ops;
    for (int i = 0; i < policy_count(); i++) {
        char why[256] = "";
        step_options o = float8_options(float8_policies[i]);
        o.micro_batches = 2;
        trainer *t = trainer_create(bed.dev, bed.mem, &counting, bed.ctx, &o, why, sizeof why);
        assert_non_null(t);
        casts = histories = 0;
        memset(casts_from, 0, sizeof casts_from);
        step(t);
        const bool dw = float8_recipe_find(float8_policies[i])->dw;
        const bool swiglu = dw && strcmp(float8_policies[i], "fp8-mx") != 0;
        assert_int_equal(casts, 3 * 4 * (1 + 2 * 2));
        assert_int_equal(casts_from[SB_FROM_RMSNORM], dw ? 2 * 3 * 2 : 0);
        assert_int_equal(casts_from[SB_FROM_ROPE_GRADIENT], dw ? 2 * 3 : 0);
        assert_int_equal(casts_from[SB_FROM_SWIGLU], swiglu ? 2 * 3 : 0);
        assert_int_equal(casts_from[SB_FROM_SWIGLU_GRADIENT], swiglu ? 2 * 3 : 0);
        trainer_free(t);
        o.recompute = RECOMPUTE_BLOCK;
        t = trainer_create(bed.dev, bed.mem, &counting, bed.ctx, &o, why, sizeof why);
        assert_non_null(t);
        step(t);
        assert_int_equal(histories, i == 0 || i == DELAYED ? 2 : 0);
        trainer_free(t);
    }
}

static int poisoned; /* the cast of a step whose source has one number that is not finite; -1: none */
static uint16_t *poison, sound;

static void put_poison(const void *x)
{
    if (casts != poisoned || poison)
        return;
    poison = (uint16_t *)(uintptr_t)x; /* NOLINT: it is itself again behind the cast */
    sound = *poison;
    *poison = casts % 2 ? 0x7fc0 : 0xff80; /* NaN, -Inf */
}

static sb_status poisoned_amax(sb_context *ctx, const sb_amax *p, void *stream)
{
    put_poison(p->x);
    return bed.kernels->train->amax(ctx, p, stream);
}

static sb_status poisoned_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    put_poison(p->x);
    const sb_status s = bed.kernels->train->quantize(ctx, p, stream);
    if (casts++ == poisoned)
        *poison = sound, poison = NULL;
    return s;
}

/* Whichever cast of a step meets a number that is not finite: the norm of the gradients isn't either, so the step is skipped as in
 * bf16. The next one has the bits of the one before, since no history remembers it. */
TEST(a_cast_of_what_is_not_finite_skips_the_step)
{
    if (device_kind_of(bed.dev) != DEVICE_CPU)
        return; /* the host changes no operands there */
    sb_train_ops ops = *bed.kernels->train;
    sb_kernels poisoning = *bed.kernels;
    ops.amax = poisoned_amax, ops.quantize = poisoned_quantize;
    poisoning.train = &ops;
    for (int i = 0; i < FLOAT8_POLICIES; i++) {
        char why[256] = "";
        step_options o = float8_options(float8_policies[i]);
        o.share_grad_memory = false;
        o.clip_norm = 1;
        o.lr = 0;
        OWNED_TRAINER trainer *t = trainer_create(bed.dev, bed.mem, &poisoning, bed.ctx, &o, why, sizeof why);
        assert_non_null(t);
        golden_params(t);
        golden_tokens(t, 0);
        OWNED float *want = NULL, *got = NULL;
        const int each = 3 * 4 * 3;
        for (int n = -1; n <= each; n++) {
            sb_optimizer_state s;
            casts = 0, poisoned = n;
            step(t);
            assert_int_equal(casts, each);
            trainer_optimizer_state(t, &s);
            const int skipped = n < 0 ? 0 : n < each ? n + 1 : each;
            if (s.skipped != skipped)
                fail_msg("%s: a step whose cast %d isn't finite is not skipped", float8_policies[i], n);
            if (n < 0)
                want = all_grads(t);
        }
        got = all_grads(t);
        same_bits(trainer_params(t), want, got, float8_policies[i]);
    }
}

static bool takes(const trainer *t, const char *name)
{
    const arena_event *e;
    for (size_t i = arena_events(trainer_arena(t), &e); i-- > 0;)
        if (strcmp(e[i].name, name) == 0)
            return true;
    return false;
}

/* Nor is there room for what is made within casts alone. */
TEST(memory_is_planned)
{
    const fusion ways[] = {FUSION_NONE, FUSION_KERNELS};
    int64_t bytes[2] = {0};
    for (int i = 0; i < policy_count(); i++)
        for (int k = 0; k < 2; k++) {
            step_options o = float8_options(float8_policies[i]);
            o.fusion = ways[k];
            OWNED_TRAINER trainer *t = create(&o);
            const trainer_memory m = trainer_memory_of(t);
            int64_t held = m.arena_bytes;
            for (int kind = 0; kind < MEMORY_KINDS; kind++)
                held += m.resident[kind];
            assert_int_equal(trainer_planned_bytes(bed.dev, bed.kernels, bed.ctx, &o), held);
            bytes[k] = m.resident[MEMORY_OTHER];
            const bool norms = ways[k] == FUSION_NONE || !float8_recipe_find(float8_policies[i])->dw;
            assert_int_equal(takes(t, "norm1"), norms);
            assert_int_equal(takes(t, "norm2"), norms);
            step(t);
        }
    assert_true(bytes[1] > bytes[0] + 2 * 3 * (4 * 32 * 32 + 3 * 32 * 128)); /* both copies of all weights */
}

TEST(what_does_not_fit_stays_in_bf16)
{
    step_options o = float8_options("bf16");
    o.seq = 13;
    const outcome want = outcome_of(&o);
    for (int i = 0; i < policy_count(); i++) {
        o.precision = precision_find(float8_policies[i]);
        same_outcome(&want, &o, "26 tokens");
    }
    outcome_free((outcome *)&want);
    o = float8_options("fp8-block");
    o.config.d_ff = 40; /* gate and up together fit, w2 does not */
    OWNED_TRAINER trainer *t = create(&o);
    assert_int_equal(products_in_float8(t), 3 * 9);
    step(t);
}

static size_t words_agreed;

static void two_bits_more(void *user, const void *own, void *all, size_t words)
{
    (void)user;
    uint32_t *word = all;
    assert_ptr_equal(own, all);
    for (size_t i = 0; i < words; i++)
        word[i] += word[i] ? 4u << 23 : 0; /* another rank has seen numbers 16 times as large */
    words_agreed = words;
}

/* A second step's scales are made of words that ranks have agreed on, and stay while a trainer takes the batches of others. */
TEST(ranks_agree_on_histories)
{
    if (device_kind_of(bed.dev) != DEVICE_CPU)
        return; /* the host changes no words there */
    step_options o = float8_options("fp8-delayed");
    o.lr = 0;
    o.share_grad_memory = false;
    float *grads[3];
    for (int way = 0; way < 3; way++) {
        OWNED_TRAINER trainer *t = create(&o);
        trainer_set_hooks(t, &(step_hooks){.agree = way ? two_bits_more : NULL});
        golden_params(t);
        golden_tokens(t, 0);
        step(t);
        trainer_set_same_step(t, way == 2);
        step(t);
        grads[way] = all_grads(t);
    }
    params *p = params_create(&o.config);
    const size_t bytes = (size_t)p->parameters * sizeof(float);
    assert_int_equal(words_agreed, 3 * 4 * 3);
    assert_memory_not_equal(grads[0], grads[1], bytes);
    assert_memory_equal(grads[0], grads[2], bytes);
    params_free(p);
    for (int way = 0; way < 3; way++)
        free(grads[way]);
}

static sb_status no_rows(sb_context *ctx, sb_scaling scaling)
{
    (void)ctx;
    return scaling == SB_SCALE_TENSOR ? SB_OK : sb_error(SB_UNSUPPORTED, "no float8 by %s", sb_scaling_name(scaling));
}

TEST(a_gpu_without_float8_is_told)
{
    sb_train_ops ops = *bed.kernels->train;
    sb_kernels poor = *bed.kernels;
    ops.float8_supported = no_rows;
    poor.train = &ops;
    for (int i = 0; i < policy_count(); i++) {
        char why[256] = "";
        const step_options o = float8_options(float8_policies[i]);
        OWNED_TRAINER trainer *t = trainer_create(bed.dev, bed.mem, &poor, bed.ctx, &o, why, sizeof why);
        const bool tensor = i == 0 || i == DELAYED;
        assert_int_equal(t != NULL, tensor);
        assert_true(tensor || strstr(why, "no float8 by"));
    }
}

TESTS_WITH(bed_create, bed_destroy)
