/* SPDX-License-Identifier: MIT */
/* The files of common/train/tune/choices as part of the program, so that it finds them wherever it lies. `make choices`
 * writes the file of the GPU at hand; a new file wants a line in the table below. */
#include <stddef.h>
#include <string.h>

#include "common/core/text.h"
#include "common/train/tune/choices.h"

TEXT_OF_FILE(choices_h200, "common/train/tune/choices/h200.csv");
TEXT_OF_FILE(choices_h100, "common/train/tune/choices/h100-80gb-hbm3.csv");

const char *choices_shipped(const char *gpu)
{
    static const struct {
        const char *gpu, *text;
    } shipped[] = {{"NVIDIA H200", choices_h200}, {"NVIDIA H100 80GB HBM3", choices_h100}};
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (strcmp(shipped[i].gpu, gpu) == 0)
            return shipped[i].text;
    return NULL;
}
