/* SPDX-License-Identifier: MIT */
/* A profile of a case: see profile.c. */
#pragma once

#include "bench/ddp/case.h"

/* In place of its timing. All ranks together. */
void ddp_profile(ddp_case *k, replica *r);
