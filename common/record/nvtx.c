/* SPDX-License-Identifier: MIT */
/* NVTX ranges, or nothing without the header, and those of a recording; see nvtx.h. */
#include "common/record/nvtx.h"

#include "common/record/record.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

void scope_push(const char *name)
{
#ifdef HAVE_NVTX
    nvtxRangePushA(name);
#endif
    (void)name;
}

void scope_pop(void)
{
#ifdef HAVE_NVTX
    nvtxRangePop();
#endif
}

void range_push(const char *name)
{
    scope_push(name);
    recorder_push(name, NULL);
}

void range_pop(void)
{
    scope_pop();
    recorder_pop();
}

void op_push(const char *name, const record_work *work)
{
    scope_push(name);
    recorder_push(name, work);
}

void op_pop(void)
{
    scope_pop();
    recorder_pop();
}
