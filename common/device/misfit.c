/* SPDX-License-Identifier: MIT */
/* Whether a GPU can run the machine code of this build. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device/device.h"

const char *device_archs(void)
{
    return CUDA_ARCHS;
}

const char *device_misfit(const device_info *gpu, const char *archs)
{
    static char text[384];
    const long has = 10L * gpu->compute_major + gpu->compute_minor;
    if (has < 80) {
        snprintf(text, sizeof text,
                 "%s has compute capability %d.%d, and the kernels need 8.0 or above; --device cpu measures the CPU",
                 gpu->name, gpu->compute_major, gpu->compute_minor);
        return text;
    }
    for (const char *a = archs; *a; a += strcspn(a, ","), a += *a == ',') {
        /* Machine code runs on later GPUs of its generation, PTX on all later ones; with features of one generation (f)
         * or of one GPU (a), both run there alone. CUDA C++ Programming Guide, "Compute Capabilities". */
        char *suffix;
        const long arch = strtol(a, &suffix, 10);
        const bool ptx = strncmp(suffix, "+ptx", 4) == 0;
        if (*suffix == 'a' ? has == arch : has >= arch && (ptx || has / 10 == arch / 10))
            return NULL;
    }
    snprintf(text, sizeof text,
             "%s has compute capability %d.%d, and this build is for %s; make CUDA_ARCH=%ld builds for this GPU",
             gpu->name, gpu->compute_major, gpu->compute_minor, archs, has);
    return text;
}
