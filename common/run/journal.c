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

/* Curves of an earlier run of this name would be drawn with ours. */
static void remove_events(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char *path = xasprintf("%s/%s", folder, entry->d_name);
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0)
            remove(path);
        free(path);
    }
    if (d)
        closedir(d);
}

static FILE *open_file(const char *folder, const char *name, const char *end)
{
    char *path = xasprintf("%s/%s%s", folder, name, end);
    FILE *f = fopen(path, "w");
    free(path);
    return f;
}

journal *journal_open(const char *folder, const char *name, const char *about, char *why, size_t why_bytes)
{
    journal *j = xcalloc(1, sizeof *j);
    const double now = wall_s();
    char *inner = xasprintf("%s/%s", folder, name);
    mkdir(folder, 0777);
    mkdir(inner, 0777);
    remove_events(inner);
    j->events_path = xasprintf("%s/events.out.tfevents.%.0f.stepbench", inner, now);
    const bool ok = (j->csv = open_file(folder, name, ".csv")) && (j->jsonl = open_file(folder, name, ".jsonl")) &&
                    (j->events = events_open(j->events_path, now));
    if (!ok) {
        snprintf(why, why_bytes, "the log %s can't be written: %s", inner, strerror(errno));
        journal_close(j, NULL, 0);
        j = NULL;
    } else {
        fprintf(j->csv, "# %s\nstep,tokens", about);
        for (int i = 0; i < NUMBERS; i++)
            fprintf(j->csv, ",%s", numbers[i].name);
        fprintf(j->csv, ",outliers\n");
    }
    free(inner);
    return j;
}

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
    fflush(j->csv);
    fflush(j->jsonl);
    events_flush(j->events);
}

static bool close_file(FILE *f)
{
    const bool ok = !f || !ferror(f);
    return (!f || fclose(f) == 0) && ok;
}

bool journal_close(journal *j, char *why, size_t why_bytes)
{
    if (!j)
        return true;
    const bool whole = j->events;
    bool ok = close_file(j->csv);
    ok = close_file(j->jsonl) && ok;
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
