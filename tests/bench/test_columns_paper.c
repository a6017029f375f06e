/* SPDX-License-Identifier: MIT */
/* Every numeric column of bench_accounting: recomputed from the options of its row by formulas that are stated here anew,
 * from docs/formulas.md. */
#include "tests/support/test.h"

#include "tests/support/columns.h"

#define V(variant) IS("variant", variant)
#define D N("d_model")
#define F N("d_ff")
#define X N("x")
#define Y N("y")
#define C N("used_flops")
#define W N("used_bandwidth")

static bool any(const csv *c, size_t row, const char *a, const char *b, const char *d)
{
    return V(a) || V(b) || V(d);
}

/* ---- memory, fsdp ---- */

static bool by_model(const csv *c, size_t row)
{
    return any(c, row, "data_parallel", "buckets", "zero");
}

/* xl: 48 blocks of 4 d^2 + 3 d F and two norms, embedding, head, a last norm. */
static const double xl = 48 * (4 * 1600. * 1600 + 3 * 1600. * 6400 + 2 * 1600) + 2 * 10000 * 1600. + 1600;
static const double xl_multiplying = 48 * (4 * 1600. * 1600 + 3 * 1600. * 6400) + 10000 * 1600.;

FORMULA(held_state, V("memory") || V("fsdp"))
FORMULA(ffn, N("blocks") * N("matrices") * D * F)
FORMULA(parameters, by_model(c, row) ? xl : held_state(c, row) == 1 ? ffn(c, row) : NAN)
FORMULA(state_bytes, held_state(c, row) == 1 ? 16 * ffn(c, row) : NAN)
FORMULA(saved, held_state(c, row) == 1 ? 2 * N("blocks") * (D + (N("matrices") == 3 ? 3 : 1) * F) : NAN)
FORMULA(activations, saved(c, row) * N("tokens"))
FORMULA(half, activations(c, row) / 2)
FORMULA(room, N("device_memory") - half(c, row))
FORMULA(devices_exact, V("memory") ? (state_bytes(c, row) + activations(c, row)) / N("device_memory")
                       : V("fsdp") && room(c, row) > 0 ? (state_bytes(c, row) + half(c, row)) / room(c, row)
                                                       : NAN)
FORMULA(devices, V("memory") ? ceil(devices_exact(c, row)) : floor(devices_exact(c, row)) + 1)
FORMULA(tokens_of_a_device, V("memory") ? floor(N("device_memory") / saved(c, row)) : NAN)
FORMULA(tokens_most, V("fsdp") ? ceil(2 * N("device_memory") / saved(c, row)) - 1 : NAN)

/* ---- compute_bound, batch, closed_forms ---- */

/* A mesh of a row; a way of `batch` changes it. Bytes are those of a weight and an activation. */
typedef struct mesh {
    double x, y, mesh_x, mesh_y, c, w, weight, activation;
} mesh;

static mesh mesh_of(const csv *c, size_t row)
{
    return (mesh){X, Y, N("mesh_x"), N("mesh_y"), C, W, N("weight_bits") / 8, 2};
}

/* Seconds of a block's forward: products, and collectives of an axis that sends `share` of its bytes; of a token. */
static double math_s(const csv *c, size_t row, mesh m)
{
    return 2 * N("matrices") * D * F / (m.x * m.y * m.c);
}

static double fsdp_s(const csv *c, size_t row, mesh m)
{
    return m.x > 1 ? N("matrices") * D * F * m.weight / (m.y * m.w * m.mesh_x) : 0;
}

static double tp_s(const csv *c, size_t row, mesh m)
{
    (void)row;
    return m.y > 1 ? 2 * N("d_model") * m.activation / (m.x * m.w * m.mesh_y) : 0;
}

static double tokens_in_turn(const csv *c, size_t row, mesh m)
{
    const double left = math_s(c, row, m) - tp_s(c, row, m);
    return left > 0 ? fsdp_s(c, row, m) / left : NAN;
}

static double tokens_at_once(const csv *c, size_t row, mesh m)
{
    return tp_s(c, row, m) < math_s(c, row, m) ? fsdp_s(c, row, m) / math_s(c, row, m) : NAN;
}

/* B/N at the X where both terms of the sum are equal. */
static double best_per_device_of(const csv *c, size_t row, mesh m)
{
    const double alpha = m.c / m.w;
    return 4 * alpha * alpha * (m.weight / 2) * (m.activation / N("matrices")) / (m.mesh_x * m.mesh_y * F);
}

static double best_whole_x(const csv *c, size_t row, mesh m)
{
    double best = INFINITY, at = NAN;
    for (double x = 1, n = m.x * m.y; x <= n; x++) {
        mesh other = m;
        other.x = x;
        other.y = n / x;
        const double tokens = fmod(n, x) == 0 ? tokens_in_turn(c, row, other) : NAN;
        if (tokens < best) {
            best = tokens;
            at = x;
        }
    }
    return at;
}

static double tokens_of_way(const csv *c, size_t row)
{
    mesh m = mesh_of(c, row);
    const double n = m.x * m.y;
    if (IS("way", "pipeline"))
        return NAN;
    if (IS("way", "overlap-axes"))
        return tokens_at_once(c, row, m);
    if (IS("way", "best-split"))
        return best_per_device_of(c, row, m) * n;
    if (IS("way", "best-whole-split")) {
        m.x = best_whole_x(c, row, m);
        m.y = n / m.x;
    }
    m.mesh_x += IS("way", "more-axes");
    m.weight = IS("way", "8bit-weights") || IS("way", "8bit-all") ? 1 : m.weight;
    m.activation = IS("way", "8bit-all") ? 1 : m.activation;
    m.c *= IS("way", "8bit-all") ? 2 : 1;
    m.weight /= IS("way", "keep-weights") ? 2 : 1;
    m.w *= IS("way", "faster-link") ? 2 : 1;
    return tokens_in_turn(c, row, m);
}

/* The closed forms of 2026, in rho = W / C. */
FORMULA(rho, W / C)
FORMULA(n_devices, X *Y)
FORMULA(two_d, IS("form", "2d-at-once") || IS("form", "2d-in-turn"))
FORMULA(tensor, IS("form", "tensor-forward") || IS("form", "tensor-backward"))

static double tokens_of_form(const csv *c, size_t row)
{
    const double most_y = 1.5 * F * rho(c, row);
    if (IS("form", "all-reduce"))
        return NAN;
    if (IS("form", "2d-at-once"))
        return Y - 1 <= most_y ? (X - 1) / rho(c, row) : NAN;
    if (IS("form", "2d-in-turn"))
        return Y - 1 < most_y ? (X - 1) / (rho(c, row) - 2 * (Y - 1) / (3 * F)) : NAN;
    if (tensor(c, row) == 1)
        return n_devices(c, row) <= 1 + most_y * (IS("form", "tensor-backward") ? 2 : 1) ? 0 : NAN;
    return (n_devices(c, row) - 1) / rho(c, row);
}

FORMULA(tokens_least, V("compute_bound")  ? tokens_in_turn(c, row, mesh_of(c, row))
                      : V("batch")        ? tokens_of_way(c, row)
                      : V("closed_forms") ? tokens_of_form(c, row)
                                          : NAN)
FORMULA(of_given, V("batch") ? tokens_of_way(c, row) / tokens_in_turn(c, row, mesh_of(c, row)) : NAN)
FORMULA(at_tokens, V("compute_bound")  ? (N("batch") > 0 ? N("batch") : floor(tokens_least(c, row)) + 1)
                   : V("closed_forms") ? (IS("form", "all-reduce")   ? NAN
                                          : N("batch") > 0           ? N("batch")
                                          : tokens_least(c, row) > 0 ? tokens_least(c, row)
                                                                     : NAN)
                                       : NAN)
FORMULA(form_backward, IS("form", "data") || IS("form", "fsdp-backward") || IS("form", "tensor-backward") ? 2 : 1)
FORMULA(math_us, 1e6 * at_tokens(c, row) *
                     (V("compute_bound") ? math_s(c, row, mesh_of(c, row))
                                         : form_backward(c, row) * 6 * D * F / (n_devices(c, row) * C)))
FORMULA(fsdp_us, V("compute_bound") && at_tokens(c, row) > 0 ? 1e6 * fsdp_s(c, row, mesh_of(c, row)) : NAN)
FORMULA(tp_us, V("compute_bound") ? 1e6 * at_tokens(c, row) * tp_s(c, row, mesh_of(c, row)) : NAN)

/* ---- data_parallel, buckets, zero ---- */

FORMULA(grad_bytes, N("grad_bits") / 8)
FORMULA(ring, 2 * (N("ranks") - 1) / N("ranks"))
FORMULA(busy_w, W / ring(c, row))
FORMULA(gradients, V("buckets") ? xl *grad_bytes(c, row) : NAN)
FORMULA(o_s, N("overhead") * 1e-6)
FORMULA(algbw, V("buckets") ? busy_w(c, row) / 1e9 : NAN)
FORMULA(best_bytes, sqrt(gradients(c, row) * o_s(c, row) * busy_w(c, row)))
FORMULA(best_contention, sqrt(N("kappa")) * best_bytes(c, row))
FORMULA(best_buckets, gradients(c, row) / best_bytes(c, row))
FORMULA(bucket_used,
        V("buckets") ? fmin(N("bucket") > 0 ? N("bucket") : best_contention(c, row), gradients(c, row)) : NAN)
FORMULA(buckets, gradients(c, row) / bucket_used(c, row))
FORMULA(bucket_s, o_s(c, row) + bucket_used(c, row) / busy_w(c, row))
FORMULA(overhead, 1e6 * (buckets(c, row) * o_s(c, row) + bucket_used(c, row) / busy_w(c, row)))
FORMULA(overhead_contention,
        1e6 * (bucket_s(c, row) + N("kappa") * (buckets(c, row) * o_s(c, row) + gradients(c, row) / busy_w(c, row))))

FORMULA(zero, V("zero") ? 1 : NAN)
FORMULA(p, IS("recipe", "fp32") ? 4 : 2)
FORMULA(g, IS("recipe", "bf16") ? 2 : 4)
FORMULA(moments, 8)
FORMULA(master, IS("recipe", "fp32") ? 0 : 4)
FORMULA(state_share, IS("strategy", "ddp") ? 1 : N("ranks"))
FORMULA(grad_share, IS("strategy", "zero2") || IS("strategy", "zero3") ? N("ranks") : 1)
FORMULA(param_share, IS("strategy", "zero3") ? N("ranks") : 1)
FORMULA(init_bytes, zero(c, row) * xl * (p(c, row) / param_share(c, row) + master(c, row) / state_share(c, row)))
FORMULA(before_step, init_bytes(c, row) + xl * g(c, row) / grad_share(c, row))
FORMULA(after_step, before_step(c, row) + xl * moments(c, row) / state_share(c, row))
FORMULA(passes_of_grads, IS("strategy", "ddp") || IS("strategy", "zero1-broadcast") ? 2 : 1)
FORMULA(passes_of_params, IS("strategy", "zero3") ? 2 : !IS("strategy", "ddp") ? 1 : 0)
FORMULA(share, (N("ranks") - 1) / N("ranks"))
FORMULA(sent_grads, zero(c, row) * xl * share(c, row) * passes_of_grads(c, row))
FORMULA(sent_params, zero(c, row) * xl * share(c, row) * passes_of_params(c, row))
FORMULA(wire_bytes, V("data_parallel") ? ring(c, row) * xl *grad_bytes(c, row)
                                       : sent_grads(c, row) * g(c, row) + sent_params(c, row) * p(c, row))

static double comm_us(const csv *c, size_t row)
{
    const double b = at_tokens(c, row), n = n_devices(c, row), fsdp = 6 * D * F * (X - 1) / (n * W),
                 tp = 4 * b * D * (Y - 1) / (n * W);
    if (V("data_parallel") || V("zero"))
        return 1e6 * wire_bytes(c, row) / W;
    if (V("compute_bound"))
        return fsdp_us(c, row) + tp_us(c, row);
    if (!V("closed_forms"))
        return NAN;
    if (IS("form", "all-reduce"))
        return 1e6 * 2 * (n - 1) / n * 6 * D * F / W;
    if (two_d(c, row) == 1)
        return 1e6 * (IS("form", "2d-at-once") ? fmax(fsdp, tp) : fsdp + tp);
    if (tensor(c, row) == 1)
        return 1e6 * 4 * b * D * (n - 1) / (n * W);
    return b > 0 ? 1e6 * form_backward(c, row) * 6 * D * F * (n - 1) / (n * W) : NAN;
}

FORMULA(alternate_us,
        V("closed_forms") && IS("form", "all-reduce") ? 1e6 * (n_devices(c, row) - 1) * 6 * D * F / W : NAN)

/* At the B of the row, or the least. */
FORMULA(b_of_form, N("batch") > 0 ? N("batch") : tokens_of_form(c, row))
FORMULA(devices_x, !V("closed_forms") || two_d(c, row) == 0 ? NAN
                   : IS("form", "2d-at-once")               ? 1 + b_of_form(c, row) * rho(c, row)
                                              : b_of_form(c, row) * rho(c, row) / 2 + 0.5 + b_of_form(c, row) / (3 * F))
FORMULA(devices_y, !V("closed_forms") || two_d(c, row) == 0 ? NAN
                   : IS("form", "2d-at-once")               ? 1 + 1.5 * F * rho(c, row)
                                                            : 3 * F / (2 * b_of_form(c, row)) * devices_x(c, row))
FORMULA(devices_most, !V("closed_forms") || IS("form", "all-reduce") ? NAN
                      : two_d(c, row) == 1                           ? devices_x(c, row) * devices_y(c, row)
                      : tensor(c, row) == 1                          ? 1 + 1.5 * form_backward(c, row) * F * rho(c, row)
                                                                     : 1 + b_of_form(c, row) * rho(c, row))
FORMULA(per_device_tokens, V("data_parallel") ? wire_bytes(c, row) / W *C / (4 * xl_multiplying)
                                              : tokens_least(c, row) / n_devices(c, row))

static const column_rule rules[] = {{"state_bytes", DERIVED, state_bytes, 0},
                                    {"parameters", DERIVED, parameters, 0},
                                    {"saved_per_token_bytes", DERIVED, saved, 0},
                                    {"devices", DERIVED, devices, 0},
                                    {"devices_exact", DERIVED, devices_exact, 0},
                                    {"tokens_of_a_device", DERIVED, tokens_of_a_device, 0},
                                    {"tokens_most", DERIVED, tokens_most, 0},
                                    {"tokens_least", DERIVED, tokens_least, 0},
                                    {"tokens_per_device", DERIVED, per_device_tokens, 0},
                                    {"of_given", DERIVED, of_given, 0},
                                    {"at_tokens", DERIVED, at_tokens, 0},
                                    {"math_us", DERIVED, math_us, 0},
                                    {"fsdp_us", DERIVED, fsdp_us, 0},
                                    {"tp_us", DERIVED, tp_us, 0},
                                    {"comm_us", DERIVED, comm_us, 0},
                                    {"alternate_us", DERIVED, alternate_us, 0},
                                    {"devices_most", DERIVED, devices_most, 0},
                                    {"algbw_gb_s", DERIVED, algbw, 0},
                                    {"best_bytes", DERIVED, best_bytes, 0},
                                    {"best_contention_bytes", DERIVED, best_contention, 0},
                                    {"best_buckets", DERIVED, best_buckets, 0},
                                    {"bucket_used_bytes", DERIVED, bucket_used, 0},
                                    {"overhead_us", DERIVED, overhead, 0},
                                    {"overhead_contention_us", DERIVED, overhead_contention, 0},
                                    {"init_bytes", DERIVED, init_bytes, 0},
                                    {"before_step_bytes", DERIVED, before_step, 0},
                                    {"after_step_bytes", DERIVED, after_step, 0},
                                    {"wire_bytes", DERIVED, wire_bytes, 0},
                                    {"slots_bytes used_flops used_bandwidth", MEASURED, NULL, 0},
                                    {0}};

TEST(by_variants)
{
    static const char *const runs[] = {"--variant memory,fsdp --matrices 2,3 --tokens 0,4096",
                                       "--variant compute_bound --batch 0,4096 --weight-bits 8,16 --matrices 2,3",
                                       "--variant batch",
                                       "--variant closed_forms --batch 0,65536",
                                       "--variant data_parallel --ranks 2,4,8 --model xl",
                                       "--variant buckets --model xl --ranks 4 --bucket 0,25M --kappa 1,0.05",
                                       "--variant zero --model xl --ranks 4"};
    columns_have_rules(*state, "bench_accounting", rules);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        columns_run(*state, "bench_accounting", "", runs[i], rules);
    columns_were_seen("bench_accounting", rules);
}

TESTS_WITH(folder_create, folder_remove)

#ifdef __SANITIZE_ADDRESS__
TESTS_NEED(false) /* of numbers alone: the plain build is enough */
#endif
