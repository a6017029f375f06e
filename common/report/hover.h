/* SPDX-License-Identifier: MIT */
/* Values on hover: a title for each point of a gnuplot figure. What a point stands for is read from the figure itself: its
 * place between the labels of the tics, linear or logarithmic, and its colour and shape in the key. So a value is as exact
 * as its place, a hundredth of a pixel; digits that this does not give are left out. Bars and lines get no title. */
#ifndef STEPBENCH_REPORT_HOVER_H
#define STEPBENCH_REPORT_HOVER_H

#include <stdbool.h>
#include <stddef.h>

/* The elements of an SVG with titles. Caller frees. */
char *hover_titles(const char *svg);

/* ---- for tests ---- */

enum { HOVER_TICS = 64 };
typedef struct hover_axis { /* labels of tics and where they are, in pixels */
    size_t n;
    double at[HOVER_TICS];
    char label[HOVER_TICS][32];
} hover_axis;
/* The text of the value at a place: the label of a tic that is there, else a number between them ("4.56", "3k"). False when
 * the labels are no scale: words, or too few of them to tell a linear one from a logarithmic one. */
bool hover_value(const hover_axis *a, double at, char *out, size_t out_bytes);

#endif
