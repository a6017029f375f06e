/* SPDX-License-Identifier: MIT */
/* One run at a time writes a folder of results. */
#pragma once

/* Takes the folder that a CSV below results/ lies in, and makes it; -1 for a file elsewhere, which is the user's to
 * share. Dies (exit 1) when another run has it. A file system without locks is no reason to measure nothing. The folder
 * is free again after folder_unlock, or when the process ends in any way. */
int folder_lock(const char *csv_path);
void folder_unlock(int lock);
