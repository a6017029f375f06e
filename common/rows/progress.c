/* SPDX-License-Identifier: MIT */
/* The progress of a sweep and what it is doing: one line on stderr that is overwritten, only on a terminal that can. The
 * thread that runs the sweep and the watchdog's may both write it. */
#include "common/rows/rows.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/core/clock.h"

static const double phase_every_s = 0.5;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool shown;
static double start_s, drawn_s;
static size_t start_done, at, of;

static void duration_text(double s, char *out, size_t out_bytes)
{
    long whole = (long)(s + 0.5);
    if (whole >= 3600)
        snprintf(out, out_bytes, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else
        snprintf(out, out_bytes, "%ldm%02lds", whole / 60, whole % 60);
}

static bool can_overwrite(void)
{
    const char *terminal = getenv("TERM");
    return terminal && *terminal && strcmp(terminal, "dumb") != 0 && isatty(STDERR_FILENO);
}

static void draw(const char *what)
{
    drawn_s = host_seconds();
    if (!can_overwrite())
        return;

    double elapsed_s = drawn_s - start_s;
    char elapsed[32], left[32] = "?", line[512];
    duration_text(elapsed_s, elapsed, sizeof elapsed);
    if (at > start_done && at <= of)
        duration_text(elapsed_s / (double)(at - start_done) * (double)(of - at), left, sizeof left);
    snprintf(line, sizeof line, "[%zu/%zu] %s, %s left: %s", at, of, elapsed, left, what);

    struct winsize window;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col : 80;
    fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
    fflush(stderr);
    shown = true;
}

void progress_update(size_t done, size_t total, const char *what)
{
    pthread_mutex_lock(&lock);
    if (start_s == 0) {
        start_s = host_seconds();
        start_done = done; /* what a resumed sweep finds done took no time */
    }
    at = done, of = total;
    draw(what);
    pthread_mutex_unlock(&lock);
}

void progress_phase(const char *what)
{
    pthread_mutex_lock(&lock);
    if (shown && *what && host_seconds() - drawn_s > phase_every_s)
        draw(what);
    pthread_mutex_unlock(&lock);
}

void progress_clear(void)
{
    pthread_mutex_lock(&lock);
    if (shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    shown = false;
    pthread_mutex_unlock(&lock);
}
