/* SPDX-License-Identifier: MIT */
/* A saver from within: save.c copies the state and runs the thread of a save, save_make.c makes a saver, save_blocks.c
 * writes its blocks, save_commit.c makes files and their parts a checkpoint, and saver.c says how a save is doing. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "common/checkpoint/save.h"

typedef struct saver_run { /* pieces that follow each other in a file */
    int first, count;      /* pieces */
    int64_t at;            /* in the copy of the state; as far behind a multiple of 4096 as in the file */
} saver_run;

typedef struct lane {     /* a file that this rank writes to */
    int64_t next, end;    /* blocks that nobody has taken */
    int threads;          /* that are at it */
    int place;            /* in the order */
    device_event *landed; /* its bytes are in the copy of the state; NULL: there is no copy */
    pthread_mutex_t writing;
} lane;

typedef struct writer {
    checkpoint_saver *s;
    pthread_t thread;
    char *slot; /* pinned: a block and room to align it; NULL: blocks are pinned where they lie */
    int run;    /* of which it waits for `bytes` from `offset` of the file on, to be at `to` */
    int64_t offset, bytes;
    char *to;
    bool asks;
    pthread_cond_t fetched;
} writer;

struct checkpoint_saver {
    checkpoint_save_options o; /* folder is the saver's own */
    device *d;
    const checkpoint_layout *l;
    const checkpoint_pieces *pieces;
    char *folder;
    checkpoint_runs runs;
    saver_run *run; /* of each of them */
    int64_t *first; /* block of each run; [runs] is the count of all */
    lane *lanes;    /* of each file, by its number */
    int *order;     /* files in the order in which they are begun */
    int ordered;
    int *file, *direct; /* descriptors of each file; -1 */
    char *copy;         /* of all pieces: pinned, or on the device; NULL: blocks come from the state */
    int64_t copy_bytes;
    writer *writers;
    char *slots;  /* of all writers */
    int threads;  /* at most twice o.writers */
    void *stream; /* of copies */
    device_event *copied;
    double pin_s;

    checkpoint_state state; /* of the save that is under way */
    int attempt;
    double start_s;
    bool copying; /* the next update waits for it */
    atomic_llong next;
    atomic_bool refused; /* O_DIRECT, by the file system */
    pthread_t thread;
    bool started;

    pthread_t copier;
    bool copier_started;

    void *fetches; /* stream of what writers ask for; NULL: blocks are pinned where they lie */
    device_event *fetched;
    pthread_cond_t asked; /* by a writer, or writers are done */

    pthread_mutex_t lock; /* of what follows, and of lanes */
    pthread_cond_t changed;
    int landed;    /* files whose bytes are in the copy, by the order */
    bool enqueued; /* all of the copy is on the stream, and so is `copied` */
    bool written;  /* writers are done */
    bool over;
    checkpoint_saved saved;
};

bool saver_planted(const checkpoint_saver *s, const char *name);
bool saver_is_pinned(const checkpoint_saver *s); /* the copy of the state is in pinned memory */
/* The first problem of a save is kept; the second says "rank R can't WHAT PATH", and what errno means. */
void saver_give_up(checkpoint_saver *s, const char *why);
void saver_fail(checkpoint_saver *s, const char *what, const char *path);
bool saver_going_well(checkpoint_saver *s);
void saver_await_landed(checkpoint_saver *s, int files); /* until so many files are in the copy of the state */

/* Blocks. */
bool saver_left_out(const checkpoint_saver *s, const checkpoint_piece *p); /* by an error that is planted */
bool saver_write_all(int fd, const char *from, int64_t bytes, int64_t offset);
int saver_most_at_once(const checkpoint_saver *s); /* files */
void saver_fill_lanes(checkpoint_saver *s);        /* all blocks are there to be taken */
void saver_on_all_writers(checkpoint_saver *s, void *(*work)(void *));
void saver_write_files(checkpoint_saver *s);

/* Files, parts and the commit. */
bool saver_open_files(checkpoint_saver *s, const char *folder);
void *saver_sync_files(void *writer); /* one after another, by whichever thread is free */
void saver_close_files(checkpoint_saver *s, bool ok);
void saver_write_part(checkpoint_saver *s, const char *folder);
void saver_commit(checkpoint_saver *s, const char *folder);
