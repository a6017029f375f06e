/* SPDX-License-Identifier: MIT */
/* What the program says on stdout. While a session runs, stdout belongs to it: `say` writes to a descriptor of its own, and
 * whatever else prints, such as a library (NCCL_DEBUG=INFO), goes to stderr. Without a session `say` is printf. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Sets stdout apart, until output_give_back. With `records`, its lines are written by the caller to what this returns, and
 * what is said goes to stderr, too. */
FILE *output_take(bool records);
/* False after a sentence when something could not be written. */
bool output_give_back(void);

void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
FILE *output(void); /* where it goes */

/* Whether a file may be kept at `path`: a file or nothing is there, or a link, unless it is /dev/stdout or its like: a rename would
 * put another thing in its place for all programs. */
bool output_is_file(const char *path);
