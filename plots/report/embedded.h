/* SPDX-License-Identifier: MIT */
/* Texts that make puts into the program: sections/<name>.sql, the known columns (schema.tsv), style.css and script.js. */
#pragma once

typedef struct embedded {
    const char *name, *text;
} embedded;
extern const embedded embedded_files[]; /* ended by one without a name */

const char *embedded_text(const char *name); /* NULL when there is none */
