/* SPDX-License-Identifier: MIT */
/* The report by the names of the course's problems: what this folder's rows answer to each, and where the rest is. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections/course/course.h"

static const course_problem *const themes[] = {
    course_step, course_profile, course_precision, course_memory,     course_attention,  course_communication,
    course_ddp,  course_buckets, course_sharding,  course_accounting, course_leaderboard};
enum { THEMES = sizeof themes / sizeof *themes };

static void add_links(document *doc, const char *headings)
{
    char *text = xstrdup(headings);
    const char *separator = "For the rest see ";
    doc_paragraph(doc, "%s", "");
    for (char *heading = text, *next; heading; heading = next) {
        next = strstr(heading, "; ");
        if (next) {
            *next = '\0';
            next += 2;
        }
        doc_more(doc, "%s%s", separator, link_to_heading(heading));
        separator = "; ";
    }
    doc_more(doc, ".");
    free(text);
}

static void write_section(document *doc, const char *dir)
{
    document *answers = doc_create(""), *missing = doc_create("");
    for (int theme = 0; theme < THEMES; theme++)
        for (const course_problem *p = themes[theme]; p->name; p++) {
            document *answer = doc_create("");
            p->answer(answer, dir);
            if (doc_empty(answer)) {
                if (doc_empty(missing))
                    doc_paragraph(missing, "Without rows here: %s", code("%s", p->name));
                else
                    doc_more(missing, ", %s", code("%s", p->name));
                doc_free(answer);
                continue;
            }
            doc_heading(answers, 3, "%s (%s)", p->name, p->editions);
            doc_append(answers, answer);
            add_links(answers, p->section);
        }
    if (doc_empty(answers)) {
        doc_free(answers);
        doc_free(missing);
        return;
    }
    doc_heading(doc, 2, "The problems of CS336's second assignment");
    doc_paragraph(doc,
                  "What these rows answer to each problem of the handouts of 2025 and 2026, by its name there. The "
                  "commands are in docs/course.md.");
    doc_append(doc, answers);
    if (!doc_empty(missing))
        doc_more(missing, ".");
    doc_append(doc, missing);
}

const report_section section_course = {.order = 20, .write = write_section};
