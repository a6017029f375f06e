/* SPDX-License-Identifier: MIT */
/* The report program from outside: newest rows and selections, report.md, and the README's table. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/csv.h"
#include "common/core/error.h"

#define COLUMNS                                                                                                        \
    "schema,method,bench,variant,status,reason,batch,heads,heads_kv,causal,layout,deterministic,dtype,head_dim,seq,"   \
    "seq_k,fwd_ms,bwd_ms,speedup_fwd,peak_bytes,run_id,machine,gpu,device,sm_mhz,throttle,commit,dirty,utc\n"

static char *line(const char *variant, const char *status, int heads, int seq, double fwd_ms, const char *time)
{
    bool ok = strcmp(status, "ok") == 0;
    return xasprintf("1,1,bench_flash,%s,%s,%s,1,%d,0,1,bhsd,0,bf16,64,%d,0,%g,%g,2,1048576,run-1,box-x1,\"GPU, "
                     "big\",cuda,1980,,abc1234,0,2026-11-21T%sZ\n",
                     variant, status, ok ? "" : "\"needs 9.5 GiB, 8 are free\"", heads, seq, ok ? fwd_ms : NAN,
                     2 * fwd_ms, time);
}

/* <folder>/results/box-x1/bench_flash.csv: a case measured twice, one out of memory, one of another shape. */
static char *results_create(const char *folder)
{
    char *results = folder_path(folder, "results"), *dir = folder_path(results, "box-x1");
    mkdir(results, 0777);
    mkdir(dir, 0777);
    char *rows[] = {
        line("flash", "ok", 1, 1024, 0.5, "10:00:00"),  line("unfused", "ok", 1, 1024, 1.0, "10:00:01"),
        line("unfused", "oom", 1, 128, 9, "10:00:02"),  line("flash", "ok", 1, 128, 0.125, "10:00:03"),
        line("flash", "ok", 16, 4096, 7.5, "10:00:04"), line("flash", "ok", 1, 1024, 0.25, "11:00:00"),
    };
    char *path = folder_path(dir, "bench_flash.csv");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(COLUMNS "# a comment\n", out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fputs(rows[i], out);
        free(rows[i]);
    }
    fputs("1,1,bench_flash,torn", out);
    fclose(out);
    free(path);
    free(results);
    return dir;
}

/* Runs the report program, which lies beside the folder of the tests; gives what it printed and its exit status. */
static char *run(int *status, const char *arguments)
{
    char printed[4096];
    char *self = build_folder();
    char *command = xasprintf("'%s/report' %s 2>&1", self, arguments);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t bytes = fread(printed, 1, sizeof printed - 1, out);
    printed[bytes] = '\0';
    int state = pclose(out);
    *status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    free(self);
    free(command);
    return xstrdup(printed);
}

static void expect(int wanted_status, const char *wanted, char *arguments)
{
    int status;
    char *printed = run(&status, arguments);
    if (*wanted && !strstr(printed, wanted))
        fail_msg("'%s' printed '%s', not '%s'", arguments, printed, wanted);
    assert_int_equal(status, wanted_status);
    free(printed);
    free(arguments);
}

/* Work that grows with the square of the cases would take minutes. */
static void many_cases_take_seconds(void **state)
{
    enum { CASES = 10000 };
    char *path = folder_path(*state, "bench_flash.csv"), *self = build_folder();
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(COLUMNS, out);
    for (int i = 0; i < CASES; i++) {
        char *row = line(i % 2 ? "flash" : "unfused", "ok", 1, 128 + i / 2, 1 + i, "10:00:00");
        fputs(row, out);
        free(row);
    }
    assert_int_equal(fclose(out), 0);
    char *command = xasprintf("ulimit -t 30; '%s/report' '%s' >/dev/null", self, (char *)*state);
    assert_int_equal(system(command), 0);
    free(command);
    free(self);
    free(path);
}

static void tidy_keeps_the_newest_row(void **state)
{
    char *dir = results_create(*state), *out = folder_path(*state, "tidy.csv");
    expect(EXIT_CODE_OK, "box-x1, GPU, big, 2026-11-21\nbatch 1, 1 head, causal\n",
           xasprintf("--tidy %s/bench_flash.csv %s --axes seq,head_dim,dtype status=ok", dir, out));
    csv *c = csv_read(out);
    assert_non_null(c);
    assert_int_equal(c->rows, 3); /* 128 and 1024 of flash, 1024 of unfused, in the order of seq */
    assert_int_equal(c->dropped, 0);
    assert_string_equal(csv_cell(c, 0, "seq"), "128");
    for (size_t r = 1; r < 3; r++) {
        assert_string_equal(csv_cell(c, r, "seq"), "1024");
        assert_true(csv_real(c, r, "fwd_ms") == (strcmp(csv_cell(c, r, "variant"), "flash") ? 1.0 : 0.25));
        assert_string_equal(csv_cell(c, r, "gpu"), "GPU, big");
    }
    csv_free(c);
    free(out);
    free(dir);
}

/* A newer row that nobody verified leaves the verified one; the other way round it goes. A cold one is another case. */
static void the_newest_verified_row_counts(void **state)
{
    char *path = folder_path(*state, "ways.csv"), *out = folder_path(*state, "tidy.csv");
    file_write(path, "bench,variant,status,reason,seq,fwd_ms,machine,gpu,device,check,l2,utc\n"
                     "b,v,ok,,1,10,x,g,cuda,1,warm,2026-11-21T10:00:00Z\n"
                     "b,v,ok,,1,20,x,g,cuda,0,warm,2026-11-21T11:00:00Z\n"
                     "b,v,ok,,2,30,x,g,cuda,0,warm,2026-11-21T11:00:00Z\n"
                     "b,v,ok,,2,40,x,g,cuda,1,warm,2026-11-21T10:00:00Z\n"
                     "b,v,ok,,3,50,x,g,cuda,1,warm,2026-11-21T10:00:00Z\n"
                     "b,v,ok,,3,60,x,g,cuda,1,cold,2026-11-21T11:00:00Z\n");
    expect(EXIT_CODE_OK, "", xasprintf("--tidy %s %s status=ok", path, out));
    csv *c = csv_read(out);
    assert_non_null(c);
    const double want[] = {10, 40, 50, 60};
    assert_int_equal(c->rows, 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(csv_real(c, i, "fwd_ms") == want[i]);
    csv_free(c);
    free(path);
    free(out);
}

static void a_newer_failure_replaces_a_time(void **state)
{
    char *dir = results_create(*state), *path = folder_path(dir, "bench_flash.csv");
    char *out = folder_path(*state, "tidy.csv");
    char *failed = line("flash", "fail", 1, 1024, 0, "12:00:00"), *text = file_text(path);
    char *more = xasprintf("%s\n%s", text, failed);
    file_write(path, more);
    expect(EXIT_CODE_OK, "", xasprintf("--tidy %s %s variant=flash seq=1024 status=ok", path, out));
    assert_int_equal(access(out, F_OK), -1); /* no row is left, so nothing is written */
    expect(EXIT_CODE_OK, "fail", xasprintf("--values %s status seq=1024 variant=flash", path));
    expect(EXIT_CODE_OK, "128 4096\n", xasprintf("--values %s seq 'seq!=1024'", path));
    expect(EXIT_CODE_USAGE, "'=1024' is neither COLUMN=VALUE nor COLUMN!=VALUE",
           xasprintf("--values %s seq =1024", path));
    free(more);
    free(text);
    free(failed);
    free(out);
    free(path);
    free(dir);
}

static void values_are_in_their_order(void **state)
{
    char *dir = results_create(*state);
    expect(EXIT_CODE_OK, "128 1024 4096\n", xasprintf("--values %s/bench_flash.csv seq", dir));
    expect(EXIT_CODE_OK, "4096\n", xasprintf("--values %s/bench_flash.csv seq heads=16", dir));
    free(dir);
}

static void report_has_tables_statuses_and_reasons(void **state)
{
    char *dir = results_create(*state), *machine = folder_path(dir, "machine.csv");
    file_write(machine, "run_id,key,value\nrun-1,gpu_name,old\nrun-2,gpu_name,\"a|b\"\nrun-2,options,seq=1\n");
    expect(EXIT_CODE_OK, "report.md", xstrdup(dir));
    char *path = folder_path(dir, "report.md"), *text = file_text(path);
    static const char *const wanted[] = {"# box-x1\n",
                                         "| [bench_flash.csv](bench_flash.csv) | 4 | 1 | 0 | 0 |",
                                         "- `bench_flash` **oom** x 1: needs 9.5 GiB, 8 are free (unfused",
                                         "| gpu_name | a\\|b |",
                                         "| 128 | oom / 0.125 |\n| 1024 | 1.00 / 0.250 |",
                                         "### Other shapes",
                                         "7.50"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(text, wanted[i]))
            fail_msg("report.md lacks '%s':\n%s", wanted[i], text);
    assert_null(strstr(text, "| gpu_name | old"));
    assert_null(strstr(text, "| options |"));
    free(text);
    free(path);
    free(machine);
    free(dir);
}

static void report_stands_beside_the_published(void **state)
{
    char *dir = results_create(*state);
    char *published = folder_path(*state, "results/published"), *flash = folder_path(published, "flash.csv");
    mkdir(published, 0777);
    file_write(flash, "source,gpu,batch,causal,dtype,seq,d,impl,fwd_ms,bwd_ms,fwd_bwd_ms,status,note\n"
                      "answers_c,H800,,,bf16,1024,64,triton_flash,0.03,0.28,0.34,ok,\n");
    expect(EXIT_CODE_OK, "report.md", xstrdup(dir));
    char *path = folder_path(dir, "report.md"), *text = file_text(path);
    assert_non_null(strstr(text, "| 64 | 1024 | **1.00 / 2.00** | | | **0.250 / 0.500** | | 0.0300 / 0.280 |"));
    free(text);
    free(path);
    free(flash);
    free(published);
    free(dir);
}

static void readme_tables_are_rewritten_between_their_markers(void **state)
{
    char *dir = results_create(*state), *readme = folder_path(*state, "README.md");
    file_write(readme, "before\n<!-- begin table -->\nold\n<!-- end table -->\nbetween\n"
                       "<!-- begin peers -->\nold\n<!-- end peers -->\nafter\n");
    for (int times = 0; times < 2; times++) /* the second time changes nothing */
        expect(EXIT_CODE_OK, "", xasprintf("--readme %s %s", dir, readme));
    char *text = file_text(readme);
    assert_ptr_equal(strstr(text, "before\n<!-- begin table -->\n| bench |"), text);
    assert_non_null(strstr(text, "`flash heads=1 seq=1024`: forward 0.250 ms, backward 0.500 ms, peak 1.00 MiB |"));
    assert_non_null(strstr(text, "box-x1, GPU, big, 2026-11-21, commit abc1234"));
    assert_non_null(strstr(text, "\n<!-- end table -->\nbetween\n<!-- begin peers -->\n"));
    assert_non_null(strstr(text, "<!-- end peers -->\nafter\n"));
    assert_null(strstr(text, "old"));
    file_write(readme, "no markers\n");
    expect(EXIT_CODE_FAILURE, "<!-- begin table -->", xasprintf("--readme %s %s", dir, readme));
    free(text);
    text = file_text(readme);
    assert_string_equal(text, "no markers\n");
    free(text);
    file_write(readme, "<!-- begin table -->\nold\n<!-- end table -->\n");
    expect(EXIT_CODE_FAILURE, "<!-- begin peers -->", xasprintf("--readme %s %s", dir, readme));
    text = file_text(readme);
    assert_string_equal(text, "<!-- begin table -->\nold\n<!-- end table -->\n");
    free(text);
    free(readme);
    free(dir);
}

/* A newer row of another way to gather is not the README's, nor is the option named. */
static void the_readme_shows_options_by_their_defaults(void **state)
{
    char *dir = results_create(*state), *rows = folder_path(dir, "bench_fsdp.csv"),
         *readme = folder_path(*state, "README.md");
    file_write(rows, "schema,method,bench,variant,status,reason,size,gather,step_ms,device,commit,utc\n"
                     "1,1,bench_fsdp,fsdp,ok,,xl,nccl,47,cuda,abc1234,2026-11-21T10:00:00Z\n"
                     "1,1,bench_fsdp,ddp,ok,,xl,,59,cuda,abc1234,2026-11-21T10:00:01Z\n"
                     "1,1,bench_fsdp,fsdp,ok,,xl,copy,44,cuda,abc1234,2026-11-21T10:00:02Z\n");
    file_write(readme, "<!-- begin table -->\n<!-- end table -->\n<!-- begin peers -->\n<!-- end peers -->\n");
    expect(EXIT_CODE_OK, "", xasprintf("--readme %s %s", dir, readme));
    char *text = file_text(readme);
    if (!strstr(text, "| `fsdp`: step 47.0 ms |"))
        fail_msg("%s", text);
    free(text);
    free(readme);
    free(rows);
    free(dir);
}

static void bad_arguments_are_usage_errors(void **state)
{
    expect(EXIT_CODE_USAGE, "usage:", xstrdup(""));
    expect(EXIT_CODE_USAGE, "usage:", xstrdup("--nothing"));
    expect(EXIT_CODE_USAGE, "is not a folder of results", xasprintf("%s/none", (char *)*state));
    expect(EXIT_CODE_USAGE, "can't be read or has no rows", xasprintf("--values %s/none.csv seq", (char *)*state));
    expect(EXIT_CODE_OK, "usage:", xstrdup("--help"));
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_folder(tidy_keeps_the_newest_row),
        in_folder(the_newest_verified_row_counts),
        in_folder(a_newer_failure_replaces_a_time),
        in_folder(values_are_in_their_order),
        in_folder(report_has_tables_statuses_and_reasons),
        in_folder(report_stands_beside_the_published),
        in_folder(readme_tables_are_rewritten_between_their_markers),
        in_folder(the_readme_shows_options_by_their_defaults),
        in_folder(bad_arguments_are_usage_errors),
        in_folder(many_cases_take_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
