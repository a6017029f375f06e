/* SPDX-License-Identifier: MIT */
/* The optimizer on the CPU: gradient statistics, the dynamics of the loss scale, clipping, and AdamW in every
 * combination of dtypes and masters against one step in double after another. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"
#include "common/core/numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(test_grad_stats)
{
    static const size_t sizes[] = {1, 255, 256, 1001};
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            OWNED_ARRAY array *grad = array_random(t, sizes[s], s, 3);
            double squares = 0;
            for (size_t i = 0; i < grad->n; i++)
                squares += array_get(grad, i) * array_get(grad, i);
            sb_optimizer_state o = {.loss_scale = 8};
            sb_grad_stats p = {.state = &o, .dtype = t, .n = grad->n, .grad = grad->data};
            expect_ok(train_ops()->grad_stats(NULL, &p, NULL));
            expect_near("norm", o.grad_norm, sqrt(squares) / 8, 1e-6);
            assert_int_equal(o.found_nonfinite, 0);
            array_set(grad, grad->n - 1, -INFINITY);
            expect_ok(train_ops()->grad_stats(NULL, &p, NULL));
            assert_int_equal(o.found_nonfinite, 1);
            array_set(grad, grad->n - 1, 1);
            expect_ok(train_ops()->grad_stats(NULL, &p, NULL));
            assert_int_equal(o.found_nonfinite, 1); /* stays until the step begins */
            array_set(grad, 0, NAN);
            o.found_nonfinite = 0;
            expect_ok(train_ops()->grad_stats(NULL, &p, NULL));
            assert_int_equal(o.found_nonfinite, 1);
        }
    float large[] = {3e38f, -3e38f};
    sb_optimizer_state o = {.loss_scale = 65536};
    sb_grad_stats p = {.state = &o, .dtype = SB_FP32, .n = 2, .grad = large};
    expect_ok(train_ops()->grad_stats(NULL, &p, NULL));
    assert_int_equal(o.found_nonfinite, 0); /* squares that fp32 cannot hold */
    expect_near("norm", o.grad_norm, sqrt(2) * 3e38f / 65536, 1e-6);
    p = (sb_grad_stats){.state = &o, .dtype = SB_FP32};
    expect_ok(train_ops()->grad_stats(NULL, &p, NULL));
    assert_true(o.grad_norm == 0); /* no gradients */
}

TEST(test_corrections)
{
    sb_optimizer_state o = {.lr = 1, .loss_scale = 1};
    sb_optimizer_begin p = {.state = &o, .beta1 = 0.9, .beta2 = 0.999};
    for (int step = 1; step <= 1000; step++) {
        expect_ok(train_ops()->optimizer_begin(NULL, &p, NULL));
        assert_int_equal(o.step, step);
        expect_near("correction1", o.correction1, 1 - pow(0.9, step), 1e-7);
        expect_near("correction2", o.correction2, sqrt(1 - pow(0.999, step)), 1e-7);
        assert_true(o.grad_factor == 1 && o.skip == 0 && o.loss_scale == 1);
    }
}

/* By update: what is skipped takes no rate and leaves no norm, and the last rate stays. */
TEST(test_tables)
{
    static const float rates[] = {0.1f, 0.2f, 0.3f};
    float norms[] = {-1, -1, -1};
    sb_optimizer_state o = {.lr = 9, .loss_scale = 1};
    sb_optimizer_begin p = {.state = &o, .beta1 = 0.9, .beta2 = 0.999, .rates = rates, .norms = norms, .updates = 3};
    static const float want[] = {0.1f, 0.2f, 0.2f, 0.3f, 0.3f, 0.3f};
    for (int call = 0; call < 6; call++) {
        o.grad_norm = (float)call + 5;
        o.found_nonfinite = call == 2;
        expect_ok(train_ops()->optimizer_begin(NULL, &p, NULL));
        assert_true(o.lr == want[call]);
    }
    assert_true(norms[0] == 5 && norms[1] == 6 && norms[2] == 8);
}

TEST(test_clipping)
{
    sb_optimizer_state o = {.loss_scale = 4, .grad_norm = 10};
    sb_optimizer_begin p = {.state = &o, .beta1 = 0.9, .beta2 = 0.95, .clip_norm = 2};
    expect_ok(train_ops()->optimizer_begin(NULL, &p, NULL));
    expect_near("clipped", o.grad_factor, 0.25 * 2 / (10 + 1e-6), 1e-7);
    o.grad_norm = 1.5f;
    expect_ok(train_ops()->optimizer_begin(NULL, &p, NULL));
    assert_true(o.grad_factor == 0.25f); /* a short gradient is left alone */
    o.grad_norm = 10, p.clip_norm = 0;
    expect_ok(train_ops()->optimizer_begin(NULL, &p, NULL));
    assert_true(o.grad_factor == 0.25f);
}

typedef struct scale_step {
    bool nonfinite;
    int skip, good_steps;
    float factor, scale; /* of this step's gradients, 0: not looked at; of the next */
} scale_step;

static void run_scale(sb_optimizer_state *o, const sb_optimizer_begin *p, const scale_step *steps, int n)
{
    for (int i = 0; i < n; i++) {
        const int64_t step = o->step, skipped = o->skipped;
        o->found_nonfinite = steps[i].nonfinite;
        expect_ok(train_ops()->optimizer_begin(NULL, p, NULL));
        assert_int_equal(o->found_nonfinite, 0);
        assert_int_equal(o->skip, steps[i].skip);
        assert_int_equal(o->step, step + !steps[i].skip);
        assert_int_equal(o->skipped, skipped + steps[i].skip);
        assert_int_equal(o->good_steps, steps[i].good_steps);
        assert_true(o->loss_scale == steps[i].scale);
        assert_true(steps[i].factor == 0 || o->grad_factor == steps[i].factor);
    }
}

TEST(test_loss_scale)
{
    static const scale_step dynamic[] = {
        {false, 0, 1, 0x1p-16f, 0x1p16f}, {false, 0, 2, 0x1p-16f, 0x1p16f},
        {false, 0, 0, 0x1p-16f, 0x1p17f}, /* the third good step grows the scale, for the gradients after it */
        {false, 0, 1, 0x1p-17f, 0x1p17f}, {true, 1, 0, 0, 0x1p16f},
        {true, 1, 0, 0, 0x1p15f},         {false, 0, 1, 0x1p-15f, 0x1p15f},
        {false, 0, 2, 0x1p-15f, 0x1p15f}, {false, 0, 0, 0x1p-15f, 0x1p16f},
    };
    static const scale_step smallest[] = {{true, 1, 0, 0, 0x1p-14f}, {true, 1, 0, 0, 0x1p-14f}};
    static const scale_step largest[] = {{false, 0, 0, 0x1p-23f, 0x1p24f}, {false, 0, 0, 0x1p-24f, 0x1p24f}};
    static const scale_step fixed[] = {{true, 1, 0, 0, 128}, {false, 0, 1, 1 / 128.0f, 128}, {false, 0, 2, 0, 128}};
    sb_optimizer_state o = {.loss_scale = 0x1p16f};
    sb_optimizer_begin p = {.state = &o, .beta1 = 0.9, .beta2 = 0.95, .dynamic_scale = true, .growth_interval = 3};
    run_scale(&o, &p, dynamic, sizeof dynamic / sizeof *dynamic);
    o.loss_scale = 0x1p-13f;
    run_scale(&o, &p, smallest, 2);
    o.loss_scale = 0x1p23f, p.growth_interval = 1;
    run_scale(&o, &p, largest, 2);
    o = (sb_optimizer_state){.loss_scale = 128}, p.dynamic_scale = false, p.growth_interval = 0;
    run_scale(&o, &p, fixed, 3);
}

/* One AdamW problem. Without a master, `value` is what param holds; otherwise the fp32 behind it. */
typedef struct adam {
    sb_optimizer_state state;
    sb_adamw p;
    array *param, *grad, *m, *v, *master; /* master: fp32 */
    int16_t *remainder;
    size_t n;
} adam;

static adam adam_create(sb_dtype param, sb_dtype grad, sb_dtype moments, sb_master kind, size_t n)
{
    adam a = {.n = n, .state = {.lr = 0.01f, .loss_scale = 4, .grad_norm = 1}};
    a.param = array_random(param, n, 1, 0.5);
    a.grad = array_random(grad, n, 2, 4);
    a.m = array_random(moments, n, 3, 0);
    a.v = array_random(moments, n, 4, 0);
    a.master = kind == SB_MASTER_FP32 ? array_random(SB_FP32, n, 1, 0.5) : NULL;
    a.remainder = xcalloc(n, sizeof *a.remainder);
    a.p = (sb_adamw){.dtype_param = param,
                     .dtype_grad = grad,
                     .dtype_moments = moments,
                     .master_kind = kind,
                     .n = n,
                     .param = a.param->data,
                     .master = a.master ? a.master->data : NULL,
                     .grad = a.grad->data,
                     .m = a.m->data,
                     .v = a.v->data,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-6,
                     .weight_decay = 0.1};
    if (kind == SB_MASTER_SPLIT)
        a.p.master = a.remainder;
    return a;
}

static void adam_free(adam *a)
{
    array_free(a->param);
    array_free(a->grad);
    array_free(a->m);
    array_free(a->v);
    array_free(a->master);
    free(a->remainder);
}

static double adam_value(const adam *a, size_t i)
{
    if (a->p.master_kind == SB_MASTER_SPLIT)
        return float_join(((const uint16_t *)a->param->data)[i], a->remainder[i]);
    return array_get(a->master ? a->master : a->param, i);
}

/* An array of what the parameters are to the optimizer, in the dtype in which it keeps them. */
static array *adam_values(const adam *a)
{
    array *values = array_poison(a->p.master_kind == SB_MASTER_NONE ? a->p.dtype_param : SB_FP32, a->n);
    for (size_t i = 0; i < a->n; i++)
        array_set(values, i, adam_value(a, i));
    return values;
}

/* Where x is halfway between two bf16, a split master takes the one farther from zero. */
static double stored(const adam *a, double x)
{
    uint16_t bf16;
    int16_t remainder;
    array *one = array_poison(a->p.dtype_param, 1);
    array_set(one, 0, x);
    double nearest = array_get(one, 0);
    array_free(one);
    if (a->p.master_kind != SB_MASTER_SPLIT)
        return nearest;
    float_split((float)x, &bf16, &remainder);
    return bf16_to_float(bf16);
}

static void adam_step(adam *a, int step)
{
    OWNED double *value = xmalloc(a->n * sizeof *value), *m = xmalloc(a->n * sizeof *m), *v = xmalloc(a->n * sizeof *v);
    const sb_adamw *p = &a->p;
    for (size_t i = 0; i < a->n; i++) {
        const double g = array_get(a->grad, i) / 4;
        m[i] = p->beta1 * array_get(a->m, i) + (1 - p->beta1) * g;
        v[i] = p->beta2 * array_get(a->v, i) + (1 - p->beta2) * g * g;
        const double mean = m[i] / (1 - pow(p->beta1, step)), square = v[i] / (1 - pow(p->beta2, step));
        value[i] = adam_value(a, i) * (1 - 0.01 * p->weight_decay) - 0.01 * mean / (sqrt(square) + p->eps);
    }
    sb_optimizer_begin begin = {.state = &a->state, .beta1 = p->beta1, .beta2 = p->beta2};
    a->p.state = &a->state;
    expect_ok(train_ops()->optimizer_begin(NULL, &begin, NULL));
    expect_ok(train_ops()->adamw(NULL, p, NULL));
    OWNED_ARRAY array *now = adam_values(a);
    expect_rounded("parameter", now, value, 1e-6);
    expect_rounded("m", a->m, m, 1e-6);
    expect_rounded("v", a->v, v, 1e-6);
    for (size_t i = 0; i < a->n; i++)
        assert_true(array_get(a->param, i) == stored(a, array_get(now, i)));
}

static void one_combination(sb_dtype param, sb_dtype grad, sb_dtype moments, sb_master kind)
{
    adam a = adam_create(param, grad, moments, kind, 517), b = adam_create(param, grad, moments, kind, 517);
    for (int step = 1; step <= 4; step++) {
        array_free(a.grad);
        array_free(b.grad);
        a.grad = array_random(grad, a.n, 100 + step, 4);
        b.grad = array_copy(a.grad);
        a.p.grad = a.grad->data, b.p.grad = b.grad->data;
        adam_step(&a, step);
        adam_step(&b, step);
    }
    expect_same("a second run", b.param, a.param);
    expect_same("a second run's m", b.m, a.m);
    expect_same("a second run's v", b.v, a.v);
    assert_memory_equal(a.remainder, b.remainder, a.n * sizeof *a.remainder);
    OWNED_ARRAY array *before = array_copy(a.param), *m = array_copy(a.m), *v = array_copy(a.v);
    a.state.skip = 1;
    expect_ok(train_ops()->adamw(NULL, &a.p, NULL));
    expect_same("a skipped step", a.param, before);
    expect_same("a skipped step's m", a.m, m);
    expect_same("a skipped step's v", a.v, v);
    adam_free(&a);
    adam_free(&b);
}

TEST(test_adamw)
{
    for (int param = SB_BF16; param <= SB_FP32; param++)
        for (int grad = SB_BF16; grad <= SB_FP32; grad++)
            for (int moments = SB_BF16; moments <= SB_FP32; moments++)
                for (int kind = SB_MASTER_NONE; kind <= SB_MASTER_FP32; kind++)
                    if (kind != SB_MASTER_SPLIT || param == SB_BF16)
                        one_combination(param, grad, moments, kind);
}

/* A split master and an fp32 master are the same optimizer: after many steps all their bits agree. */
TEST(test_split_is_fp32)
{
    adam split = adam_create(SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, 1000);
    adam fp32 = adam_create(SB_BF16, SB_BF16, SB_FP32, SB_MASTER_FP32, 1000);
    for (size_t i = 0; i < 1000; i++)
        array_set(fp32.master, i, array_get(fp32.param, i));
    split.state.lr = fp32.state.lr = 1e-5f; /* most updates are less than a bf16 can show */
    split.p.state = &split.state, fp32.p.state = &fp32.state;
    sb_optimizer_begin begin = {.beta1 = 0.9, .beta2 = 0.95};
    for (int step = 0; step < 50; step++) {
        begin.state = &split.state;
        expect_ok(train_ops()->optimizer_begin(NULL, &begin, NULL));
        begin.state = &fp32.state;
        expect_ok(train_ops()->optimizer_begin(NULL, &begin, NULL));
        expect_ok(train_ops()->adamw(NULL, &split.p, NULL));
        expect_ok(train_ops()->adamw(NULL, &fp32.p, NULL));
    }
    OWNED_ARRAY array *values = adam_values(&split);
    expect_same("the split master", values, fp32.master);
    adam_free(&split);
    adam_free(&fp32);
}
