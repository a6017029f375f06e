/* SPDX-License-Identifier: MIT */
/* Weights of float8 products that are gathered as codes; see codes.c. */
#pragma once

#include "common/step/step.h"

/* Once parameters and units are known; sets s->codes where blocks are gathered as codes. */
void codes_create(step *s);
void codes_free(step *s);
size_t codes_bytes(const step *s); /* of slices of codes, and of scales */
void codes_place(step *s, char *memory);
/* The parameters are those of this step: slices are cast with scales on which the ranks agree. On main. */
void codes_begin(step *s);
step_codes_place codes_of(const step *s); /* slices is NULL: units are gathered as parameters */
