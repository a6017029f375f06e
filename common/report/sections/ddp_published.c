/* SPDX-License-Identifier: MIT */
/* Data parallelism in the write-ups, from results/published/: the end of the section of data parallelism. */
#include <string.h>

#include "common/report/section.h"
#include "common/report/ddp/ddp.h"

static void steps_table(document *doc, const csv *c)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "write-up", "GPU", "strategy", NULL);
    doc_columns(doc, DOC_NUMBER, "MB", "S", NULL);
    doc_columns(doc, DOC_TEXT, "batch", NULL);
    doc_columns(doc, DOC_NUMBER, "step ms", "communication ms", NULL);
    doc_columns(doc, DOC_TEXT, "note", NULL);
    for (size_t i = 0; i < c->rows; i++) {
        if (cell_is(c, i, "strategy", "unstated") || cell_is(c, i, "status", "ambiguous"))
            continue;
        doc_row(doc, csv_cell(c, i, "source"), csv_cell(c, i, "gpu"), csv_cell(c, i, "strategy"),
                csv_cell(c, i, "bucket_mb"), csv_cell(c, i, "seq"), NULL);
        doc_cell(doc, "%s %s", csv_cell(c, i, "batch"), csv_cell(c, i, "batch_kind"));
        doc_cells(doc, csv_cell(c, i, *csv_cell(c, i, "step_ms") ? "step_ms" : "status"), csv_cell(c, i, "comm_ms"),
                  csv_cell(c, i, "note"), NULL);
    }
}

static void sharding_table(document *doc, const csv *c)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "write-up", "sharded", "what", NULL);
    doc_columns(doc, DOC_NUMBER, "GiB", "step ms", NULL);
    doc_columns(doc, DOC_TEXT, "note", NULL);
    for (size_t i = 0; i < c->rows; i++)
        doc_row(doc, csv_cell(c, i, "source"), cell_is(c, i, "sharded", "1") ? "yes" : "no", csv_cell(c, i, "phase"),
                csv_cell(c, i, "mem_gib"), csv_cell(c, i, "step_ms"), csv_cell(c, i, "note"), NULL);
}

static void write_section(document *doc, const char *dir)
{
    ddp_rows *ours = ddp_rows_open(dir);
    csv *steps = open_published(dir, "ddp.csv"), *sharding = open_published(dir, "zero1.csv");
    if (ours && ((steps && steps->rows) || (sharding && sharding->rows))) {
        doc_fold(doc, "The write-ups' tables: xl on two ranks, fp32");
        doc_paragraph(doc,
                      "Other GPUs and other links, a global batch where it says so, and communication by the host's "
                      "clock: context, no baseline\n(%s).",
                      link_to("sources and cautions", "../published/README.md"));
        if (steps && steps->rows)
            steps_table(doc, steps);
        if (sharding && sharding->rows)
            sharding_table(doc, sharding);
        doc_fold_end(doc);
    }
    csv_free(steps);
    csv_free(sharding);
    ddp_rows_free(ours);
}

const report_section section_ddp_published = {.order = 114, .write = write_section};
