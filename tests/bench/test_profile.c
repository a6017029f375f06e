/* SPDX-License-Identifier: MIT */
/* --profile from outside, on the CPU: tables agree with one another and with the trace, which is whole; rows are those of
 * a run without it, and were all written before anything was recorded. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "tests/support/bench_run.h"
#include "tests/support/trace.h"

static void run(const char *folder, const char *bench, const char *arguments)
{
    OWNED char *path = bench_path(bench), *program = shell_path(path);
    OWNED char *command = xasprintf("cd '%s' && '%s' --device cpu --machine test-x1 --csv rows.csv %s >out.txt 2>&1",
                                    folder, program, arguments);
    const int state = system(command);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        char *out = folder_path(folder, "out.txt");
        fail_msg("'%s %s' failed: %s", bench, arguments, file_text(out));
    }
}

static csv *table(const char *folder, const char *name)
{
    OWNED char *path = xasprintf("%s/profile/%s.csv", folder, name);
    csv *c = csv_read(path);
    if (!c)
        fail_msg("there is no %s", path);
    assert_int_equal(c->dropped, 0);
    return c;
}

/* The sum of a column over the rows of the same case, measurement and rank as row `like` of another table. */
static double sum_like(const csv *c, const char *column, const csv *other, size_t like)
{
    static const char *const keys[] = {"bench", "case", "measurement", "rank"};
    double sum = 0;
    for (size_t i = 0; i < c->rows; i++) {
        bool same = true;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            same = same && strcmp(csv_cell(c, i, keys[k]), csv_cell(other, like, keys[k])) == 0;
        sum += same ? csv_real(c, i, column) : 0;
    }
    return sum;
}

/* Within what nine digits and a trace's nanoseconds lose. */
static void assert_same(double a, double b, const char *what)
{
    if (!(fabs(a - b) <= 1e-6 * fabs(b) + 2e-3))
        fail_msg("%s: %.9g and %.9g", what, a, b);
}

static void check_trace(const char *folder, const csv *totals, size_t row)
{
    trace_summary s;
    char why[256];
    const int rank = (int)csv_real(totals, row, "rank");
    OWNED char *path = xasprintf("%s/profile/%s", folder, csv_cell(totals, row, "trace")), *text = file_text(path);
    if (!trace_check(text, &s, why, sizeof why))
        fail_msg("%s: %s", path, why);
    assert_int_equal(s.ranks, (int)csv_real(totals, row, "ranks"));
    assert_true(s.spans > 0 && s.counters > 0);
    assert_true(csv_is(totals, row, "device", "cuda") || s.ranges > 0); /* a GPU lags behind the host */
    assert_same(s.span_us[rank] / 1e3, csv_real(totals, row, "kernel_ms"), "the trace and totals");
}

/* Every row of totals: the other tables and the trace say the same. */
static void check_sums(const char *folder)
{
    OWNED_CSV csv *totals = table(folder, "totals"), *kernels = table(folder, "kernels"), *idle = table(folder, "idle"),
                  *overlap = table(folder, "overlap"), *products = table(folder, "products");
    assert_true(totals->rows > 0);
    for (size_t i = 0; i < totals->rows; i++) {
        static const char *const sets[] = {"idle_ms",       "compute_alone_ms", "comm_alone_ms", "compute_comm_ms",
                                           "copy_alone_ms", "compute_copy_ms",  "comm_copy_ms",  "all_ms"};
        const double window = csv_real(totals, i, "window_ms");
        double sum = 0;
        for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
            sum += sum_like(overlap, sets[k], totals, i);
        assert_same(sum, window, "the eight sums and the window");
        assert_same(sum_like(kernels, "total_ms", totals, i), csv_real(totals, i, "kernel_ms"), "kernels and totals");
        assert_same(sum_like(kernels, "share_pct", totals, i), 100, "shares");
        assert_same(sum_like(kernels, "calls", totals, i), csv_real(totals, i, "kernels"), "calls");
        assert_same(sum_like(idle, "total_ms", totals, i), sum_like(overlap, "idle_ms", totals, i), "idle");
        assert_same(window - sum_like(overlap, "idle_ms", totals, i), csv_real(totals, i, "busy_ms"), "busy");
        assert_true(csv_real(totals, i, "attributed_pct") >= 99.5);
        assert_true(csv_real(totals, i, "event_ms") > 0 && csv_real(totals, i, "host_ms") > 0);
        check_trace(folder, totals, i);
    }
    for (size_t i = 0; i < products->rows; i++)
        assert_same(csv_real(products, i, "gemm_pct") + csv_real(products, i, "attention_pct") +
                        csv_real(products, i, "other_pct"),
                    100, "shares of products");
}

static bool has_row(const csv *c, const char *column, const char *value)
{
    for (size_t i = 0; i < c->rows; i++)
        if (csv_is(c, i, column, value))
            return true;
    return false;
}

/* A roofline with a product of as many FLOPs as the first of the forward, at a rate that makes its bound longer than any time. */
static void write_roofline(const char *folder, const csv *kernels)
{
    OWNED char *path = folder_path(folder, "bench_roofline.csv");
    size_t i = 0;
    while (strncmp(csv_cell(kernels, i, "range"), "forward", 7) != 0 || !csv_is(kernels, i, "op", "matmul"))
        assert_true(++i < kernels->rows);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "variant,status,dtype,mnk,tflops\ngemm_best,ok,%s,1x2x%.0f,1e-9\n", csv_cell(kernels, i, "dtype"),
            csv_real(kernels, i, "tflop") / csv_real(kernels, i, "calls") * 1e12 / 4);
    assert_int_equal(fclose(f), 0);
}

/* The report's section has every profile, and its first numbers. */
static void check_report(const char *folder)
{
    OWNED char *path = bench_path("report"), *program = shell_path(path), *rows = folder_path(folder, "rows.csv");
    OWNED char *as_bench = folder_path(folder, "bench_transformer.csv"), *page = folder_path(folder, "report.html"),
               *command = xasprintf("'%s' '%s' >/dev/null", program, folder);
    OWNED_CSV csv *totals = table(folder, "totals"), *kernels = table(folder, "kernels");
    write_roofline(folder, kernels);
    assert_int_equal(rename(rows, as_bench), 0);
    assert_int_equal(system(command), 0);
    char *text = file_text(page), *at = strstr(text, "<summary>Profiles: where the time of a step goes");
    assert_non_null(at);
    size_t sections = 0;
    for (const char *p = at; (p = strstr(p, "By events it takes ")); p++)
        sections++;
    assert_int_equal(sections, totals->rows);
    OWNED char *first = /* The cell of a long range has a class. */
        xasprintf(">%s</td><td>%s</td><td>%s</td><td class=\"n\">%s</td>", csv_cell(kernels, 0, "range"),
                  csv_cell(kernels, 0, "op"), csv_cell(kernels, 0, "name"), csv_cell(kernels, 0, "calls"));
    if (!strstr(at, first))
        fail_msg("the report has no row '%s'", first);
    assert_non_null(strstr(at, "softmax beside the products"));
    assert_non_null(strstr(at, "why nothing ran"));
    char *products = strstr(at, "<td>products, forward</td>"), *end = products ? strstr(products, "</tr>") : NULL;
    assert_non_null(end);
    *end = '\0';
    if (!strstr(products, "-"))
        fail_msg("the bound of products is not that of the product measured alone: %s", products);
    free(text);
}

TEST_IN_FOLDER(a_training_step)
{
    run(*state, "bench_transformer",
        "--size tiny --seq 16 --batch 2 --iters 3 --warmup 1 --precision fp32 --attention unfused,flash --profile");
    check_sums(*state);
    OWNED_CSV csv *kernels = table(*state, "kernels"), *products = table(*state, "products"),
                  *softmax = table(*state, "softmax");
    static const char *const ranges[] = {"forward/block forward/qkv", "forward/block forward/scores",
                                         "backward/block backward/w2", "loss", "forward"};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!has_row(kernels, "range", ranges[i]))
            fail_msg("no kernel in %s", ranges[i]);
    static const char *const ops[] = {"matmul", "norm forward", "norm backward", "rope", "AdamW", "attention backward"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!has_row(kernels, "op", ops[i]))
            fail_msg("no kernel of %s", ops[i]);
    assert_true(has_row(products, "mode", "forward") && has_row(products, "mode", "train-step"));
    assert_true(has_row(softmax, "form", "parts") && has_row(softmax, "form", "one kernel"));
    for (size_t i = 0; i < softmax->rows; i++)
        if (csv_is(softmax, i, "form", "parts")) {
            assert_true(csv_real(softmax, i, "softmax_ms") > 0 && csv_real(softmax, i, "value_ms") > 0);
            assert_true(csv_real(softmax, i, "time_ratio") > 0);
            assert_true(csv_real(softmax, i, "flop_ratio") < csv_real(softmax, i, "byte_ratio"));
        }
    check_report(*state);
}

/* Timing first: no row is written twice, and none after the first recording. */
TEST_IN_FOLDER(rows_come_first)
{
    run(*state, "bench_flash", "--seq 32,64 --head-dim 16 --iters 3 --profile");
    check_sums(*state);
    OWNED char *path = folder_path(*state, "rows.csv"), *out = folder_path(*state, "out.txt"), *text = file_text(out);
    OWNED_CSV csv *rows = csv_read(path);
    const char *first = strstr(text, "profile of"), *last = NULL;
    assert_int_equal(rows->rows, 4);
    for (const char *p = text; (p = strstr(p, " ok ")); p++)
        last = p;
    assert_non_null(first);
    assert_true(last && last < first);
    OWNED_CSV csv *totals = table(*state, "totals");
    assert_int_equal(totals->rows, 3 * rows->rows); /* forward, backward, both */
}

TEST_IN_FOLDER(without_it_there_is_nothing)
{
    run(*state, "bench_flash", "--seq 32 --head-dim 16 --iters 3");
    OWNED char *path = folder_path(*state, "profile");
    assert_int_not_equal(access(path, F_OK), 0);
}

TEST_IN_FOLDER(two_ranks)
{
    needs_gloo();
    run(*state, "bench_ddp_overlap",
        "--ranks 2 --size tiny --seq 16 --batch 2 --iters 2 --warmup 1 --precision fp32 --profile --quiet");
    check_sums(*state);
    OWNED_CSV csv *totals = table(*state, "totals"), *overlap = table(*state, "overlap"),
                  *c = table(*state, "collectives");
    assert_int_equal(totals->rows, 2);
    assert_string_equal(csv_cell(totals, 0, "run_id"), csv_cell(totals, 1, "run_id"));
    for (size_t i = 0; i < overlap->rows; i++) { /* the terms are what the step loses */
        const double sum = csv_real(overlap, i, "term_exposed_ms") + csv_real(overlap, i, "term_compute_ms") +
                           csv_real(overlap, i, "term_copy_ms") + csv_real(overlap, i, "term_idle_ms") +
                           csv_real(overlap, i, "residual_ms");
        assert_same(sum, csv_real(overlap, i, "step_ms") - csv_real(overlap, i, "twin_ms"), "terms");
    }
    assert_true(c->rows > 2 && c->rows % 2 == 0);
    double bytes[2] = {0};
    for (size_t i = 0; i < c->rows; i++) {
        assert_string_equal(csv_cell(c, i, "op"), "all_reduce");
        assert_true(csv_real(c, i, "wait_us") >= 0 && csv_real(c, i, "duration_us") > 0);
        bytes[(int)csv_real(c, i, "rank")] += csv_real(c, i, "bytes");
    }
    assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
}

/* A row of kernels.csv of the trainer's step under this variant that is like row i, but for its times. */
static bool has_like(const csv *c, size_t i, const char *variant)
{
    static const char *const keys[] = {"bench", "measurement", "range", "kernel", "op", "grid", "block", "calls"};
    for (size_t k = 0; k < c->rows; k++) {
        bool like = csv_is(c, k, "variant", variant);
        for (size_t j = 0; like && j < sizeof keys / sizeof *keys; j++)
            like = strcmp(csv_cell(c, i, keys[j]), csv_cell(c, k, keys[j])) == 0;
        if (like)
            return true;
    }
    return false;
}

/* A graph is attributed as the same step launched op by op, forks to other streams included. What AdamW does beside the
 * backward was chosen for each. */
static void check_graph_as_eager(const csv *kernels)
{
    int n = 0;
    for (size_t i = 0; i < kernels->rows; i++) {
        const char *op = csv_cell(kernels, i, "op"), *variant = csv_cell(kernels, i, "variant");
        const bool graph = strcmp(variant, "graph") == 0;
        if (!csv_is(kernels, i, "bench", "bench_transformer") || strcmp(op, "AdamW") == 0 ||
            strcmp(op, "optimizer state") == 0)
            continue;
        if (!has_like(kernels, i, graph ? "kernels" : "graph"))
            fail_msg("%s alone has %s in '%s'", variant, op, csv_cell(kernels, i, "range"));
        n++;
    }
    assert_true(n > 40);
}

/* What H200s recorded (docs/profile.md): kernels eager and in a graph, collectives of two ranks. */
TEST(a_recording_of_gpus)
{
    check_sums("tests/golden");
    OWNED_CSV csv *totals = table("tests/golden", "totals"), *kernels = table("tests/golden", "kernels"),
                  *c = table("tests/golden", "collectives");
    trace_summary s;
    char why[256];
    int arrows = 0, calls = 0;
    for (size_t i = 0; i < totals->rows; i++) {
        OWNED char *path = xasprintf("tests/golden/profile/%s", csv_cell(totals, i, "trace")), *text = file_text(path);
        assert_true(trace_check(text, &s, why, sizeof why));
        arrows += s.arrows, calls += s.calls;
    }
    assert_true(arrows > 0 && calls > 0);
    check_graph_as_eager(kernels);
    assert_true(has_row(kernels, "range", "forward/block forward/qkv") && has_row(kernels, "op", "all_reduce"));
    for (size_t i = 0; i < c->rows; i++)
        assert_true(csv_real(c, i, "transfer_us") > 0);
}
