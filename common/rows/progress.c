/* SPDX-License-Identifier: MIT */
/* The progress of a sweep: one line on stderr that is overwritten, only on a terminal. */
#include "common/rows/rows.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/core/clock.h"

static bool shown;

static void duration_text(double s, char *out, size_t out_bytes)
{
    long whole = (long)(s + 0.5);
    if (whole >= 3600)
        snprintf(out, out_bytes, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else
        snprintf(out, out_bytes, "%ldm%02lds", whole / 60, whole % 60);
}

void progress_update(size_t done, size_t total, const char *what)
{
    static double start_s;
    static size_t start_done;
    if (start_s == 0) {
        start_s = host_seconds();
        start_done = done; /* what a resumed sweep finds done took no time */
    }
    if (!isatty(STDERR_FILENO))
        return;

    double elapsed_s = host_seconds() - start_s;
    char elapsed[32], left[32] = "?", line[512];
    duration_text(elapsed_s, elapsed, sizeof elapsed);
    if (done > start_done && done <= total)
        duration_text(elapsed_s / (double)(done - start_done) * (double)(total - done), left, sizeof left);
    snprintf(line, sizeof line, "[%zu/%zu] %s, %s left: %s", done, total, elapsed, left, what);

    struct winsize window;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col : 80;
    fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
    fflush(stderr);
    shown = true;
}

void progress_clear(void)
{
    if (shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    shown = false;
}
