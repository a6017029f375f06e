/* SPDX-License-Identifier: MIT */
/* The accounting of memory and communication: the handout's answers to the digit, and every closed form against what it
 * is the closed form of: counting devices, bisection, a grid of meshes. */
#include "tests/support/test.h"

#include "common/core/units.h"
#include "common/formulas/accounting.h"

/* The model and the TPUs of the handout. */
static const ffn_stack xxl = {.d_model = 16384, .d_ff = 53248, .blocks = 126, .matrices = 2};
static const ffn_mesh tpus = {.x = 16,
                              .y = 4,
                              .mesh_x = 2,
                              .mesh_y = 1,
                              .flops = 4.6e14,
                              .bandwidth = 1.8e11,
                              .weight_bytes = 2,
                              .activation_bytes = 2};
static const mesh_rules in_turn = {false, false}, at_once = {true, false}, in_turn_rings = {false, true};
static const double gb = 1e9;

/* The value must have these digits when it is printed with so many decimals. */
static void digits(double value, int decimals, const char *wanted)
{
    char text[64];
    snprintf(text, sizeof text, "%.*f", decimals, value);
    assert_string_equal(text, wanted);
}

static void near(double value, double wanted, double relative)
{
    if (!(fabs(value - wanted) <= relative * fabs(wanted)))
        fail_msg("%.17g is not %.17g", value, wanted);
}

/* ---- (a) and (b) ---- */

TEST(memory_of_xxl)
{
    double bytes = ACCOUNTING_STATE_BYTES * (double)ffn_parameters(&xxl);
    assert_int_equal(ffn_parameters(&xxl), 219848638464);
    assert_true(bytes == 3517578215424.0);
    digits(bytes / gb, 2, "3517.58");
    digits(bytes / GIB, 1, "3276.0");
    digits(bytes / 4 / gb, 2, "879.39");
    digits(bytes / 2 / gb, 2, "1758.79");
    assert_int_equal(ffn_saved_per_token(&xxl), 17547264);
    digits((double)ffn_saved_per_token(&xxl) / 1048576, 2, "16.73");
    digits((double)ffn_saved_per_token(&xxl) / GIB, 5, "0.01634");
    digits(bytes / (80 * gb), 2, "43.97");
    assert_true(ceil(bytes / (80 * gb)) == 44 && ceil(bytes / (80 * GIB)) == 41);
    assert_true(ceil(bytes / (81559 * 1048576.0)) == 42);
    assert_true(floor(80 * gb / (double)ffn_saved_per_token(&xxl)) == 4559);
    ffn_stack swiglu = {.d_model = 1600, .d_ff = 6400, .blocks = 48, .matrices = 3};
    assert_int_equal(ffn_parameters(&swiglu), 48 * 3 * 1600 * 6400LL);
    assert_int_equal(ffn_saved_per_token(&swiglu), 2 * 48 * (1600 + 3 * 6400));
}

TEST(devices_of_fsdp)
{
    static const struct {
        double tokens, devices;
    } known[] = {{0, 38}, {1024, 41}, {2048, 46}, {4096, 61}, {8192, 156}, {10827, 458080}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double n = fsdp_devices(&xxl, 95 * gb, known[i].tokens, NULL);
        assert_true(n == known[i].devices);
        assert_true(fsdp_device_bytes(&xxl, n, known[i].tokens) < 95 * gb);
        assert_true(fsdp_device_bytes(&xxl, n - 1, known[i].tokens) >= 95 * gb);
    }
    double exact;
    fsdp_devices(&xxl, 95 * gb, 0, &exact);
    digits(exact, 2, "37.03");
    assert_true(isinf(fsdp_devices(&xxl, 95 * gb, 10828, &exact)) && isinf(exact));
    assert_true(fsdp_tokens_most(&xxl, 95 * gb) == 10827);
    /* "Less than" a device's bytes: where a whole number is exactly equal, one more is needed. */
    ffn_stack small = {.d_model = 64, .d_ff = 64, .blocks = 1, .matrices = 2};
    double state_bytes = ACCOUNTING_STATE_BYTES * (double)ffn_parameters(&small);
    assert_true(fsdp_devices(&small, state_bytes / 4, 0, NULL) == 5);
}

/* ---- (c) and (d) ---- */

TEST(compute_bound_batch)
{
    double tokens = mesh_tokens(&xxl, &tpus, in_turn);
    digits(mesh_intensity(&tpus), 1, "2555.6");
    digits(ceil(tokens), 0, "25302");
    digits(tokens / 64, 1, "395.3");
    assert_true(ceil(tokens / 64) == 396);
    digits(tokens / 16, 0, "1581");
    mesh_times t = mesh_forward(&xxl, &tpus, 25302, in_turn);
    digits(1e6 * t.math, 1, "2999.2");
    digits(1e6 * t.fsdp, 1, "2423.4");
    digits(1e6 * t.tp, 1, "575.8");
    assert_true(t.math > mesh_communication(t, in_turn));
    t = mesh_forward(&xxl, &tpus, 25301, in_turn);
    assert_true(t.math < mesh_communication(t, in_turn));

    digits(mesh_tokens(&xxl, &tpus, at_once), 0, "20444");
    digits(mesh_tokens(&xxl, &tpus, at_once) / 64, 0, "319");
    digits(mesh_tokens(&xxl, &tpus, in_turn_rings), 0, "22390");
    digits(mesh_tokens(&xxl, &tpus, in_turn_rings) / 64, 0, "350");
    digits(mesh_pure_fsdp(&tpus, 3), 0, "852");
    digits(mesh_pure_fsdp(&tpus, 2), 0, "1278");
    assert_true((double)xxl.d_ff > tpus.y * mesh_intensity(&tpus));
    digits(tpus.y * mesh_intensity(&tpus), 0, "10222");
}

TEST(ways_to_a_smaller_batch)
{
    mesh_split best = mesh_best_split(&xxl, &tpus), whole = mesh_best_whole_split(&xxl, &tpus);
    digits(best.tokens_per_device, 1, "245.3");
    digits(best.x, 1, "6.1");
    assert_true(whole.x == 8 && whole.y == 8);
    digits(whole.tokens_per_device, 1, "259.3");
    double least = INFINITY;
    for (double x = 1; x <= 64; x *= 2) {
        ffn_mesh m = tpus;
        m.x = x;
        m.y = 64 / x;
        least = fmin(least, mesh_tokens(&xxl, &m, in_turn) / 64);
    }
    assert_true(least == whole.tokens_per_device);
    ffn_mesh other = tpus;
    other.weight_bytes = 1; /* 8-bit gathers */
    digits(mesh_tokens(&xxl, &other, in_turn) / 64, 0, "198");
    other.activation_bytes = 1;
    other.flops *= 2; /* and 8-bit products: the gain cancels */
    near(mesh_tokens(&xxl, &other, in_turn), mesh_tokens(&xxl, &tpus, in_turn), 1e-14);
    other = tpus;
    other.mesh_x = 3;
    digits(mesh_tokens(&xxl, &other, in_turn) / 64, 1, "263.6");
    other = tpus;
    other.bandwidth *= 2;
    digits(mesh_tokens(&xxl, &other, in_turn) / 64, 1, "176.7");
}

static double bisected_tokens(const ffn_stack *s, const ffn_mesh *m, mesh_rules r)
{
    double lo = 0, hi = 1e15;
    for (int i = 0; i < 200; i++) {
        double b = (lo + hi) / 2;
        mesh_times t = mesh_forward(s, m, b, r);
        *(t.math > mesh_communication(t, r) ? &hi : &lo) = b;
    }
    return hi;
}

TEST(bounds_of_many_meshes)
{
    for (int i = 0; i < 4096; i++) {
        ffn_stack s = {.d_model = 4096, .d_ff = 4096 << (i & 3), .blocks = 2, .matrices = 2 + (i >> 2 & 1)};
        ffn_mesh m = tpus;
        m.x = 1 << (i >> 3 & 3);
        m.y = 1 << (i >> 5 & 3);
        m.mesh_x = 1 + (i >> 7 & 1);
        m.mesh_y = 1 + (i >> 8 & 1);
        m.weight_bytes = 1 + (i >> 9 & 1);
        mesh_rules r = {.at_once = i >> 10 & 1, .rings = i >> 11 & 1};
        double tokens = mesh_tokens(&s, &m, r);
        if (isinf(tokens))
            assert_true(bisected_tokens(&s, &m, r) > 1e14);
        else if (tokens == 0)
            assert_true(m.x == 1);
        else
            near(tokens, bisected_tokens(&s, &m, r), 1e-9);
        /* No other X on so many devices does with less than the best one, whole or not. */
        mesh_split best = mesh_best_split(&s, &m);
        double n = m.x * m.y, most = best.tokens_per_device * (1 - 1e-9);
        for (double x = 1.01; x < n; x *= 1.01) {
            ffn_mesh other = m;
            other.x = x;
            other.y = n / x;
            assert_true(mesh_tokens(&s, &other, in_turn) / n >= most);
        }
        if (best.x > 1 && best.x < n) {
            ffn_mesh other = m;
            other.x = best.x;
            other.y = best.y;
            near(mesh_tokens(&s, &other, in_turn) / n, best.tokens_per_device, 1e-9);
        }
    }
}

/* ---- the forms of 2026 ---- */

TEST(forms_of_one_axis)
{
    const double rho = tpus.bandwidth / tpus.flops, f = (double)xxl.d_ff, b = 30000;
    near(all_reduce_alternate_s(1e9, 64, 1e11), 0.63, 1e-14);
    near(all_reduce_alternate_s(1e9, 64, 1e11) / all_reduce_s(1e9, 64, 1e11), 32, 1e-14);
    static const closed_form data[] = {FORM_DATA, FORM_FSDP_FORWARD, FORM_FSDP_BACKWARD};
    for (size_t i = 0; i < 3; i++) {
        near(closed_form_of(data[i], &xxl, &tpus, b).devices, 1 + b * rho, 1e-14);
        closed_answer a = closed_form_of(data[i], &xxl, &tpus, 0);
        near(a.tokens, 63 / rho, 1e-14);
        near(a.comm_s, a.math_s, 1e-14);
        near(a.devices, 64, 1e-14);
    }
    near(closed_form_of(FORM_TENSOR_FORWARD, &xxl, &tpus, b).devices, 1 + 1.5 * f * rho, 1e-14);
    near(closed_form_of(FORM_TENSOR_BACKWARD, &xxl, &tpus, b).devices, 1 + 3 * f * rho, 1e-14);
    digits(closed_form_of(FORM_TENSOR_FORWARD, &xxl, &tpus, b).devices, 2, "32.25");
    assert_true(isinf(closed_form_of(FORM_TENSOR_FORWARD, &xxl, &tpus, b).tokens));
    closed_answer a = closed_form_of(FORM_TENSOR_BACKWARD, &xxl, &tpus, b); /* 64 > 63.5: not any batch */
    assert_true(isinf(a.tokens) && a.comm_s > a.math_s);
    near(a.math_s, 12 * b * 16384 * f / (64 * 4.6e14), 1e-14);
    near(a.comm_s, 4 * b * 16384 * 63 / (64 * 1.8e11), 1e-14);
}

/* Whether X and Y keep a forward of B tokens bound by compute, from the times of its two collectives. */
static bool holds(double x, double y, double b, bool together)
{
    double d = (double)xxl.d_model, f = (double)xxl.d_ff, n = x * y, w = tpus.bandwidth;
    double math = 6 * b * d * f / (n * tpus.flops);
    double gather = 6 * d * f / y * (x - 1) / x / w, reduce = 2 * (y - 1) / y * (2 * b * d / x) / w;
    return (together ? fmax(gather, reduce) : gather + reduce) <= math;
}

TEST(forms_of_two_axes)
{
    for (int k = 0; k < 2; k++)
        for (double b = 4000; b < 3e5; b *= 1.7) {
            closed_answer a = closed_form_of(k ? FORM_2D_AT_ONCE : FORM_2D_IN_TURN, &xxl, &tpus, b);
            double most = 0, step = 1.01;
            for (double x = 1; x < 1000; x *= step)
                for (double y = 1; y < 1000; y *= step)
                    if (x * y > most && holds(x, y, b, k))
                        most = x * y;
            assert_true(most <= a.devices * (1 + 1e-9));
            if (a.devices_x >= 1 && a.devices_y >= 1) { /* else the form leaves the meshes that exist */
                assert_true(most >= a.devices / (step * step));
                assert_true(holds(a.devices_x * (1 - 1e-9), a.devices_y * (1 - 1e-9), b, k));
            }
        }
    const double rho = tpus.bandwidth / tpus.flops, f = 53248, b = 1e7;
    near(closed_form_of(FORM_2D_AT_ONCE, &xxl, &tpus, b).devices, (1 + b * rho) * (1 + 1.5 * f * rho), 1e-14);
    /* (3/8) B F rho^2 is what is left for many tokens and a wide block. */
    ffn_stack wide = xxl;
    wide.d_ff = 100000000;
    near(closed_form_of(FORM_2D_IN_TURN, &wide, &tpus, 1e8).devices, 3.0 / 8 * 1e8 * 1e8 * rho * rho, 1e-3);
}

TEST(least_batch_of_two_axes)
{
    for (int k = 0; k < 2; k++) {
        closed_answer a = closed_form_of(k ? FORM_2D_AT_ONCE : FORM_2D_IN_TURN, &xxl, &tpus, 0);
        near(a.comm_s, a.math_s, 1e-12);
        assert_true(holds(16, 4, a.tokens * 1.000001, k) && !holds(16, 4, a.tokens * 0.999999, k));
    }
    ffn_mesh m = tpus;
    m.y = 40; /* more than 1 + 1.5 F rho */
    assert_true(isinf(closed_form_of(FORM_2D_IN_TURN, &xxl, &m, 0).tokens));
}
