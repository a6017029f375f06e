/* SPDX-License-Identifier: MIT */
/* Checking out results of a commit by git and tar; see checkout.h. */
#include "common/compare/checkout.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/error.h"

extern char **environ;

static int run(char *const argv[], const char *out)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (out)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    pid_t child;
    int status = -1;
    const int error = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        die(EXIT_CODE_FAILURE, "%s can't be started: %s", argv[0], strerror(error));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_tree(const char *folder)
{
    enum { OPEN_FOLDERS = 8 };
    nftw(folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

static char temporary[256]; /* removed at exit */

static void remove_temporary(void)
{
    if (*temporary)
        remove_tree(temporary);
}

/* die, which runs nothing at exit, after the clean-up. */
#define give_up(...)                                                                                                   \
    do {                                                                                                               \
        remove_temporary();                                                                                            \
        die(__VA_ARGS__);                                                                                              \
    } while (0)

/* A folder or file of a commit, below the folder `into`. Caller frees. */
static char *checked_out(const char *spec, const char *into)
{
    const char *path = strchr(spec, ':') + 1, *dot = strrchr(path, '.');
    if (*spec == '-' || !*path)
        give_up(EXIT_CODE_USAGE, "'%s' is neither a path nor COMMIT:PATH", spec);
    const bool file = dot && strcmp(dot, ".csv") == 0;
    char *commit = xasprintf("%.*s", (int)(path - 1 - spec), spec),
         *where = xasprintf("%s/%s", into, file ? "file" : "folder");
    if (mkdir(where, 0777) != 0)
        give_up(EXIT_CODE_FAILURE, "%s: %s", where, strerror(errno));
    if (file) {
        const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        char *out = xasprintf("%s/%s", where, name), *beside = xasprintf("%s/machine.csv", where);
        char *machine = xasprintf("%s:%.*smachine.csv", commit, (int)(name - path), path);
        char *show[] = {"git", "show", (char *)spec, NULL}, *show_machine[] = {"git", "cat-file", "-e", machine, NULL};
        if (run(show, out) != 0)
            give_up(EXIT_CODE_USAGE, "git has no %s", spec);
        if (run(show_machine, "/dev/null") == 0)
            run((char *[]){"git", "show", machine, NULL}, beside);
        free(machine);
        free(beside);
        free(where);
        where = out;
    } else {
        OWNED char *tar = xasprintf("%s/results.tar", into);
        char *archive[] = {"git", "archive", "--format=tar", "-o", tar, (char *)spec, NULL};
        char *extract[] = {"tar", "-xf", tar, "-C", where, NULL};
        if (run(archive, NULL) != 0 || run(extract, NULL) != 0)
            give_up(EXIT_CODE_USAGE, "git has no folder %s", spec);
    }
    free(commit);
    return where;
}

char *checkout_path(const char *spec)
{
    static int count;
    struct stat info;
    if (stat(spec, &info) == 0 || !strchr(spec, ':'))
        return xstrdup(spec);
    if (!*temporary) {
        const char *root = getenv("TMPDIR");
        snprintf(temporary, sizeof temporary, "%s/stepbench.XXXXXX", root && strlen(root) < 200 ? root : "/tmp");
        if (!mkdtemp(temporary))
            die(EXIT_CODE_FAILURE, "%s: %s", temporary, strerror(errno));
        atexit(remove_temporary);
    }
    OWNED char *into = xasprintf("%s/%d", temporary, count++);
    if (mkdir(into, 0777) != 0)
        die(EXIT_CODE_FAILURE, "%s: %s", into, strerror(errno));
    return checked_out(spec, into);
}
