/* SPDX-License-Identifier: MIT */
/* Messages and phases of ranks that share stderr: each is one write, so that none is torn by another's. */
#include "tests/support/test.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/core/error.h"

/* A pipe of packets keeps writes apart. */
TEST(a_line_is_one_write)
{
    static const char *const ends[] = {": first\n", ": a warning of the second\n", "\n"};
    char text[4200], parameters[200];
    int packets[2];
    memset(parameters, 'x', sizeof parameters - 1);
    parameters[sizeof parameters - 1] = 0;
    assert_int_equal(pipe2(packets, O_DIRECT | O_CLOEXEC), 0);
    const int before = dup(STDERR_FILENO);
    assert_int_equal(dup2(packets[1], STDERR_FILENO), STDERR_FILENO);
    setenv("STEPBENCH_PHASES", "1", 1);
    phase_set("first");
    phase_set("check: a slice of %s", parameters);
    warn("a warning of the %s", "second");
    phase_set("third");
    unsetenv("STEPBENCH_PHASES");
    dup2(before, STDERR_FILENO);
    close(before);
    close(packets[1]);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const ssize_t bytes = read(packets[0], text, sizeof text - 1);
        assert_true(bytes > (ssize_t)strlen(ends[i]));
        text[bytes] = 0;
        assert_string_equal(text + bytes - strlen(ends[i]), ends[i]);
        assert_true(strchr(text, '\n') == text + bytes - 1);
        assert_int_equal(!strstr(text, parameters), i < 2);
    }
    assert_int_equal(read(packets[0], text, sizeof text), 0);
    close(packets[0]);
}
