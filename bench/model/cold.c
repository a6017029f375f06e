/* SPDX-License-Identifier: MIT */
/* A process for each case; see cold.h. This one opens no device. */
#include "bench/model/cold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/error.h"

/* An option's name has '-' where its column has '_'. */
static bool names(const char *argument, const char *column)
{
    const char *name = argument + 2;
    for (; *column; name++, column++)
        if ((*name == '-' ? '_' : *name) != *column)
            return false;
    return !*name || *name == '=';
}

/* Whether the argument is an option that a case has a value of. */
static bool is_of_case(const options *o, const char *argument)
{
    bool is = names(argument, "variant");
    for (size_t i = 0; i < options_param_count(o) && !is; i++)
        is = names(argument, options_param_name(o, i));
    return is;
}

/* The arguments of the case's process, ended by NULL. Caller frees each and the list. */
static char **arguments_of(const options *o, const bench_case *c, int argc, char **argv)
{
    const size_t params = options_param_count(o);
    char **list = xcalloc((size_t)argc + params + 2, sizeof *list);
    size_t n = 0;
    list[n++] = xstrdup(argv[0]);
    for (int i = 1; i < argc; i++) {
        const bool has_value = !strchr(argv[i], '=') && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
        const bool kept = !is_of_case(o, argv[i]);
        if (kept)
            list[n++] = xstrdup(argv[i]);
        if (has_value && kept)
            list[n++] = xstrdup(argv[i + 1]);
        i += has_value;
    }
    for (size_t i = 0; i < params; i++)
        list[n++] = xasprintf("--%s=%s", options_param_name(o, i), case_param(c, i));
    list[n] = xasprintf("--variant=%s", case_variant(c));
    return list;
}

static int run_process(char **arguments)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        warn("can't start /proc/self/exe: %s", strerror(errno));
        _exit(EXIT_CODE_FAILURE);
    }
    int status;
    if (child < 0)
        die(EXIT_CODE_FAILURE, "can't start a process: %s", strerror(errno));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die(EXIT_CODE_FAILURE, "can't wait for a process: %s", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CODE_FAILURE;
}

int cold_run_cases(const options *o, int argc, char **argv)
{
    int worst = EXIT_CODE_OK;
    if (strcmp(option_text(o, "csv"), "-") == 0)
        die(EXIT_CODE_USAGE,
            "--cold starts a process for each case, which would each write a header: give --csv a FILE");
    bool supported = false;
    for (size_t i = 0; i < cases_count(o); i++) {
        bench_case *c = case_at(o, i);
        char **arguments = arguments_of(o, c, argc, argv);
        const int code = run_process(arguments);
        supported = supported || code != EXIT_CODE_UNSUPPORTED;
        worst = code != EXIT_CODE_UNSUPPORTED && code > worst ? code : worst;
        for (char **a = arguments; *a; a++)
            free(*a);
        free(arguments);
        case_free(c);
    }
    return supported ? worst : EXIT_CODE_UNSUPPORTED;
}
