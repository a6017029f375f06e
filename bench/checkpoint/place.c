/* SPDX-License-Identifier: MIT */
/* Where a case saves to, and saves that end on all ranks together; see checkpoint.h. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/session/watchdog.h"

bool saving_agree(saving *s, const char *name, bool ok, const char *why, row_status status)
{
    replica_problem problem;
    const bool all = replica_agree(&s->k->at, name, ok, why, &problem);
    if (!all)
        row_status_set(s->k->w, status, "%s", problem.text);
    return all;
}

static bool open_folder(saving *s)
{
    char why[400] = "";
    const char *parent = option_text(s->k->s->opt, "folder");
    bool ok = true;
    s->lock = -1;
    if (launch_rank(s->k->l) == 0) {
        if (!option_given(s->k->s->opt, "folder")) /* other hosts, whose processes are not seen, may share that one */
            checkpoint_folder_sweep(parent, "stepbench-");
        snprintf(s->folder, sizeof s->folder, "%s/stepbench-%d", parent, (int)getpid());
        s->lock = checkpoint_folder_open(s->folder, why, sizeof why);
        if (s->lock < 0 && option_given(s->k->s->opt, "folder"))
            launch_fail(s->k->l, EXIT_CODE_USAGE, "--folder: %s", why);
        if (s->lock >= 0)
            launch_on_end(s->k->l, checkpoint_folder_drop, s->folder);
        ok = s->lock >= 0 && (!s->x || checkpoint_folder_room(s->folder, 2, s->x->layout->bytes, why, sizeof why));
    }
    launch_share(s->k->l, "folder", s->folder, sizeof s->folder, 0);
    return saving_agree(s, "folder of checkpoints", ok, why, ROW_SKIP);
}

bool saving_create(saving *s, ddp_case *k, replica *r)
{
    char why[400] = "";
    *s = (saving){.k = k, .r = r, .lock = -1, .writers = (int)case_int(k->c, "writers")};
    s->readers = 2 * s->writers;
    s->direct = text_is(case_text(k->c, "io"), "direct");
    s->way = replica_state_way(r, checkpoint_way_parse(case_variant(k->c)), k->graph);
    s->x = r->member ? replica_state_create(r) : NULL;
    if (!open_folder(s))
        return false;
    if (r->member) {
        const char *plant = option_text(k->s->opt, "plant-error");
        const checkpoint_save_options o = {.folder = s->folder,
                                           .way = s->way,
                                           .direct = s->direct,
                                           .writers = s->writers,
                                           .keep = 1,
                                           .rank = launch_rank(k->l),
                                           .ranks = k->ranks,
                                           .timeout_s = launch_timeout_s(k->l) > 0 ? launch_timeout_s(k->l) / 2 : 600,
                                           .beat = watchdog_beat,
                                           .plant = text_is(plant, "none") ? NULL : plant};
        s->saver = checkpoint_saver_create(&o, r->at.d, s->x->layout, &s->x->save, why, sizeof why);
        r->saver = s->saver;
        s->x->room = s->saver ? checkpoint_saver_room(s->saver) : (checkpoint_room){0};
    }
    return saving_agree(s, "saver", !r->member || s->saver, why, ROW_OOM);
}

void saving_free(saving *s)
{
    s->r->saver = NULL;
    checkpoint_saver_free(s->saver);
    replica_state_free(s->x);
    launch_barrier(s->k->l, "checkpoints are over");
    if (s->lock >= 0) {
        launch_off_end(s->k->l, checkpoint_folder_drop, s->folder);
        checkpoint_folder_remove(s->folder);
    }
    checkpoint_folder_close(s->lock);
}

void saving_begin(saving *s)
{
    checkpoint_state note = {.step = 0};
    if (!s->r->member)
        return;
    replica_state_note(s->x, &note);
    note.data.samples = note.step * s->k->o.batch * s->k->ranks;
    checkpoint_save(s->saver, &note);
}

bool saving_finish(saving *s, checkpoint_saved *out)
{
    *out = (checkpoint_saved){.ok = true};
    if (s->r->member)
        *out = checkpoint_save_wait(s->saver);
    watchdog_beat();
    return saving_agree(s, "save", out->ok, out->why, ROW_FAIL);
}

void saving_forget(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

bool saving_frame_is_whole(saving *s)
{
    char why[400] = "";
    checkpoint c = {0};
    const bool ok = launch_rank(s->k->l) != 0 || (checkpoint_open_in(s->folder, -1, NULL, &c, why, sizeof why) &&
                                                  checkpoint_verify_frame(&c, why, sizeof why));
    checkpoint_close(&c);
    return saving_agree(s, "files", ok, why, ROW_FAIL);
}
