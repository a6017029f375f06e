/* SPDX-License-Identifier: MIT */
/* Writes checkpoints, one at a time: every rank its pieces, into files that all share, by threads of its own. When a rank's
 * bytes are synced it says so in a file part-R; rank 0 waits for all parts, checks that they cover the model, writes
 * the manifest, and renames the folder. Nothing here is a collective, and no rank waits for another but rank 0, in a
 * thread.
 *
 * A rank that can't write says why in its part. A save that fails leaves the last complete checkpoint as it is and
 * removes its own files; the next one may succeed. */
#pragma once

#include "common/checkpoint/manifest.h"
#include "common/device/device.h"

typedef enum checkpoint_way {
    CHECKPOINT_SYNC,  /* the caller waits until the checkpoint is durable */
    CHECKPOINT_ASYNC, /* the caller waits for the copy to pinned memory */
    CHECKPOINT_LAZY,  /* only the next update waits for that copy */
    CHECKPOINT_DEVICE /* a copy within the device, which leaves it under the next steps */
} checkpoint_way;
#define CHECKPOINT_WAYS "sync|async|lazy|device"
checkpoint_way checkpoint_way_parse(const char *name);

typedef struct checkpoint_save_options {
    const char *folder;
    checkpoint_way way;
    bool direct; /* O_DIRECT where blocks are aligned; buffered where the file system refuses it */
    int writers; /* a rank writes with twice as many threads, or fewer, which leave it two cores */
    int keep;    /* complete checkpoints that stay, with the files of one more for the next save */
    int rank, ranks;
    double timeout_s;   /* for all parts to be there; 0: 600 */
    void (*beat)(void); /* called while the caller waits; NULL: nothing is */
    const char *plant;  /* an error for a check to find, of CHECKPOINT_PLANTS; NULL: none */
} checkpoint_save_options;
/* A bit is flipped behind its hash; a block is not written; its halves change places; the update does not wait for the
 * copy; the low halves of weights are left out. slow is no error: copies start late on the CPU, as they do with torn. */
#define CHECKPOINT_PLANTS "bit|hole|swap|torn|low|slow"

typedef struct checkpoint_saved { /* seconds from the start of a save */
    bool ok;
    char why[400];
    double waited_s;                         /* for the save before; before this one began */
    double copied_s;                         /* the state may change again */
    double written_s, synced_s, committed_s; /* the last is rank 0's alone */
    bool direct;                             /* as it was written */
} checkpoint_saved;

typedef struct checkpoint_saver checkpoint_saver;

/* `pieces` are this rank's part of the state, on `d`, sorted; both arrays and layout live as long as the saver. Takes the
 * memory that the way needs, once, and makes files in memory for the first saves, where there is room. NULL with a sentence.
 * The folder is open (checkpoint_folder_open). */
checkpoint_saver *checkpoint_saver_create(const checkpoint_save_options *o, device *d, const checkpoint_layout *l,
                                          const checkpoint_pieces *pieces, char *why, size_t why_bytes);
void checkpoint_saver_free(checkpoint_saver *s); /* waits for a save that is under way; NULL is fine */
typedef struct checkpoint_held {
    int64_t host_bytes, device_bytes;
    double pin_s; /* how long taking the pinned memory took */
} checkpoint_held;
checkpoint_held checkpoint_saver_holds(const checkpoint_saver *s);
checkpoint_room checkpoint_saver_room(const checkpoint_saver *s); /* for others while nothing is under way */

/* Between steps: saves what the compute stream has by now. Waits as its way says, and before that for the save before. */
void checkpoint_save(checkpoint_saver *s, const checkpoint_state *state);
/* In front of an update, on its stream: waits for the copy that is under way, if any. */
void checkpoint_before_update(checkpoint_saver *s, void *stream);
/* Later saves go to another folder, which is open, of the same file system; waits for one that is under way. */
void checkpoint_saver_move(checkpoint_saver *s, const char *folder);
bool checkpoint_save_over(checkpoint_saver *s); /* nothing is under way */
/* Waits; what became of the last save. Of ranks other than 0 it says nothing about the commit. */
checkpoint_saved checkpoint_save_wait(checkpoint_saver *s);
