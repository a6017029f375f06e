/* SPDX-License-Identifier: MIT */
/* stepcmp: verdicts on planted differences and on equal runs, what is not compared, and the program from outside. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/stat.h>

#include "common/compare/compare.h"

OWNER(comparison, comparison_free)
#define OWNED_COMPARISON OWNED_BY(comparison)

#define HEADER                                                                                                         \
    "schema,method,bench,variant,status,reason,seq,dtype,fwd_ms,fwd_p10_ms,fwd_p90_ms,n_fwd,peak_bytes,run_id,"        \
    "machine,gpu,device,sm_mhz,throttle,commit,dirty,utc\n"

/* ---- the verdict ---- */

static double normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) * 0x1p-53;
    }
    return sum;
}

/* What a side looks like after `runs` runs of a true time, with noise from run to run and within a run. */
static timed measured(double truth, double noise, double error, size_t runs, uint64_t *state)
{
    enum { MOST = 3 };
    double t[MOST], mean = 0, squares = 0;
    for (size_t i = 0; i < runs; i++) {
        t[i] = truth * (1 + noise * normal(state) + error * normal(state));
        mean += t[i] / (double)runs;
    }
    for (size_t i = 0; i < runs; i++)
        squares += (t[i] - mean) * (t[i] - mean);
    const double low = runs == MOST ? fmin(t[0], fmin(t[1], t[2])) : t[0];
    const double high = runs == MOST ? fmax(t[0], fmax(t[1], t[2])) : t[0];
    return (timed){.runs = runs,
                   .median = runs == MOST ? 3 * mean - low - high : t[0],
                   .standard_error = error,
                   .runs_deviation = runs == MOST ? sqrt(squares / 2) / mean : NAN,
                   .sm_mhz = 1980};
}

static void count(size_t counts[4], double ratio, size_t runs, double noise)
{
    enum { PAIRS = 4000 };
    uint64_t state = 7;
    for (int i = 0; i < PAIRS; i++) {
        const timed a = measured(2, noise, 0.003, runs, &state), b = measured(2 * ratio, noise, 0.003, runs, &state);
        counts[judge_times(&a, &b, 0.01, log1p(0.03)).verdict]++;
    }
}

TEST(equal_runs_get_no_false_verdict)
{
    for (size_t runs = 1; runs <= 3; runs += 2) {
        size_t n[4] = {0};
        count(n, 1, runs, 0.01);
        assert_true(n[VERDICT_FASTER] + n[VERDICT_SLOWER] <= 20); /* 0.5 % */
    }
}

TEST(five_percent_is_found_in_three_runs)
{
    size_t n[4] = {0}, mirrored[4] = {0}, noisier[4] = {0};
    count(n, 1.05, 3, 0.007);
    assert_true(n[VERDICT_SLOWER] >= 3800); /* 95 % */
    assert_int_equal(n[VERDICT_FASTER] + n[VERDICT_SAME], 0);
    count(mirrored, 1 / 1.05, 3, 0.007);
    assert_true(mirrored[VERDICT_FASTER] >= 3800);
    count(noisier, 1.06, 3, 0.01); /* as noisy as is assumed: 6 % */
    assert_true(noisier[VERDICT_SLOWER] >= 3800);
}

TEST(sides_swapped_mirror_the_verdict)
{
    const timed a = {1, 1, 0.002, NAN, 1980, false}, b = {1, 1.2, 0.004, NAN, 1980, false};
    const judgement there = judge_times(&a, &b, 0.01, 0.03), back = judge_times(&b, &a, 0.01, 0.03);
    assert_int_equal(there.verdict, VERDICT_SLOWER);
    assert_int_equal(back.verdict, VERDICT_FASTER);
    assert_true(fabs(there.lo + back.hi) < 1e-12 && fabs(there.ratio + back.ratio) < 1e-12);
    const double s = sqrt(0.002 * 0.002 + 0.004 * 0.004 + 2 * 0.01 * 0.01); /* by hand */
    assert_true(fabs(there.hi - (log(1.2) + 1.96 * s)) < 1e-12);
}

TEST(doubt_has_a_reason)
{
    const timed quiet = {1, 1, 0.001, NAN, 1980, false};
    timed b = {1, 1.5, NAN, NAN, 1980, false};
    judgement j = judge_times(&quiet, &b, 0.01, 0.03);
    assert_int_equal(j.verdict, VERDICT_UNCLEAR);
    assert_int_equal(j.runs_needed, 3);
    b = (timed){1, 1.5, 0.001, NAN, 1980, true};
    assert_non_null(strstr(judge_times(&quiet, &b, 0.01, 0.03).reason, "held back only in B"));
    b = (timed){1, 1.1, 0.001, NAN, 1800, false}; /* 10 % longer at 10 % fewer cycles per second */
    assert_non_null(strstr(judge_times(&quiet, &b, 0.01, 0.03).reason, "clocks"));
    b.sm_mhz = 1980;
    assert_int_equal(judge_times(&quiet, &b, 0.01, 0.03).verdict, VERDICT_SLOWER);
    b.median = 1.04;
    j = judge_times(&quiet, &b, 0.01, 0.03);
    assert_int_equal(j.verdict, VERDICT_UNCLEAR);
    assert_true(j.runs_needed > 1);
    assert_int_equal(judge_times(&quiet, &(timed){1, NAN, 0.1, NAN, 1, false}, 0.01, 0.03).verdict, VERDICT_UNCLEAR);
}

TEST(error_of_a_median)
{
    assert_true(isnan(median_error(1, 0.1, 2.563, 5, NAN))); /* too few */
    assert_true(isnan(median_error(1, NAN, 2.563, 100, NAN)));
    assert_true(fabs(median_error(2, 2.563 * 0.1, 2.563, 100, NAN) - 1.253 * 0.005) < 1e-12);
    assert_true(fabs(median_error(2, 2.563 * 0.1, 2.563, 100, 0.6) - 1.253 * 0.005 * 2) < 1e-12); /* 25 of 100 count */
}

/* ---- files ---- */

typedef struct planted_row {
    const char *method, *status, *gpu, *run;
    int seq;
    double fwd_ms, peak;
} planted_row;

static char *write_rows(const char *folder, const char *name, const planted_row *rows, size_t n)
{
    char *dir = folder_path(folder, name), *path = folder_path(dir, "bench_flash.csv");
    mkdir(dir, 0777);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(HEADER, out);
    for (size_t i = 0; i < n; i++) {
        const planted_row *r = &rows[i];
        const bool ok = strcmp(r->status, "ok") == 0;
        const double ms = ok ? r->fwd_ms : NAN;
        fprintf(out, "3,%s,bench_flash,flash,%s,%s,%d,bf16,%g,%g,%g,20,%.0f,%s,box-x1,%s,cuda,1980,,abc,0,%s\n",
                r->method, r->status, ok ? "" : "wrong result", r->seq, ms, 0.999 * ms, 1.001 * ms, r->peak, r->run,
                r->gpu, "2026-11-21T10:00:00Z");
    }
    fclose(out);
    free(path);
    return dir;
}

#define ROW(seq, ms)                                                                                                   \
    {                                                                                                                  \
        "1", "ok", "NVIDIA H200", "run-a", seq, ms, 1024                                                               \
    }
static const planted_row before[] = {ROW(128, 1),  ROW(256, 1),  ROW(512, 1), ROW(1024, 1),
                                     ROW(2048, 1), ROW(4096, 1), ROW(8192, 1)};
static const planted_row after[] = {
    {"1", "ok", "NVIDIA H200", "run-b", 128, 1.3, 1024},   {"1", "ok", "NVIDIA H200", "run-b", 256, 0.7, 2048},
    {"2", "ok", "NVIDIA H200", "run-b", 512, 1.3, 1024},   {"1", "ok", "NVIDIA H100", "run-b", 1024, 1.3, 1024},
    {"1", "fail", "NVIDIA H200", "run-b", 2048, 1, 1024},  {"1", "ok", "NVIDIA H200", "run-b", 4096, 1.001, 1024},
    {"1", "ok", "NVIDIA H200", "run-b", 16384, 1.3, 1024},
};
enum { BEFORE = sizeof before / sizeof *before, AFTER = sizeof after / sizeof *after };

static const compare_entry *find(const comparison *c, const char *name, compare_kind kind)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->entries[i].kind == kind && strstr(c->entries[i].name, name))
            return &c->entries[i];
    fail_msg("no entry of kind %d for %s", (int)kind, name);
    return NULL;
}

TEST_IN_FOLDER(planted_differences_are_found)
{
    OWNED char *a = write_rows(*state, "a", before, BEFORE), *b = write_rows(*state, "b", after, AFTER);
    const compare_options o = {.margin = log1p(0.03), .noise = 0.005, .across = ""};
    comparison *c = compare_paths(a, b, &o);
    assert_int_equal(find(c, "seq=128 ", COMPARE_TIME)->judged.verdict, VERDICT_SLOWER);
    assert_int_equal(find(c, "seq=256 ", COMPARE_TIME)->judged.verdict, VERDICT_FASTER);
    assert_string_equal(find(c, "seq=256 ", COMPARE_CHANGED)->metric, "peak_bytes");
    assert_non_null(strstr(find(c, "seq=512 ", COMPARE_UNMATCHED)->why, "method: 1 in A, 2 in B"));
    assert_non_null(strstr(find(c, "seq=1024 ", COMPARE_UNMATCHED)->why, "gpu: NVIDIA H200 in A"));
    assert_non_null(strstr(find(c, "seq=2048 ", COMPARE_BROKEN)->why, "wrong result"));
    assert_int_equal(find(c, "seq=4096 ", COMPARE_TIME)->judged.verdict, VERDICT_SAME);
    find(c, "seq=8192 ", COMPARE_GONE);
    find(c, "seq=16384 ", COMPARE_NEW);
    assert_int_equal(c->n, 9);
    assert_int_equal(c->equal, 2);
    assert_int_equal(comparison_failures(c), 2);
    comparison_free(c);
    c = compare_paths(a, b, &(compare_options){.margin = log1p(0.5), .noise = 0.005, .across = "method,gpu"});
    assert_int_equal(find(c, "seq=512 ", COMPARE_TIME)->judged.verdict, VERDICT_SAME); /* 30 % of 50 */
    assert_int_equal(comparison_count(c, COMPARE_UNMATCHED), 0);
    comparison_free(c);
}

/* A file of the time before attention had windows and values of another width: its cases are those without. */
TEST_IN_FOLDER(parameters_that_one_side_lacks)
{
    static const char *const extra[] = {"-1,0", "512,0", "-1,128"};
    OWNED char *a = write_rows(*state, "without", before, 1), *dir = folder_path(*state, "with"),
               *path = folder_path(dir, "bench_flash.csv");
    mkdir(dir, 0777);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("schema,method,bench,variant,status,reason,seq,dtype,window,head_dim_v,fwd_ms,fwd_p10_ms,fwd_p90_ms,n_fwd,"
          "peak_bytes,run_id,machine,gpu,device,sm_mhz,throttle,commit,dirty,utc\n",
          out);
    for (int i = 0; i < 3; i++)
        fprintf(out,
                "3,1,bench_flash,flash,ok,,128,bf16,%s,%g,%g,%g,20,1024,run-b,box-x1,NVIDIA H200,cuda,1980,,abc,0,"
                "2026-11-21T10:00:00Z\n",
                extra[i], 1 + 0.5 * i, 0.999 + 0.5 * i, 1.001 + 0.5 * i);
    fclose(out);
    const compare_options o = {.margin = log1p(0.03), .noise = 0.005, .across = ""};
    OWNED_COMPARISON comparison *c = compare_paths(a, dir, &o);
    assert_int_equal(find(c, "seq=128 ", COMPARE_TIME)->judged.verdict, VERDICT_SAME);
    find(c, "window=512", COMPARE_NEW);
    find(c, "head_dim_v=128", COMPARE_NEW);
    assert_int_equal(c->n, 3);
}

/* The median of two runs of one commit counts; the noise from run to run is at least what is seen. */
TEST_IN_FOLDER(runs_of_one_commit_are_taken_together)
{
    const planted_row runs[] = {{"1", "ok", "NVIDIA H200", "run-1", 128, 1.0, 1024},
                                {"1", "ok", "NVIDIA H200", "run-2", 128, 1.4, 1024},
                                {"1", "ok", "NVIDIA H200", "run-3", 128, 1.2, 1024}};
    OWNED char *a = write_rows(*state, "three", runs, 3), *b = write_rows(*state, "one", runs + 2, 1);
    OWNED_COMPARISON comparison *c =
        compare_paths(a, b, &(compare_options){.margin = 0.03, .noise = 0.001, .across = ""});
    const compare_entry *e = find(c, "seq=128 ", COMPARE_TIME);
    assert_int_equal(e->runs_a, 3);
    assert_int_equal(e->runs_b, 1);
    assert_true(fabs(e->a - 1.2) < 1e-9 && e->judged.hi > 0.3);
}

/* A folder with a file of rows, and lines of machine.csv. Caller frees. */
static char *write_side(const char *folder, const char *name, const char *bench, const char *rows, const char *facts)
{
    char *dir = folder_path(folder, name), *file = xasprintf("%s/%s.csv", dir, bench);
    OWNED char *machine = xasprintf("%s/machine.csv", dir), *text = xasprintf("run_id,key,value\n%s", facts);
    mkdir(dir, 0777);
    file_write(file, rows);
    file_write(machine, text);
    free(file);
    return dir;
}

/* Cold, unverified, or timed otherwise: no run of the same case. Each differs from the newest in one column. */
TEST_IN_FOLDER(runs_under_other_conditions_are_left_out)
{
    static const char header[] = "schema,method,bench,variant,status,reason,seq,fwd_ms,fwd_p10_ms,fwd_p90_ms,n_fwd,"
                                 "timer_fwd,hosts,run_id,machine,gpu,device,check,l2,timer_asked,commit,dirty,utc\n";
    static const char *const others[] = {"graph,1 1,cold,auto", "graph,1 0,warm,auto", "event,1 1,warm,auto",
                                         "graph,2 1,warm,auto", "graph,1 1,warm,graph"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *how[] = {others[i], "graph,1 1,warm,auto"};
        char *row[2];
        for (int k = 0; k < 2; k++) {
            const int own = (int)strcspn(how[k], " ");
            row[k] = xasprintf("3,1,bench_flash,flash,ok,,128,%d,%g,%g,20,%.*s,run-%d,box,G,cuda,%s,abc,0,"
                               "2026-11-21T1%d:00:00Z\n",
                               2 - k, 1.998 - k, 2.002 - k, own, how[k], k, how[k] + own + 1, k);
        }
        OWNED char *both = xasprintf("%s%s%s", header, row[0], row[1]), *one = xasprintf("%s%s", header, row[1]);
        OWNED char *a = write_side(*state, "a", "bench_flash", one, ""),
                   *b = write_side(*state, "b", "bench_flash", both, "");
        OWNED_COMPARISON comparison *c =
            compare_paths(a, b, &(compare_options){.margin = 0.03, .noise = 0.005, .across = ""});
        const compare_entry *e = find(c, "seq=128", COMPARE_TIME);
        if (e->runs_b != 1 || e->judged.verdict != VERDICT_SAME)
            fail_msg("%s: %zu runs, %s", others[i], e->runs_b, compare_word(e));
        free(row[0]);
        free(row[1]);
    }
}

/* A row that is not ok has no timer, backend or hosts: that is no other condition, but a broken case. */
TEST_IN_FOLDER(broken_cases_lack_their_timers)
{
    static const char header[] = "schema,method,bench,variant,status,reason,seq,fwd_ms,timer_fwd,backend,hosts,run_id,"
                                 "machine,gpu,device,l2,commit,dirty,utc\n";
    static const char rest[] = "box,G,cuda,warm,abc,0,2026-11-21T10:00:00Z\n";
    OWNED char *good = xasprintf("%s3,1,bench_flash,flash,ok,,128,1,graph,gloo,1,a,%s", header, rest);
    OWNED char *bad = xasprintf("%s3,1,bench_flash,flash,fail,wrong,128,nan,,,nan,b,%s", header, rest);
    OWNED char *a = write_side(*state, "a", "bench_flash", good, ""),
               *b = write_side(*state, "b", "bench_flash", bad, "");
    const compare_options o = {.margin = 0.03, .noise = 0.005, .across = ""};
    OWNED_COMPARISON comparison *there = compare_paths(a, b, &o), *back = compare_paths(b, a, &o);
    assert_string_equal(find(there, "seq=128", COMPARE_BROKEN)->why, "fail: wrong");
    find(back, "seq=128", COMPARE_MENDED);
}

/* With --overlap auto one side may update parameters during the backward: the steps are compared, their phases are not. */
TEST_IN_FOLDER(phases_of_unlike_overlap_are_left_out)
{
    static const char header[] =
        "schema,method,bench,variant,status,reason,size,overlap,bwd_ms,bwd_std_ms,opt_ms,opt_std_ms,"
        "step_ms,step_std_ms,n_steps,overlap_used,run_id,machine,gpu,device,commit,dirty,utc\n";
    static const char start[] = "3,1,bench_transformer,graph,ok,,xl,auto",
                      rest[] = "box,G,cuda,abc,0,2026-11-21T10:00:00Z\n";
    OWNED char *together = xasprintf("%s%s,58,0.01,0.5,0.001,87,0.01,20,all,a,%s", header, start, rest),
               *alone = xasprintf("%s%s,51,0.01,12.6,0.001,87,0.01,20,none,b,%s", header, start, rest),
               *a = write_side(*state, "a", "bench_transformer", together, ""),
               *b = write_side(*state, "b", "bench_transformer", alone, "");
    const compare_options o = {.margin = 0.03, .noise = 0.005, .across = ""};
    OWNED_COMPARISON comparison *unlike = compare_paths(a, b, &o), *alike = compare_paths(a, a, &o);
    assert_string_equal(find(unlike, "size=xl", COMPARE_UNMATCHED)->why, "overlap_used: all in A, none in B");
    assert_int_equal(comparison_count(unlike, COMPARE_UNMATCHED), 2);
    assert_string_equal(find(unlike, "size=xl", COMPARE_TIME)->metric, "step_ms");
    assert_int_equal(comparison_judged(unlike, VERDICT_SAME), 1);
    assert_int_equal(comparison_judged(alike, VERDICT_SAME), 3);
}

/* Whatever was set for NCCL counts, of rows that used it. */
TEST_IN_FOLDER(environment_of_nccl_is_a_condition)
{
    static const struct {
        const char *backend_a, *backend_b, *a, *b, *across, *why;
    } table[] = {
        {"nccl 2.28.3", "nccl 2.28.3", "NCCL_ALGO,Ring", "NCCL_ALGO,Tree", "", "NCCL_ALGO: Ring in A, Tree in B"},
        {"nccl 2.28.3", "nccl 2.28.3", "cpu,x", "NCCL_PROTO,LL", "", "NCCL_PROTO: none in A, LL in B"},
        {"nccl 2.28.3", "nccl 2.28.3", "NCCL_PROTO,LL", "cpu,x", "", "NCCL_PROTO: LL in A, none in B"},
        {"nccl 2.28.3", "nccl 2.28.3", "nccl_library,2.28.3", "nccl_library,2.27.1", "", "nccl_library: 2.28.3 in A"},
        {"nccl 2.28.3", "nccl 2.28.3", "NCCL_VERSION,2.28.3-1", "cpu,x", "", NULL},
        {"nccl 2.28.3", "nccl 2.28.3", "NCCL_TESTS,/opt/nccl-tests", "cpu,x", "", NULL},
        {"nccl 2.28.3", "nccl 2.28.3", "NCCL_ALGO,Ring", "NCCL_ALGO,Tree", "gpu,nccl", NULL},
        {"nccl 2.28.3", "nccl 2.27.1", "nccl_library,2.28.3", "nccl_library,2.27.1", "nccl", NULL},
        {"nccl 2.28.3", "gloo", "cpu,x", "cpu,x", "nccl", "backend: nccl 2.28.3 in A, gloo in B"},
        {"nccl 2.28.3", "gloo", "NCCL_ALGO,Ring", "NCCL_ALGO,Tree", "backend", NULL},
        {"gloo", "gloo", "NCCL_ALGO,Ring", "NCCL_PROTO,LL", "", NULL},
        {"gloo", "gloo", "driver,580", "driver,570", "nccl", "driver: 580 in A, 570 in B"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *const sides[2][3] = {{"a", table[i].backend_a, table[i].a}, {"b", table[i].backend_b, table[i].b}};
        char *dirs[2];
        for (int k = 0; k < 2; k++) {
            OWNED char *rows =
                xasprintf("schema,method,bench,variant,status,reason,bytes,median_ms,std_ms,n_samples,backend,"
                          "run_id,machine,gpu,device,commit,dirty,utc\n"
                          "3,1,bench_allreduce,flat,ok,,4194304,1,0.001,20,%s,run-%s,box,G,cuda,abc,0,"
                          "2026-11-21T10:00:00Z\n",
                          sides[k][1], sides[k][0]);
            OWNED char *facts =
                xasprintf("run-%s,bench,bench_allreduce\nrun-%s,%s\n", sides[k][0], sides[k][0], sides[k][2]);
            dirs[k] = write_side(*state, sides[k][0], "bench_allreduce", rows, facts);
        }
        const compare_options o = {.margin = 0.03, .noise = 0.005, .across = table[i].across};
        OWNED_COMPARISON comparison *c = compare_paths(dirs[0], dirs[1], &o);
        assert_int_equal(c->n, 1);
        const compare_entry *e = find(c, "4194304", table[i].why ? COMPARE_UNMATCHED : COMPARE_TIME);
        if (table[i].why && !strstr(e->why, table[i].why))
            fail_msg("'%s' is not in '%s'", table[i].why, e->why);
        free(dirs[0]);
        free(dirs[1]);
    }
}

/* ---- the program ---- */

static int run(char **printed, const char *where, const char *arguments)
{
    char text[8192];
    OWNED char *programs = programs_folder(),
               *command = xasprintf("cd '%s' && '%s/stepcmp' %s 2>&1", where, programs, arguments);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    const int status = pclose(out);
    *printed = xstrdup(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(const char *where, int code, const char *wanted, const char *arguments)
{
    char *printed;
    const int got = run(&printed, where, arguments);
    if (got != code || !strstr(printed, wanted))
        fail_msg("stepcmp %s: exit code %d, not %d, or no '%s' in: %s", arguments, got, code, wanted, printed);
    free(printed);
}

/* ---- one row ---- */

#define ONE_ROW(variant, seq, ms, low, high, gpu, run)                                                                 \
    "3,1,bench_flash," variant ",ok,," seq ",bf16," ms "," low "," high ",20,1000," run ",box-x1," gpu                 \
    ",cuda,1980,,abc,0,2026-11-21T10:00:00Z\n"

TEST_IN_FOLDER(a_row_beside_its_baseline)
{
    static const struct {
        const char *row, *said;
    } table[] = {
        {ONE_ROW("flash", "128", "2.5", "2.49", "2.51", "G", "b"), "fwd_ms 1.250 ["},
        {ONE_ROW("flash", "128", "2.5", "2.49", "2.51", "G", "b"), "] SLOWER"},
        {ONE_ROW("flash", "128", "1.5", "1.49", "1.51", "G", "b"), "] FASTER"},
        {ONE_ROW("flash", "128", "2", "1.999", "2.001", "G", "b"), "fwd_ms 1.000 ["},
        {ONE_ROW("flash", "256", "2", "1.99", "2.01", "G", "b"), "has no such case"},
        {ONE_ROW("flash", "128", "2", "1.99", "2.01", "H", "b"), "NOT COMPARED: gpu: G in A, H in B"},
        {ONE_ROW("flash", "128", "2", "1.99", "2.01", "G", "a"), "has no such case"}}; /* the baseline's own run */
    OWNED char *path = folder_path(*state, "bench_flash.csv");
    file_write(path, HEADER ONE_ROW("flash", "128", "2", "1.99", "2.01", "G", "a")
                         ONE_ROW("plain", "128", "9", "8", "10", "G", "a"));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED char *row = xasprintf("%s%s", HEADER, table[i].row),
                   *said = compare_row(path, row, "/nowhere/machine.csv");
        text_has(said, table[i].said);
    }
}

TEST_IN_FOLDER(program_has_its_exit_codes)
{
    free(write_rows(*state, "a", before, BEFORE));
    free(write_rows(*state, "b", after, AFTER));
    expect(*state, 0, "SLOWER", "--noise 0.5 a b");
    expect(*state, 4, "2 cases are broken or slower", "--noise 0.5 --fail-on slower=3% a b");
    expect(*state, 4, "1 case is broken or slower", "--noise 0.5 --fail-on slower=40% a b");
    expect(*state, 0, "7 SAME", "--noise 0.5 --fail-on slower=3% a/bench_flash.csv a/bench_flash.csv --all");
    expect(*state, 2, "wants a percentage", "--fail-on slower=x a b");
    expect(*state, 2, "can't be read", "a nowhere");
    expect(*state, 2, "two paths", "a");
    expect(*state, 2, "--format is", "--format html a b");
    expect(*state, 2, "--across takes words of method,device,", "--across gpu,nonsense a b");
    expect(*state, 2, "not 'timer_fwd'", "--across timer_fwd a b");
    expect(*state, 2, "not ''", "--across '' a b");
    expect(*state, 0, "0 not compared", "--across " COMPARE_CONDITIONS " a b");
    expect(*state, 0, COMPARE_CONDITIONS, "--help");
    /* An example says what tells its case from others of the bench; a verdict, --all and CSV name the whole case. */
    expect(*state, 0, "NEW          bench_flash x 1 (such as flash seq=16384)\n", "--noise 0.5 a b");
    expect(*state, 0, "| GONE | bench_flash | 1 |  | flash seq=8192 |\n", "--noise 0.5 --format markdown a b");
    expect(*state, 0, "NEW          bench_flash flash seq=16384 dtype=bf16\n", "--noise 0.5 --all a b");
    expect(*state, 0, "GONE,bench_flash,flash seq=8192 dtype=bf16,", "--noise 0.5 --format csv a b");
    expect(*state, 0, "| SLOWER | bench_flash | flash seq=128 dtype=bf16 |", "--noise 0.5 --format markdown a b");
    expect(*state, 0, "SLOWER,bench_flash,flash seq=128 dtype=bf16,fwd_ms,1,1.3,30,", "--noise 0.5 --format csv a b");
    free(write_rows(*state, "c", after + AFTER - 1, 1));
    expect(*state, 77, "no case", "--fail-on slower=3% a c");
    OWNED char *old = folder_path(*state, "old.csv");
    file_write(old, "schema,method,bench,variant,status,reason\n2,3,bench_flash,flash,ok,\n");
    expect(*state, 2, "old.csv has rows of schema 2, and this version reads schema 3", "old.csv a/bench_flash.csv");
}

TEST_IN_FOLDER(commits_are_operands)
{
    char *dir = write_rows(*state, "kept", before, BEFORE);
    OWNED char *git =
        xasprintf("cd '%s' && git init -q . && git add kept && git -c user.name=t -c user.email=t@localhost "
                  "commit -q -m one >/dev/null 2>&1",
                  (char *)*state);
    if (system(git) != 0)
        skip();
    free(dir);
    dir = write_rows(*state, "kept", after, AFTER);
    expect(*state, 0, "1 SLOWER", "--noise 0.5 HEAD:kept kept");
    expect(*state, 0, "1 SLOWER", "--noise 0.5 HEAD:kept/bench_flash.csv kept/bench_flash.csv");
    OWNED char *below = folder_path(*state, "kept"); /* PATH is from the root there, too */
    expect(below, 0, "1 SLOWER", "--noise 0.5 HEAD:kept .");
    expect(below, 0, "1 SLOWER", "--noise 0.5 HEAD:kept/bench_flash.csv bench_flash.csv");
    OWNED char *temporary = folder_path(*state, "tmp");
    mkdir(temporary, 0777);
    setenv("TMPDIR", temporary, 1);
    expect(*state, 2, "git has no folder", "HEAD:nothing kept");
    expect(*state, 2, "can't be read", "HEAD:kept nowhere");
    expect(*state, 0, "1 SLOWER", "--noise 0.5 HEAD:kept kept");
    unsetenv("TMPDIR");
    assert_int_equal(rmdir(temporary), 0); /* nothing is left there */
    free(dir);
}
