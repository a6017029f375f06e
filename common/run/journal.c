/* SPDX-License-Identifier: MIT */
/* Writes the records of a run to its three files; see journal.h. */
#include "common/run/journal.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/core/error.h"

struct journal {
    FILE *csv, *jsonl;
    events *events;
    char *events_path;
};

/* The columns behind step and tokens, their places in a record, and the tags under which TensorBoard shows them. */
static const struct {
    const char *name, *tag;
    size_t at;
} numbers[] = {
#define NUMBER(field, tag)                                                                                             \
    {                                                                                                                  \
#field, tag, offsetof(journal_record, field)                                                                   \
    }
    NUMBER(loss, "loss/mean"),
    NUMBER(loss_max, "loss/max"),
    NUMBER(entropy, "loss/entropy"),
    NUMBER(norm, "gradient/norm"),
    NUMBER(rate, "optimizer/rate"),
    NUMBER(tokens_per_s, "speed/tokens_per_s"),
    NUMBER(mfu_pct, "speed/mfu_pct"),
    NUMBER(step_ms, "speed/step_ms"),
    NUMBER(step_max_ms, "speed/step_max_ms"),
    NUMBER(data_wait_pct, "speed/data_wait_pct"),
    NUMBER(free_bytes, "memory/free_bytes"),
    NUMBER(peak_bytes, "memory/peak_bytes"),
    NUMBER(power_w, "device/power_w"),
    NUMBER(sm_mhz, "device/sm_mhz"),
#undef NUMBER
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static double number_of(const journal_record *r, int i)
{
    double x;
    memcpy(&x, (const char *)r + numbers[i].at, sizeof x);
    return x;
}

static double wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ---- */

/* Calls `what` for each event file in the folder. */
static void each_events(const char *folder, void (*what)(const char *path, events *e, int64_t last), events *e,
                        int64_t last)
{
    struct dirent **all;
    const int n = scandir(folder, &all, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        OWNED char *path = xasprintf("%s/%s", folder, all[i]->d_name);
        if (strncmp(all[i]->d_name, "events.out.tfevents.", 20) == 0)
            what(path, e, last);
        free(all[i]);
    }
    if (n >= 0)
        free(all);
}

static void copy_events(const char *path, events *e, int64_t last)
{
    events_copy(e, path, last);
}

static void remove_events(const char *path, events *e, int64_t last)
{
    (void)e, (void)last;
    remove(path);
}

/* The step of a line of either file; -1: it has none. */
static int64_t step_of(const char *line)
{
    static const char json[] = "{\"step\":";
    line += strncmp(line, json, sizeof json - 1) == 0 ? sizeof json - 1 : 0;
    return *line >= '0' && *line <= '9' ? strtoll(line, NULL, 10) : -1;
}

/* Lines that are whole and not of later steps than `last` go to `out`, if any. Returns the last one's step. */
static int64_t take_lines(const char *path, int64_t last, FILE *out)
{
    OWNED_FILE FILE *f = fopen(path, "r");
    OWNED char *line = NULL;
    size_t room = 0;
    int64_t step, most = 0;
    for (ssize_t n; f && (n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n' && (step = step_of(line)) <= last;)
        if (step > 0) {
            most = step;
            if (out)
                fputs(line, out);
        }
    return most;
}

static void write_head(FILE *csv, const char *about)
{
    fprintf(csv, "# %s\nstep,tokens", about);
    for (int i = 0; i < NUMBERS; i++)
        fprintf(csv, ",%s", numbers[i].name);
    fprintf(csv, ",outliers\n");
}

/* A file beside the old one, with what stays of it, which takes its place. */
static FILE *open_file(const char *folder, const char *name, const char *end, const char *about, int64_t last)
{
    OWNED char *path = xasprintf("%s/%s%s", folder, name, end), *begun = xasprintf("%s.new", path);
    FILE *f = fopen(begun, "w");
    if (f && about)
        write_head(f, about);
    if (f && last > 0)
        take_lines(path, last, f);
    if (f && (fflush(f) != 0 || rename(begun, path) != 0)) {
        fclose(f);
        f = NULL;
    }
    return f;
}

static events *open_event_file(journal *j, const char *folder, int64_t last)
{
    const double now = wall_s();
    OWNED char *begun = xasprintf("%s/new.tfevents", folder);
    j->events_path = xasprintf("%s/events.out.tfevents.%.0f.stepbench", folder, now);
    events *e = events_open(begun, now);
    if (e) {
        each_events(folder, copy_events, e, last);
        each_events(folder, remove_events, NULL, 0); /* curves of an earlier run would be drawn with ours */
        events_flush(e);
        rename(begun, j->events_path);
    }
    return e;
}

journal *journal_open(const char *folder, const char *name, const char *about, int64_t step, int64_t *last, char *why,
                      size_t why_bytes)
{
    journal *j = xcalloc(1, sizeof *j);
    OWNED char *inner = xasprintf("%s/%s", folder, name), *path = xasprintf("%s.csv", inner);
    mkdir(folder, 0777);
    mkdir(inner, 0777);
    *last = step > 0 ? take_lines(path, step, NULL) : 0; /* the CSV file has a record last: then the others have it */
    const bool ok = (j->csv = open_file(folder, name, ".csv", about, *last)) &&
                    (j->jsonl = open_file(folder, name, ".jsonl", NULL, *last)) &&
                    (j->events = open_event_file(j, inner, *last));
    if (!ok) {
        snprintf(why, why_bytes, "the log %s can't be written: %s", inner, strerror(errno));
        journal_close(j, NULL, 0);
        j = NULL;
    }
    return j;
}

/* ---- writing ---- */

void journal_write(journal *j, const journal_record *r)
{
    const double now = wall_s();
    fprintf(j->csv, "%lld,%lld", (long long)r->step, (long long)r->tokens);
    fprintf(j->jsonl, "{\"step\":%lld,\"tokens\":%lld", (long long)r->step, (long long)r->tokens);
    for (int i = 0; i < NUMBERS; i++) {
        const double x = number_of(r, i);
        fprintf(j->csv, isfinite(x) ? ",%.9g" : ",nan", x);
        fprintf(j->jsonl, isfinite(x) ? ",\"%s\":%.9g" : ",\"%s\":null", numbers[i].name, x);
        if (!isnan(x))
            events_scalar(j->events, now, r->step, numbers[i].tag, x);
    }
    fprintf(j->csv, ",%d\n", r->outliers);
    fprintf(j->jsonl, ",\"outliers\":%d}\n", r->outliers);
    events_flush(j->events);
    fflush(j->jsonl);
    fflush(j->csv); /* last, see journal_open */
}

bool journal_close(journal *j, char *why, size_t why_bytes)
{
    if (!j)
        return true;
    const bool whole = j->events;
    bool ok = file_close(j->csv);
    ok = file_close(j->jsonl) && ok;
    ok = events_close(j->events) && ok;
    if (!ok && why)
        snprintf(why, why_bytes, "the log beside %s could not be written", j->events_path);
    else if (whole && why)
        ok = events_check(j->events_path, why, why_bytes);
    free(j->events_path);
    free(j);
    return ok;
}

events *journal_events(journal *j)
{
    return j->events;
}
