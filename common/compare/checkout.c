/* SPDX-License-Identifier: MIT */
/* Checking out results of a commit by git and tar; see checkout.h. */
#include "common/compare/checkout.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/core/error.h"

extern char **environ;

static int run(char *const argv[])
{
    pid_t child;
    int status = -1;
    const int error = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
    if (error)
        die(EXIT_CODE_FAILURE, "%s can't be started: %s", argv[0], strerror(error));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char temporary[256];

static void remove_temporary(void)
{
    run((char *[]){"rm", "-rf", temporary, NULL});
}

/* $1: COMMIT:PATH; $2: a folder for what git has there, and of a file also for the machine.csv beside it. In a folder below the
 * root, git archive would look for that folder within PATH. */
static char script[] =
    "case $1 in\n"
    "*.csv)\n"
    "    name=${1##*[:/]}\n"
    "    git show \"$1\" >\"$2/$name\" || exit\n"
    "    git show \"${1%\"$name\"}machine.csv\" >\"$2/machine.csv\" 2>/dev/null || rm \"$2/machine.csv\" ;;\n"
    "*) git -C \"./$(git rev-parse --show-cdup 2>/dev/null)\" archive --format=tar \"$1\" >\"$2.tar\" && "
    "tar -xf \"$2.tar\" -C \"$2\" ;;\n"
    "esac";

char *checkout_path(const char *spec)
{
    static int count;
    struct stat info;
    const char *path = strchr(spec, ':');
    if (stat(spec, &info) == 0 || !path)
        return xstrdup(spec);
    if (!*temporary) {
        const char *root = getenv("TMPDIR");
        snprintf(temporary, sizeof temporary, "%s/stepbench.XXXXXX", root && strlen(root) < 200 ? root : "/tmp");
        if (!mkdtemp(temporary))
            die(EXIT_CODE_FAILURE, "%s: %s", temporary, strerror(errno));
        clean_up_with(remove_temporary);
    }
    OWNED char *into = xasprintf("%s/%d", temporary, count++);
    const char *dot = strrchr(path, '.'), *name = strrchr(path, '/') ? strrchr(path, '/') : path;
    const bool file = dot && strcmp(dot, ".csv") == 0;
    if (*spec == '-' || !path[1])
        die(EXIT_CODE_USAGE, "'%s' is neither a path nor COMMIT:PATH", spec);
    if (mkdir(into, 0777) != 0)
        die(EXIT_CODE_FAILURE, "%s: %s", into, strerror(errno));
    if (run((char *[]){"sh", "-c", script, "sh", (char *)spec, into, NULL}) != 0)
        die(EXIT_CODE_USAGE, file ? "git has no %s" : "git has no folder %s", spec);
    return file ? xasprintf("%s/%s", into, name + 1) : xstrdup(into);
}
