/* SPDX-License-Identifier: MIT */
/* The check of a float8 step op by op, and faults that it must find; used by verify.c.
 *
 * A step compared from end to end cannot be checked tightly: noise of bf16 turns 1 to 3 % of the roundings to 8 bits. So a step runs
 * on ops that are looked at: what each cast has written must be what its source rounds to, bit for bit, by a rounding of the
 * check's own; each product must be that of the codes it is given, whose source must still be what was cast. */
#pragma once

#include "common/session/session.h"
#include "common/train/trainer.h"

/* What --plant-error breaks, only in the ops of the checked slice. */
typedef enum float8_fault {
    FLOAT8_SOUND,
    FLOAT8_STALE,      /* weights are cast in the first step only */
    FLOAT8_TRANSPOSED, /* the codes of a transposed copy are those of the other one, in its order */
    FLOAT8_UNSCALED,   /* products leave the scale of A out */
    FLOAT8_AMAX,       /* largest magnitudes are those of the step before, or of nothing */
    FLOAT8_SATURATED,  /* they are a quarter of what they are, so that large elements are cut */
    FLOAT8_FORMAT,     /* A is read as the other format */
    FLOAT8_WITHIN      /* casts that a norm, RoPE or SwiGLU runs within take its input for what it makes */
} float8_fault;
#define FLOAT8_FAULT_CHOICES "none|stale|transposed|unscaled|amax|saturated|format|within"
bool float8_fault_fits(float8_fault fault, const step_options *o); /* whether the step has what it breaks */

/* Runs two steps of the slice, with an update between. True where all was right; else `why` names what was not, or is
 * empty where there can be no such steps, and the row's status says why. Gives back all of s->mem. */
bool model_float8_check(session *s, const step_options *slice, float8_fault fault, row *w, char *why, size_t why_bytes);
