/* SPDX-License-Identifier: MIT */
/* The benches of data parallelism, which have a CSV each: their rows as one list, with PyTorch's beside them, for the
 * sections and as one CSV for the figures. */
#ifndef STEPBENCH_REPORT_DDP_DDP_H
#define STEPBENCH_REPORT_DDP_DDP_H

#include "common/report/comparison.h"
#include "common/report/table.h"

enum { DDP_FILES = 5 };

/* A row that is not `skip`, the newest of its case. */
typedef struct ddp_entry {
    const table *t;
    size_t row;
    const char *variant, *wire; /* wire: dtype of the gradients, in memory and when they are sent */
    bool ok;
    double exposed, low, high; /* ms, and its interval; NAN where it has none */
    char *how;                 /* options that are not the bench's defaults: "update backward + 8 CTAs", else "" */
    char *label;               /* variant, bucket size and how: "bucketed 25 MB (graph)" */
} ddp_entry;

/* Rows that differ in nothing but strategy, bucket size and how are a group: the same model on the same ranks. Groups are
 * in the order of sizes, ranks, precisions and contexts, strategies in that from naive to ZeRO-1. */
typedef struct ddp_rows {
    table *files[DDP_FILES];
    csv *pytorch; /* peer_ddp.csv, or NULL */
    size_t n;
    ddp_entry *all;
} ddp_rows;

ddp_rows *ddp_rows_open(const char *dir); /* NULL when no bench of them has a row there */
void ddp_rows_free(ddp_rows *r);
/* That of the rows that stand for the machine: the GPUs' where there are any. r may be NULL. */
const char *ddp_device(const ddp_rows *r, const char *dir);
size_t ddp_group_end(const ddp_rows *r, size_t first); /* behind the last entry of the group that begins at `first` */
/* "xl, batch 2 per rank, S 512, bf16, gradients bf16, 2 ranks". Caller frees. */
char *ddp_group_title(const ddp_entry *e);
const char *ddp_main_size(const ddp_rows *r); /* the size of model with the most rows, GPUs' where there are any */
bool ddp_same(const ddp_entry *a, const ddp_entry *b, const char *column);
/* Its strategy ran on as many ranks, with the same size and dtypes, with a longer context, too. */
bool ddp_has_longer(const ddp_rows *r, const ddp_entry *e);

const char *ddp_text(const ddp_entry *e, const char *column);
double ddp_real(const ddp_entry *e, const char *column);
bool ddp_is(const ddp_entry *e, const char *variant);
bool ddp_on_gpu(const ddp_entry *e);
double ddp_step_ms(const ddp_entry *e);

/* The row of a group that stands for a strategy: of those that went well, of these with default options where there are
 * any, the one with the least exposed time. NULL when there is none. `of` (may be NULL) becomes how many it was chosen
 * from. */
const ddp_entry *ddp_best(const ddp_rows *r, size_t first, size_t end, const char *variant, size_t *of);
/* A ratio of the two may be formed: one run on the same GPUs, as far as they say. */
bool ddp_beside(const ddp_entry *a, const ddp_entry *b);
/* Two exposed times can be told apart: their intervals don't meet. */
bool ddp_apart(const ddp_entry *a, const ddp_entry *b);
bool ddp_steps_apart(const ddp_entry *a, const ddp_entry *b); /* so can two steps: 5th to 95th percentiles don't meet */

/* What a rank has whole: all, or all but the optimizer's state. Only steps of one kind have a ratio that says how good either
 * is; another algorithm's is labelled so. */
typedef enum ddp_kind { DDP_REPLICATED, DDP_SHARDED_OPTIMIZER } ddp_kind;
ddp_kind ddp_kind_of(const char *variant);

/* What of PyTorch's stands beside a row: the same strategy, the fastest of its kind (both with the same dtypes of weights and
 * sums), the fastest of its kind whatever is kept in bf16, the fastest of all. */
typedef enum ddp_match { DDP_STRATEGY, DDP_KIND, DDP_KIND_ANY_POLICY, DDP_ANY } ddp_match;

/* The row of r->pytorch with the shortest such step of the same model and ranks that may stand beside ours, or NO_ROW. */
size_t ddp_peer(const ddp_rows *r, const ddp_entry *e, ddp_match match);
/* Adds its ratio, and what was refused; that of DDP_ANY has been named beside steps of its kind. */
void ddp_compare(comparison *to, const ddp_rows *r, const ddp_entry *e, ddp_match match);
/* A number of the row of the same strategy, else NAN; how it ran: "eager", else "". */
double ddp_pytorch(const ddp_rows *r, const ddp_entry *e, const char *column);
const char *ddp_pytorch_mode(const ddp_rows *r, const ddp_entry *e);
/* What a row ran: "ddp25, compile-blocks, bf16pure". The caller frees it. */
char *ddp_pytorch_name(const ddp_rows *r, size_t row);

void ddp_name(ddp_entry *e); /* sets how and label */

/* Four digits of a number, "-" for NAN; valid until 32 further calls. */
const char *precise(double value);
const char *with_interval(const ddp_entry *e); /* "1.953 [1.731, 2.204]", of the exposed time */

/* All rows that went well as one CSV, for the figures; false with errno set. */
bool ddp_write(const ddp_rows *r, const char *path);

#endif
