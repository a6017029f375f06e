/* SPDX-License-Identifier: MIT */
/* NVTX ranges, or nothing without the header, and the timeline's; see nvtx.h. */
#include "common/profile/nvtx.h"

#include "common/profile/timeline.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

void range_push(const char *name)
{
#ifdef HAVE_NVTX
    nvtxRangePushA(name);
#endif
    timeline_range_push(name);
}

void range_pop(void)
{
#ifdef HAVE_NVTX
    nvtxRangePop();
#endif
    timeline_range_pop();
}
