/* SPDX-License-Identifier: MIT */
/* The autocast engine on the CPU backend: which op runs in which dtype, gradients against finite differences. */
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/model/autocast.h"
#include "common/model/dtypes.h"

enum { ROWS = 6, WIDTH = 8, CLASSES = 5 };

typedef struct engine {
    device *dev;
    memory *mem;
    const sb_kernels *k;
    sb_context *ctx;
} engine;

static int engine_open(void **state)
{
    engine *e = xcalloc(1, sizeof *e);
    e->dev = device_open(DEVICE_CPU, 0);
    e->mem = memory_create(e->dev);
    e->k = sb_kernels_cpu();
    *state = e;
    return e->k->create(0, &e->ctx) == SB_OK ? 0 : -1;
}

static int engine_close(void **state)
{
    engine *e = *state;
    e->k->destroy(e->ctx);
    memory_destroy(e->mem);
    device_close(e->dev);
    free(e);
    return 0;
}

/* A model with every op, one weight used twice: h = relu(x W^T) + x W^T, LayerNorm, logits. */
typedef struct model {
    float x[ROWS * WIDTH], w[WIDTH * WIDTH], gain[WIDTH], bias[WIDTH], head[CLASSES * WIDTH];
    int32_t targets[ROWS];
} model;

typedef struct outcome {
    autocast *a;
    autocast_tensor *w, *gain, *bias, *head, *once, *twice, *relu, *sum, *norm, *logits, *loss;
} outcome;

static model model_draw(void)
{
    model m;
    rng_normal(m.x, ROWS * WIDTH, 1, 0, 0, 1);
    rng_normal(m.w, WIDTH * WIDTH, 1, 1, 0, 0.5f);
    rng_normal(m.gain, WIDTH, 1, 2, 0, 1);
    rng_normal(m.bias, WIDTH, 1, 3, 0, 1);
    rng_normal(m.head, CLASSES * WIDTH, 1, 4, 0, 0.5f);
    for (int i = 0; i < ROWS; i++)
        m.targets[i] = i % CLASSES;
    return m;
}

static outcome model_run(engine *e, const model *m, sb_dtype low)
{
    outcome o = {.a = autocast_create(e->dev, e->mem, e->k, e->ctx, low)};
    autocast_tensor *x = autocast_input(o.a, "x", ROWS, WIDTH, m->x);
    o.w = autocast_parameter(o.a, "w", WIDTH, WIDTH, m->w);
    o.gain = autocast_parameter(o.a, "gain", 1, WIDTH, m->gain);
    o.bias = autocast_parameter(o.a, "bias", 1, WIDTH, m->bias);
    o.head = autocast_parameter(o.a, "head", CLASSES, WIDTH, m->head);
    o.once = autocast_linear(o.a, "once", x, o.w);
    o.relu = autocast_relu(o.a, "relu", o.once);
    o.twice = autocast_linear(o.a, "twice", x, o.w);
    o.sum = autocast_add(o.a, "sum", o.relu, o.twice);
    o.norm = autocast_layer_norm(o.a, "norm", o.sum, o.gain, o.bias, 1e-5f);
    o.logits = autocast_linear(o.a, "logits", o.norm, o.head);
    o.loss = autocast_cross_entropy(o.a, "loss", o.logits, m->targets);
    assert_int_equal(autocast_status(o.a), SB_OK);
    return o;
}

static float loss_of(const outcome *o)
{
    float loss;
    autocast_read(o->a, o->loss, &loss);
    return loss;
}

/* Central differences of the loss over one parameter of the model against the gradient. */
static void expect_gradient(engine *e, model *m, float *values, int n, const float *got)
{
    const float step = 1e-2f;
    for (int i = 0; i < n; i++) {
        double side[2];
        float kept = values[i];
        for (int s = 0; s < 2; s++) {
            values[i] = kept + (s ? -step : step);
            outcome o = model_run(e, m, SB_FP32);
            side[s] = loss_of(&o);
            autocast_free(o.a);
        }
        values[i] = kept;
        double want = (side[0] - side[1]) / (2 * (double)step);
        if (!(fabs(got[i] - want) <= 2e-3 + 1e-2 * fabs(want)))
            fail_msg("gradient %d is %g, by differences %g", i, (double)got[i], want);
    }
}

static void gradients_agree_with_differences(void **state)
{
    engine *e = *state;
    model m = model_draw();
    outcome o = model_run(e, &m, SB_FP32);
    assert_true(autocast_backward(o.a, o.loss, 1));
    float grad[WIDTH * WIDTH];
    autocast_read_grad(o.a, o.w, grad);
    expect_gradient(e, &m, m.w, WIDTH * WIDTH, grad);
    autocast_read_grad(o.a, o.gain, grad);
    expect_gradient(e, &m, m.gain, WIDTH, grad);
    autocast_read_grad(o.a, o.bias, grad);
    expect_gradient(e, &m, m.bias, WIDTH, grad);
    autocast_read_grad(o.a, o.head, grad);
    expect_gradient(e, &m, m.head, CLASSES * WIDTH, grad);
    autocast_free(o.a);
    assert_int_equal(memory_current(e->mem), 0);
}

static void ops_choose_their_dtype(void **state)
{
    engine *e = *state;
    model m = model_draw();
    const sb_dtype lows[] = {SB_FP16, SB_BF16, SB_FP32};
    for (int i = 0; i < 3; i++) {
        sb_dtype low = lows[i];
        outcome o = model_run(e, &m, low);
        const autocast_tensor *in_low[] = {o.once, o.twice, o.relu, o.sum, o.logits};
        const autocast_tensor *in_fp32[] = {o.w, o.gain, o.bias, o.head, o.norm, o.loss};
        for (size_t k = 0; k < sizeof in_low / sizeof *in_low; k++)
            assert_int_equal(in_low[k]->dtype, low);
        for (size_t k = 0; k < sizeof in_fp32 / sizeof *in_fp32; k++)
            assert_int_equal(in_fp32[k]->dtype, SB_FP32);
        autocast_free(o.a);
    }
}

static void mixed_inputs_run_in_the_widest_dtype(void **state)
{
    engine *e = *state;
    model m = model_draw();
    outcome o = model_run(e, &m, SB_BF16);
    autocast_tensor *both = autocast_add(o.a, "both", o.once, o.norm); /* bf16 and fp32 */
    assert_non_null(both);
    assert_int_equal(both->dtype, SB_FP32);
    float once[ROWS * WIDTH], norm[ROWS * WIDTH], sum[ROWS * WIDTH];
    autocast_read(o.a, o.once, once);
    autocast_read(o.a, o.norm, norm);
    autocast_read(o.a, both, sum);
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_true(sum[i] == once[i] + norm[i]);
    autocast_free(o.a);
}

static void a_parameter_is_cast_once(void **state)
{
    engine *e = *state;
    model m = model_draw();
    outcome o = model_run(e, &m, SB_FP16);
    autocast_tensor *const *tensors;
    size_t n = autocast_tensors(o.a, &tensors), casts = 0;
    for (size_t i = 0; i < n; i++)
        casts += strcmp(tensors[i]->name, "w as fp16") == 0;
    assert_int_equal(casts, 1);
    assert_true(autocast_backward(o.a, o.loss, 1));
    float grad[WIDTH * WIDTH], exact[WIDTH * WIDTH];
    autocast_read_grad(o.a, o.w, grad); /* of both uses */
    outcome wide = model_run(e, &m, SB_FP32);
    assert_true(autocast_backward(wide.a, wide.loss, 1));
    autocast_read_grad(wide.a, wide.w, exact);
    double error = 0, norm = 0;
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        error += pow((double)grad[i] - exact[i], 2);
        norm += pow(exact[i], 2);
    }
    assert_true(sqrt(error / norm) < 3e-3);
    autocast_free(wide.a);
    autocast_free(o.a);
}

static void the_loss_scale_multiplies_gradients(void **state)
{
    engine *e = *state;
    model m = model_draw();
    float grad[2][CLASSES * WIDTH];
    for (int i = 0; i < 2; i++) {
        outcome o = model_run(e, &m, SB_FP32);
        assert_true(autocast_backward(o.a, o.loss, i ? 1024 : 1));
        autocast_read_grad(o.a, o.head, grad[i]);
        autocast_free(o.a);
    }
    for (int i = 0; i < CLASSES * WIDTH; i++)
        assert_true(fabsf(grad[1][i] - 1024 * grad[0][i]) <= 1e-6f * fabsf(grad[1][i]) + 1e-9f);
}

static void a_failure_is_remembered(void **state)
{
    engine *e = *state;
    model m = model_draw();
    int32_t wrong[ROWS] = {CLASSES}; /* one behind the last class */
    outcome o = model_run(e, &m, SB_BF16);
    assert_null(autocast_cross_entropy(o.a, "bad", o.logits, wrong));
    assert_int_equal(autocast_status(o.a), SB_INVALID);
    assert_null(autocast_relu(o.a, "after", o.once));
    assert_false(autocast_backward(o.a, o.loss, 1));
    autocast_free(o.a);
}

static void dtypes_round_and_have_names(void **state)
{
    (void)state;
    sb_dtype t;
    assert_true(dtype_find("bf16", &t) && t == SB_BF16);
    assert_false(dtype_find("fp8", &t));
    assert_string_equal(dtype_name(SB_FP16), "fp16");
    assert_true(dtype_round(SB_FP16, 0.01f) == 0.01000213623046875f);
    assert_true(dtype_round(SB_BF16, 0.01f) == 0.010009765625f);
    assert_true(dtype_round(SB_FP32, 0.01f) == 0.01f);
    float in[3] = {1.5f, -2, 65520}, out[3];
    uint16_t raw[3];
    dtype_store(SB_FP16, raw, in, 3);
    dtype_load(SB_FP16, out, raw, 3);
    assert_true(out[0] == 1.5f && out[1] == -2 && isinf(out[2]));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, engine_open, engine_close)
    const struct CMUnitTest tests[] = {
        TEST(gradients_agree_with_differences),        TEST(ops_choose_their_dtype),
        TEST(mixed_inputs_run_in_the_widest_dtype),    TEST(a_parameter_is_cast_once),
        TEST(the_loss_scale_multiplies_gradients),     TEST(a_failure_is_remembered),
        cmocka_unit_test(dtypes_round_and_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
