/* SPDX-License-Identifier: MIT */
/* The launcher: one process per rank, of this very program and with its arguments, and the coordinator that watches them. It never
 * touches CUDA, so that a rank's trouble with a GPU is never its own. Ranks run in process groups of their own: an
 * interrupt from the terminal reaches the launcher, which ends them in order. They die with the launcher, whatever it
 * dies of. Signals go to the process ids recorded here and to nobody else. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/signals.h"
#include "common/launch/internal.h"

static const double grace_s = 3; /* from the end of the job until ranks that are still there are killed */

typedef struct children {
    int n;
    pid_t *pids; /* 0: over */
    int *codes;
    coordinator *coordinator;
    status_slot *board;
    bool asked;    /* to end themselves, by the first signal */
    double ending; /* when the end was told; 0: not yet */
    bool killed;
} children;

static volatile sig_atomic_t caught, signals_caught;

static void note_signal(int number)
{
    caught = number;
    signals_caught++;
}

static int open_board(int n, status_slot **board)
{
    const size_t bytes = (size_t)n * sizeof **board;
    int fd = memfd_create("stepbench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        (*board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        die(EXIT_CODE_FAILURE, "can't make the memory that ranks share with their launcher: %s", strerror(errno));
    return fd;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

_Noreturn static void become_rank(int rank, int n, int control, int board, pid_t launcher, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) /* it died before the line above */
        _exit(EXIT_CODE_FAILURE);
    setpgid(0, 0);
    fcntl(control, F_SETFD, 0);
    fcntl(board, F_SETFD, 0);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", n);
    set_number("LOCAL_WORLD_SIZE", n);
    set_number("STEPBENCH_CONTROL_FD", control);
    set_number("STEPBENCH_BOARD_FD", board);
    execv("/proc/self/exe", argv);
    warn("can't start rank %d: /proc/self/exe: %s", rank, strerror(errno));
    _exit(EXIT_CODE_FAILURE);
}

static void start(children *c, int board, char **argv)
{
    const pid_t self = getpid();
    fflush(NULL);
    for (int r = 0; r < c->n; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            die(EXIT_CODE_FAILURE, "can't make the control channel of rank %d: %s", r, strerror(errno));
        c->pids[r] = fork();
        if (c->pids[r] == 0)
            become_rank(r, c->n, pair[1], board, self, argv);
        if (c->pids[r] < 0)
            die(EXIT_CODE_FAILURE, "can't start rank %d: %s", r, strerror(errno)); /* those before it die with us */
        close(pair[1]);
        coordinator_attach(c->coordinator, pair[0]);
        coordinator_step(c->coordinator, 0);
    }
}

/* True while some rank is there. */
static bool reap(children *c)
{
    bool any = false;
    for (int r = 0; r < c->n; r++) {
        int status;
        if (c->pids[r] && waitpid(c->pids[r], &status, WNOHANG) == c->pids[r]) {
            coordinator_step(c->coordinator, 0); /* its last words first */
            c->pids[r] = 0;
            c->codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            coordinator_exited(c->coordinator, r, status);
        }
        any = any || c->pids[r];
    }
    return any;
}

static void kill_late(children *c)
{
    const double now = host_seconds();
    if (!coordinator_ending(c->coordinator))
        return;
    if (c->ending == 0)
        c->ending = now;
    if (c->killed || now - c->ending < grace_s)
        return;
    c->killed = true;
    for (int r = 0; r < c->n; r++)
        if (c->pids[r])
            kill(c->pids[r], SIGKILL);
}

/* A stopped rank can't end itself. */
static void wake_stopped(children *c)
{
    for (int r = 0; r < c->n; r++)
        if (c->pids[r])
            kill(c->pids[r], SIGCONT);
}

/* Ranks that must finish something end the job themselves; a second signal does not wait for that. */
static bool ranks_end_themselves(children *c)
{
    if (!c->asked && atomic_load(&c->board[0].defers)) {
        c->asked = true;
        for (int r = 0; r < c->n; r++)
            atomic_store(&c->board[r].asked, caught);
    }
    return c->asked && signals_caught == 1 && atomic_load(&c->board[0].defers);
}

static int watch(children *c)
{
    while (reap(c)) {
        if (caught && !coordinator_ending(c->coordinator) && !ranks_end_themselves(c))
            coordinator_end(c->coordinator, 128 + caught, "stopped by %s, %s",
                            caught == SIGINT    ? "SIGINT"
                            : caught == SIGTERM ? "SIGTERM"
                                                : "SIGHUP",
                            coordinator_doing(c->coordinator, 0));
        if (coordinator_ending(c->coordinator) && c->ending == 0)
            wake_stopped(c);
        kill_late(c);
        coordinator_step(c->coordinator, 0.05);
    }
    int code = coordinator_code(c->coordinator) ? coordinator_code(c->coordinator) : c->codes[0];
    for (int r = 0; r < c->n && code == 0; r++)
        code = c->codes[r];
    return code;
}

int launch_spawn(const options *o, int n, char **argv)
{
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    status_slot *board = NULL;
    int fd = open_board(n, &board);
    children c = {.n = n,
                  .pids = xcalloc((unsigned long)n, sizeof *c.pids),
                  .codes = xcalloc((unsigned long)n, sizeof *c.codes),
                  .board = board,
                  .coordinator = coordinator_create(
                      &(coordinator_options){.ranks = n, .timeout_s = option_real(o, "timeout"), .board = board})};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal_catch(signals[i], note_signal, 0);
    start(&c, fd, argv);
    int code = watch(&c);
    coordinator_free(c.coordinator);
    munmap(board, (size_t)n * sizeof *board);
    close(fd);
    free(c.pids);
    free(c.codes);
    return code;
}
