/* SPDX-License-Identifier: MIT */
/* Every numeric column of the benches of several ranks, on CPU ranks over Gloo: recomputed from the others of its row by a
 * formula that is stated here anew. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"
#include "tests/support/trace.h"

static csv *rows_of(const char *folder, const char *bench, const char *arguments)
{
    needs_gloo();
    return bench_rows(folder, bench, "", arguments, EXIT_CODE_OK);
}

/* ---- bench_allreduce ---- */

FORMULA(slices, IS("variant", "all-gather") || IS("variant", "reduce-scatter") ? N("ranks") : 1)
FORMULA(element_bytes, IS("dtype", "fp32") ? 4 : 2)
FORMULA(moved, floor(N("bytes") / element_bytes(c, row) / slices(c, row)) * element_bytes(c, row) * slices(c, row))
FORMULA(algbw, moved(c, row) / N("median_ms") / 1e6)
FORMULA(busbw, algbw(c, row) * (IS("variant", "all-reduce")  ? 2 * (N("ranks") - 1) / N("ranks")
                                : IS("variant", "broadcast") ? 1
                                                             : (N("ranks") - 1) / N("ranks")))
FORMULA(slowest_mean, place_of_largest(T("rank_mean_ms")))
FORMULA(three, 3)
FORMULA(two, 2)
FORMULA(one, 1)
FORMULA(none, 0)
/* The middle one of three samples is the rest of their sum. */
FORMULA(middle, 3 * N("mean_ms") - N("min_ms") - N("max_ms"))
FORMULA(deviation, sqrt((pow(N("min_ms") - N("mean_ms"), 2) + pow(N("median_ms") - N("mean_ms"), 2) +
                         pow(N("max_ms") - N("mean_ms"), 2)) /
                        2))

static const column_rule allreduce_rules[] = {{"median_ms", DERIVED, middle, 1e-4},
                                              {"std_ms", DERIVED, deviation, 1e-4},
                                              {"algbw_gb_s", DERIVED, algbw, 0},
                                              {"busbw_gb_s", DERIVED, busbw, 0},
                                              {"slowest_rank", DERIVED, slowest_mean, 0},
                                              {"n_samples", MEASURED, three, 0},
                                              {"n_calls", MEASURED, two, 0},
                                              {"hosts", MEASURED, one, 0},
                                              {"err_elements", MEASURED, none, 0},
                                              {"mean_ms min_ms max_ms", MEASURED, NULL, 0},
                                              {0}};

TEST_IN_FOLDER(allreduce)
{
    columns_have_rules(*state, "bench_allreduce", allreduce_rules);
    columns_hold(rows_of(*state, "bench_allreduce",
                         "--ranks 2,3 --bytes 1000,64K --dtype fp32,bf16 --variant "
                         "all-reduce,all-gather,reduce-scatter,broadcast --iters 3 --calls 2"),
                 "bench_allreduce", allreduce_rules);
    columns_were_seen("bench_allreduce", allreduce_rules);
}

/* ---- data parallelism ---- */

#define MODEL                                                                                                          \
    "--size tiny --vocab 64 --d-model 64 --d-ff 96 --layers 1 --heads 4 --heads-kv 2 --seq 8 --batch 3 --iters 2 "     \
    "--warmup 1 --max-time 0 "

FORMULA(kv, N("d_model") / N("heads") * N("heads_kv"))
FORMULA(multiplying,
        N("layers") * N("d_model") * (2 * N("d_model") + 2 * kv(c, row) + 3 * N("d_ff")) + N("vocab") * N("d_model"))
FORMULA(params, multiplying(c, row) + N("vocab") * N("d_model") + (2 * N("layers") + 1) * N("d_model"))
FORMULA(micro, csv_column(c, "micro_batches") < 0 ? 1 : N("micro_batches"))
FORMULA(rank_tokens, N("batch") * micro(c, row) * N("seq"))
FORMULA(attention_full, 12 * N("layers") * N("seq") * N("d_model") * rank_tokens(c, row))
FORMULA(tflops, (6 * multiplying(c, row) * rank_tokens(c, row) + attention_full(c, row) / 2) / N("step_ms") / 1e9)
FORMULA(full_tflops, (6 * multiplying(c, row) * rank_tokens(c, row) + attention_full(c, row)) / N("step_ms") / 1e9)
FORMULA(mfu_causal, 100 * tflops(c, row) / 0.5)
FORMULA(attention_tflops, attention_full(c, row) / 2 / N("step_ms") / 1e9)
/* The CPU has the name of an H200. Attention in fp32 is three products in 16 bits for one. */
FORMULA(mfu_bf16, 100 * (IS("precision", "fp32") ? (tflops(c, row) - attention_tflops(c, row)) / 66.9 +
                                                       attention_tflops(c, row) / (989.4 / 3)
                                                 : tflops(c, row) / 989.4))
FORMULA(mfu_full, 100 * full_tflops(c, row) / 0.5)
FORMULA(global_batch, N("ranks") * N("batch") * micro(c, row))
FORMULA(tokens_per_j, global_batch(c, row) * N("seq") / N("step_j"))
FORMULA(tokens_per_s, 1e3 * global_batch(c, row) * N("seq") / N("step_ms"))
FORMULA(exposed, N("step_ms") - N("compute_ms"))
FORMULA(contention, N("exposed_ms") - N("tail_ms"))
FORMULA(hidden, N("ranks") > 1 ? 100 * (1 - N("exposed_ms") / N("comm_alone_ms")) : NAN)
FORMULA(comm_pct, 100 * N("exposed_ms") / N("step_ms"))
FORMULA(opt_ms, N("after_ms") - N("tail_ms"))
FORMULA(slowest_rank, place_of_largest(T("rank_step_ms")))

/* The index space of this model: parameters, rounded up to what the ranks divide. */
static double elements(const csv *c, size_t row)
{
    const double granule = 64 * N("ranks");
    return ceil(params(c, row) / granule) * granule;
}

FORMULA(grad_bytes, IS("wire_dtype", "fp32") ? 4 : 2)
FORMULA(param_bytes, IS("precision", "fp32") ? 4 : 2)

/* Moments, and beside bf16 the remainder of fp32. */
FORMULA(state_element, (IS("moments", "bf16") ? 4 : 8) + (IS("precision", "fp32") ? 0 : 2))

/* Bytes that a rank sends: two passes over the gradients; or one and one over the parameters; or two and one. */
static double wire(const csv *c, size_t row)
{
    const double e = elements(c, row), share = (N("ranks") - 1) / N("ranks");
    if (IS("variant", "zero1") || IS("variant", "fused"))
        return e * share * (grad_bytes(c, row) + param_bytes(c, row));
    return 2 * e * share * grad_bytes(c, row) +
           (IS("variant", "zero1-broadcast") ? e * share * param_bytes(c, row) : 0);
}

FORMULA(wire_gb_s, N("ranks") > 1 ? N("wire_bytes") / N("comm_alone_ms") / 1e6 : NAN)

/* Differences of times are those of cells with nine digits. */
#define DDP_RULES_OF(wire_formula)                                                                                     \
    {"global_batch", DERIVED, global_batch, 0}, {"n_steps", MEASURED, two, 0}, {"exposed_ms", DERIVED, exposed, 1e-4}, \
        {"contention_ms", DERIVED, contention, 1e-4}, {"hidden_pct", DERIVED, hidden, 1e-4},                           \
        {"comm_pct", DERIVED, comm_pct, 1e-4}, {"wire_bytes", MEASURED, wire_formula, 0},                              \
        {"wire_gb_s", DERIVED, wire_gb_s, 0}, {"opt_ms", DERIVED, opt_ms, 1e-4},                                       \
        {"slowest_rank", DERIVED, slowest_rank, 0}, {"tokens_per_s", DERIVED, tokens_per_s, 0},                        \
        {"tflops", DERIVED, tflops, 0}, {"mfu_causal_pct", DERIVED, mfu_causal, 0},                                    \
        {"mfu_bf16_pct", DERIVED, mfu_bf16, 0}, {"mfu_full_pct", DERIVED, mfu_full, 0},                                \
        {"tokens_per_j", MEASURED, tokens_per_j, 0}, {"params", DERIVED, params, 0}, {"hosts", MEASURED, one, 0},      \
    {                                                                                                                  \
        "step_ms buckets bucket_bytes step_mean_ms step_std_ms step_p5_ms step_p95_ms compute_ms exposed_lo_ms "       \
        "exposed_hi_ms tail_ms comm_alone_ms fwd_ms bwd_ms after_ms phase_rank opt_alone_ms peak_bytes "               \
        "fp8_share_pct speedup_bf16 device_used_bytes recorded_comm_ms recorded_exposed_ms "                           \
        "overlapped_pct step_j clock_err_us loss_first loss_third loss_last err_grad err_param",                       \
            MEASURED, NULL, 0                                                                                          \
    }

#define DDP_RULES DDP_RULES_OF(wire)

static const column_rule ddp_rules[] = {DDP_RULES, {0}};

/* With more arguments. */
static void strategy(const char *folder, const char *bench, const column_rule *rules, const char *more)
{
    static const char *const cases[] = {"--ranks 3 --precision fp32 --grad-dtype policy",
                                        "--ranks 2 --precision bf16 --grad-dtype fp32 --moments bf16"};
    needs_gloo();
    OWNED char *gpu = preload_build(folder, "gpu");
    columns_have_rules(folder, bench, rules);
    for (int i = 0; i < 2; i++) {
        OWNED char *arguments = xasprintf(MODEL "--peak-tflops 0.5 %s %s", cases[i], more);
        columns_hold(bench_rows(folder, bench, gpu, arguments, EXIT_CODE_OK), bench, rules);
    }
    columns_were_seen(bench, rules);
}

TEST_IN_FOLDER(naive_flat_overlap)
{
    strategy(*state, "bench_ddp_naive", ddp_rules, "");
    strategy(*state, "bench_ddp_flat", ddp_rules, "");
    strategy(*state, "bench_ddp_overlap", ddp_rules, "");
}

/* ---- a recorded step ---- */

/* Milliseconds of a rank's spans in a lane of the file. */
static double recorded_ms(const csv *spans, int rank, const char *lane)
{
    double us = 0;
    for (size_t i = 0; i < spans->rows; i++)
        if ((int)csv_real(spans, i, "rank") == rank && csv_is(spans, i, "lane", lane))
            us += csv_real(spans, i, "end_us") - csv_real(spans, i, "start_us");
    return us * 1e-3;
}

/* The file has the spans, the row what they add up to on the rank with most of it. */
TEST_IN_FOLDER(recorded)
{
    enum { RANKS = 2 };
    const double slack_ms = 0.01, slack_pct = 0.5; /* of spans in a file with fewer digits */
    OWNED_CSV csv *c =
        rows_of(*state, "bench_ddp_overlap", MODEL "--ranks 2 --precision fp32 --grad-dtype policy --timeline 1");
    OWNED char *path = folder_path(*state, "results/test-x1/timeline/overlap.csv");
    OWNED_CSV csv *spans = csv_read(path);
    assert_true(c && spans && c->rows == 1);
    double communication = 0, exposed = 0, share = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        const double all = recorded_ms(spans, rank, "communication"), shown = recorded_ms(spans, rank, "exposed");
        assert_true(all > 0);
        communication = fmax(communication, all);
        exposed = fmax(exposed, shown);
        share = fmax(share, 100 * shown / all);
    }
    assert_true(fabs(csv_real(c, 0, "recorded_comm_ms") - communication) < slack_ms);
    assert_true(fabs(csv_real(c, 0, "recorded_exposed_ms") - exposed) < slack_ms);
    assert_true(fabs(csv_real(c, 0, "overlapped_pct") - (100 - share)) < slack_pct);
    const double peak = csv_real(c, 0, "peak_bytes");
    trace_summary trace;
    char why[256] = "";
    OWNED char *text = folder_text(*state, "results/test-x1/timeline/overlap.json");
    if (!trace_check(text, &trace, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(trace.ranks, RANKS);
    assert_true(trace.first_us == 0 && trace.ranges > 0);
    for (int rank = 0; rank < RANKS; rank++) {
        OWNED char *memory = xasprintf("%s/results/test-x1/memory/overlap_rank%d.csv", (const char *)*state, rank);
        OWNED_CSV csv *held = csv_read(memory);
        double most = 0;
        for (size_t i = 0; held && i < held->rows; i++)
            most = fmax(most, csv_real(held, i, "live_bytes"));
        assert_true(most > 0.9 * peak && most <= peak); /* beside what lies between the tensors */
    }
}

/* ---- the model of buckets ---- */

static double off_pct(double got, double want)
{
    return 100 * fabs(got - want) / want;
}

/* The all-reduces that the row says were measured. */
typedef struct points {
    int n;
    double bytes[16], ms[16];
} points;

static int numbers_of(const char *text, double *numbers, int most)
{
    int n = 0;
    for (char *end; n < most; text = end, n++) {
        numbers[n] = strtod(text, &end);
        if (end == text)
            break;
    }
    return n;
}

static points points_of(const csv *c, size_t row)
{
    points p;
    p.n = numbers_of(T("fit_bytes"), p.bytes, 16);
    assert_true(p.n >= 3);
    assert_int_equal(numbers_of(T("fit_ms"), p.ms, 16), p.n);
    return p;
}

/* Least squares of (o + b / w) / t = 1: o in ms and ms a byte, by Cramer's rule. */
typedef struct line {
    double o, slope;
} line;

static line line_of(const points *p)
{
    double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
    for (int i = 0; i < p->n; i++) {
        const double x = 1 / p->ms[i], y = p->bytes[i] / p->ms[i];
        uu += x * x, uv += x * y, vv += y * y, u += x, v += y;
    }
    const double d = uu * vv - uv * uv;
    return (line){(u * vv - v * uv) / d, (uu * v - uv * u) / d};
}

static double fitted_o(const csv *c, size_t row)
{
    const points p = points_of(c, row);
    return line_of(&p).o * 1e3;
}

static double fitted_w(const csv *c, size_t row)
{
    const points p = points_of(c, row);
    return 1e-6 / line_of(&p).slope;
}

static double fit_residual(const csv *c, size_t row)
{
    const points p = points_of(c, row);
    const line l = line_of(&p);
    double most = 0;
    for (int i = 0; i < p.n; i++)
        most = fmax(most, off_pct(l.o + l.slope * p.bytes[i], p.ms[i]));
    return most;
}

/* Straight between points of log bytes and log ms; flat before the first, through the origin behind the last. */
static double ms_at(const points *p, double bytes)
{
    if (bytes <= p->bytes[0])
        return p->ms[0];
    for (int i = 1; i < p->n; i++)
        if (bytes <= p->bytes[i]) {
            const double part = (log(bytes) - log(p->bytes[i - 1])) / (log(p->bytes[i]) - log(p->bytes[i - 1]));
            return exp((1 - part) * log(p->ms[i - 1]) + part * log(p->ms[i]));
        }
    return p->ms[p->n - 1] / p->bytes[p->n - 1] * bytes;
}

/* Its time alone by those points, of all buckets and of the last: tensors in the order of the backward, of this model of
 * one layer, each in the open bucket if it fits; the end is padded. */
typedef struct chain {
    double alone, last;
    int buckets;
} chain;

static void send(chain *to, const points *p, double bytes)
{
    to->last = ms_at(p, bytes);
    to->alone += to->last;
    to->buckets++;
}

static chain chain_of(const csv *c, size_t row)
{
    const points p = points_of(c, row);
    const double d = N("d_model"), f = N("d_ff"), table = N("vocab") * d;
    const double padding = elements(c, row) - params(c, row), element = grad_bytes(c, row);
    const double tensors[] = {table, d,     f * d,          f * d,          f * d, d,
                              d * d, d * d, kv(c, row) * d, kv(c, row) * d, d,     table + padding};
    const double most = N("bucket_mb") * 0x1p20;
    double open = 0;
    chain to = {0};
    assert_true(N("layers") == 1);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (open > 0 && open + tensors[i] * element > most) {
            send(&to, &p, open);
            open = 0;
        }
        open += tensors[i] * element;
    }
    send(&to, &p, open);
    assert_int_equal(to.buckets, (int)N("buckets"));
    return to;
}

static double predicted_alone(const csv *c, size_t row)
{
    return chain_of(c, row).alone;
}

/* What nothing hides of the last, and the compute beside which the others run. */
static double shown_last(const csv *c, size_t row)
{
    const double n = N("buckets"), last = chain_of(c, row).last;
    return IS("update", "buckets") ? fmax(0, last - N("opt_alone_ms") * (n - 1) / n) : last;
}

FORMULA(beside, N("compute_ms") - N("fwd_ms") - (IS("update", "after") ? N("opt_alone_ms") : 0))

/* By the contention of the row before, which is the first of its sweep. */
static double predicted_exposed(const csv *c, size_t row)
{
    if (row % 2 == 0)
        return NAN;
    const size_t first = row - 1;
    const double before = predicted_alone(c, first), tail = csv_real(c, first, "tail_ms"),
                 cost = csv_real(c, first, "exposed_ms"), alone = predicted_alone(c, row), last = shown_last(c, row);
    const double hidden = last + (cost - tail) / (before - tail) * (alone - last);
    if (before <= tail)
        return NAN;
    if (tail > before / 20 && tail > 2 * shown_last(c, first))
        return fmax(hidden, (cost + beside(c, first)) * alone / before - beside(c, row));
    return alone <= before ? hidden : NAN;
}

FORMULA(gradients, elements(c, row) * grad_bytes(c, row))
FORMULA(n_o_ms, N("buckets") * N("o_us") * 1e-3)
FORMULA(predicted, n_o_ms(c, row) + gradients(c, row) / N("buckets") / N("w_gb_s") * 1e-6)
FORMULA(best_mb, N("o_us") > 0 ? sqrt(gradients(c, row) * N("o_us") * 1e-6 * N("w_gb_s") * 1e9) / 0x1p20 : NAN)
FORMULA(kappa, N("contention_ms") / N("comm_alone_ms"))

/* The first row of a sweep of bucket sizes, here of two. */
static double predicted_contention(const csv *c, size_t row)
{
    const double first = row % 2 == 0 ? NAN : csv_real(c, row - 1, "kappa");
    return N("o_us") * 1e-3 + gradients(c, row) / N("buckets") / N("w_gb_s") * 1e-6 +
           first * (n_o_ms(c, row) + gradients(c, row) / N("w_gb_s") * 1e-6);
}

FORMULA(err_exposed, 100 * (N("predicted_exposed_ms") / N("exposed_ms") - 1))

static const column_rule bucketed_rules[] = {DDP_RULES,
                                             {"o_us", DERIVED, fitted_o, 1e-3},
                                             {"w_gb_s", DERIVED, fitted_w, 1e-5},
                                             {"fit_residual_pct", DERIVED, fit_residual, 1e-4},
                                             {"predicted_ms", DERIVED, predicted, 1e-8},
                                             {"predicted_best_mb", SOMETIMES, best_mb, 0},
                                             {"kappa", DERIVED, kappa, 1e-6},
                                             {"predicted_contention_ms", DERIVED, predicted_contention, 1e-6},
                                             {"predicted_alone_ms", DERIVED, predicted_alone, 1e-6},
                                             {"predicted_exposed_ms", SOMETIMES, predicted_exposed, 1e-4},
                                             {"err_exposed_pct", SOMETIMES, err_exposed, 1e-3},
                                             {0}};

TEST_IN_FOLDER(bucketed)
{
    strategy(*state, "bench_ddp_bucketed", bucketed_rules, "--bucket-mb 0.02,1");
}

/* ---- what a rank holds ---- */

FORMULA(state_share, IS("variant", "unsharded") ? 1 : N("ranks"))
FORMULA(predicted_init, elements(c, row) * param_bytes(c, row))
FORMULA(predicted_before, predicted_init(c, row) + elements(c, row) * grad_bytes(c, row))
FORMULA(predicted_after, predicted_before(c, row) + elements(c, row) * state_element(c, row) / state_share(c, row))
FORMULA(held_init, N("param_bytes"))
FORMULA(held_before, N("param_bytes") + N("grad_bytes"))
FORMULA(held_after, held_before(c, row) + N("state_bytes"))

FORMULA(err_pct, fmax(off_pct(held_init(c, row), predicted_init(c, row)),
                      fmax(off_pct(held_before(c, row), predicted_before(c, row)),
                           off_pct(held_after(c, row), predicted_after(c, row)))))

/* All is taken before the first step, so at each point the plan is all of it. The row has the worst rank; others hold a
 * little less, hence the slack. */
FORMULA(err_measured, fmax(off_pct(N("measured_after_init_bytes"), N("peak_bytes")),
                           fmax(off_pct(N("measured_before_step_bytes"), N("peak_bytes")),
                                off_pct(N("measured_after_step_bytes"), N("peak_bytes")))))

static const column_rule zero1_rules[] = {
    DDP_RULES,
    {"param_bytes", MEASURED, predicted_init, 0},
    {"grad_bytes", MEASURED, gradients, 0},
    {"after_init_bytes", DERIVED, held_init, 0},
    {"before_step_bytes", DERIVED, held_before, 0},
    {"after_step_bytes", DERIVED, held_after, 0},
    {"predicted_init_bytes", DERIVED, predicted_init, 0},
    {"predicted_before_bytes", DERIVED, predicted_before, 0},
    {"predicted_after_bytes", DERIVED, predicted_after, 0},
    {"err_pct", DERIVED, err_pct, 1e-6},
    {"err_measured_pct", DERIVED, err_measured, 0.02},
    {"state_bytes comm_bytes measured_after_init_bytes measured_before_step_bytes "
     "measured_after_step_bytes",
     MEASURED, NULL, 0},
    {0}};

TEST_IN_FOLDER(zero1)
{
    strategy(*state, "bench_zero1", zero1_rules, "--bucket-mb 0.02 --variant all");
}

/* ---- slices of everything ---- */

/* The index space of this bench is padded unit by unit: its size is read off the parameters that a rank holds. */
FORMULA(is_ddp, IS("variant", "ddp"))
FORMULA(has_units, !IS("variant", "ddp") && !IS("variant", "zero1"))
FORMULA(params_in, IS("variant", "fsdp") || IS("variant", "fsdp-keep") ? N("ranks") : 1)
FORMULA(grads_in, has_units(c, row) == 1 ? N("ranks") : 1)
FORMULA(space, N("param_bytes") * params_in(c, row) / param_bytes(c, row))
FORMULA(space_before, N("param_bytes") + space(c, row) * grad_bytes(c, row) / grads_in(c, row))
FORMULA(space_after,
        space_before(c, row) + space(c, row) * state_element(c, row) / (is_ddp(c, row) == 1 ? 1 : N("ranks")))
FORMULA(held_off, fmax(off_pct(held_init(c, row), N("predicted_init_bytes")),
                       fmax(off_pct(held_before(c, row), N("predicted_before_bytes")),
                            off_pct(held_after(c, row), N("predicted_after_bytes")))))
FORMULA(share, (N("ranks") - 1) / N("ranks"))
/* Gradients once, or in slices with each micro-batch, and parameters as often as they are gathered. */
FORMULA(grads_wire, space(c, row) * grad_bytes(c, row) * (has_units(c, row) == 1 ? micro(c, row) : 1))
FORMULA(units_wire,
        share(c, row) * (is_ddp(c, row) == 1     ? 2 * grads_wire(c, row)
                         : params_in(c, row) > 1 ? grads_wire(c, row) + N("gathered_bytes")
                                                 : grads_wire(c, row) + space(c, row) * param_bytes(c, row)))

static const column_rule fsdp_rules[] = {
    DDP_RULES_OF(units_wire),
    {"after_init_bytes", DERIVED, held_init, 0},
    {"before_step_bytes", DERIVED, held_before, 0},
    {"after_step_bytes", DERIVED, held_after, 0},
    {"predicted_init_bytes", DERIVED, held_init, 0},
    {"predicted_before_bytes", DERIVED, space_before, 0},
    {"predicted_after_bytes", DERIVED, space_after, 0},
    {"err_pct", DERIVED, held_off, 1e-6},
    {"err_measured_pct", DERIVED, err_measured, 0.02},
    {"param_bytes grad_bytes state_bytes comm_bytes measured_after_init_bytes "
     "measured_before_step_bytes measured_after_step_bytes gathered_bytes gathered_peak_bytes "
     "gather_wait_ms reduced_wait_ms forward_peak_bytes backward_peak_bytes update_peak_bytes",
     MEASURED, NULL, 0},
    {0}};

TEST_IN_FOLDER(fsdp)
{
    strategy(*state, "bench_fsdp", fsdp_rules,
             "--bucket-mb 0.02 --micro-batches 1,3 --variant ddp,zero1,zero2,fsdp,fsdp-keep");
}

/* ---- bench_qualify ---- */

/* What is measured against what it should be is judged by common/qualify, which has a test of its own. */
FORMULA(behind, strstr(T("metric"), "_ms") || strstr(T("metric"), "_us") ? 100 * (N("value") / N("reference") - 1)
                                                                         : 100 * (1 - N("value") / N("reference")))

static const column_rule qualify_rules[] = {
    {"behind_pct", DERIVED, behind, 1e-6},
    {"value reference bound again rank_sm_mhz used_pct used_bytes ecc_uncorrected links_up "
     "nvlink_errors pcie_replays",
     MEASURED, NULL, 0},
    {0}};

/* Four ranks, so that each is compared with the others; one may well be slow here. */
TEST_IN_FOLDER(qualify)
{
    needs_gloo();
    columns_have_rules(*state, "bench_qualify", qualify_rules);
    columns_hold(bench_rows(*state, "bench_qualify", "",
                            "--ranks 4 --dtype fp32 --variant gemm,copy,flash,step --gemm-size 64 --bytes 64K --seq 32 "
                            "--sustain 0.1 --iters 3",
                            BENCH_ANY_CODE),
                 "bench_qualify", qualify_rules);
    columns_were_seen("bench_qualify", qualify_rules);
}

#ifdef __SANITIZE_ADDRESS__
TESTS_NEED(false) /* of numbers alone: the plain build is enough */
#endif
