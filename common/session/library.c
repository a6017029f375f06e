/* SPDX-License-Identifier: MIT */
/* The library says what it was compiled from; see library.h. */
#include "common/session/library.h"

#include <dlfcn.h>
#include <string.h>

#include "common/core/build_info.h"
#include "common/core/error.h"
#include "kernels/shared/build.h"
#include "kernels/kernels.h"

#pragma weak sb_build /* libraries before 0.4 have none */

void library_check(void)
{
    const char *loaded = sb_build ? sb_build() : "unknown";
    Dl_info found;
    if (strcmp(loaded, build_kernels()) == 0)
        return;
    const bool named = dladdr(sb_build ? (void *)sb_build : (void *)sb_kernels_cpu, &found) && found.dli_fname;
    die(EXIT_CODE_USAGE,
        "the kernels that were loaded, %s (%s), are not those of this program's build, %s (%s): run make, or leave "
        "LD_LIBRARY_PATH and LD_PRELOAD out",
        named ? found.dli_fname : "of an unknown file", loaded, build_library(), build_kernels());
}
