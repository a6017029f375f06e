/* SPDX-License-Identifier: MIT */
/* Reference tables; see reference.h. A new file wants a line in the table below, with the name that CUDA gives the GPU. */
#include "common/qualify/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/text.h"

TEXT_OF_FILE(reference_h200, "reference/h200.csv");
TEXT_OF_FILE(reference_h100, "reference/h100.csv");
TEXT_OF_FILE(reference_a100, "reference/a100.csv");
TEXT_OF_FILE(reference_b200, "reference/b200.csv");

static const struct {
    const char *gpu, *text;
} shipped[] = {{"NVIDIA H200", reference_h200},
               {"NVIDIA H100 80GB HBM3", reference_h100},
               {"NVIDIA A100-SXM4-80GB", reference_a100},
               {"NVIDIA B200", reference_b200}};

const char *reference_file(size_t i, const char **gpu)
{
    if (i >= sizeof shipped / sizeof *shipped)
        return NULL;
    *gpu = shipped[i].gpu;
    return shipped[i].text;
}

csv *reference_shipped(const char *gpu)
{
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (strcmp(shipped[i].gpu, gpu) == 0)
            return csv_parse(shipped[i].text);
    return NULL;
}

bool reference_find(const csv *t, const char *metric, int gpus, const char *shape, qualify_reference *out)
{
    *out = (qualify_reference){NAN, NAN};
    for (size_t r = 0; t && r < t->rows; r++) {
        const char *own = csv_cell(t, r, "shape");
        if (!csv_is(t, r, "metric", metric) || (int)csv_real(t, r, "gpus") != gpus || (*own && strcmp(own, shape) != 0))
            continue;
        *out = (qualify_reference){csv_real(t, r, "value"), csv_real(t, r, "floor")};
        return true;
    }
    return false;
}

const char *reference_problem(const csv *t)
{
    static const char *const columns[] = {"metric", "gpus", "shape", "value", "floor"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (csv_column(t, columns[i]) < 0)
            return "it lacks one of the columns metric, gpus, shape, value, floor";
    for (size_t r = 0; r < t->rows; r++)
        if (!qualify_metric_find(csv_cell(t, r, "metric")))
            return "it names a metric that does not exist";
        else if (!(csv_real(t, r, "value") > 0) && !(csv_real(t, r, "floor") > 0))
            return "a row has neither a value nor a floor";
    return NULL;
}
