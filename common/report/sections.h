/* SPDX-License-Identifier: MIT */
/* The parts of a machine's report.md, and the little they share. A part whose CSV is not there writes nothing. */
#ifndef STEPBENCH_REPORT_SECTIONS_H
#define STEPBENCH_REPORT_SECTIONS_H

#include <stdio.h>

#include "common/report/table.h"

#define MIB 1048576.0
#define GIB 1073741824.0

/* Opens <dir>/<name>; NULL when it is absent or empty. */
table *open_result(const char *dir, const char *name);

/* Text for a table cell, valid until 32 further calls: three digits of a number, "-" for NAN. */
const char *number(double value);
const char *number_unit(double value, const char *unit); /* "345 TFLOP/s"; of unit bytes in MiB or GiB */
/* number of a row's column; its status (oom, skip, fail) when the row has no numbers. */
const char *cell_number(const table *t, size_t row, const char *column, double scale);

/* A Markdown table with S down and D across; `cell` writes one cell. */
typedef void grid_cell(FILE *out, const table *t, const char *seq, const char *head_dim, const void *context);
void sequence_by_head_dim(FILE *out, const table *t, grid_cell *cell, const void *context);

size_t largest(const table *t, const char *column); /* row with the largest finite value, else NO_ROW */
/* Rows of an attention bench one below the other, each under its table_case. */
void attention_rows(FILE *out, const table *t);

/* The figures whose names begin with `prefix`, embedded when plots/<machine>/ beside results/ has them. */
void figures(FILE *out, const char *dir, const char *prefix);

/* One bullet or more a bench for the top of the report, then one section each. */
void roofline_findings(FILE *out, const char *dir);
void flash_findings(FILE *out, const char *dir);
void attention_findings(FILE *out, const char *dir);
void transformer_findings(FILE *out, const char *dir);
void mixed_findings(FILE *out, const char *dir);
void memory_findings(FILE *out, const char *dir);
void allreduce_findings(FILE *out, const char *dir);
void accounting_findings(FILE *out, const char *dir);
void ddp_findings(FILE *out, const char *dir);
void zero1_findings(FILE *out, const char *dir);
void machine_section(FILE *out, const char *dir);
void ran_section(FILE *out, const char *dir);
void roofline_section(FILE *out, const char *dir);
void flash_section(FILE *out, const char *dir);
void attention_section(FILE *out, const char *dir);
void transformer_section(FILE *out, const char *dir); /* beside PyTorch where pytorch_model.csv is there */
void mixed_section(FILE *out, const char *dir);
void memory_section(FILE *out, const char *dir); /* likewise, and beside the write-ups */
void accounting_section(FILE *out, const char *dir);
/* Our own all-reduces beside the library's, of all rows of bench_allreduce; nothing when there are none. */
void allreduce_own_findings(FILE *out, const table *t);
void allreduce_own(FILE *out, const table *t, const char *dtype);
void allreduce_section(FILE *out, const char *dir); /* beside PyTorch and nccl-tests where their CSVs are there */
void ddp_section(FILE *out, const char *dir);       /* the five benches of data parallelism, ZeRO-1 among them */
void pytorch_section(FILE *out, const char *dir);   /* times of PyTorch from the same run */
void published_section(FILE *out, const char *dir); /* the write-ups' tables, from <dir>/../published/ */

/* Rewrites the lines between the two table markers of `readme`, each bench by the first folder that has a row of it; false
 * after a message. */
bool readme_update(char *const *dirs, size_t count, const char *readme);

#endif
