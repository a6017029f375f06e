/* SPDX-License-Identifier: MIT */
/* See visible.h. */
#include "common/device/visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An entry is a number, or the UUID of a GPU or of a part of one (MIG), which may be cut short. */
static bool may_name_a_gpu(const char *entry, int gpus)
{
    char *end;
    const long number = strtol(entry, &end, 10);
    if (end != entry)
        return (*end == ',' || *end == 0) && number >= 0 && number < gpus;
    return strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0;
}

int visible_count(const char *text, int gpus)
{
    int n = 0;
    if (!text)
        return gpus;
    while (n < gpus && may_name_a_gpu(text, gpus)) {
        n++;
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return n;
}

void visible_none(const char *text, int gpus, char *out, size_t out_bytes)
{
    char there[64] = "which GPUs there are could not be found out";
    if (gpus == 1)
        snprintf(there, sizeof there, "this machine has one, number 0");
    if (gpus > 1)
        snprintf(there, sizeof there, "this machine has %d, numbers 0 to %d", gpus, gpus - 1);
    snprintf(out, out_bytes, "CUDA_VISIBLE_DEVICES=%s leaves no GPU to use: %s (nvidia-smi -L lists their UUIDs)", text,
             there);
}

bool visible_apart(const char *setting)
{
    return setting && *setting && strcmp(setting, "0") != 0; /* NCCL ignores an empty one, and machine.csv lacks it */
}
