/* SPDX-License-Identifier: MIT */
/* What was measured on: the machine's facts in its newest run. */
#include <string.h>

#include "common/report/section.h"

static const char *newest_run(const csv *c)
{
    const char *newest = "";
    for (size_t r = 0; r < c->rows; r++)
        if (strcmp(csv_cell(c, r, "run_id"), newest) > 0)
            newest = csv_cell(c, r, "run_id");
    return newest;
}

static void write_section(document *doc, const char *dir)
{
    csv *c = open_peer(dir, "machine.csv");
    if (!c || csv_column(c, "run_id") < 0 || csv_column(c, "key") < 0 || csv_column(c, "value") < 0 || !c->rows) {
        csv_free(c);
        return;
    }
    const char *newest = newest_run(c);
    doc_heading(doc, 2, "Machine");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "what", "value", NULL);
    for (size_t r = 0; r < c->rows; r++) {
        const char *key = csv_cell(c, r, "key"), *value = csv_cell(c, r, "value");
        bool of_the_run = strcmp(key, "bench") == 0 || strcmp(key, "command") == 0 || strcmp(key, "options") == 0;
        if (strcmp(csv_cell(c, r, "run_id"), newest) == 0 && *value && !of_the_run)
            doc_row(doc, key, value, NULL);
    }
    doc_paragraph(doc, "Of the newest run, %s; %s has every run and its command.", newest,
                  link_to("machine.csv", "machine.csv"));
    csv_free(c);
}

const report_section section_machine = {.order = 920, .write = write_section};
