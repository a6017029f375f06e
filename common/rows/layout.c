/* SPDX-License-Identifier: MIT */
/* The columns around a bench's own, and the words for a status. */
#include "common/core/results.h"
#include "common/rows/internal.h"

const char *const row_status_names[] = {[ROW_OK] = "ok", [ROW_FAIL] = "fail", [ROW_OOM] = "oom", [ROW_SKIP] = "skip"};

static const column_spec first_columns[] = {
    {"schema", COLUMN_INT, false, "version of this file's layout"},
    {"method", COLUMN_INT, false, "version of the way of measuring; rows of different methods are not comparable"},
    {"bench", COLUMN_TEXT, false, "the program"},
    {"variant", COLUMN_TEXT, true, "the variant measured"},
    {"status", COLUMN_TEXT, true, "ok, fail (wrong result, no speeds), oom (no memory) or skip (unsupported)"},
    {"reason", COLUMN_TEXT, false, "why the status is not ok, or which part an ok row lacks"},
    {0},
};
static const column_spec last_columns[] = {
    {"run_id", COLUMN_TEXT, false, "start of the run in UTC and its process id"},
    {"gpu", COLUMN_TEXT, false, "name of the GPU, or of the CPU with device cpu"},
    {"gpu_uuid", COLUMN_TEXT, false, "which GPU it was, that of rank 0; empty on the CPU"},
    {"check", COLUMN_INT, false, "1: results were verified (--check)"},
    {"l2", COLUMN_TEXT, false, "warm, or cold: the L2 cache was flushed before every sample (--l2)"},
    {"timer_asked", COLUMN_TEXT, false, "what --timer asked for; auto unless it was forced"},
    {"sm_mhz", COLUMN_REAL, false,
     "sm_median_mhz; where nothing was read, the clock with the last sample under way or after the case"},
    {"sm_min_mhz", COLUMN_REAL, false, "lowest SM clock while samples were taken, read every --sensors ms"},
    {"sm_median_mhz", COLUMN_REAL, false, "the same, median"},
    {"power_w", COLUMN_REAL, false,
     "power while samples were taken, of rank 0's GPU: mean by its energy counter, else median of readings"},
    {"readings", COLUMN_INT, false, "readings of clock and power behind these values"},
    {"throttle", COLUMN_TEXT, false, "why the clock was held back, words joined by +; empty: it was not"},
    {"commit", COLUMN_TEXT, false,
     "commit this binary was built from; + and a hash of the sources follow unless git knows them as its own; src- and "
     "the hash where no commit is known"},
    {"utc", COLUMN_TEXT, false, "when the row was written"},
    {0},
};
/* What holds for a whole run: lines of machine.csv. */
static const column_spec run_columns[] = {
    {"campaign", COLUMN_TEXT, false, "the ./run_all.sh that the run is part of; else the same as run_id"},
    {"machine", COLUMN_TEXT, false, "short name of the machine"},
    {"device", COLUMN_TEXT, false, "cuda or cpu"},
    {"settle_s", COLUMN_REAL, false, "how long a call ran before its samples, which took at least as long (--settle)"},
    {"seed", COLUMN_INT, false, "seed of the inputs (--seed)"},
    {"idle_w", COLUMN_REAL, false, "power of the GPU before the first case: median of 0.2 s in which nothing ran"},
    {"dirty", COLUMN_INT, false, "1: built from files that differ from the commit; nan: git does not say"},
    {0},
};

static const char *const timed[] = {"l2",      "timer_asked", "settle_s", "sm_mhz",   "sm_min_mhz", "sm_median_mhz",
                                    "power_w", "idle_w",      "readings", "throttle", NULL};

const row_layout rows_layout = {first_columns, last_columns, run_columns, RESULTS_SCHEMA, ROWS_METHOD, timed};
