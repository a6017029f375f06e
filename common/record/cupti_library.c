/* SPDX-License-Identifier: MIT */
/* Finds CUPTI's library: the loader's own places and the program's run path first, then where a toolkit keeps it. A
 * program that records nothing never loads it, and every program runs where it is missing. Records are structures of
 * one version of CUPTI, so only a library of exactly the header's version will do. */
#if defined(HAVE_CUDA) && defined(HAVE_CUPTI) && __has_include(<cupti.h>)

#include "common/record/cupti_library.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool take_functions(void *library, cupti_functions *out)
{
#define NAMED(slot, function) {#function, &out->slot},
    const struct {
        const char *symbol;
        void *slot;
    } wanted[] = {CUPTI_FUNCTIONS(NAMED)};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(library, wanted[i].symbol);
        if (!symbol)
            return false;
        memcpy(wanted[i].slot, &symbol, sizeof symbol);
    }
    return true;
}

/* True when it is there and of the header's version; else it is said why, unless it is just not there. */
static bool open_one(const char *path, cupti_functions *out, char *why, size_t why_bytes)
{
    uint32_t version = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    if (!take_functions(library, out)) {
        snprintf(why, why_bytes, "%s lacks functions that this program needs", path);
    } else if (out->version(&version) != CUPTI_SUCCESS || version != CUPTI_API_VERSION) {
        snprintf(why, why_bytes, "%s is version %u of CUPTI, and this program was built for %d", path, version,
                 CUPTI_API_VERSION);
    } else {
        return true;
    }
    dlclose(library);
    return false;
}

bool cupti_library_open(cupti_functions *out, char *why, size_t why_bytes)
{
    char name[32], newest[64], path[512];
    snprintf(name, sizeof name, "libcupti.so.%d", CUDA_VERSION / 1000);
    snprintf(newest, sizeof newest, "/usr/local/cuda-%d.%d", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    snprintf(why, why_bytes, "%s was not found; set CUDA_HOME to the toolkit's folder", name);
    const char *const homes[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), newest, "/usr/local/cuda"};
    static const char *const folders[] = {"extras/CUPTI/lib64", "lib64", "lib"};
    if (open_one(name, out, why, why_bytes))
        return true;
    for (size_t h = 0; h < sizeof homes / sizeof *homes; h++)
        for (size_t f = 0; homes[h] && *homes[h] && f < sizeof folders / sizeof *folders; f++) {
            snprintf(path, sizeof path, "%s/%s/%s", homes[h], folders[f], name);
            if (open_one(path, out, why, why_bytes))
                return true;
        }
    return false;
}

#else
typedef int cupti_library_absent; /* ISO C wants a declaration in every file */
#endif
