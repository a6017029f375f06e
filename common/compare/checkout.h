/* SPDX-License-Identifier: MIT */
/* Results as git has them at a commit. */
#pragma once

/* The path itself, or where COMMIT:PATH, a folder or a CSV file with its machine.csv, was checked out: in a temporary
 * folder, which is removed at exit. PATH is from the root of the repository. Dies when git lacks it. Caller frees. */
char *checkout_path(const char *spec);
