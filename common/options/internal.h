/* SPDX-License-Identifier: MIT */
/* What the option files share among themselves; no other file includes it. */
#pragma once

#include "common/options/options.h"

#include <stdio.h>

enum {
    OPTION_VALUES_MAX = 4096, /* of one list */
    OPTION_CASES_MAX = 1000000
};

typedef struct option_value {
    char *text; /* canonical, as in the CSV */
    int64_t i;  /* of a choice: its place among them */
    double r;
} option_value;

typedef struct option_values {
    option_value *v;
    size_t n, capacity;
} option_values;

typedef struct option_entry {
    option_spec spec;
    bool own; /* of the bench, not common */
    bool given;
    option_values values, defaults; /* the defaults are those of the chosen device */
} option_entry;

struct options {
    const bench_info *bench;
    const row_layout *layout; /* NULL: not known here */
    option_entry *entries;    /* the bench's in table order, then the common ones */
    size_t n;
    const option_entry **params; /* those that are columns of the CSV */
    char **columns;              /* names of their columns */
    size_t params_n;
    const option_entry *variant; /* NULL for a bench without variants */
    char *variant_choices, *command_line;
};

/* Parses `text` for `spec` into *out; on bad input writes one sentence to msg and returns false. */
bool option_values_parse(const option_spec *spec, const char *text, option_values *out, char *msg, size_t msg_bytes);
void option_values_free(option_values *values);
/* "a whole number from 1 to 64": what the option takes; option_allowed adds how suffixes and lists are written. */
void option_accepts(const option_spec *spec, char *out, size_t out_bytes);
void option_allowed(const option_spec *spec, char *out, size_t out_bytes);

const option_entry *option_find(const options *o, const char *name); /* NULL when unknown; '-' and '_' are the same */
const option_entry *option_need(const options *o, const char *name); /* dies when unknown */
bool option_name_equal(const char *a, const char *b);

void options_print_help(const options *o, FILE *out);
void options_print_list(const options *o, FILE *out);
void options_print_table(const options *o, FILE *out); /* --list-options */
void options_print_runs(const options *o, FILE *out);  /* --list-runs */
void options_print_version(const options *o, FILE *out);

/* cases_count before it is known to be at most OPTION_CASES_MAX. */
double cases_product(const options *o);
