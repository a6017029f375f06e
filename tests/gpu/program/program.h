/* SPDX-License-Identifier: MIT */
/* What the GPU test programs share: their options, a device opened for them, threads that prepare cases, the table at
 * the end. */
#pragma once

#include "tests/gpu/program/runner.h"

typedef struct arguments {
    bool small, list;
    device_kind kind;
    int repeats;                   /* 0: as many as the run is meant for */
    const char *op, *dtype, *name; /* NULL: all; name is a part of a case's name */
} arguments;

/* `ops` and `dtypes` are what --op and --dtype allow; both lists end with NULL. Prints and exits for --help and for bad
 * input. */
arguments arguments_parse(int argc, char **argv, const char *const *ops, const char *const *dtypes);
/* Is this case among those that were asked for? */
bool arguments_want(const arguments *x, const char *op, const char *dtype, const char *name, bool small);

/* Exits with code 77 where a GPU is asked for and there is none. */
runner runner_open(const arguments *x, const char *program);
/* Prints the table, whose last column is headed `worst`, and the line "N passed, N failed, N skipped"; gives everything
 * back. The exit code. */
int runner_close(runner *r, const char *worst);
/* A line on stderr, where that is a terminal. */
void runner_progress(int done, int all, const char *what);

/* work(context, i) for each i in [0, n), by as many threads as there are cores. */
void in_parallel(int n, void (*work)(void *context, int i), void *context);
