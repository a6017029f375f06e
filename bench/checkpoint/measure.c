/* SPDX-License-Identifier: MIT */
/* Saves between steps, and the row: what a save costs beside what the law says; see checkpoint.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "bench/checkpoint/checkpoint.h"
#include "common/core/clock.h"
#include "common/core/stats.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/session/watchdog.h"

/* What a save is measured by; the stall with the step behind it. */
enum { STALLED, CALLED, COPIED, WRITTEN, SYNCED, DURABLE, SAVE_TIMES };

typedef struct timed { /* milliseconds of the slowest rank, or rank 0's */
    samples step, compute, beside, save[SAVE_TIMES];
    double first[SAVE_TIMES]; /* of the save that is not measured */
    samples load, into;       /* seconds of a load */
    double verify_gb_s;
    int64_t loaded_bytes, into_bytes; /* that rank 0 reads */
    bool direct, cold;
} timed;

static double now_ms(void)
{
    return host_seconds() * 1e3;
}

/* A step that the host waits for. */
static double step_ms(saving *s)
{
    const double start = now_ms();
    replica_step(s->r);
    replica_settle(s->r);
    return now_ms() - start;
}

/* What events say of the last step's phases: nothing if it was replayed as a graph. */
static step_times phases_of(const saving *s)
{
    return s->r->member && !s->k->graph ? trainer_times(s->r->t) : (step_times){0};
}

/* Steps without a save. They are timed after each save, too: a GPU that has worked for longer is hotter, and steps beside a
 * save are compared with steps on a GPU that is as hot. */
static void plain_steps(saving *s, timed *t)
{
    const int steps = s->k->s->timing.iters;
    launch_barrier(s->k->l, "plain steps");
    for (int i = 0; i < steps; i++) {
        const double ms = step_ms(s);
        const step_times x = phases_of(s);
        const double mine[2] = {ms, x.forward + x.backward};
        OWNED double *most = launch_most_each(s->k->l, "step", mine, 2, s->k->ranks);
        samples_add(&t->step, most[0]);
        if (!s->k->graph)
            samples_add(&t->compute, most[1]);
    }
}

/* One save with the step behind it, then steps until it is durable. */
static bool one_save(saving *s, timed *t, bool first)
{
    double mine[SAVE_TIMES];
    checkpoint_saved saved;
    launch_barrier(s->k->l, "save");
    const double start = now_ms();
    saving_begin(s);
    mine[CALLED] = now_ms() - start;
    step_ms(s);
    mine[STALLED] = now_ms() - start;
    const step_times x = phases_of(s);
    phase_set("saves of %s: call %.1f ms, forward %.1f, backward %.1f, updates %.1f", case_name(s->k->c), mine[CALLED],
              x.forward, x.backward, x.optimizer);
    while (!launch_all(s->k->l, "over", !s->saver || checkpoint_save_over(s->saver)))
        samples_add(&t->beside, ddp_most(s->k, "beside", step_ms(s)));
    if (!saving_finish(s, &saved))
        return false;
    mine[COPIED] = saved.copied_s * 1e3;
    mine[WRITTEN] = saved.written_s * 1e3;
    mine[SYNCED] = saved.synced_s * 1e3;
    mine[DURABLE] = saved.committed_s * 1e3;
    t->direct = saved.direct;
    OWNED double *most = launch_most_each(s->k->l, "save", mine, SAVE_TIMES, s->k->ranks);
    most[STALLED] -= stats_of(&t->step).median;
    for (int i = 0; i < SAVE_TIMES && !first; i++)
        samples_add(&t->save[i], most[i]);
    if (first)
        memcpy(t->first, most, sizeof t->first);
    return true;
}

static const char *file_system(const char *folder)
{
    static const struct {
        long magic;
        const char *name;
    } known[] = {{0x01021994, "tmpfs"},   {0xEF53, "ext4"}, {0x58465342, "xfs"},  {0x9123683E, "btrfs"},
                 {0x794c7630, "overlay"}, {0x6969, "nfs"},  {0x65735546, "fuse"}, {0x2fc12fc1, "zfs"}};
    struct statfs st;
    if (statfs(folder, &st) != 0)
        return "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].magic == (long)st.f_type)
            return known[i].name;
    return "other";
}

/* Memory is all that a tmpfs has. */
static bool forget_files(const saving *s, const checkpoint *c)
{
    const bool cold = !text_is(file_system(s->folder), "tmpfs");
    for (int f = 0; cold && f < c->m.layout->files; f++) {
        OWNED char *path = xasprintf("%s/%s", c->path, c->m.layout->file[f].name);
        saving_forget(path);
    }
    return cold;
}

/* GB/s of a rank that reads and hashes all blocks as a load does, without a device; all ranks at once. */
static double verify_rate(const saving *s, checkpoint *c)
{
    char why[400];
    checkpoint_loaded all = {0};
    launch_barrier(s->k->l, "verify");
    const bool ok =
        !s->r->member || checkpoint_load(c, NULL, NULL, s->readers, (checkpoint_room){0}, &all, why, sizeof why);
    const double seconds = ddp_most(s->k, "verify", ok ? all.seconds : INFINITY);
    return (double)all.read_bytes / seconds / 1e9;
}

/* Loads the checkpoint --loads times; `x` NULL: this rank has no part in it. */
static bool time_loads(saving *s, timed *t, const ddp_case *k, const char *what, replica_state *x, const checkpoint *c,
                       samples *seconds, int64_t *bytes)
{
    const int loads = (int)option_int(k->s->opt, "loads");
    char why[400] = "";
    bool ok = true;
    for (int i = 0; i < loads && ok; i++) {
        checkpoint_loaded one = {0};
        t->cold = launch_rank(k->l) == 0 && forget_files(s, c);
        launch_barrier(k->l, what);
        ok = saving_agree(s, what, !x || replica_state_load(x, c, s->readers, &one, why, sizeof why), why, ROW_FAIL);
        samples_add(seconds, ddp_most(k, what, one.seconds));
        *bytes = one.read_bytes;
    }
    return ok;
}

/* Loads the checkpoint into ranks, or a strategy, that did not write it, and compares every byte. */
static bool load_into(saving *s, timed *t, const checkpoint *c)
{
    char why[400] = "";
    const int ranks = (int)case_int(s->k->c, "load-ranks");
    ddp_case k = *s->k;
    ddp_case_set_strategy(&k, case_text(k.c, "load-into"), ranks ? ranks : k.ranks);
    replica *r = ddp_replica(s->k, &k.o, &k.p);
    if (!r)
        return false;
    k.ranks = launch_size(k.l);
    replica_state *x = r->member ? replica_state_create(r) : NULL;
    if (x && s->x)
        x->room = s->x->room;
    const bool ok =
        time_loads(s, t, &k, "load into others", x, c, &t->into, &t->into_bytes) &&
        saving_agree(s, "load into others", !x || replica_state_is(x, c, s->readers, why, sizeof why), why, ROW_FAIL);
    replica_state_free(x);
    replica_free(r);
    return ok;
}

static bool load_back(saving *s, timed *t)
{
    char why[400] = "";
    checkpoint c = {0};
    bool ok = checkpoint_open_in(s->folder, -1, NULL, &c, why, sizeof why);
    ok = saving_agree(s, "load", ok, why, ROW_FAIL) &&
         time_loads(s, t, s->k, "load", s->x, &c, &t->load, &t->loaded_bytes);
    if (ok)
        t->verify_gb_s = verify_rate(s, &c);
    ok = ok && (text_is(case_text(s->k->c, "load-into"), "none") || load_into(s, t, &c));
    checkpoint_close(&c);
    return ok;
}

/* ---- the row ---- */

/* What the stall must be by the ceilings of this run, in milliseconds. */
static double law_ms(const saving *s, const saving_ceilings *top, double rank_bytes, double all_bytes, double compute)
{
    const double copy = rank_bytes / top->down / 1e6;
    switch (s->way) {
    case CHECKPOINT_SYNC: return fmax(copy, all_bytes / top->write / 1e6);
    case CHECKPOINT_ASYNC: return copy;
    case CHECKPOINT_LAZY: return fmax(0, copy - compute);
    case CHECKPOINT_DEVICE: return rank_bytes / top->within / 1e6;
    }
    return NAN;
}

static void fill_stall(saving *s, const timed *t, double law)
{
    row *w = s->k->w;
    const double step = stats_of(&t->step).median, stall = stats_of(&t->save[STALLED]).median;
    const double mtbf_s = option_real(s->k->s->opt, "mtbf") * 3600, lost = fmax(stall, 0) / 1e3;
    const double interval = sqrt(2 * lost * mtbf_s);
    row_real(w, "step_ms", step);
    row_real(w, "fwd_bwd_ms", stats_of(&t->compute).median);
    row_real(w, "stall_ms", stall);
    row_real(w, "stall_min_ms", stats_of(&t->save[STALLED]).min);
    row_real(w, "stall_max_ms", stats_of(&t->save[STALLED]).max);
    row_real(w, "stall_first_ms", t->first[STALLED]);
    row_real(w, "stall_steps", stall / step);
    row_real(w, "call_ms", stats_of(&t->save[CALLED]).median);
    row_real(w, "law_ms", law);
    row_real(w, "excess_ms", stall - law);
    row_real(w, "beside_ms", stats_of(&t->beside).median);
    row_real(w, "beside_pct", 100 * (stats_of(&t->beside).median / step - 1));
    row_int(w, "n_beside", (int64_t)t->beside.n);
    row_int(w, "n_saves", (int64_t)t->save[STALLED].n);
    row_real(w, "best_interval_s", interval);
    row_real(w, "best_cost_pct", interval > 0 ? 100 * lost / interval : 0);
}

static void fill_rates(saving *s, const timed *t, const saving_ceilings *top, double rank_bytes, double all_bytes)
{
    row *w = s->k->w;
    const double durable = stats_of(&t->save[DURABLE]).median, copied = stats_of(&t->save[COPIED]).median;
    const double load_s = stats_of(&t->load).median, into_s = stats_of(&t->into).median;
    const double load = (double)t->loaded_bytes / load_s / 1e9, into = (double)t->into_bytes / into_s / 1e9;
    row_real(w, "copied_ms", copied);
    row_real(w, "written_ms", stats_of(&t->save[WRITTEN]).median);
    row_real(w, "synced_ms", stats_of(&t->save[SYNCED]).median);
    row_real(w, "durable_ms", durable);
    row_real(w, "durable_first_ms", t->first[DURABLE]);
    row_real(w, "copied_gb_s", rank_bytes / copied / 1e6);
    row_real(w, "durable_gb_s", all_bytes / durable / 1e6);
    row_real(w, "durable_pct", 100 * all_bytes / durable / 1e6 / top->write);
    row_real(w, "down_gb_s", top->down);
    row_real(w, "up_gb_s", top->up);
    row_real(w, "within_gb_s", top->within);
    row_real(w, "write_gb_s", top->write);
    row_real(w, "read_gb_s", top->read);
    row_real(w, "hash_gb_s", top->hash);
    row_real(w, "load_ms", load_s * 1e3);
    row_int(w, "n_loads", (int64_t)t->load.n);
    row_text(w, "cache", t->cold ? "cold" : "warm");
    row_real(w, "load_gb_s", load);
    row_real(w, "verify_gb_s", t->verify_gb_s);
    row_real(w, "into_ms", into_s * 1e3);
    row_real(w, "into_gb_s", into);
    row_real(w, "into_ratio", load / into);
    row_real(w, "load_pct", 100 * load / fmin(top->read, top->up));
}

static void fill_row(saving *s, const timed *t, const saving_ceilings *top)
{
    row *w = s->k->w;
    double mine[4] = {0};
    if (s->saver) {
        const checkpoint_held held = checkpoint_saver_holds(s->saver);
        mine[0] = (double)s->x->save.bytes;
        mine[1] = (double)held.host_bytes;
        mine[2] = (double)held.device_bytes;
        mine[3] = held.pin_s;
    }
    OWNED double *most = launch_most_each(s->k->l, "memory", mine, 4, s->k->ranks);
    const double rank_bytes = most[0], host = most[1], pin = most[3];
    const double all_bytes = s->x ? (double)s->x->layout->bytes : NAN;
    static const char *const ways[] = {"sync", "async", "lazy", "device"};
    row_text(w, "way", ways[s->way]);
    row_text(w, "fs", file_system(s->folder));
    row_text(w, "io_used", t->direct ? "direct" : "buffered");
    row_real(w, "state_bytes", all_bytes);
    row_real(w, "rank_bytes", rank_bytes);
    row_real(w, "host_bytes", host);
    row_real(w, "device_bytes", most[2]);
    row_real(w, "pin_s", pin);
    row_real(w, "pin_gb_s", host / pin / 1e9);
    fill_stall(s, t, law_ms(s, top, rank_bytes, all_bytes, stats_of(&t->compute).median));
    fill_rates(s, t, top, rank_bytes, all_bytes);
}

void saving_measure(saving *s, const saving_ceilings *top)
{
    timed t = {.verify_gb_s = NAN};
    const int saves = (int)option_int(s->k->s->opt, "saves");
    bool ok = true;
    phase_set("steps of %s", case_name(s->k->c));
    for (int i = 0; i < (int)option_int(s->k->s->opt, "warmup"); i++) {
        step_ms(s);
        if (i == 0 && s->k->graph && !ddp_capture(s->k, s->r))
            return;
    }
    device_sense_begin(s->r->at.d);
    plain_steps(s, &t);
    device_state_note(s->r->at.d);
    device_sense_end(s->r->at.d, true);
    phase_set("saves of %s", case_name(s->k->c));
    for (int i = 0; i <= saves && ok; i++) {
        ok = one_save(s, &t, i == 0);
        if (ok && t.beside.n > 0)
            plain_steps(s, &t);
    }
    if (ok && saving_frame_is_whole(s) && load_back(s, &t))
        fill_row(s, &t, top);
    samples_free(&t.step);
    samples_free(&t.compute);
    samples_free(&t.beside);
    samples_free(&t.load);
    samples_free(&t.into);
    for (int i = 0; i < SAVE_TIMES; i++)
        samples_free(&t.save[i]);
}
