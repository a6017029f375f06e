/* SPDX-License-Identifier: MIT */
/* Reads checkpoints: into any pieces of a model's state, whatever ranks and strategy wrote them. Every block that is needed
 * is read whole and hashed, so that nothing is loaded that was not written; what is wrong is named by file and tensor. */
#pragma once

#include "common/checkpoint/manifest.h"
#include "common/device/device.h"

/* A complete checkpoint: its manifest read, and its files of the right size with the headers of the model. False with a
 * sentence; free it in any case. */
typedef struct checkpoint {
    char *path;
    checkpoint_manifest m;
} checkpoint;
bool checkpoint_open(const char *path, checkpoint *out, char *why, size_t why_bytes);
void checkpoint_close(checkpoint *c);

typedef struct checkpoint_loaded {
    double seconds;
    int64_t read_bytes;
} checkpoint_loaded;
/* Fills the pieces, sorted, on `d`, by so many threads, or fewer that fit into `room`, if that has memory for half of them;
 * else it pins some itself. `d` NULL: pieces are the host's. */
bool checkpoint_load(const checkpoint *c, device *d, const checkpoint_pieces *pieces, int readers, checkpoint_room room,
                     checkpoint_loaded *out, char *why, size_t why_bytes);
/* What a load does not read: padding, index and strange files. */
bool checkpoint_verify_frame(const checkpoint *c, char *why, size_t why_bytes);
/* Reads all of it, that included. */
bool checkpoint_verify(const checkpoint *c, int readers, char *why, size_t why_bytes);

/* Opens the newest complete checkpoint of a folder whose files are there and whole; `step` -1: the newest, else that one
 * alone. `model` NULL: any. Damaged newer ones are said on stderr and passed over. Bytes are first read by a load, which may
 * find damage, too: checkpoint_open_before looks only at checkpoints of earlier steps. */
bool checkpoint_open_before(const char *folder, int64_t before, const checkpoint_model *model, checkpoint *out,
                            char *why, size_t why_bytes);
bool checkpoint_open_in(const char *folder, int64_t step, const checkpoint_model *model, checkpoint *out, char *why,
                        size_t why_bytes);
