/* SPDX-License-Identifier: MIT */
/* See ranks.h. */
#include "tests/support/test.h"

#include "tests/support/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

static char folder[512];

int ranks_enter_folder(void **state)
{
    static const char *const names[] = {
        "RANK",        "WORLD_SIZE",     "LOCAL_RANK",       "LOCAL_WORLD_SIZE",     "MASTER_ADDR",
        "MASTER_PORT", "STEPBENCH_PORT", "STEPBENCH_RUN_ID", "STEPBENCH_CONTROL_FD", "STEPBENCH_SECRET"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/stepbench-test-XXXXXX", where ? where : "/tmp");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

int ranks_leave_folder(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

double ranks_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

_Noreturn static void become(const char *program, const char *name, const char *tag, const char *arguments)
{
    char text[2048], path[64], *argv[64] = {(char *)name}, *rest = text;
    int argc = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(text, sizeof text, "%s", arguments);
    for (char *word; argc < 63 && (word = strtok_r(rest, " ", &rest));)
        if (argc == 1 && word[0] != '-' && strchr(word, '='))
            putenv(strdup(word));
        else
            argv[argc++] = word;
    snprintf(path, sizeof path, "out%s.txt", tag);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    snprintf(path, sizeof path, "err%s.txt", tag);
    int err = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
        _exit(99);
    close(out);
    close(err);
    execvp(program ? program : "/proc/self/exe", argv);
    _exit(98);
}

pid_t ranks_start(const char *program, const char *name, const char *tag, const char *arguments)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(program, name, tag, arguments);
    return pid;
}

int ranks_wait(pid_t pid)
{
    int status = 0;
    for (int i = 0; i < 6000; i++) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        usleep(10 * 1000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    fail_msg("process %d had not ended after 60 s", (int)pid);
    return -1;
}

int ranks_run(const char *name, const char *arguments)
{
    return ranks_wait(ranks_start(NULL, name, "", arguments));
}

const char *ranks_text(const char *path)
{
    enum { TEXTS = 4, BYTES = 1 << 16 };
    static char texts[TEXTS][BYTES];
    static unsigned next;
    char *text = texts[next++ % TEXTS];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, BYTES - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    return text;
}

int ranks_lines(const char *path)
{
    int n = 0;
    for (const char *c = ranks_text(path); *c; c++)
        n += *c == '\n';
    return n;
}

void ranks_wait_lines(const char *path, int lines)
{
    for (int i = 0; i < 2000 && ranks_lines(path) < lines; i++)
        usleep(10 * 1000);
    assert_int_equal(ranks_lines(path), lines);
}

/* A process that nobody has waited for yet counts as gone. */
static bool alive(pid_t pid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *state = strrchr(text, ')');
    return state && state[1] && state[2] != 'Z';
}

void ranks_all_gone(const char *path)
{
    const double until = ranks_seconds() + 1;
    for (const char *line = ranks_text(path); *line; line = strchr(line, '\n') + 1) {
        const pid_t pid = atoi(line);
        while (alive(pid) && ranks_seconds() < until)
            usleep(10 * 1000);
        if (alive(pid))
            fail_msg("process %d was left behind", (int)pid);
    }
}
