/* SPDX-License-Identifier: MIT */
/* The parts and actions of a step; see table.c. */
#pragma once

#include "common/step/step.h"

/* Why a table cannot be walked: a sentence; NULL: it can, or there is none. */
const char *table_problem(const step_options *o);
void table_create(step *s); /* a copy of the options' table, or that of a whole model */
void table_free(step *s);
void table_begin(step *s);              /* a step starts */
bool table_whole(const step *s, int i); /* action i is a B that makes all gradients */
bool table_done(const step *s, int i);  /* action i is a W whose B has made them */
