/* SPDX-License-Identifier: MIT */
/* A program keeps the signals that were ignored when it started, and has the others to itself, whatever its libraries do. */
#include "tests/support/test.h"

#include <signal.h>
#include <unistd.h>

#include "common/core/signals.h"
#include "tests/support/bench_run.h"

static void do_nothing(int number)
{
    (void)number;
}

/* What SIGHUP, SIGINT and SIGTERM are at the start, with a handler that is asked for, and when it is given up. */
static int tells(int argc, char **argv)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
    (void)argc, (void)argv;
    for (int step = 0; step < 3; step++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            struct sigaction now;
            if (step == 1)
                signal_catch(numbers[i], do_nothing, 0);
            else if (step == 2)
                signal_release(numbers[i]);
            assert_int_equal(sigaction(numbers[i], NULL, &now), 0);
            putchar(now.sa_handler == SIG_IGN ? 'i' : now.sa_handler == SIG_DFL ? 'd' : 'h');
        }
    return 0;
}
PROGRAM("tells_signals", tells)

/* The shell's trap ignores signals in what it starts. */
static void expect(const char *folder, const char *environment, const char *ignored, const char *told)
{
    OWNED char *command = xasprintf("trap '' %s; exec env %s '%s/tells_signals'", ignored, environment, folder);
    int code;
    OWNED char *text = command_text(command, &code);
    if (code != 0 || strcmp(text, told) != 0)
        fail_msg("%s: exit code %d, '%s' and not '%s'", command, code, text, told);
}

TEST_IN_FOLDER(what_was_ignored_stays_so)
{
    char self[4096] = "";
    OWNED char *preload = preload_build(*state, "signals"), *link = folder_path(*state, "tells_signals");
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    assert_int_equal(symlink(self, link), 0);
    for (int with = 0; with < 2; with++) {
        expect(*state, with ? preload : "", "QUIT", "dddhhhddd");
        expect(*state, with ? preload : "", "HUP", "iddihhidd");
        expect(*state, with ? preload : "", "HUP INT TERM", "iiiiiiiii");
    }
}
