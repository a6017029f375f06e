/* SPDX-License-Identifier: MIT */
/* Rows: a table on stdout and tidy CSV, appended with one write(2) per row, never truncated.
 *
 * Columns in order: schema,method,bench,variant,status,reason | parameters (from the options) | the bench's columns |
 * run_id,gpu,gpu_uuid,check,l2,timer_asked,sm_mhz,sm_min_mhz,sm_median_mhz,power_w,readings,throttle,commit,utc. Those of
 * timing (l2, timer_asked, sm_mhz to throttle) are not in rows of a bench that is untimed.
 * What else holds for a whole run is in lines of machine.csv beside the file: campaign, machine, device, settle_s, seed,
 * idle_w, dirty; its line "options" has every value that was asked for. Only what decides whether two rows may be compared is in both.
 * status: ok, fail (wrong result: no speeds), oom, skip (unsupported), each of the last three with a reason; an ok row
 * has one if it lacks a part of its measurement.
 * Missing numbers are `nan`, missing text is empty. Reals are %.9g. Unit suffixes: _ms _us _s _bytes _gib (2^30)
 * _gb_s (1e9) _tflops _pct _mhz _w _j. */
#pragma once

#include <stdio.h>

#include "common/options/options.h"

enum { ROWS_METHOD = 3 }; /* results.h has the schema */

typedef enum row_status { ROW_OK, ROW_FAIL, ROW_OOM, ROW_SKIP } row_status;

typedef struct rows_info {   /* provenance, the same for every row of this run; texts live as long as that */
    const char *csv_path;    /* NULL: --csv none */
    const char *machine;     /* "h200-x1" */
    const char *device_name; /* "NVIDIA H200", or the CPU's name */
    const char *gpu_uuid;    /* NULL: none */
    const char *campaign;    /* the runs that this one belongs to; NULL: it is alone, and run_id stands for it */
    const char *device;      /* "cuda" or "cpu" */
    bool quiet;              /* no console table */
    bool silent;             /* nothing on stderr either: of ranks other than 0 */
    double idle_w;           /* power of the GPU while nothing runs; NAN unknown */
    /* Called after each row with the header and the line of the CSV, and behind them what holds for the run; NULL: nothing is. */
    void (*written)(void *user, const char *header, const char *line);
    void *user;
} rows_info;

/* The columns before the parameters and after the bench's. */
extern const row_layout rows_layout;

typedef struct row_writer row_writer;
typedef struct row row;

/* Prepares the CSV for appending (creating folders; locked for each write). An existing file with other columns is
 * moved aside to <name>.<n>.csv and the move is said on stderr; a torn last line is completed by a newline. With
 * `resume`, the keys of finished rows (status ok, fail, oom, skip) are read for rows_has; rows of another schema are bad
 * usage then (exit 2), as is a path that can't be opened for writing. Dies (exit 1) when a write fails. */
row_writer *rows_open(const options *o, const rows_info *info, bool resume);
/* A kept row of this machine and device has the case; one that is `fail` counts in rows_close. */
bool rows_has(row_writer *r, const bench_case *c);
const char *rows_run_id(const row_writer *r); /* UTC time and pid: "20261121T090500Z-1234" */
const char *rows_campaign(const row_writer *r);
const char *rows_gpu_uuid(const row_writer *r); /* "" for none */
/* Whether a case has a result, right or wrong, in this run or kept; true when there was nothing to do. */
bool rows_measured(const row_writer *r);
/* Prints the footer, and on stderr how many results are wrong, or that there is none, and the first reason. Returns the
 * worst exit code seen; having measured nothing is not one. */
int rows_close(row_writer *r);

row *row_begin(row_writer *r, const bench_case *c);
void row_real(row *w, const char *column, double value); /* an unknown column dies: it is a bug. Whole in COLUMN_INT */
void row_int(row *w, const char *column, int64_t value);
void row_text(row *w, const char *column, const char *value);
/* A text: n numbers of `digits` significant digits, divided by blanks. */
void row_numbers(row *w, const char *column, const double *values, int n, int digits);
bool row_has(const row *w, const char *column); /* whether the bench declares it */
const bench_case *row_case(const row *w);
typedef struct row_conditions {               /* NAN unknown */
    double sm_mhz, sm_min_mhz, sm_median_mhz; /* after the case; while it was timed */
    double power_w;                           /* median while it was timed */
    int readings;                             /* of clock and power, while it was timed */
    char throttle[128];                       /* "" none */
} row_conditions;
void row_state(row *w, const row_conditions *c); /* copied */
/* status other than ok: derived columns already set stay only for ROW_FAIL's error columns (err_*). */
void row_status_set(row *w, row_status status, const char *reason_fmt, ...) __attribute__((format(printf, 3, 4)));
row_status row_status_get(const row *w);
const char *row_reason(const row *w); /* "" for none */
void row_commit(row *w);              /* writes, prints, frees */
void row_drop(row *w);                /* frees it, unseen */

/* A row, given as a header and a line as `written` is, as an object of JSON on a line. */
void json_write_row(FILE *out, const options *o, const char *header, const char *line);

/* Progress with time left: one line on stderr, only on a terminal. */
void progress_update(size_t done, size_t total, const char *what);
/* While the line is shown: what is being done now, every half second. From any thread. */
void progress_phase(const char *what);
void progress_clear(void);
