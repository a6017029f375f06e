/* SPDX-License-Identifier: MIT */
/* See report_run.h. */
#include "tests/support/report_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/error.h"
#include "tests/support/test.h"

char *build_folder(void)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    for (int up = 0; up < 3; up++) /* tests/<folder>/<program> */
        *strrchr(self, '/') = '\0';
    return xstrdup(self);
}

void report_run(const char *arguments)
{
    char *build = build_folder(), *command = xasprintf("'%s/report' %s >/dev/null", build, arguments);
    const int status = system(command);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_OK);
    free(command);
    free(build);
}

char *report_text(const char *dir)
{
    char *quoted = xasprintf("'%s'", dir);
    report_run(quoted);
    free(quoted);
    return folder_text(dir, "report.md");
}
