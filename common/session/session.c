/* SPDX-License-Identifier: MIT */
/* From argv to the exit code of a bench; see session.h. */
#include "common/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/build_info.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/core/units.h"
#include "common/session/folder_lock.h"
#include "common/session/library.h"
#include "common/session/machine.h"
#include "common/session/row_output.h"
#include "common/record/nvtx.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"

static timer_kind timer_of(const char *name)
{
    static const char *const names[] = {
        [TIMER_AUTO] = "auto", [TIMER_EVENT] = "event", [TIMER_GRAPH] = "graph", [TIMER_HOST] = "host"};
    size_t kind = 0;
    while (strcmp(name, names[kind]) != 0) /* the option takes no other word */
        kind++;
    return (timer_kind)kind;
}

static timing timing_of(const options *o)
{
    return (timing){.kind = timer_of(option_text(o, "timer")),
                    .warmup = (int)option_int_at(o, "warmup", 0),
                    .iters = (int)option_int(o, "iters"),
                    .settle_s = option_real(o, "settle"),
                    .max_s = option_real(o, "max-time"),
                    .cold_l2 = strcmp(option_text(o, "l2"), "cold") == 0};
}

void *session_cache(session *s, const char *name, size_t bytes, void (*clear)(void *data))
{
    void *data = cache_find(s->kept, name, "");
    return data ? data : cache_add(s->kept, name, "", bytes, clear);
}

static bool option_is(const options *o, const char *name, const char *value)
{
    return strcmp(option_text(o, name), value) == 0;
}

/* --sustain as SESSION_SUSTAIN has it: the bench also declares the column. */
static double sustain_of(const options *o)
{
    const column_spec *c = options_bench(o)->columns;
    while (c->name && strcmp(c->name, "sustain_s") != 0)
        c++;
    return c->name ? option_real(o, "sustain") : 0;
}

void session_check(const options *o)
{
    const char *machine = option_text(o, "machine");
    if (option_is(o, "device", "cpu") && (option_is(o, "timer", "event") || option_is(o, "timer", "graph")))
        die(EXIT_CODE_USAGE, "--timer %s needs --device cuda; on the cpu there are auto and host",
            option_text(o, "timer"));
    if (option_is(o, "device", "cpu") && option_given(o, "gpu"))
        die(EXIT_CODE_USAGE, "--gpu needs --device cuda; this run is on the cpu");
    if (option_is(o, "timer", "graph") && option_is(o, "l2", "cold"))
        die(EXIT_CODE_USAGE, "--l2 cold is not available inside a graph; --timer auto, event and host allow it");
    if (sustain_of(o) > 0 && sustain_of(o) < 1)
        die(EXIT_CODE_USAGE, "--sustain %g is too short for a GPU to settle; give at least 1 second, or 0 for none",
            sustain_of(o));
    if (option_is(o, "csv", ""))
        die(EXIT_CODE_USAGE, "--csv is empty; it takes a file, none, auto or -");
    if (option_is(o, "csv", "-") && option_flag(o, "json"))
        die(EXIT_CODE_USAGE, "--csv - and --json both write rows to stdout; give one of them");
    row_output_check(o);
    if (option_flag(o, "resume") && (option_is(o, "csv", "none") || option_is(o, "csv", "-")))
        die(EXIT_CODE_USAGE, "--resume needs the rows of a CSV file; it does not work with --csv %s",
            option_text(o, "csv"));
    if (!*machine || *machine == '.' ||
        machine[strspn(machine, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789._-")])
        die(EXIT_CODE_USAGE,
            "--machine %s is not the name of a folder; allowed are letters, digits, '-', '_' and inner '.'", machine);
}

static void dry_run(const options *o, const session_hooks *hooks)
{
    for (size_t i = 0; i < cases_count(o); i++) {
        bench_case *c = case_at(o, i);
        double bytes = hooks->estimate_bytes ? hooks->estimate_bytes(o, c) : 0;
        say("%s", case_name(c));
        if (bytes > 0)
            say("  (about %.3g GiB)", bytes / GIB);
        say("\n");
        case_free(c);
    }
}

/* The name that the user gives or, by default, the one of the GPUs that are visible. Caller frees. */
static char *machine_of(const options *o, device_kind kind, const device_info *info)
{
    if (!option_is(o, "machine", "auto"))
        return xstrdup(option_text(o, "machine"));
    device_info one;
    char slug[96], *uuids = xstrdup("");
    machine_slug(kind, info, slug, sizeof slug);
    for (int i = 0; kind == DEVICE_CUDA && i < info->count && device_look(kind, i, &one); i++) {
        char *more = xasprintf("%s%s ", uuids, one.uuid);
        free(uuids);
        uuids = more;
    }
    char *name = machine_name(slug, uuids);
    free(uuids);
    return name;
}

/* What ./run_all.sh asks before it plans: names and values, tab-separated. */
static void print_where(const options *o)
{
    const device_kind kind = option_is(o, "device", "cpu") ? DEVICE_CPU : DEVICE_CUDA;
    device_info info;
    if (!device_look(kind, 0, &info))
        die(EXIT_CODE_FAILURE, "there is no GPU to look at");
    const char *misfit = kind == DEVICE_CPU ? NULL : device_misfit(&info, device_archs());
    if (misfit)
        die(EXIT_CODE_USAGE, "%s", misfit);
    const int gpus = kind == DEVICE_CPU ? 0 : info.count;
    OWNED char *machine = machine_of(o, kind, &info);
    say("machine\t%s\ncommit\t%s\ndirty\t%d\ngpus\t%d\ndevice\t%s\n", machine, build_commit(), build_dirty(), gpus,
        info.name);
    for (int i = 0; i < gpus && device_look(kind, i, &info); i++)
        say("gpu\t%s\n", info.uuid);
}

/* A failed allocation says more than what the bench made of it, unless it found a wrong result. */
static void note_no_memory(session *s, row *w)
{
    size_t asked;
    const char *tag;
    if (!memory_failed(s->mem, &asked, &tag) || row_status_get(w) == ROW_FAIL)
        return;
    row_status_set(w, ROW_OOM, "%s needs %zu bytes (%.3g GiB); the case holds %.3g GiB and %.3g GiB are free", tag,
                   asked, (double)asked / GIB, (double)memory_current(s->mem) / GIB,
                   (double)device_free_bytes(s->dev) / GIB);
}

static void note_conditions(session *s, row *w)
{
    const device_conditions c = device_state(s->dev);
    row_conditions of_row = {c.sm_mhz, c.sm_min_mhz, c.sm_median_mhz, c.power_w, c.readings, ""};
    memcpy(of_row.throttle, c.throttle, sizeof of_row.throttle);
    row_state(w, &of_row);
}

static void run_case(session *s, const session_hooks *hooks, const bench_case *c)
{
    phase_set("%s", case_name(c));
    scope_push(case_key(c));
    row *w = row_begin(s->rows, c);
    device_state_note(s->dev);
    memory_failed_clear(s->mem);
    memory_peak_reset(s->mem);
    hooks->run(s, c, w);
    note_no_memory(s, w);
    note_conditions(s, w);
    memory_release_all(s->mem);

    watchdog_hold();
    progress_clear();
    row_commit(w);
    watchdog_release();
    watchdog_beat();
    scope_pop();
}

/* The case once more, recorded; its row was written when it was timed. */
static void profile_case(session *s, const session_hooks *hooks, const bench_case *c)
{
    row *w = row_begin(s->rows, c);
    memory_failed_clear(s->mem);
    profile_case_begin(s, c);
    hooks->run(s, c, w);
    profile_case_end(s);
    note_no_memory(s, w);
    memory_release_all(s->mem);
    progress_clear();
    if (row_status_get(w) == ROW_FAIL || row_status_get(w) == ROW_OOM)
        warn("no profile of %s: %s", case_name(c), row_reason(w));
    row_drop(w);
}

static void profile_cases(session *s, const session_hooks *hooks)
{
    const size_t total = cases_count(s->opt);
    s->sustain_s = 0; /* what is recorded is a step, not a state */
    profile_pass_begin(s);
    for (size_t i = 0; i < total; i++) {
        bench_case *c = case_at(s->opt, i);
        if (!s->peers || s->peers->rank == 0)
            progress_update(i, total, case_name(c));
        profile_case(s, hooks, c);
        case_free(c);
    }
    progress_clear();
    profile_pass_end(s);
}

static void run_cases(session *s, const session_hooks *hooks)
{
    size_t total = cases_count(s->opt);
    bool resume = option_flag(s->opt, "resume");
    for (size_t i = 0; i < total; i++) {
        bench_case *c = case_at(s->opt, i);
        bool there = resume && rows_has(s->rows, c);
        if (resume && s->peers)
            s->peers->share(s->peers->user, &there, sizeof there);
        if (!there) {
            if (!s->peers || s->peers->rank == 0)
                progress_update(i, total, case_name(c));
            run_case(s, hooks, c);
        }
        case_free(c);
    }
    progress_clear();
}

/* Only rank 0 knows the rows that --resume keeps. */
static bool anything_measured(const session *s)
{
    bool measured = rows_measured(s->rows);
    if (option_flag(s->opt, "resume") && s->peers)
        s->peers->share(s->peers->user, &measured, sizeof measured);
    return measured;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return xstrdup(".");
    return xasprintf("%.*s", slash == path ? 1 : (int)(slash - path), path);
}

options *session_options(const bench_info *info, int argc, char **argv)
{
    const char *no_cuda = device_no_cuda_reason();
    options *o = options_parse(info, argc, argv, &(options_env){no_cuda ? "cpu" : "cuda", no_cuda, &rows_layout});
    library_check();
    return o;
}

int session_main(const bench_info *info, const session_hooks *hooks, int argc, char **argv)
{
    return session_main_as(NULL, info, hooks, argc, argv);
}

int session_main_as(const session_peers *peers, const bench_info *info, const session_hooks *hooks, int argc,
                    char **argv)
{
    const bool first = !peers || peers->rank == 0;
    options *o = session_options(info, argc, argv);
    session_check(o);
    if (option_flag(o, "dry-run") || option_flag(o, "where")) {
        if (option_flag(o, "where"))
            print_where(o);
        else
            dry_run(o, hooks);
        options_free(o);
        return EXIT_CODE_OK;
    }
    if (first && option_is(o, "device", "cpu") && !option_given(o, "device"))
        warn("running on the cpu; %s", device_no_cuda_reason());

    session s = {.opt = o, .timing = timing_of(o), .peers = peers};
    s.sustain_s = sustain_of(o);
    const bool to_stdout = option_flag(o, "json") || option_is(o, "csv", "-");
    watchdog_hold();                        /* a rank's watcher may end it, and writes out what was said */
    FILE *records = output_take(to_stdout); /* before any library may print */
    watchdog_release();
    watchdog_start(peers ? 0 : option_real(o, "timeout"));
    s.dev = device_open(option_is(o, "device", "cpu") ? DEVICE_CPU : DEVICE_CUDA,
                        peers ? peers->gpu : (int)option_int(o, "gpu"));
    if (peers)
        peers->opened(peers->user, s.dev);
    s.mem = memory_create(s.dev);
    device_sense(s.dev, option_real(o, "sensors") * 1e-3);
    s.idle_w = device_idle_w(s.dev);
    if (s.timing.cold_l2)
        device_l2_flush(s.dev); /* its buffer is made now, not when a case holds all memory */
    OWNED char *machine = machine_of(o, device_kind_of(s.dev), device_get_info(s.dev));
    OWNED char *results = xasprintf("results/%s", machine);
    const bool no_file = option_is(o, "csv", "none") || option_is(o, "csv", "-") || !first;
    OWNED char *csv = no_file                       ? NULL
                      : option_is(o, "csv", "auto") ? xasprintf("%s/%s.csv", results, info->name)
                                                    : xstrdup(option_text(o, "csv"));
    s.results_dir = results;
    s.csv_path = csv;
    const char *campaign = getenv("STEPBENCH_RUN"); /* ./run_all.sh sets it */
    row_output output = {.o = o};
    if (first)
        output = row_output_begin(o, to_stdout ? records : NULL, csv);
    const int lock = csv ? folder_lock(csv) : -1; /* before --resume reads what is there */
    s.rows = rows_open(o,
                       &(rows_info){.csv_path = csv,
                                    .machine = machine,
                                    .device_name = device_get_info(s.dev)->name,
                                    .gpu_uuid = device_get_info(s.dev)->uuid,
                                    .campaign = campaign && *campaign ? campaign : NULL,
                                    .device = option_text(o, "device"),
                                    .idle_w = s.idle_w,
                                    .quiet = option_flag(o, "quiet") || !first,
                                    .silent = !first,
                                    .written = first ? row_output_write : NULL,
                                    .user = &output},
                       option_flag(o, "resume") && first);
    watchdog_rows(csv);
    if (csv) {
        OWNED char *folder = folder_of(csv);
        machine_report(s.dev, o, folder, rows_run_id(s.rows));
    }

    s.kept = cache_create();
    if (hooks->start)
        hooks->start(&s);
    run_cases(&s, hooks);
    if (option_flag(o, "profile"))
        profile_cases(&s, hooks);
    phase_set("finishing");
    if (hooks->finish)
        hooks->finish(&s);
    cache_free(s.kept);
    const bool measured = anything_measured(&s);
    int code = rows_close(s.rows);
    folder_unlock(lock);
    if (csv)
        say("results: %s\n", csv);
    row_output_end(&output);
    phase_set("closing the device"); /* a driver may hang here, too */
    memory_destroy(s.mem);
    device_close(s.dev);
    watchdog_stop();
    watchdog_hold();
    s.lost = !output_give_back() || s.lost;
    watchdog_release();
    options_free(o);
    if (code == EXIT_CODE_OK)
        code = s.lost ? EXIT_CODE_FAILURE : measured ? EXIT_CODE_OK : EXIT_CODE_UNSUPPORTED;
    return code;
}
