/* SPDX-License-Identifier: MIT */
/* Sentences that are made from the numbers of a table, so that they can't contradict them. Each adds a paragraph, or
 * nothing where the rows for it are missing. */
#ifndef STEPBENCH_REPORT_SENTENCES_H
#define STEPBENCH_REPORT_SENTENCES_H

#include "common/report/document.h"
#include "common/report/table.h"

void say_flash(document *doc, const table *of_dtype);             /* bench_flash: in how many cases it is faster */
void say_attention(document *doc, const table *of_dtype);         /* bench_attention: growth, and what fits */
void say_memory(document *doc, const table *of_precision);        /* bench_memory: the peak of a train step */
void say_collective(document *doc, const table *of_op_and_dtype); /* bench_allreduce: from small to large */
/* bench_transformer: the mean step after less warm-up against that after the most. same: whether two rows differ in
 * nothing but warm-up. */
void say_warmup(document *doc, const table *t, bool (*same)(const table *t, size_t a, size_t b));

#endif
