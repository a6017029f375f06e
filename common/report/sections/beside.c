/* SPDX-License-Identifier: MIT */
/* The strongest peers beside ours, all kinds of work in one table: where we lead least, or not at all, comes first. */
#include "common/report/section.h"

static void write_section(document *doc, const char *dir)
{
    char *const dirs[] = {(char *)dir};
    comparisons all = comparisons_of(dirs, 1);
    if (all.n) {
        doc_heading(doc, 2, "Beside the strongest peers");
        doc_paragraph(
            doc,
            "A ratio is a peer's time over ours, so below 1 the peer is faster; [in brackets] the least and the "
            "largest of all rounds. In each\ncase the strongest peer counts. It is the same as ours where the rounds "
            "lie on both sides of 1, or one measurement\nis within 2 %% of it. Both sides are of one GPU and one run, "
            "timed alike, and do the same work in the same dtypes of sums.");
        figures(doc, dir, "peers_");
        comparisons_write(doc, &all);
    }
    comparisons_free(&all);
}

const report_section section_beside = {.order = -5, .write = write_section};
