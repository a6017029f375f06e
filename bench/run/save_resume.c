/* SPDX-License-Identifier: MIT */
/* How a run goes on from a checkpoint: what must be the same, what is loaded, and the losses of the steps before; see save.h. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/run/save.h"
#include "common/checkpoint/folder.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/model/float8.h"

enum { READERS = 4 };

/* ---- what a checkpoint remembers of a run ---- */

static void note_updates(const run *x, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s, --clip %.9g", x->k.o.precision->name, x->k.o.clip_norm);
}

/* The policy that was noted. */
static const precision *policy_of(const checkpoint_state *s)
{
    OWNED char *name = xasprintf("%.*s", (int)strcspn(s->updates, ","), s->updates);
    return precision_find(name);
}

/* What bf16 saved goes on in float8, and the other way round. */
static bool updates_go_on(const run *x, const checkpoint_state *s, const char *here)
{
    const precision *was = policy_of(s);
    return was && precision_same_state(was, x->k.o.precision) &&
           text_is(s->updates + strlen(was->name), here + strlen(x->k.o.precision->name));
}

void run_state_note(const run *x, checkpoint_state *out)
{
    replica_state_note(x->save.state, out);
    out->step = x->at; /* of the run; updates are fewer where a loss scale left some out */
    out->data = (checkpoint_data){.hash = data_print(x->data),
                                  .seed = x->k.o.seed,
                                  .window = x->k.o.seq + 1,
                                  .samples = x->at * x->batch * x->ranks};
    snprintf(out->data.file, sizeof out->data.file, "%s%s", case_text(x->k.c, "data"), x->overfit ? ", one batch" : "");
    const schedule *s = &x->schedule;
    out->schedule = (checkpoint_schedule){
        .lr = s->lr, .min_lr = s->min_lr, .warmup = s->warmup, .steps = s->steps, .position = out->optimizer.step};
    note_updates(x, out->updates, sizeof out->updates);
    snprintf(out->schedule.kind, sizeof out->schedule.kind, "%s", s->name);
}

/* Why this run is not the one that was saved; NULL: it is. */
static const char *differs(const run *x, const checkpoint_state *s, char *why, size_t why_bytes)
{
    const checkpoint_data *d = &s->data;
    const checkpoint_schedule *was = &s->schedule;
    const schedule *is = &x->schedule;
    const int64_t global = x->batch * x->ranks;
    char data[sizeof d->file], updates[sizeof s->updates];
    note_updates(x, updates, sizeof updates);
    snprintf(data, sizeof data, "%s%s", case_text(x->k.c, "data"), x->overfit ? ", one batch" : "");
    if (d->samples != s->step * global)
        snprintf(why, why_bytes,
                 "it has taken %lld sequences in %lld steps, and this run takes %lld a step: batch x ranks x "
                 "micro-batches must be the same",
                 (long long)d->samples, (long long)s->step, (long long)global);
    else if (!text_is(d->file, data) || d->window != x->k.o.seq + 1 || d->seed != x->k.o.seed)
        snprintf(why, why_bytes, "its data are '%s', windows of %lld, seed %llu; here '%s', %d, %llu", d->file,
                 (long long)d->window, (unsigned long long)d->seed, data, x->k.o.seq + 1,
                 (unsigned long long)x->k.o.seed);
    else if (d->hash && d->hash != data_print(x->data))
        snprintf(why, why_bytes, "its data had other tokens than '%s' has here%s", data,
                 data_made(x->data) ? ": --symbols must be the same" : "");
    else if (*s->updates && !updates_go_on(x, s, updates))
        snprintf(why, why_bytes, "its updates are of %s; here %s", s->updates, updates);
    else if (!text_is(was->kind, is->name) || was->lr != is->lr || was->min_lr != is->min_lr ||
             was->warmup != is->warmup || (was->steps != is->steps && !text_is(is->name, "constant")))
        snprintf(why, why_bytes,
                 "its schedule is %s, --lr %g --min-lr %g --lr-warmup %lld --steps %lld; here %s, %g, %g, %lld, %lld",
                 was->kind, was->lr, was->min_lr, (long long)was->warmup, (long long)was->steps, is->name, is->lr,
                 is->min_lr, (long long)is->warmup, (long long)is->steps);
    else if (s->step > x->steps)
        snprintf(why, why_bytes, "it is after step %lld, and this run has %lld", (long long)s->step,
                 (long long)x->steps);
    else
        return NULL;
    return why;
}

/* ---- loading ---- */

static void plant(run *x)
{
    sb_optimizer_state s;
    const trainer_state all = trainer_state_of(x->r->t);
    if (x->fault == FAULT_LOST_MOMENTS)
        device_memset(x->r->at.d, all.m, 0,
                      (size_t)(all.elements * checkpoint_element(&x->save.state->layout->model, CHECKPOINT_M)));
    trainer_optimizer_state(x->r->t, &s);
    s.step = x->fault == FAULT_LOST_SCHEDULE ? 0 : s.step;
    trainer_set_optimizer_state(x->r->t, &s);
}

bool run_state_is(run *x, const char *folder, int64_t step, const char *what)
{
    char why[400] = "", text[600] = "";
    checkpoint c = {0};
    bool ok = true;
    if (x->r->member)
        ok = checkpoint_open_in(folder, step, NULL, &c, why, sizeof why) &&
             replica_state_is(x->save.state, &c, READERS, why, sizeof why);
    checkpoint_close(&c);
    replica_problem first;
    snprintf(text, sizeof text, "%s: %s", what, why);
    if (replica_agree(&x->k.at, "state", ok, text, &first))
        return true;
    row_status_set(x->k.w, ROW_FAIL, "%s", first.text);
    return false;
}

/* The same on all ranks. */
static bool load(run *x, const checkpoint *c, replica_problem *first)
{
    char why[400] = "";
    checkpoint_loaded loaded;
    const bool ok = !x->r->member || replica_state_load(x->save.state, c, READERS, &loaded, why, sizeof why);
    return replica_agree(&x->k.at, "load", ok, why, first);
}

/* That of --from, or the newest one before `before`. */
static void open_or_end(run *x, const char *folder, int64_t before, checkpoint *c)
{
    char why[1200] = "", text[800];
    const int64_t from = option_int(x->k.s->opt, "from");
    checkpoint_model m;
    const checkpoint_model *want = x->r->member ? &m : NULL;
    if (want)
        m = replica_model(x->r);
    bool ok = from ? checkpoint_open_in(folder, from, want, c, why, sizeof why)
                   : checkpoint_open_before(folder, before, want, c, why, sizeof why);
    if (ok && differs(x, &c->m.state, text, sizeof text)) {
        snprintf(why, sizeof why, "%s is of another run: %s", c->path, text);
        ok = false;
    }
    if (!launch_all(x->k.l, "checkpoint", ok))
        launch_fail(x->k.l, EXIT_CODE_USAGE, "--resume-run: %s", ok ? "another rank can't open it" : why);
}

/* The newest checkpoint whose every byte is what was saved; `oldest` is the first of the folder. Of a run that is over none is
 * loaded. */
static void load_newest(run *x, const char *folder, int64_t oldest, checkpoint *c)
{
    replica_problem first;
    open_or_end(x, folder, INT64_MAX, c);
    while (c->m.state.step < x->steps && !load(x, c, &first)) {
        const int64_t before = c->m.state.step;
        if (before <= oldest)
            launch_fail(x->k.l, EXIT_CODE_FAILURE, "--resume-run: %s", first.text);
        if (launch_rank(x->k.l) == 0)
            warn("%s; the checkpoint before it is taken", first.text);
        checkpoint_close(c);
        open_or_end(x, folder, before, c);
    }
}

/* ---- losses.bin ---- */

static void read_past(run *x, const char *folder)
{
    OWNED char *path = xasprintf("%s/losses.bin", folder);
    const int fd = checkpoint_file_open(path);
    const size_t bytes = (size_t)x->first * sizeof *x->past;
    x->past = xcalloc((size_t)x->first + 1, sizeof *x->past);
    if (fd < 0 || pread(fd, x->past, bytes, 0) != (ssize_t)bytes) {
        if (launch_rank(x->k.l) == 0)
            warn("%s lacks losses of the %lld steps before: the curve begins here", path, (long long)x->first);
        for (int64_t i = 0; i < x->first; i++)
            x->past[i] = (run_past){NAN, NAN, NAN, NAN};
    }
    if (fd >= 0)
        close(fd);
}

static void write_past(run *x, const run_past *from, int64_t first, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *from;
    if (x->save.past >= 0 && pwrite(x->save.past, from, bytes, (off_t)((size_t)first * sizeof *from)) != (ssize_t)bytes)
        warn("losses.bin in %s can't be written; a run that goes on from there lacks the curve so far", x->save.folder);
}

void run_past_open(run *x)
{
    OWNED char *path = xasprintf("%s/losses.bin", x->save.folder);
    if (launch_rank(x->k.l) == 0)
        x->save.past = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    write_past(x, x->past, 0, x->first);
    x->save.noted = x->first;
}

void run_past_note(run *x)
{
    const int64_t first = x->save.noted, n = (x->at < x->steps ? x->at : x->steps) - first;
    if (n <= 0)
        return;
    OWNED run_past *all = xcalloc((size_t)n, sizeof *all);
    run_steps_so_far(x, first, first + n, all);
    write_past(x, all, first, n);
    x->save.noted = first + n;
}

/* ---- going on ---- */

static void say_from_where(const run *x, const checkpoint *c)
{
    const precision *was = policy_of(&c->m.state), *is = x->k.o.precision;
    const float8_recipe *recipe = float8_recipe_find(is->name);
    OWNED char *other = was && was != is ? xasprintf(", from %s to %s", was->name, is->name) : xstrdup("");
    warn("continuing after step %lld of %s%s%s", (long long)x->first, c->path, other,
         recipe && recipe->delayed ? "; its history of largest magnitudes begins anew" : "");
}

bool run_resume(run *x, const char *folder)
{
    char why[800] = "";
    int64_t *steps;
    const int n = checkpoint_folder_list(folder, &steps, why, sizeof why);
    const int64_t from = option_int(x->k.s->opt, "from"), oldest = from ? from : n > 0 ? steps[0] : 0;
    const int64_t newest = n > 0 ? steps[n - 1] : 0;
    if (n >= 0)
        free(steps);
    if (from && newest > from && text_is(folder, x->save.folder))
        launch_fail(
            x->k.l, EXIT_CODE_USAGE,
            "--from %lld: %s has later checkpoints, the last of step %lld; give a new --folder for those of this run",
            (long long)from, folder, (long long)newest);
    if (n == 0 && !from && text_is(folder, x->save.folder) && option_given(x->k.s->opt, "folder")) {
        if (launch_rank(x->k.l) == 0)
            warn("%s has no checkpoint yet: the run begins", folder);
        return true;
    }
    checkpoint c = {0};
    load_newest(x, folder, oldest, &c);
    x->first = x->at = x->timed = c.m.state.step;
    read_past(x, folder);
    const bool over = x->first == x->steps;
    if (over)
        row_status_set(x->k.w, ROW_SKIP, "the run in %s is over: it has all of its %lld steps", folder,
                       (long long)x->steps);
    else if (launch_rank(x->k.l) == 0)
        say_from_where(x, &c);
    if (!over && x->r->member)
        plant(x);
    checkpoint_close(&c);
    return !over && (!option_flag(x->k.s->opt, "check") ||
                     run_state_is(x, folder, x->first, "what the ranks have is not what was saved"));
}
