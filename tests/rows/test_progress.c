/* SPDX-License-Identifier: MIT */
/* The line of progress on a terminal: it follows the phase while it is shown, and is gone once it was cleared. */
#include "tests/support/test.h"

#include <fcntl.h>

/* What fn writes to stderr while that is a terminal. */
static void on_terminal(void (*fn)(void), char *out, size_t out_bytes)
{
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
        print_message("no pseudo-terminal is to be had here\n");
        skip(); /* a bare root without /dev/pts */
    }
    const int slave = open(ptsname(terminal), O_RDWR | O_NOCTTY), kept = dup(STDERR_FILENO);
    assert_true(slave >= 0 && kept >= 0);
    assert_int_equal(dup2(slave, STDERR_FILENO), STDERR_FILENO);
    fn();
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    const ssize_t got = read(terminal, out, out_bytes - 1);
    out[got > 0 ? got : 0] = 0;
    close(slave);
    close(kept);
    close(terminal);
}

static void show_phases(void)
{
    progress_phase("too early");
    progress_update(1, 3, "the case");
    progress_phase("too soon");
    usleep(600 * 1000);
    progress_phase("tuning a product");
    progress_clear();
    usleep(600 * 1000);
    progress_phase("too late");
}

TEST(the_line_follows_the_phase)
{
    char text[4096];
    setenv("TERM", "xterm", 1);
    on_terminal(show_phases, text, sizeof text);
    char *first = strstr(text, "left: the case"), *second = strstr(text, "left: tuning a product");
    assert_non_null(first);
    assert_non_null(second);
    assert_true(first < second);
    assert_non_null(strstr(text, "[1/3]"));
    assert_null(strstr(text, "too"));
    assert_string_equal(text + strlen(text) - 4, "\r\033[K");
}

static void update_and_clear(void)
{
    progress_update(1, 3, "the case");
    progress_clear();
}

/* It would print the sequences that overwrite a line elsewhere. */
TEST(a_dumb_terminal_gets_no_line)
{
    static const char *const dumb[] = {"dumb", "", NULL};
    for (size_t i = 0; i < sizeof dumb / sizeof *dumb; i++) {
        char text[4096];
        if (dumb[i])
            setenv("TERM", dumb[i], 1);
        else
            unsetenv("TERM");
        on_terminal(update_and_clear, text, sizeof text);
        assert_string_equal(text, "");
    }
}
