/* SPDX-License-Identifier: MIT */
/* AdamW in a step: over ranges of the index space, or over everything. */
#pragma once

#include "common/step/step.h"
#include "kernels/shared/direct_adamw.h"

bool optimizer_wants_statistics(const step *s); /* of all gradients, before the first update: clipping, a loss scale */
bool optimizer_overlaps(const step *s);         /* AdamW of a unit runs while backward goes on */
void optimizer_begin(step *s, void *stream);    /* a new update starts */
void optimizer_range(step *s, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream);
/* Like optimizer_range on GPUs that reach each other's memory; p.update is filled in here. */
void optimizer_peer_range(step *s, sb_direct_adamw p, int64_t first, int64_t count, int64_t state_first, int max_blocks,
                          void *stream);
void optimizer_take_workspace(step *s); /* around what an update enqueues */
void optimizer_drop_workspace(step *s);
void optimizer_all(step *s); /* statistics where they are needed, then all parameters, on main */
/* The norm of a range of gradients goes to *norm; then the norms of all ranges become that of the next update. */
void optimizer_range_norm(step *s, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream);
void optimizer_take_norms(step *s, const float *norms, int n, void *stream);
