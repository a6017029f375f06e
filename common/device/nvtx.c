/* NVTX ranges, or nothing without the header; see nvtx.h. */
#include "common/device/nvtx.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

void range_push(const char *name)
{
    nvtxRangePushA(name);
}
void range_pop(void)
{
    nvtxRangePop();
}
#else
void range_push(const char *name)
{
    (void)name;
}
void range_pop(void) {}
#endif
