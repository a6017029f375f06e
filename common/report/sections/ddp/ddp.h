/* SPDX-License-Identifier: MIT */
/* Parts of the section of data parallelism. Each adds nothing where it has no rows. */
#ifndef STEPBENCH_REPORT_SECTIONS_DDP_DDP_H
#define STEPBENCH_REPORT_SECTIONS_DDP_DDP_H

#include "common/report/ddp/ddp.h"
#include "common/report/document.h"

void ddp_scaling(document *doc, const char *dir, const ddp_rows *r); /* over numbers of ranks */
void ddp_buckets(document *doc, const char *dir, const ddp_rows *r); /* measured beside what models predict */

#endif
