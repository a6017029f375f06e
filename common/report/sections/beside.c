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
            doc, "A ratio is a peer's time over ours, so below 1 the peer is faster. In each case the strongest peer "
                 "counts. Both times are\nof one GPU and one run, as far as both say so.");
        figures(doc, dir, "peers_");
        comparisons_write(doc, &all);
    }
    comparisons_free(&all);
}

const report_section section_beside = {.order = -5, .write = write_section};
