/* SPDX-License-Identifier: MIT */
/* What this binary was built from. The Makefile passes it to build_info.c alone, so that a new commit recompiles one
 * file; common/build/identity.sh says where it comes from. */
#pragma once

const char *build_commit(void);   /* <commit>, <commit>+<hash of the sources> where they may differ, or src-<hash> */
int build_dirty(void);            /* 1: sources differed from the commit; -1: unknown */
const char *build_describe(void); /* compiler and flags, "unknown" when the build did not say */
const char *build_kernels(void);  /* what its library was compiled from, and how; the library says it, too */
const char *build_library(void);  /* the path of its library, from the root of the tree */
