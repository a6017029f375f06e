/* SPDX-License-Identifier: MIT */
/* Where the state of a model lies in the files of a checkpoint. It depends on the model alone: not on ranks, strategy or
 * padding, so that the same state is the same bytes whoever wrote it.
 *
 * Two safetensors files for each unit (model/params.h): model-... has the weights that the products read, optim-... has
 * <name>.exp_avg, .exp_avg_sq and, where the policy keeps more of a weight, .master_low (I16) or .master (F32). Tensors lie
 * in index order without gaps; data start on 4096 bytes, and so does each arena, after a U8 tensor pad.N of zeros. */
#pragma once

#include "common/model/params.h"
#include "kernels/kernels.h"
#include "kernels/train.h"

enum { CHECKPOINT_ALIGNMENT = 4096, CHECKPOINT_BLOCK = 4 << 20 /* of a hash */ };

typedef enum checkpoint_arena {
    CHECKPOINT_WEIGHT,
    CHECKPOINT_M,
    CHECKPOINT_V,
    CHECKPOINT_MASTER,
    CHECKPOINT_ARENAS
} checkpoint_arena;

typedef struct checkpoint_model {
    model_config config;
    sb_dtype param, moments;
    sb_master master;
} checkpoint_model;

typedef struct checkpoint_file {
    char name[48];
    char *header; /* the first header_bytes of the file */
    int64_t header_bytes, bytes;
} checkpoint_file;

typedef struct checkpoint_layout {
    checkpoint_model model;
    params *params; /* in the plain order: gains with their units, no padding but between tensors */
    int files;
    checkpoint_file *file;
    int64_t *place[CHECKPOINT_ARENAS]; /* of each tensor in its file */
    int64_t bytes;                     /* of all files */
} checkpoint_layout;

checkpoint_layout *checkpoint_layout_create(const checkpoint_model *m);
void checkpoint_layout_free(checkpoint_layout *l);                     /* NULL is fine */
int checkpoint_element(const checkpoint_model *m, checkpoint_arena a); /* bytes; 0: the model has no such arena */
/* What lies at a byte of a file, for messages: "layers.3.ffn.w1.weight.exp_avg", "the header", "padding". */
const char *checkpoint_at(const checkpoint_layout *l, int file, int64_t offset, char *out, size_t out_bytes);
char *checkpoint_index(const checkpoint_layout *l); /* model.safetensors.index.json; caller frees */
/* A sentence when `have` is not the model of `want`; else NULL. */
const char *checkpoint_model_differs(const checkpoint_model *have, const checkpoint_model *want, char *out,
                                     size_t out_bytes);

/* Memory that holds a part of a file: on the device, or wherever `at` points. Neighbours are joined. */
typedef struct checkpoint_piece {
    char *at;
    int file;
    int64_t offset, bytes;
} checkpoint_piece;
typedef struct checkpoint_pieces {
    checkpoint_piece *p;
    int n, room;
    int64_t bytes;
} checkpoint_pieces;
/* Elements [from, to) of a tensor that lie at `at`. Call checkpoint_pieces_sort after the last one. */
void checkpoint_pieces_add(checkpoint_pieces *p, const checkpoint_layout *l, int tensor, checkpoint_arena a,
                           int64_t from, int64_t to, char *at);
void checkpoint_pieces_sort(checkpoint_pieces *p); /* by file and offset; joins neighbours */
void checkpoint_pieces_free(checkpoint_pieces *p);

typedef struct checkpoint_room { /* pinned memory of somebody who does not need it just then; NULL: none */
    char *at;
    int64_t bytes;
    int ranks; /* that load at the same time */
} checkpoint_room;
