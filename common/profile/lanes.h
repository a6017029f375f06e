/* SPDX-License-Identifier: MIT */
/* What ran when on which stream, as the CSV of --timeline: label,rank,lane,stream,name,start_us,end_us, after a comment
 * with the sums. A fourth lane, "exposed", repeats the parts of communication beside which no compute ran. Of more than
 * 2000 rows the file keeps what a figure can show: spans of one lane and stream that lie within some microseconds become
 * one row, as long as they are together and named after what took the most time, and gaps in compute shorter than that
 * expose nothing. The comment says how many microseconds; its sums are those of all spans. */
#pragma once

#include "common/profile/sweep.h"

/* Adds one rank to the file, and makes it when it is absent, so the caller removes an earlier one first. Ranks may call
 * at the same time. base_us: time 0, the same for all ranks. False with errno. */
bool lanes_write(const char *path, const char *label, int rank, const recording *r, record_window w, double base_us);
