/* SPDX-License-Identifier: MIT */
/* Saves between steps, and what a signal makes of a run; see save.h. Rank 0's saver knows what became of a save, and says it. */
#include "bench/run/save.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/session/watchdog.h"

enum { FAILURES_MAX = 3 }; /* in a row; then the run ends */

/* ---- opening ---- */

/* A run never writes among the checkpoints of another one. */
static bool is_free(const run *x, const char *from, char *why, size_t why_bytes)
{
    int64_t *steps;
    const int n = text_is(from, x->save.folder) ? 0 : checkpoint_folder_list(x->save.folder, &steps, why, why_bytes);
    if (n > 0)
        snprintf(why, why_bytes,
                 "--folder %s has checkpoints of a run, the last of step %lld: --resume-run %s goes on with it",
                 x->save.folder, (long long)steps[n - 1], x->save.folder);
    if (!text_is(from, x->save.folder) && n >= 0)
        free(steps);
    return n == 0;
}

static void open_folder(run *x, const char *from)
{
    char why[1200] = "";
    const char *given = option_text(x->k.s->opt, "folder");
    run_save *v = &x->save;
    v->kept = *given || *from;
    v->lock = -1;
    bool ok = true;
    if (launch_rank(x->k.l) == 0) {
        if (v->kept) {
            snprintf(v->folder, sizeof v->folder, "%s", *given ? given : from);
        } else {
            checkpoint_folder_sweep("/dev/shm", "stepbench-run-");
            snprintf(v->folder, sizeof v->folder, "/dev/shm/stepbench-run-%d", (int)getpid());
        }
        if (!*given && *from && access(from, F_OK) != 0) /* it is not made: a name that was mistyped has no run */
            snprintf(why, sizeof why, "--resume-run: %s: %s", from, strerror(errno));
        else
            v->lock = checkpoint_folder_open(v->folder, why, sizeof why);
        ok = v->lock >= 0 && is_free(x, from, why, sizeof why);
        if (v->lock >= 0 && !v->kept)
            launch_on_end(x->k.l, checkpoint_folder_drop, v->folder);
    }
    launch_share(x->k.l, "folder of checkpoints", v->folder, sizeof v->folder, 0);
    if (!launch_all(x->k.l, "folder", ok)) {
        if (launch_rank(x->k.l) == 0)
            launch_fail(x->k.l, EXIT_CODE_USAGE, "%s", why);
        launch_barrier(x->k.l, "end"); /* rank 0 ends the job */
    }
}

static bool open_saver(run *x)
{
    char why[800] = "";
    const options *opt = x->k.s->opt;
    run_save *v = &x->save;
    const int checkpoints = (int)option_int(opt, "keep") + 1; /* those that stay, and the one that is written */
    bool ok = !x->r->member || checkpoint_folder_room(v->folder, checkpoints, v->state->layout->bytes, why, sizeof why);
    if (!ddp_agree(&x->k, "room for checkpoints", ok, why))
        return false;
    if (x->r->member) {
        v->way = replica_state_way(x->r, checkpoint_way_parse(option_text(opt, "way")), x->k.graph);
        const checkpoint_save_options o = {.folder = v->folder,
                                           .way = v->way,
                                           .writers = (int)option_int(opt, "writers"),
                                           .keep = (int)option_int(opt, "keep"),
                                           .rank = launch_rank(x->k.l),
                                           .ranks = x->k.ranks,
                                           .timeout_s = launch_timeout_s(x->k.l) / 2,
                                           .beat = watchdog_beat};
        v->saver = checkpoint_saver_create(&o, x->r->at.d, v->state->layout, &v->state->save, why, sizeof why);
        x->r->saver = v->saver;
        v->state->room = v->saver ? checkpoint_saver_room(v->saver) : (checkpoint_room){0};
    }
    return ddp_agree(&x->k, "saver", !x->r->member || v->saver, why);
}

bool run_save_open(run *x)
{
    run_save *v = &x->save;
    const char *from = option_text(x->k.s->opt, "resume-run");
    v->past = v->lock = -1;
    if (x->rung != RUNG_SAVE)
        return true;
    v->every = option_int(x->k.s->opt, "save-every");
    open_folder(x, from);
    v->state = x->r->member ? replica_state_create(x->r) : NULL;
    if (!open_saver(x) || (*from && !run_resume(x, from))) /* it loads through memory of the saver */
        return false;
    run_past_open(x);
    return true;
}

void run_save_close(run *x)
{
    run_save *v = &x->save;
    x->r->saver = NULL;
    checkpoint_saver_free(v->saver);
    replica_state_free(v->state);
    if (v->past >= 0)
        close(v->past);
    if (x->rung == RUNG_SAVE)
        launch_barrier(x->k.l, "checkpoints are over");
    if (v->lock >= 0 && !v->kept) {
        launch_off_end(x->k.l, checkpoint_folder_drop, v->folder);
        checkpoint_folder_remove(v->folder);
    }
    checkpoint_folder_close(v->lock);
    samples_free(&v->durable_ms);
    samples_free(&v->cost_ms);
    free(x->past);
}

/* ---- saves ---- */

static void report(run *x, const checkpoint_saved *s)
{
    run_save *v = &x->save;
    const long long step = v->step;
    v->step = 0;
    v->waited_s += s->waited_s;
    v->in_a_row = s->ok ? 0 : v->in_a_row + 1;
    v->failed += !s->ok;
    if (launch_rank(x->k.l) != 0 || v->apart)
        return;
    if (s->ok) {
        v->saved++;
        v->last = step;
        samples_add(&v->durable_ms, s->committed_s * 1e3);
        if (!option_flag(x->k.s->opt, "quiet"))
            warn("step %lld is saved, after %.3g s, in %s", step, s->committed_s, v->folder);
        return;
    }
    warn("step %lld could not be saved: %s", step, s->why);
    if (v->in_a_row == FAILURES_MAX)
        launch_fail(x->k.l, EXIT_CODE_FAILURE, "%d saves in a row have failed; the last: %s", FAILURES_MAX, s->why);
}

void run_save_end(run *x)
{
    if (x->save.step == 0 || !x->r->member)
        return;
    const checkpoint_saved s = checkpoint_save_wait(x->save.saver);
    report(x, &s);
}

void run_save_begin(run *x)
{
    checkpoint_state note = {.step = 0};
    run_past_note(x);
    if (!x->r->member)
        return;
    run_save_end(x); /* of the one before */
    run_state_note(x, &note);
    x->save.step = x->at;
    checkpoint_save(x->save.saver, &note);
}

bool run_save_last(run *x)
{
    char why[80] = "";
    phase_set("last save of %s", case_name(x->k.c));
    run_save_begin(x);
    run_save_end(x);
    const bool ok = launch_rank(x->k.l) != 0 || x->save.last == x->at;
    snprintf(why, sizeof why, "the state after the last step could not be saved");
    if (!ddp_agree(&x->k, "last save", ok, why)) {
        row_status_set(x->k.w, ROW_FAIL, "%s", why);
        return false;
    }
    return !option_flag(x->k.s->opt, "check") ||
           run_state_is(x, x->save.folder, x->at, "the checkpoint of the last step is not the state of the ranks");
}

void run_save_apart(run *x, bool on)
{
    run_save *v = &x->save;
    v->apart = on;
    if (x->r->member) {
        OWNED char *folder = xasprintf("%s%s", v->folder, on ? "/ladder" : "");
        char why[400];
        checkpoint_saver_move(v->saver, folder);
        if (launch_rank(x->k.l) == 0 && on)
            checkpoint_folder_close(checkpoint_folder_open(folder, why, sizeof why));
    }
    launch_barrier(x->k.l, "folder of the ladder");
    if (launch_rank(x->k.l) == 0 && !on) {
        OWNED char *folder = xasprintf("%s/ladder", v->folder);
        checkpoint_folder_remove(folder);
    }
}

/* ---- signals ---- */

/* The signal that asks this job to end; 0: none. A rank may see it before another, so they ask each other, ten times a second or
 * with every step. */
static int asked(run *x)
{
    enum { MOST = 1000 };
    static const double often_s = 0.1;
    run_save *v = &x->save;
    const int size = launch_size(x->k.l);
    if (size == 1)
        return launch_asked(x->k.l);
    if (x->at < v->look)
        return 0;
    const double now = host_seconds(), mine[2] = {launch_asked(x->k.l), now - v->looked_s};
    OWNED double *all = launch_gathered(x->k.l, "signal", mine, sizeof mine);
    double longest = 0;
    int number = 0;
    for (int r = 0; r < size; r++) {
        number = all[2 * r] > 0 ? (int)all[2 * r] : number;
        longest = all[2 * r + 1] > longest ? all[2 * r + 1] : longest;
    }
    /* The first steps may be fast, whose tokens were there: the way to the next look doubles at most. */
    const double ran = (double)(x->at - v->looked), steps = fmin(fmin(often_s / longest * ran, 2 * ran), MOST);
    v->look = x->at + (steps < 1 ? 1 : (int64_t)steps);
    v->looked = x->at;
    v->looked_s = now;
    return number;
}

static void stop(run *x, int number)
{
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    run_save *v = &x->save;
    phase_set("the last save of %s", case_name(x->k.c));
    run_save_end(x);
    if (v->last != x->at)
        run_save_begin(x);
    run_save_end(x);
    run_log_pause(x);
    if (launch_rank(x->k.l) == 0 && v->last == x->at)
        launch_fail(x->k.l, 128 + number, "%s ends the run after step %lld, which is saved%s%s%s", name,
                    (long long)x->at, v->kept ? ": --resume-run " : "", v->kept ? v->folder : "",
                    v->kept ? " goes on" : "");
    if (launch_rank(x->k.l) == 0)
        launch_fail(x->k.l, 128 + number, "%s ends the run after step %lld, which could not be saved", name,
                    (long long)x->at);
    launch_barrier(x->k.l, "end"); /* rank 0 ends the job */
}

void run_save_step(run *x)
{
    run_save *v = &x->save;
    if (x->at == x->steps || v->apart)
        return;
    if (x->at % v->every == 0)
        run_save_begin(x);
    else if (v->step && v->saver && checkpoint_save_over(v->saver))
        run_save_end(x);
    const int number = asked(x);
    if (number)
        stop(x, number);
}
