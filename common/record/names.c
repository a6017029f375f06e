/* SPDX-License-Identifier: MIT */
/* Names, see names.h. CUPTI gives the name of the symbol, which for C++ is mangled (Itanium's scheme): the
 * function's own name is the last identifier of its path, before template arguments and parameters. */
#include "common/record/names.h"

#include <ctype.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/text.h"

enum { NAME_BYTES = 96 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static char **names;                                     /* a table with open addressing */
static size_t name_count, name_room;                     /* room: a power of 2 */

const char *record_lane_name(record_lane lane)
{
    static const char *const lanes[] = {"compute", "communication", "copy"};
    return lanes[lane];
}

/* ---- names that stay ---- */

static char **name_slot(const char *name)
{
    size_t at = 14695981039346656037u; /* FNV-1a */
    for (const char *c = name; *c; c++)
        at = (at ^ (unsigned char)*c) * 1099511628211u;
    for (at &= name_room - 1; names[at] && strcmp(names[at], name) != 0;)
        at = (at + 1) & (name_room - 1);
    return &names[at];
}

static void more_names(void)
{
    char **before = names;
    const size_t room = name_room;
    name_room = room ? 2 * room : 512;
    names = xcalloc(name_room, sizeof *names);
    for (size_t i = 0; i < room; i++)
        if (before[i])
            *name_slot(before[i]) = before[i];
    free(before);
}

static const char *name_held(const char *name)
{
    if (2 * (name_count + 1) > name_room)
        more_names();
    char **slot = name_slot(name);
    if (!*slot) {
        *slot = xstrdup(name);
        name_count++;
    }
    return *slot;
}

const char *record_name(const char *name)
{
    pthread_mutex_lock(&lock);
    const char *held = name_held(name);
    pthread_mutex_unlock(&lock);
    return held;
}

/* ---- short names of kernels ---- */

/* "_ZN12flash_hopper13flash_forwardI..." -> "flash_forward". Empty when there is no identifier where one should be. */
static void last_identifier(const char *mangled, char *out, size_t bytes)
{
    const char *p = mangled + 2;
    const bool nested = *p == 'N';
    *out = '\0';
    p += nested;
    while (*p && strchr("KVrRO", *p)) /* qualifiers of a nested name */
        p++;
    if (p[0] == 'S' && p[1] == 't') /* std:: */
        p += 2;
    for (p += *p == 'L'; isdigit((unsigned char)*p); p += *p == 'L') { /* L: known only in its own file */
        char *name;
        const unsigned long length = strtoul(p, &name, 10);
        if (length > strlen(name))
            return;
        snprintf(out, bytes, "%.*s", (int)length, name);
        p = name + length;
        if (!nested)
            return;
    }
}

/* "void cutlass::Kernel2<tile>(int)" -> "Kernel2"; a plain symbol stays as it is. */
static void last_word(const char *readable, char *out, size_t bytes)
{
    static const char unnamed[] = "(anonymous namespace)::";
    const char *inside = strstr(readable, unnamed);
    if (inside)
        readable = inside + strlen(unnamed);
    const char *end = readable + strcspn(readable, "<("), *start = end;
    while (start > readable && (isalnum((unsigned char)start[-1]) || start[-1] == '_'))
        start--;
    snprintf(out, bytes, "%.*s", (int)(end - start), start);
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* NCCL names kernels like ncclDevKernel_AllReduce_Sum_bf16_RING_LL, and our files are called like comm/comm.h's ops. */
static const char *collective(const char *kernel, const char *base)
{
    static const struct {
        const char *part, *name;
    } known[] = {
        {"AllReduce", "all_reduce"},         {"all_reduce", "all_reduce"},
        {"ReduceScatter", "reduce_scatter"}, {"reduce_scatter", "reduce_scatter"},
        {"AllGather", "all_gather"},         {"all_gather", "all_gather"},
        {"Broadcast", "broadcast"},          {"broadcast", "broadcast"},
        {"SendRecv", "send_recv"},           {"Reduce", "reduce"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (has(kernel, known[i].part))
            return known[i].name;
    return base;
}

/* What a library calls its matrix products, or kernels that belong to one. */
static bool is_product(const char *kernel)
{
    static const char *const parts[] = {"gemm", "matmul", "cutlass", "cublas", "nvjet", "xmma", "gemv", "splitK"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has(kernel, parts[i]))
            return true;
    return false;
}

record_lane record_classify(const char *kernel, const char **name)
{
    char base[NAME_BYTES];
    if (text_starts(kernel, "_Z"))
        last_identifier(kernel, base, sizeof base);
    else
        last_word(kernel, base, sizeof base);
    if (!*base)
        snprintf(base, sizeof base, "%s", kernel);
    if (text_starts(base, "nccl") ||
        has(kernel, "direct_")) { /* in the name, or in the file's in an unnamed namespace */
        *name = record_name(collective(kernel, base));
        return LANE_COMMUNICATION;
    }
    if (has(kernel, "flash")) { /* in the name or its namespace */
        *name = text_starts(base, "forward") || has(base, "flash_forward") ? "flash forward" : "flash backward";
    } else if (has(base, "adamw")) {
        *name = "adamw";
    } else if (is_product(kernel)) {
        *name = "gemm";
    } else {
        if (text_ends(base, "_kernel") && !text_is(base, "_kernel"))
            base[strlen(base) - strlen("_kernel")] = '\0';
        *name = record_name(base);
    }
    return LANE_COMPUTE;
}
