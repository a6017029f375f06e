/* SPDX-License-Identifier: MIT */
/* Values of a run that stand out: by how many standard deviations one is off the mean of the last 128. What stands out, or is no
 * number, does not enter the window, so that one spike does not hide the next. */
#pragma once

#include <stdbool.h>

enum { OUTLIERS_WINDOW = 128, OUTLIERS_LEAST = 32 /* values before any can stand out */ };

typedef struct outliers {
    double last[OUTLIERS_WINDOW];
    int n; /* values in it so far */
} outliers;

/* Whether x stands out (more than 5 deviations, or not finite); *z says by how many, NAN while there are too few. */
bool outliers_add(outliers *o, double x, double *z);
