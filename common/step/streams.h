/* SPDX-License-Identifier: MIT */
/* The streams beside the main one in a backward; see streams.c. */
#pragma once

#include "common/step/step.h"

/* Units of backward, in its order: the head (layers), the blocks from the last to 0, the embedding (-1). */
bool side_separate(const step *s); /* the plan is one for overlap */
/* A backward starts, with the unit `top`; the most that a weight gradient's product wants. */
void side_begin(step *s, int top, size_t workspace_bytes);
void *side_fork(step *s);                  /* the stream for a weight gradient whose inputs are enqueued on main */
void side_drop(step *s, arena_slot *slot); /* once the side stream has read it, or the W of a split backward */
void side_unit_begin(step *s, int unit);   /* main may go on with it: LAG units back the side stream is done */
void side_unit_end(step *s, int unit);     /* all gradients of it are enqueued */
void back_follow(step *s, int unit);       /* the background stream waits for them */
void side_join(step *s);                   /* main waits for what the side stream has so far */
void side_end(step *s);                    /* main waits for the side stream */
void overlap_use(step *s, overlap o);      /* from the next walk on; the plan serves all of them */
