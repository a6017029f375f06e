/* SPDX-License-Identifier: MIT */
/* Activations that leave for the host; see offload.c. Where none do, these calls do nothing. */
#pragma once

#include "common/step/step.h"

void offload_create(step *s);                                /* before the plan */
bool offload_allocate(step *s, char *why, size_t why_bytes); /* after it */
void offload_free(step *s);
void offload_begin(step *s);                /* a walk starts */
void offload_send(step *s, int layer);      /* the block's forward is enqueued */
void offload_forward_end(step *s);          /* all blocks' are */
void offload_fetch(step *s, int layer);     /* the block's backward is next */
int64_t offload_moved_bytes(const step *s); /* that a micro-batch copies to the host, and back again */
double offload_waited_ms(step *s);          /* how long main waited for the last micro-batch's copies */
