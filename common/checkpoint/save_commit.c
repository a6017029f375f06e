/* SPDX-License-Identifier: MIT */
/* What makes a save a checkpoint: files of the right size, each rank's part, and the commit by rank 0; see save.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/save_internal.h"
#include "common/core/clock.h"
#include "common/core/error.h"

/* ---- files ---- */

/* Rank f mod n gives file f its size and header; what nobody writes is padding, and zero. */
static bool open_file(checkpoint_saver *s, const char *folder, int f)
{
    const checkpoint_file *x = &s->l->file[f];
    OWNED char *path = xasprintf("%s/%s", folder, x->name);
    errno = 0;
    s->file[f] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool ok = s->file[f] >= 0;
    if (ok && f % s->o.ranks == s->o.rank)
        ok = ((s->o.direct && fallocate(s->file[f], 0, 0, (off_t)x->bytes) == 0) ||
              ftruncate(s->file[f], (off_t)x->bytes) == 0) &&
             saver_write_all(s->file[f], x->header, x->header_bytes, 0);
    if (ok && s->o.direct)
        s->direct[f] = open(path, O_RDWR | O_CLOEXEC | O_DIRECT);
    if (ok && s->o.direct && s->direct[f] < 0 && errno == EINVAL)
        atomic_store(&s->refused, true);
    if (!ok)
        saver_fail(s, "write", x->name);
    return ok;
}

bool saver_open_files(checkpoint_saver *s, const char *folder)
{
    bool *mine = xcalloc((unsigned long)s->l->files, sizeof *mine), ok = true;
    errno = 0;
    if (!checkpoint_begin(s->o.folder, s->state.step, s->attempt)) {
        saver_fail(s, "make", folder);
        ok = false;
    }
    for (int r = 0; r < s->runs.n; r++)
        mine[s->runs.r[r].file] = true;
    for (int f = 0; f < s->l->files && ok; f++)
        if (mine[f] || f % s->o.ranks == s->o.rank)
            ok = open_file(s, folder, f);
    free(mine);
    return ok;
}

/* Files whose pages are to reach the disk, one after another, by whichever thread is free. */
void *saver_sync_files(void *arg)
{
    writer *w = arg;
    checkpoint_saver *s = w->s;
    for (int64_t f = atomic_fetch_add(&s->next, 1); f < s->l->files; f = atomic_fetch_add(&s->next, 1)) {
        checkpoint_reach("sync");
        errno = 0;
        if (s->file[f] >= 0 && fsync(s->file[f]) != 0)
            saver_fail(s, "sync", s->l->file[f].name);
    }
    return NULL;
}

/* After a failure the room goes back first, so that a full disk can take the sentence that says so. */
void saver_close_files(checkpoint_saver *s, bool ok)
{
    for (int f = 0; f < s->l->files; f++) {
        if (s->direct[f] >= 0)
            close(s->direct[f]);
        if (s->file[f] >= 0 && !ok && ftruncate(s->file[f], 0) != 0)
            errno = 0;
        if (s->file[f] >= 0 && close(s->file[f]) != 0 && ok)
            saver_fail(s, "close", s->l->file[f].name);
        s->file[f] = s->direct[f] = -1;
    }
}

/* ---- parts and the commit ---- */

/* Written under another name first: a part that is there is whole. */
void saver_write_part(checkpoint_saver *s, const char *folder)
{
    char *text, why[300];
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    const bool ok = saver_going_well(s);
    if (!ok)
        fprintf(out, "failed %s\n", s->saved.why);
    for (int r = 0; r < s->runs.n && ok; r++) {
        const checkpoint_run *x = &s->runs.r[r];
        fprintf(out, "%d %" PRId64 " %" PRId64 "\n", x->file, x->offset, x->bytes);
        for (int64_t b = 0; b < checkpoint_blocks(x->bytes); b++)
            fprintf(out, "%016" PRIx64 "\n", x->hashes[b]);
    }
    fclose(out);
    OWNED char *begun = xasprintf("part-%d.new", s->o.rank), *from = xasprintf("%s/%s", folder, begun),
               *to = xasprintf("%s/part-%d", folder, s->o.rank);
    errno = 0;
    if (!checkpoint_write_text(folder, begun, text, why, sizeof why) || rename(from, to) != 0)
        saver_fail(s, "write", to);
    free(text);
}

/* False and a sentence when a rank has failed; true without runs: the part is not there yet. */
static bool read_part(checkpoint_saver *s, const char *folder, int rank, checkpoint_runs *all, bool *there)
{
    char why[300];
    size_t bytes;
    OWNED char *name = xasprintf("part-%d", rank), *path = xasprintf("%s/%s", folder, name);
    *there = access(path, F_OK) == 0;
    char *text = *there ? checkpoint_read_text(folder, name, &bytes, why, sizeof why) : NULL;
    bool ok = !*there || text;
    if (text && strncmp(text, "failed ", 7) == 0) {
        text[strcspn(text, "\n")] = '\0';
        saver_give_up(s, text + 7);
        ok = false;
    }
    for (char *at = text; ok && at && *at;) {
        char *end;
        const int file = (int)strtol(at, &end, 10);
        const int64_t offset = strtoll(end, &end, 10), length = strtoll(end, &end, 10);
        if (*end != '\n' || length < 1) {
            ok = false;
            break;
        }
        checkpoint_run *x = checkpoint_runs_add(all, file, offset, length);
        for (int64_t b = 0; b < checkpoint_blocks(length); b++)
            x->hashes[b] = strtoull(end, &end, 16);
        at = end + (*end == '\n');
    }
    free(text);
    return ok;
}

/* Also for those behind one that failed: a rank that still makes files would leave some of them behind. */
static bool wait_for_parts(checkpoint_saver *s, const char *folder, checkpoint_runs *all)
{
    const double until = host_seconds() + (s->o.timeout_s > 0 ? s->o.timeout_s : 600);
    bool ok = true;
    for (int rank = 0; rank < s->o.ranks;) {
        bool there;
        errno = 0;
        if (!read_part(s, folder, rank, all, &there)) {
            saver_fail(s, "read the part of another rank in", folder);
            ok = false;
        }
        rank += there;
        if (!there && host_seconds() > until) {
            char what[64];
            snprintf(what, sizeof what, "wait longer for rank %d to write to", rank);
            errno = 0;
            saver_fail(s, what, folder);
            return false;
        }
        if (!there)
            usleep(1000);
    }
    return ok;
}

static bool finish_files(checkpoint_saver *s, const char *folder, checkpoint_runs *all, char *why, size_t why_bytes)
{
    char *index = checkpoint_index(s->l);
    bool ok = checkpoint_runs_cover(all, s->l, why, why_bytes) &&
              checkpoint_write_text(folder, "model.safetensors.index.json", index, why, why_bytes);
    free(index);
    char *manifest = ok ? checkpoint_manifest_write(s->l, &s->state, all) : NULL;
    checkpoint_reach("manifest");
    ok = ok && checkpoint_write_text(folder, "manifest.json", manifest, why, why_bytes);
    free(manifest);
    for (int rank = 0; rank < s->o.ranks && ok; rank++) {
        OWNED char *path = xasprintf("%s/part-%d", folder, rank);
        unlink(path);
    }
    return ok;
}

void saver_commit(checkpoint_saver *s, const char *folder)
{
    checkpoint_runs all = {0};
    char why[400] = "";
    if (wait_for_parts(s, folder, &all) &&
        (!finish_files(s, folder, &all, why, sizeof why) ||
         !checkpoint_commit(s->o.folder, s->state.step, s->attempt, why, sizeof why)))
        saver_give_up(s, why);
    checkpoint_runs_free(&all);
    if (!saver_going_well(s))
        checkpoint_discard(s->o.folder, s->state.step, s->attempt);
    s->saved.committed_s = host_seconds() - s->start_s;
}
