/* SPDX-License-Identifier: MIT */
/* plots/draw.sh holds no list: it draws what benches name, from the rows that a figure's .sql asks for. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/stat.h>
#include <sys/wait.h>

static const char columns[] = "schema,bench,variant,status,reason,batch,heads,causal,dtype,head_dim,seq,fwd_ms,bwd_ms,"
                              "fwd_tflops,bwd_tflops,ceiling_tflops,peak_bytes,machine,gpu,device,utc\n";

/* A folder with a project's plots/, a script in place of a bench that names these figures, and results of bench_flash in
 * two dtypes, of which only bf16 has three lengths. */
static void make_project(const char *folder, const char *figures)
{
    OWNED char *command =
        xasprintf("mkdir -p '%s/bin' '%s/plots' '%s/results/box' && cp -r plots/draw.sh plots/style.gp "
                  "plots/shared plots/figures '%s/plots/'",
                  folder, folder, folder, folder);
    assert_int_equal(system(command), 0);
    OWNED char *bench = folder_path(folder, "bin/bench_flash"),
               *csv = folder_path(folder, "results/box/bench_flash.csv");
    OWNED char *script =
        xasprintf("#!/bin/sh\n[ \"$1\" = --list-runs ] && printf 'name\\tbench_flash\\norder\\t30\\n%s'\n", figures);
    file_write(bench, script);
    assert_int_equal(chmod(bench, 0777), 0);
    char *rows = xstrdup(columns);
    static const char *const cases[] = {"bf16,64,128,1", "bf16,64,256,1.5", "bf16,64,1024,2", "fp32,64,128,4",
                                        "fp32,64,256,8"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *more =
            xasprintf("%s3,bench_flash,flash,ok,,1,1,1,%s,2,100,90,800,1048576,box,GPU,cuda,2026-11-21T10:00:0%zuZ"
                      "\n3,bench_flash,unfused,ok,,1,1,1,%s,4,50,45,800,2097152,box,GPU,cuda,2026-11-21T10:00:0%"
                      "zuZ\n",
                      rows, cases[i], i, cases[i], i);
        free(rows);
        rows = more;
    }
    file_write(csv, rows);
    free(rows);
}

/* Runs the folder's draw.sh; the report program lies beside the folder of the tests. Gives what it says; caller frees. */
static char *draw(const char *folder, int *status)
{
    OWNED char *self = build_folder();
    OWNED char *said = folder_path(folder, "said");
    OWNED char *command =
        xasprintf("BENCHES='%s/bin' REPORT='%s/report' sh '%s/plots/draw.sh' '%s/results/box' >'%s' 2>&1", folder, self,
                  folder, folder, said);
    const int result = system(command);
    *status = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    return file_text(said);
}

static void expect_draw(const char *folder, int wanted_status, const char *wanted)
{
    int status;
    OWNED char *text = draw(folder, &status);
    if (!strstr(text, wanted) || status != wanted_status)
        fail_msg("draw.sh ended with %d and said: %s", status, text);
}

static bool drawn(const char *folder, const char *name)
{
    OWNED char *path = xasprintf("%s/plots/box/%s.svg", folder, name);
    return access(path, F_OK) == 0;
}

/* Scripts of figures compute with awk, to which 2.5 is 2 where numbers have commas. */
TEST_IN_FOLDER(numbers_have_points_everywhere)
{
    make_project(*state, "figure\\tflash_latency\\n");
    folder_write(*state, "plots/figures/flash_latency.sh", "[ \"$LC_ALL\" = C ]\n");
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    expect_draw(*state, EXIT_CODE_OK, " figures in ");
    unsetenv("LC_ALL");
}

TEST_IN_FOLDER(benches_name_their_figures)
{
    make_project(*state, "figure\\tflash_latency\\nfigure\\tflash_latency\\nfigure\\tflash_tflops\\n");
    expect_draw(*state, EXIT_CODE_OK, " figures in ");
    assert_true(drawn(*state, "flash_latency_bf16"));
    assert_true(drawn(*state, "flash_tflops_bf16"));
    assert_false(drawn(*state, "flash_latency_fp32")); /* fewer than three lengths make no curve */
    assert_false(drawn(*state, "flash_memory_bf16"));  /* which no bench names */
}

TEST_IN_FOLDER(a_figure_without_rows_goes)
{
    make_project(*state, "figure\\tflash_latency\\n");
    OWNED char *old = folder_path(*state, "plots/box/flash_latency_fp32.svg"),
               *other = folder_path(*state, "plots/box/mine.svg");
    expect_draw(*state, EXIT_CODE_OK, " figures in ");
    file_write(old, "of earlier rows");
    file_write(other, "somebody's");
    expect_draw(*state, EXIT_CODE_OK, " figures in ");
    assert_true(drawn(*state, "flash_latency_bf16"));
    assert_false(drawn(*state, "flash_latency_fp32"));
    assert_true(drawn(*state, "mine")); /* which is no figure of a bench */
}

TEST_IN_FOLDER(what_cannot_be_drawn_is_said)
{
    make_project(*state, "figure\\tnone_such\\n");
    expect_draw(*state, EXIT_CODE_FAILURE, "there is no ");
    OWNED char *bench = folder_path(*state, "bin/bench_flash");
    assert_int_equal(unlink(bench), 0);
    expect_draw(*state, EXIT_CODE_FAILURE, "build the benches with make");
}

TEST_IN_FOLDER(a_missing_folder_is_a_usage_error)
{
    OWNED char *out = folder_path(*state, "missing.txt");
    OWNED char *command = xasprintf("sh plots/draw.sh '%s/none' >'%s' 2>&1", (char *)*state, out);
    const int status = system(command);
    OWNED char *said = file_text(out);
    assert_int_equal(WEXITSTATUS(status), EXIT_CODE_USAGE);
    assert_non_null(strstr(said, "/none is not a folder"));
}

/* A figure's text; caller frees. */
static char *figure(const char *folder, const char *name)
{
    char *path = xasprintf("%s/plots/box/%s.svg", folder, name), *text = file_text(path);
    free(path);
    return text;
}

static void put(const char *folder, const char *name, const char *text)
{
    OWNED char *path = xasprintf("%s/results/box/%s", folder, name);
    file_write(path, text);
}

/* Where the peak is not known, the title says of what the share is, and a precision without any has no panel. */
TEST_IN_FOLDER(a_cpu_has_a_share_of_its_ceiling)
{
#define STEP(seq, precision, share)                                                                                    \
    "3,bench_transformer,kernels,ok,,tiny,2," seq "," precision ",5,1,nan," share ",box,CPU,cpu,2026-11-21T10:00:"     \
    "00Z\n"
    make_project(*state, "figure\\ttransformer_mfu\\n");
    put(*state, "machine.csv", "run_id,key,value\nr,cpu,CPU\n");
    put(*state, "bench_transformer.csv",
        "schema,bench,variant,status,reason,size,batch,seq,precision,warmup,step_ms,mfu_causal_pct,ceiling_pct,machine,"
        "gpu,device,utc\n" STEP("32", "fp32", "40") STEP("64", "fp32", "50") STEP("128", "fp32", "50")
            STEP("32", "bf16", "nan") STEP("64", "bf16", "nan") STEP("128", "bf16", "nan"));
    expect_draw(*state, EXIT_CODE_OK, "1 figures in ");
    OWNED char *text = figure(*state, "transformer_mfu");
    assert_non_null(strstr(text, "Share of the measured GEMM ceiling in a step"));
    assert_non_null(strstr(text, ">fp32<"));
    assert_null(strstr(text, ">bf16<"));
}

/* Ratios are those of rows of one run; without one there is no figure. */
TEST_IN_FOLDER(ratios_over_runs_are_not_drawn)
{
#define TIMED(seq, precision, ms, campaign)                                                                            \
    "3,bench_transformer,graph,ok,,tiny,2," seq "," precision ",5," ms "," campaign                                    \
    ",box,GPU,cuda,2026-11-21T10:00:00Z\n"
#define TIMED_HEADER                                                                                                   \
    "schema,bench,variant,status,reason,size,batch,seq,precision,warmup,step_ms,campaign,machine,gpu,device,utc\n"
    make_project(*state, "figure\\ttransformer_speedup\\n");
    put(*state, "bench_transformer.csv",
        TIMED_HEADER TIMED("16", "fp32", "2", "a") TIMED("32", "fp32", "4", "a") TIMED("64", "fp32", "8", "a")
            TIMED("32", "bf16", "1", "a") TIMED("64", "bf16", "2", "b"));
    expect_draw(*state, EXIT_CODE_OK, "1 figures in ");
    put(*state, "bench_transformer.csv",
        TIMED_HEADER TIMED("16", "fp32", "2", "a") TIMED("32", "fp32", "4", "a") TIMED("64", "fp32", "8", "a")
            TIMED("32", "bf16", "1", "b") TIMED("64", "bf16", "2", "b"));
    expect_draw(*state, EXIT_CODE_OK, "0 figures in ");
}

/* 1 MB beside 1 MiB would be one point twice. */
TEST_IN_FOLDER(sizes_that_nearly_agree_are_one_point)
{
#define CALL(bytes)                                                                                                    \
    "3,bench_allreduce,all-reduce,ok,,2," bytes ",fp32,1,eager,0.1,7," bytes ",box,GPU,cuda,2026-11-21T10:00:00Z\n"
    static const char header[] = "schema,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,"
                                 "busbw_gb_s,size,machine,gpu,device,utc\n";
    make_project(*state, "figure\\tallreduce_sizes\\n");
    size_t points[2];
    for (int both = 0; both < 2; both++) {
        OWNED char *rows = xasprintf("%s%s%s", header, both ? CALL("1000000") CALL("100000000") : "",
                                     CALL("1024") CALL("1048576") CALL("104857600"));
        put(*state, "bench_allreduce.csv", rows);
        expect_draw(*state, EXIT_CODE_OK, "figures in ");
        OWNED char *text = figure(*state, "allreduce_ranks_fp32");
        points[both] = 0;
        for (const char *at = text; (at = strstr(at, "<use")); at++)
            points[both]++;
    }
    assert_true(points[0] > 0);
    assert_int_equal(points[0], points[1]);
}

/* Two steps of zero1 are recorded: the one from the first gather of the first to that of the second is drawn. */
TEST_IN_FOLDER(zero1_is_drawn_as_one_step)
{
#define SPAN(lane, name, times) "\"zero1: tiny, 2 ranks\",0," lane ",1," name "," times "\n"
    make_project(*state, "figure\\tddp_timeline\\n");
    OWNED char *folder = folder_path(*state, "results/box/timeline");
    assert_int_equal(mkdir(folder, 0777), 0);
    put(*state, "timeline/zero1.csv",
        "label,rank,lane,stream,name,start_us,end_us\n# rank 0 of zero1: tiny, 2 ranks: 9.000 ms; compute 5.000 ms; "
        "communication 6.000 ms, of it exposed 2.000 ms; idle 1.000 ms\n" SPAN("compute", "gemm", "0,1000")
            SPAN("communication", "reduce_scatter", "500,900") SPAN("communication", "all_gather", "2000,2500")
                SPAN("communication", "all_gather", "2600,2800") SPAN("compute", "gemm", "2100,4000")
                    SPAN("compute", "matmul", "4001,4003") SPAN("communication", "reduce_scatter", "3000,4000")
                        SPAN("compute", "adamw", "5000,6000") SPAN("communication", "all_gather", "7000,9000"));
    expect_draw(*state, EXIT_CODE_OK, "1 figures in ");
    OWNED char *text = figure(*state, "ddp_timeline");
    assert_non_null(strstr(text, ">5.0 ms, the second of two<"));
    size_t spans = 0;
    for (const char *at = text; (at = strstr(at, "<polygon")); at++)
        spans++;
    assert_int_equal(spans, 5); /* two products less than half a pixel apart are one */
}

/* The shell, sed and gnuplot each have a language in which a cell of somebody's file could be a command. */
TEST_IN_FOLDER(no_cell_is_code)
{
    static const char *const cells[] = {"x';system(\">%s\");y='", "x/;1e>%s;s/q", "`>%s`", "$(>%s)",
                                        "\"\"\";>%s;\"\"\"",      "x/w%s"};
    OWNED char *canary = folder_path(*state, "canary");
    make_project(*state, "figure\\tflash_latency\\nfigure\\tflash_tflops\\nfigure\\tmemory_peak\\n");
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char *cell = xasprintf(cells[i], canary), *rows = xstrdup(columns);
        for (int seq = 64; seq <= 256; seq *= 2) {
            char *more = xasprintf("%s3,bench_flash,flash,ok,,1,1,1,\"%s\",64,%d,1,2,100,90,800,1048576,%s,%s,cuda,"
                                   "2026-11-21T10:00:00Z\n",
                                   rows, cell, seq, i % 2 ? cell : "box", i % 2 ? "GPU" : cell);
            free(rows);
            rows = more;
        }
        put(*state, "bench_flash.csv", rows);
        int status;
        free(draw(*state, &status));
        if (access(canary, F_OK) == 0)
            fail_msg("the cell %s was run", cell);
        free(rows);
        free(cell);
    }
}

/* A folder's name may have whatever a file system takes. */
TEST_IN_FOLDER(a_quote_in_a_path_is_no_matter)
{
    OWNED char *folder = folder_path(*state, "it's \"a\" $(folder)"), *old = getenv("TMPDIR");
    old = old ? xstrdup(old) : NULL;
    make_project(*state, "figure\\tflash_latency\\n");
    assert_int_equal(mkdir(folder, 0777), 0);
    setenv("TMPDIR", folder, 1);
    expect_draw(*state, EXIT_CODE_OK, "1 figures in ");
    if (old)
        setenv("TMPDIR", old, 1);
    else
        unsetenv("TMPDIR");
}

TESTS_NEED(system("command -v gnuplot >/dev/null 2>&1") == 0)
