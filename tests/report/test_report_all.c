/* SPDX-License-Identifier: MIT */
/* The page over machines and commits: which rows stand side by side, what its sentences say of planted numbers from both
 * sides, and the history of a figure. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

#define HEAD                                                                                                           \
    "schema,method,bench,variant,status,reason,ranks,dtype,bytes,median_ms,busbw_gb_s,run_id,machine,gpu,device,"      \
    "check,"                                                                                                           \
    "commit,utc\n"

/* A row of bench_allreduce. */
static char *line(const char *status, int ranks, double ms, const char *commit, const char *utc)
{
    return xasprintf("2,1,bench_allreduce,all-reduce,%s,,%d,bf16,1000,%g,%g,r,m,G,cuda,1,%s,%s\n", status, ranks, ms,
                     100 / ms, commit, utc);
}

/* Writes <folder>/<machine>/bench_allreduce.csv of rows, ended by NULL, which are freed. */
static void plant(const char *folder, const char *machine, char *const *rows)
{
    char *dir = folder_path(folder, machine), *path = xasprintf("%s/bench_allreduce.csv", dir), *text = xstrdup(HEAD);
    mkdir(dir, 0777);
    for (; *rows; rows++) {
        char *longer = xasprintf("%s%s", text, *rows);
        free(text);
        free(*rows);
        text = longer;
    }
    file_write(path, text);
    free(text);
    free(path);
    free(dir);
}

/* report.md over machines a and b; caller frees. The report program lies beside the folder of the tests. */
static char *page(const char *folder)
{
    char *arguments = xasprintf("--all '%s' '%s/a' '%s/b'", folder, folder, folder);
    report_run(arguments);
    free(arguments);
    char *html = folder_path(folder, "report-all.html"), *path = folder_path(folder, "report-all.md");
    assert_int_equal(access(html, R_OK), 0);
    char *text = file_text(path);
    free(html);
    free(path);
    return text;
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text);
}

static void side_by_side(void **state)
{
    plant(*state, "a", (char *[]){line("ok", 2, 4.0, "aaaaaaaaaa", "2026-01-01T00:00:00Z"), NULL});
    plant(*state, "b", (char *[]){line("ok", 2, 5.0, "bbbbbbbbbb", "2026-01-02T00:00:00Z"), NULL});
    char *text = page(*state);
    expect(text, "| bench | case | what | a | b |");
    expect(text, "| bench_allreduce | `all-reduce` | busbw | 25.0 GB/s | 20.0 GB/s |");
    expect(text, "0 of 2 figures that several folders have agree within 3 %.");
    expect(text, "The farthest apart: bench_allreduce, ");
    expect(text, "and 5.00 ms in b, 25.0 % more.");
    free(text);

    plant(*state, "b", (char *[]){line("ok", 2, 4.04, "bbbbbbbbbb", "2026-01-02T00:00:00Z"), NULL});
    text = page(*state);
    expect(text, "2 of 2 figures that several folders have agree within 3 %.");
    free(text);
}

static void other_ranks_are_named_and_not_compared(void **state)
{
    plant(*state, "a", (char *[]){line("ok", 2, 4.0, "aaaaaaaaaa", "2026-01-01T00:00:00Z"), NULL});
    plant(*state, "b", (char *[]){line("ok", 4, 5.0, "bbbbbbbbbb", "2026-01-02T00:00:00Z"), NULL});
    char *text = page(*state);
    expect(text, "| 4.00 ms | 5.00 ms on 4 ranks |");
    expect(text, "No figure below is of as many ranks in more than one folder.");
    assert_null(strstr(text, "### bench_allreduce")); /* nor are they a history */
    free(text);
}

static void over_commits(void **state)
{
    plant(*state, "a",
          (char *[]){line("ok", 2, 4.0, "aaaaaaaaaa", "2026-01-01T00:00:00Z"),
                     line("fail", 2, 1.0, "cccccccccc", "2026-01-02T00:00:00Z"), /* a wrong result is no figure */
                     line("ok", 2, 2.9, "dddddddddd", "2026-01-03T00:00:00Z"),
                     line("ok", 2, 3.0, "dddddddddd", "2026-01-04T00:00:00Z"),
                     line("ok", 2, 9.0, "dddddddddd", "2026-01-05T00:00:00Z"),
                     NULL}); /* the median of a commit's runs */
    plant(*state, "b", (char *[]){line("ok", 2, 5.0, "bbbbbbbbbb", "2025-12-31T00:00:00Z"), NULL});
    char *text = page(*state);
    expect(text, "5.00 ms at bbbbbbb, 3.00 ms at ddddddd, 40.0 % less.");
    expect(text, "| 2025-12-31 | `bbbbbbb` | b | 1 | 5.00 ms |");
    expect(text, "| 2026-01-03 | `ddddddd` | a | 3 | 3.00 ms |");
    assert_null(strstr(text, "ccccccc"));
    free(text);

    plant(*state, "a", (char *[]){line("ok", 2, 6.0, "aaaaaaaaaa", "2026-01-01T00:00:00Z"), NULL});
    text = page(*state);
    expect(text, "5.00 ms at bbbbbbb, 6.00 ms at aaaaaaa, 20.0 % more.");
    free(text);
    plant(*state, "a", (char *[]){line("ok", 2, 5.0, "aaaaaaaaaa+bbbbbbbbbb", "2026-01-01T00:00:00Z"), NULL});
    text = page(*state);
    expect(text, "5.00 ms at bbbbbbb, 5.00 ms at aaaaaaaaaa+bbbbbbbbbb, the same.");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(other_ranks_are_named_and_not_compared),
        cmocka_unit_test(over_commits),
    };
    return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
