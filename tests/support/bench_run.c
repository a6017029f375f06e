/* SPDX-License-Identifier: MIT */
/* See bench_run.h. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

#include <sys/wait.h>

char *shell_path(const char *path)
{
    OWNED char *absolute = realpath(path, NULL);
    assert_non_null(absolute);
    char *quoted = xmalloc(4 * strlen(absolute) + 1), *at = quoted;
    for (const char *c = absolute; *c; c++)
        at += sprintf(at, *c == '\'' ? "'\\''" : "%c", *c);
    *at = '\0';
    return quoted;
}

/* A path from the folder of this test's build. */
static char *built_path(const char *name)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    for (int up = 0; up < 3; up++) /* tests/<folder>/<program> */
        *strrchr(self, '/') = '\0';
    return xasprintf("%s/%s", self, name);
}

char *build_folder(void)
{
    OWNED char *path = built_path("");
    return shell_path(path);
}

char *programs_folder(void)
{
    const char *where = getenv("STEPBENCH_BIN");
    return shell_path(where ? where : ".");
}

void report_run(const char *arguments)
{
    OWNED char *build = build_folder(), *command = xasprintf("'%s/report' %s >/dev/null", build, arguments);
    const int status = system(command);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_OK);
}

char *report_text(const char *dir)
{
    OWNED char *quoted = xasprintf("'%s'", dir);
    report_run(quoted);
    return folder_text(dir, "report.md");
}

char *bench_path(const char *name)
{
    char *path = built_path(name);
    if (access(path, X_OK) != 0) { /* of the folder build, programs lie above */
        OWNED char *above = xasprintf("../%s", name);
        free(path);
        path = built_path(above);
    }
    if (access(path, X_OK) != 0)
        skip();
    return path;
}

const char *bench_device(void)
{
    const char *asked = getenv("STEPBENCH_DEVICE");
    return asked ? asked : "cpu";
}

void bench_all_ok(const csv *c, size_t rows)
{
    assert_non_null(c);
    assert_int_equal(c->rows, rows);
    for (size_t r = 0; r < rows; r++)
        if (!csv_is(c, r, "status", "ok"))
            fail_msg("row %zu, %s on %s ranks: %s", r, csv_cell(c, r, "variant"), csv_cell(c, r, "ranks"),
                     csv_cell(c, r, "reason"));
}

void bench_needs_gloo(const char *arguments)
{
    static const char option[] = "--ranks ";
    const char *at = strstr(arguments, option), *ranks = at ? at + strlen(option) : "1";
    const bool alone = *ranks == '1' && strchr(" ", ranks[1]);
    if (!alone && strcmp(bench_device(), "cpu") == 0)
        needs_gloo();
}

csv *bench_rows(const char *folder, const char *bench, const char *environment, const char *arguments, int code)
{
    OWNED char *programs = programs_folder(), *path = xasprintf("%s/results/test-x1/%s.csv", folder, bench);
    if (code == EXIT_CODE_OK || code == EXIT_CODE_VERIFY)
        bench_needs_gloo(arguments);
    remove(path);
    OWNED char *command = xasprintf("cd '%s' && env %s '%s/%s' --device %s --machine test-x1 --quiet %s "
                                    ">out.txt 2>&1",
                                    folder, environment, programs, bench, bench_device(), arguments);
    const int status = system(command), got = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (got != code && code != BENCH_ANY_CODE) {
        char *out = folder_path(folder, "out.txt");
        fail_msg("exit code %d, not %d: %s: %s", got, code, command, file_text(out));
    }
    csv *rows = access(path, R_OK) == 0 ? csv_read(path) : NULL;
    return rows;
}

void bench_says(const char *bench, const char *arguments, int code, const char *said)
{
    const char *bin = getenv("STEPBENCH_BIN");
    int got;
    OWNED char *command = xasprintf("'%s/%s' --device cpu --csv none %s 2>&1", bin ? bin : ".", bench, arguments),
               *text = command_text(command, &got);
    if (got != code || !strstr(text, said))
        fail_msg("%s: exit code %d: %s", arguments, got, text);
}

char *preload_build(const char *folder, const char *name)
{
    const char *cc = getenv("CC");
    OWNED char *command =
        xasprintf("%s -std=c11 -D_GNU_SOURCE -O1 -Wall -I. -shared -fPIC -o '%s/%s.so' tests/preload/%s.c -ldl",
                  cc && *cc ? cc : "cc", folder, name, name);
    assert_int_equal(system(command), 0);
    /* A sanitizer's library wants to be the first. */
    return xasprintf("ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD='%s/%s.so'", folder, name);
}
