/* SPDX-License-Identifier: MIT */
/* Moments in bf16 with stochastic rounding: the rounding itself, AdamW's moments bit for bit, ranges against the whole,
 * and 1000 steps beside moments in fp32. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "kernels/shared/stochastic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t chance_of(uint64_t index, int64_t step)
{
    const sb_chances c = sb_chances_of(index / 4, sb_chance_key(step));
    return c.word[index % 4 / 2] >> 16 * (index % 2) & 0xffff;
}

TEST(test_special_values)
{
    static const float kept[] = {0, -0.0f, 1, -2.5f, 0x1p-126f, 0x1p-133f, 0x1.fep127f, INFINITY, -INFINITY};
    for (uint32_t chance = 0; chance < 0x10000; chance += 0x3fff)
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            assert_int_equal(sb_round_stochastic(float_bits(kept[i]), chance), float_bits(kept[i]) >> 16);
    for (uint32_t payload = 1; payload < 0x800000; payload = 2 * payload + 1) /* with every chance still a NaN */
        assert_true(isnan(bf16_to_float((uint16_t)sb_round_stochastic(0x7f800000 | payload, 0xffff))));
    /* The share of the 65536 chances that round up is the share that is cut off; the upper half of a word is not looked at. */
    const float x = 1 + 0x1p-7f * 0.3f;
    int up = 0;
    for (uint32_t chance = 0; chance < 0x10000; chance++)
        up += sb_round_stochastic(float_bits(x), chance | 0xabcd0000) == 0x3f81;
    assert_int_equal(up, float_bits(x) & 0xffff);
}

/* Chances of neighbours, of consecutive steps and of far indices are those of dice: means, and products of pairs. */
TEST(test_chances)
{
    enum { SIDE = 1024 };
    static const struct {
        int index, step;
    } apart[] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {1024, 0}, {0, 1}, {0, 2}, {1, 1}, {4, 1}, {0, 16}};
    static const uint64_t origins[] = {0, UINT64_C(1) << 34, UINT64_C(0x123456789abc)};
    for (size_t o = 0; o < sizeof origins / sizeof *origins; o++) {
        double mean = 0;
        for (int i = 0; i < SIDE; i++)
            for (int s = 1; s <= SIDE; s++)
                mean += chance_of(origins[o] + (uint64_t)i, s) / 65536.0 - 0.5;
        assert_true(fabs(mean) < 5 * SIDE * sqrt(1 / 12.0));
        for (size_t a = 0; a < sizeof apart / sizeof *apart; a++) {
            double product = 0;
            for (int i = 0; i < SIDE; i++)
                for (int s = 1; s <= SIDE; s++)
                    product +=
                        (chance_of(origins[o] + (uint64_t)i, s) / 65536.0 - 0.5) *
                        (chance_of(origins[o] + (uint64_t)(i + apart[a].index), s + apart[a].step) / 65536.0 - 0.5);
            if (!(fabs(product) < 5 * SIDE / 12.0))
                fail_msg("chances %d elements and %d steps apart: a sum of %g", apart[a].index, apart[a].step, product);
        }
    }
}

/* ---- AdamW ---- */

typedef struct adam {
    sb_optimizer_state state;
    sb_adamw p;
    size_t n;
    array *param, *grad, *m, *v;
} adam;

static adam *adam_create(sb_dtype moments, bool stochastic, size_t n, double beta2)
{
    adam *a = xcalloc(1, sizeof *a);
    *a = (adam){.n = n, .state = {.lr = 0.01f, .loss_scale = 1}};
    a->param = array_random(SB_FP32, n, 1, 1);
    a->grad = array_random(SB_FP32, n, 2, 0);
    a->m = array_random(moments, n, 3, 0);
    a->v = array_random(moments, n, 4, 0);
    a->p = (sb_adamw){.state = &a->state,
                      .dtype_param = SB_FP32,
                      .dtype_grad = SB_FP32,
                      .dtype_moments = moments,
                      .n = n,
                      .param = a->param->data,
                      .grad = a->grad->data,
                      .m = a->m->data,
                      .v = a->v->data,
                      .stochastic = stochastic,
                      .beta1 = 0.9,
                      .beta2 = beta2,
                      .eps = 1e-8};
    return a;
}

static void adam_free(adam *a)
{
    array_free(a->param);
    array_free(a->grad);
    array_free(a->m);
    array_free(a->v);
    free(a);
}

static void begin(adam *a)
{
    const sb_optimizer_begin p = {.state = &a->state, .beta1 = a->p.beta1, .beta2 = a->p.beta2};
    expect_ok(train_ops()->optimizer_begin(NULL, &p, NULL));
}

static void adam_step(adam *a)
{
    begin(a);
    expect_ok(train_ops()->adamw(NULL, &a->p, NULL));
}

/* m to the nearest, v by the chance of its index in the model and of the step. */
TEST(test_bits)
{
    enum { N = 517 };
    static const uint64_t first = UINT64_C(0x100000003);
    adam *a = adam_create(SB_BF16, true, N, 0.999);
    a->p.first = first;
    for (int step = 1; step <= 5; step++) {
        uint16_t m[N], v[N];
        array_free(a->grad);
        a->grad = array_random(SB_FP32, N, 100 + (uint64_t)step, 3);
        a->p.grad = a->grad->data;
        for (size_t i = 0; i < N; i++) {
            const float g = (float)array_get(a->grad, i), m0 = (float)array_get(a->m, i),
                        v0 = (float)array_get(a->v, i);
            m[i] = bf16_from_float(fmaf((float)(1 - 0.9), g - m0, m0));
            const float square = fmaf(v0, (float)0.999, (float)(1 - 0.999) * g * g);
            v[i] = (uint16_t)((float_bits(square) + chance_of(first + i, step)) >> 16);
        }
        adam_step(a);
        assert_memory_equal(a->m->data, m, sizeof m);
        assert_memory_equal(a->v->data, v, sizeof v);
    }
    adam_free(a);
}

/* A rank's slice has the bits of the whole, wherever it begins. */
TEST(test_ranges)
{
    enum { N = 1003 };
    static const size_t cuts[] = {0, 1, 6, 300, 303, 1000, N};
    adam *whole = adam_create(SB_BF16, true, N, 0.999), *parts = adam_create(SB_BF16, true, N, 0.999);
    for (int step = 1; step <= 20; step++) {
        for (int i = 0; i < 2; i++) {
            adam *a = i ? parts : whole;
            array_free(a->grad);
            a->grad = array_random(SB_FP32, N, 7 * (uint64_t)step, 1);
            a->p.grad = a->grad->data;
        }
        adam_step(whole);
        begin(parts);
        for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
            sb_adamw p = parts->p;
            p.first = cuts[c], p.n = cuts[c + 1] - cuts[c];
            p.param = (float *)p.param + cuts[c], p.grad = (const float *)p.grad + cuts[c];
            p.m = (uint16_t *)p.m + cuts[c], p.v = (uint16_t *)p.v + cuts[c];
            expect_ok(train_ops()->adamw(NULL, &p, NULL));
        }
    }
    expect_same("m of ranges", parts->m, whole->m);
    expect_same("v of ranges", parts->v, whole->v);
    expect_same("parameters of ranges", parts->param, whole->param);
    adam_free(whole);
    adam_free(parts);
}

static double mean_of(const array *x)
{
    double sum = 0;
    for (size_t i = 0; i < x->n; i++)
        sum += array_get(x, i);
    return sum / (double)x->n;
}

/* Gradients that fall by a factor of 20 in 1000 steps. Rounded by chance, v follows them as in fp32; to the nearest it
 * stays where it was, since a step takes 0.1 % from it and half a unit in the last place is 0.2 % at least. */
TEST(test_decay)
{
    enum { N = 4096, STEPS = 1000 };
    adam *exact = adam_create(SB_FP32, false, N, 0.999), *chance = adam_create(SB_BF16, true, N, 0.999),
         *nearest = adam_create(SB_BF16, false, N, 0.999);
    adam *const all[] = {exact, chance, nearest};
    double worst = 0;
    for (int step = 1; step <= STEPS; step++) {
        OWNED float *draws = xmalloc(N * sizeof *draws);
        rng_normal(draws, N, 5, (uint32_t)step, 0, (float)pow(20, -step / (double)STEPS));
        for (int i = 0; i < 3; i++) {
            memcpy(all[i]->grad->data, draws, N * sizeof *draws);
            adam_step(all[i]);
        }
        const double off = fabs(mean_of(chance->v) / mean_of(exact->v) - 1);
        worst = step >= 20 && off > worst ? off : worst;
    }
    const double stuck = mean_of(nearest->v) / mean_of(exact->v) - 1;
    print_message("mean of v: off by %.2e at most when rounded by chance, in the end by %.2f when to the nearest\n",
                  worst, stuck);
    assert_true(worst < 5e-3);
    assert_true(stuck > 0.15);
    double squares = 0, off = 0; /* of single elements: the noise of about a hundred roundings of half a unit each */
    for (size_t i = 0; i < N; i++) {
        squares += array_get(exact->v, i) * array_get(exact->v, i);
        off += pow(array_get(chance->v, i) - array_get(exact->v, i), 2);
    }
    assert_true(sqrt(off / squares) < 0.06);
    for (int i = 0; i < 3; i++)
        adam_free(all[i]);
}

/* A quadratic bowl of uneven widths, with noise in its gradients: where 1000 steps lead with each kind of moments. */
TEST(test_bowl)
{
    enum { N = 2048, STEPS = 1000 };
    adam *exact = adam_create(SB_FP32, false, N, 0.999), *chance = adam_create(SB_BF16, true, N, 0.999);
    adam *const all[] = {exact, chance};
    OWNED float *start = xmalloc(N * sizeof *start), *noise = xmalloc(N * sizeof *noise);
    memcpy(start, exact->param->data, N * sizeof *start);
    for (int step = 1; step <= STEPS; step++) {
        rng_normal(noise, N, 6, (uint32_t)step, 0, 0.1f);
        for (int i = 0; i < 2; i++) {
            float *grad = all[i]->grad->data;
            const float *param = all[i]->param->data;
            for (size_t j = 0; j < N; j++)
                grad[j] = (0.1f + (float)(j % 32) / 16) * param[j] + noise[j];
            all[i]->state.lr = 0.01f * (1 - (float)step / STEPS);
            adam_step(all[i]);
        }
    }
    double moved = 0, off = 0;
    for (size_t j = 0; j < N; j++) {
        const double a = array_get(exact->param, j), b = array_get(chance->param, j);
        moved += (a - start[j]) * (a - start[j]);
        off += (a - b) * (a - b);
    }
    print_message("after %d steps parameters are off by %.2e of how far they moved\n", STEPS, sqrt(off / moved));
    assert_true(sqrt(off / moved) < 1e-2);
    adam_free(exact);
    adam_free(chance);
}
