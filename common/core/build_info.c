/* SPDX-License-Identifier: MIT */
/* The facts the Makefile passes in; see build_info.h. */
#include "common/core/build_info.h"

#ifndef STEPBENCH_COMMIT
#define STEPBENCH_COMMIT "unknown"
#endif
#ifndef STEPBENCH_DIRTY
#define STEPBENCH_DIRTY -1
#endif
#ifndef STEPBENCH_COMPILER
#define STEPBENCH_COMPILER "unknown"
#endif
#ifndef STEPBENCH_KERNELS
#define STEPBENCH_KERNELS "unknown"
#endif
#ifndef STEPBENCH_LIBRARY
#define STEPBENCH_LIBRARY "libstepbench"
#endif

const char *build_commit(void)
{
    return STEPBENCH_COMMIT;
}

int build_dirty(void)
{
    return STEPBENCH_DIRTY;
}

const char *build_describe(void)
{
    return STEPBENCH_COMPILER;
}

const char *build_kernels(void)
{
    return STEPBENCH_KERNELS;
}

const char *build_library(void)
{
    return STEPBENCH_LIBRARY;
}
