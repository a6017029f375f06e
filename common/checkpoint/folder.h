/* SPDX-License-Identifier: MIT */
/* A folder of checkpoints: step-00001000/ for each complete one, step-N.partial-K/ while it is written, .trash-N/ while it is
 * removed, .spare-N/ for files that the next one is written over. One writing run at a time has it. A rename makes a
 * checkpoint complete; only then old ones go.
 *
 * Every change of files goes through this file and save.c, and syncs what must not be lost: tests replay what they do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/checkpoint/layout.h"

/* What programs keep of a folder's name. NULL, or a sentence: with a program's own addition, the name would be cut, and be another
 * folder's. */
enum { CHECKPOINT_FOLDER_BYTES = 512 };
const char *checkpoint_folder_problem(const char *folder);

/* Makes the folder and takes it; what a run that died has left is removed, if the folder is one of ours. Returns a lock for
 * checkpoint_folder_close, or -1 with a sentence. */
int checkpoint_folder_open(const char *folder, char *why, size_t why_bytes);
void checkpoint_folder_close(int lock);
/* Whether there is room for so many checkpoints of so many bytes; else a sentence. */
bool checkpoint_folder_room(const char *folder, int checkpoints, int64_t bytes, char *why, size_t why_bytes);

/* Steps of complete checkpoints, ascending; caller frees. Returns how many; -1 with a sentence when it can't be read. */
int checkpoint_folder_list(const char *folder, int64_t **steps, char *why, size_t why_bytes);
int checkpoint_folder_partial(const char *folder); /* incomplete ones */

char *checkpoint_path(const char *folder, int64_t step); /* of a complete one; caller frees */
char *checkpoint_partial_path(const char *folder, int64_t step, int attempt);

/* A descriptor to read a file by; -1 with errno. A FIFO in its place, which would wait for its writer, has no bytes. */
int checkpoint_file_open(const char *path);
/* Writes and syncs a small file; reads one. The text is NULL with a sentence when that fails; caller frees. */
bool checkpoint_write_text(const char *folder, const char *name, const char *text, char *why, size_t why_bytes);
char *checkpoint_read_text(const char *folder, const char *name, size_t *bytes, char *why, size_t why_bytes);
bool checkpoint_sync_folder(const char *folder, char *why, size_t why_bytes);

/* What lies there is ours: complete ones, the marker, and of bench_run losses.bin and ladder/, a folder of the same kind.
 * Removes them and the folder. */
void checkpoint_folder_remove(const char *folder);
/* The same for a job that ends early, while threads and ranks may still write there: it tries for a second. */
void checkpoint_folder_drop(void *folder);
/* Does so with folders of this user, `parent`/`prefix`<process id>, whose process was killed before it could. */
void checkpoint_folder_sweep(const char *parent, const char *prefix);

/* Renames a finished partial folder to its step, and syncs: the commit. */
bool checkpoint_commit(const char *folder, int64_t step, int attempt, char *why, size_t why_bytes);
void checkpoint_discard(const char *folder, int64_t step, int attempt); /* a partial one */

/* A spare is a set of files of some layout, whose pages or blocks the next save need not ask for. Of complete
 * checkpoints up to step `last` all but the newest go: one of files of this layout becomes a spare, unless there is one, or
 * somebody has a link to a file or reads it; the rest is removed. `l` NULL: all of it is. Of a link that stands for one, the
 * link alone goes. Later ones, which a run that began again before them has found damaged, count for nothing. */
void checkpoint_keep(const char *folder, int keep, int64_t last, const checkpoint_layout *l);
/* A partial folder, which is a spare if there is one; any rank may be first. False with errno. */
bool checkpoint_begin(const char *folder, int64_t step, int attempt);
void checkpoint_spares_make(const char *folder, const checkpoint_layout *l, int sets, int rank,
                            int ranks); /* this rank's */
void checkpoint_spares_remove(const char *folder);

/* Called at named points of a save when set: tests end the process there. */
extern void (*checkpoint_point)(const char *name);
void checkpoint_reach(const char *name);
