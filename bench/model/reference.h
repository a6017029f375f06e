/* SPDX-License-Identifier: MIT */
/* The plain fp32 step that a slice of a model is compared with; used only by verify.c. */
#pragma once

#include "common/session/session.h"
#include "common/train/trainer.h"

typedef struct reference {
    char key[256]; /* "": none is held */
    double loss;
    int count;       /* of tensors: every gradient, or of a forward only the logits */
    float **tensors; /* [count], host */
} reference;

void reference_clear(reference *r);
/* Makes *r that of the slice unless it is already. The same parameters and tokens in fp32 with multiply-adds, unfused
 * attention (flash where its S x S matrices do not fit), all micro-batches as one, nothing recomputed, one stream; and by
 * the other form of the small ops: an eager framework's where the slice has fused kernels, fused ones where it is eager. False after setting
 * the row's status. Gives back all of s->mem. */
bool reference_make(session *s, const step_options *slice, reference *r, row *w);

/* Shape, seed and kind of a slice, for keys. */
void slice_describe(const step_options *o, char *out, size_t out_bytes);
/* What is compared of a trainer: the elements of tensor i, and its values. */
int64_t compared_count(const trainer *t, int i);
bool compared_read(trainer *t, int i, float *out); /* false with sb_last_message */
