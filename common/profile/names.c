/* SPDX-License-Identifier: MIT */
/* Short names of kernels. CUPTI gives the name of the symbol, which for C++ is mangled (Itanium's scheme): the
 * function's own name is the last identifier of its path, before template arguments and parameters. */
#include "common/profile/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96 };

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
    for (p += *p == 'L'; isdigit((unsigned char)*p); p += *p == 'L') { /* L: known in its own file alone */
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

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
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

timeline_lane timeline_classify(const char *kernel, const char **name)
{
    char base[NAME_BYTES];
    if (starts(kernel, "_Z"))
        last_identifier(kernel, base, sizeof base);
    else
        last_word(kernel, base, sizeof base);
    if (!*base)
        snprintf(base, sizeof base, "%s", kernel);
    if (starts(base, "nccl") || has(kernel, "peer_")) { /* in the name, or in the file's in an unnamed namespace */
        *name = timeline_name(collective(kernel, base));
        return LANE_COMMUNICATION;
    }
    if (has(kernel, "flash")) { /* in the name or its namespace */
        *name = starts(base, "forward") || has(base, "flash_forward") ? "flash forward" : "flash backward";
    } else if (has(base, "adamw")) {
        *name = "adamw";
    } else if (is_product(kernel)) {
        *name = "gemm";
    } else {
        const size_t length = strlen(base), suffix = strlen("_kernel");
        if (length > suffix && strcmp(base + length - suffix, "_kernel") == 0)
            base[length - suffix] = '\0';
        *name = timeline_name(base);
    }
    return LANE_COMPUTE;
}
