/* SPDX-License-Identifier: MIT */
/* Several folders of results in one database: the first screen and the peers of each. */
#pragma once

#include <sqlite3.h>
#include <stddef.h>

typedef struct machine_folder {
    const char *name, *dir; /* name: what its column is called */
} machine_folder;

/* Tables: folder (place, name, title, date, version), all_first, all_strongest and all_refused with the place of the folder. */
sqlite3 *machines_open(const machine_folder *folders, size_t n);
sqlite3 *machines_empty(void); /* the same without rows, for lint */

/* "2 x NVIDIA H200", of the newest run. Caller frees. */
char *machine_title(sqlite3 *db, const char *device);
/* What stands for a machine: its GPUs where it has any. */
const char *machine_device(const char *dir);

/* Rewrites the lines between the markers of `readme`'s two tables. The exit code; a message if it is not 0. */
int readme_update(const machine_folder *folders, size_t n, const char *readme);
