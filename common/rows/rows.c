/* SPDX-License-Identifier: MIT */
/* The rows of a run: opening the file, finding what earlier runs left, closing. */
#include "common/rows/rows.h"

#include "common/core/build_info.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/core/results.h"
#include "common/rows/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STATUSES = ROW_SKIP + 1 };

/* Whether a kept row stands for one of this run: a cold, unsustained or unverified one does not for a warm, sustained, verified
 * one, nor does one with another OPTION_SETTING. Seed, samples, warm-up and settling may differ. */
static bool same_way(const row_writer *r, const csv *file, size_t i)
{
    static const char *const ways[][2] = {{"l2", "l2"}, {"timer_asked", "timer"}};
    for (size_t k = 0; k < sizeof ways / sizeof *ways && !options_bench(r->o)->untimed; k++)
        if (!csv_is(file, i, ways[k][0], option_text(r->o, ways[k][1])))
            return false;
    if (csv_column(file, "sustain_s") >= 0 && option_real(r->o, "sustain") > 0 &&
        csv_real(file, i, "sustain_s") !=
            option_real(r->o, "sustain")) /* NOLINT: the same text gives the same number */
        return false;
    return (csv_is(file, i, "check", "1") || !option_flag(r->o, "check")) &&
           options_same_settings(r->o, csv_cell(file, i, "options"));
}

/* Whether a kept row and this run's may stand side by side: one commit on one GPU and, in a ./run_all.sh, one run. */
static bool may_stand_beside(const row_writer *r, const csv *file, size_t i, const char *campaign)
{
    return csv_is(file, i, "commit", build_commit()) && csv_is(file, i, "gpu_uuid", r->gpu_uuid) &&
           (!campaign || csv_is(file, i, "campaign", campaign));
}

static void read_kept(row_writer *r, const char *campaign)
{
    size_t others = 0;
    OWNED_CSV csv *file = csv_read(r->info.csv_path);
    if (!file)
        return;
    OWNED char *machine = results_machine(r->info.csv_path);
    results_join(file, machine, (const char *const[]){"campaign", "machine", "device", "options", NULL});
    csv_warn_lost(file, r->info.csv_path);
    size_t params = options_param_count(r->o);
    OWNED const char **values = xcalloc(params, sizeof *values);
    r->kept = xcalloc(file->rows, sizeof *r->kept);
    for (size_t i = 0; i < file->rows; i++) {
        if (!csv_is(file, i, "bench", options_bench(r->o)->name) || csv_real(file, i, "method") != ROWS_METHOD ||
            !csv_is(file, i, "machine", r->info.machine) || !csv_is(file, i, "device", r->info.device) ||
            !same_way(r, file, i))
            continue;
        int status = 0;
        while (status < STATUSES && !csv_is(file, i, "status", row_status_names[status]))
            status++;
        if (status == STATUSES)
            continue;
        if (!may_stand_beside(r, file, i, campaign)) {
            others++;
            continue;
        }
        for (size_t p = 0; p < params; p++)
            values[p] = csv_cell(file, i, options_param_name(r->o, p));
        char *key = case_key_of(r->o, values, csv_cell(file, i, "variant"));
        r->kept[r->kept_n++] = (kept_row){key, (row_status)status};
    }
    if (others && !r->info.silent)
        warn("--resume: %zu row%s of another commit, GPU or run in %s %s", others, others == 1 ? "" : "s",
             r->info.csv_path, others == 1 ? "does not count" : "do not count");
}

/* Before a file of other columns is moved aside. */
static void refuse_others(const char *path)
{
    OWNED_CSV csv *file = csv_read(path);
    char *why = results_refusal(file, path);
    if (why)
        die(EXIT_CODE_USAGE, "--resume: %s", why);
}

static void add_facts(const row_writer *r)
{
    OWNED char *machine = results_machine(r->info.csv_path), *lines = run_facts_lines(r);
    results_facts_append(machine, lines);
}

row_writer *rows_open(const options *o, const rows_info *info, bool resume)
{
    row_writer *r = xcalloc(1, sizeof *r);
    r->o = o;
    r->info = *info;
    r->gpu_uuid = info->gpu_uuid ? info->gpu_uuid : "";
    for (const column_spec *s = options_bench(o)->columns; s && s->name; s++)
        r->columns++;
    r->header = rows_header(o);

    time_t now = time(NULL);
    struct tm utc;
    size_t used = strftime(r->run_id, sizeof r->run_id, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    snprintf(r->run_id + used, sizeof r->run_id - used, "-%ld", (long)getpid());
    r->campaign = info->campaign ? info->campaign : r->run_id;
    run_facts_fill(r);
    if (r->info.csv_path) {
        if (resume)
            refuse_others(r->info.csv_path);
        rows_append(r->info.csv_path, r->header, NULL);
        if (resume)
            read_kept(r, info->campaign);
        add_facts(r);
    }
    return r;
}

/* The key of a case by the cells of its row, as those of kept rows are. Caller frees. */
static char *row_key(const options *o, const bench_case *c)
{
    const size_t params = options_param_count(o);
    OWNED const char **values = xcalloc(params, sizeof *values);
    for (size_t p = 0; p < params; p++)
        values[p] = case_cell(c, p);
    return case_key_of(o, values, case_variant(c));
}

bool rows_has(row_writer *r, const bench_case *c)
{
    OWNED char *key = row_key(r->o, c);
    size_t i = r->kept_n; /* the latest row of a case counts */
    while (i > 0 && strcmp(r->kept[i - 1].key, key) != 0)
        i--;
    if (i == 0)
        return false;
    const row_status status = r->kept[i - 1].status;
    r->kept_used++;
    r->fails += status == ROW_FAIL;
    r->missing += status == ROW_OOM || status == ROW_SKIP;
    return true;
}

const char *rows_run_id(const row_writer *r)
{
    return r->run_id;
}

const char *rows_campaign(const row_writer *r)
{
    return r->campaign;
}

const char *rows_gpu_uuid(const row_writer *r)
{
    return r->gpu_uuid;
}

bool rows_measured(const row_writer *r)
{
    return r->missing < r->rows + r->kept_used || r->rows + r->kept_used == 0;
}

/* Nobody should have to look for the reason of an exit code in a table that --quiet leaves out. */
static void say_what_is_wrong(const row_writer *r)
{
    const size_t all = r->rows + r->kept_used;
    const char *first = r->fails ? r->first_fail : r->first_missing;
    if (r->fails)
        warn("%zu of %zu results %s wrong%s%s", r->fails, all, r->fails == 1 ? "is" : "are",
             first ? "; the first: " : ", as an earlier run found", first ? first : "");
    else if (!rows_measured(r) && !first)
        warn("nothing could be measured; earlier runs found no case that can run here");
    else if (!rows_measured(r) && all == 1)
        warn("nothing could be measured: %s", first);
    else if (!rows_measured(r))
        warn("none of %zu cases could be measured; the first: %s", all, first);
}

int rows_close(row_writer *r)
{
    progress_clear();
    if (!r->info.quiet) {
        say("\n%zu row%s", r->rows, r->rows == 1 ? "" : "s");
        if (r->kept_used)
            say(", %zu kept from earlier runs", r->kept_used);
        if (r->fails)
            say(", %zu with a wrong result", r->fails);
        const bool shown = strcmp(option_text(r->o, "csv"), "-") == 0;
        say(r->info.csv_path ? " in %s\n" : "%s\n", r->info.csv_path ? r->info.csv_path
                                                    : shown          ? " on stdout"
                                                                     : ", not stored");
    }
    if (!r->info.silent)
        say_what_is_wrong(r);
    int code = r->fails ? EXIT_CODE_VERIFY : EXIT_CODE_OK;
    for (size_t i = 0; i < r->kept_n; i++)
        free(r->kept[i].key);
    free(r->kept);
    free(r->header);
    free(r->run_header);
    free(r->run_line);
    free(r->first_fail);
    free(r->first_missing);
    free(r);
    return code;
}
