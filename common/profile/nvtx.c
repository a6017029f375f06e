/* SPDX-License-Identifier: MIT */
/* NVTX ranges, or nothing without the header, and the timeline's; see nvtx.h. */
#include "common/profile/nvtx.h"

#include "common/profile/record.h"
#include "common/profile/timeline.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

static void push(const char *name)
{
#ifdef HAVE_NVTX
    nvtxRangePushA(name);
#endif
    (void)name;
}

static void pop(void)
{
#ifdef HAVE_NVTX
    nvtxRangePop();
#endif
}

void scope_push(const char *name)
{
    push(name);
    timeline_range_push(name);
}

void scope_pop(void)
{
    pop();
    timeline_range_pop();
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
    push(name);
    recorder_push(name, work);
}

void op_pop(void)
{
    pop();
    recorder_pop();
}
