/* SPDX-License-Identifier: MIT */
/* Options declared once. One table of option_spec yields the parser, --help (defaults, units, ranges), --list-options,
 * validation, the sweep of cases and the parameter columns of the CSV. Nothing here touches a device. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum option_kind {
    OPTION_INT, /* whole number; K/M/G suffixes are powers of 1024 */
    OPTION_REAL,
    OPTION_BYTES,  /* whole number of bytes; K/M/G = 1024^n, KB/MB/GB = 1000^n */
    OPTION_CHOICE, /* one word of `choices`; "all" stands for every one when it is a list and none has that name */
    OPTION_FLAG,   /* 0 or 1; a bare --name means 1 */
    OPTION_TEXT
} option_kind;

enum option_flags {
    OPTION_LIST = 1,     /* takes a,b,c and lo:hi, lo:hi:+step, lo:hi:*factor; is swept; is a CSV column */
    OPTION_PARAM = 2,    /* single value that is still part of a case: a CSV column */
    OPTION_ADJACENT = 4, /* a list whose values are compared: cases that differ only in it follow each other */
    OPTION_SETTING = 8   /* no column, but a row with another value does not stand for this run's (--resume) */
};

struct bench_case;
typedef struct option_spec {
    const char *name; /* "seq" is written --seq; the CSV column is the same with '-' as '_' */
    option_kind kind;
    unsigned flags;
    const char *def;  /* default as text, through the same parser */
    const char *help; /* one line */
    /* The rest is given by name, where an option has it. */
    const char *def_cpu; /* default with --device cpu; NULL: same as def */
    double min, max;     /* for numbers; both 0: no bound. --help prints them */
    const char *choices; /* "bf16|fp16|tf32|fp32" for OPTION_CHOICE */
    const char *unit;    /* "tokens", "s", ... */
    const char *unset;   /* "0: as many as --heads": the value that means "not set", and what holds then */
    /* The number that a row has in place of "not set"; NULL: the row says "not set". */
    int64_t (*settled)(const struct bench_case *c, const char *option);
} option_spec; /* a table ends with {0} */

typedef struct variant_spec { /* the things a bench compares; chosen by --variant, swept innermost */
    const char *name, *summary;
} variant_spec; /* a table ends with {0} */

typedef enum column_kind { COLUMN_REAL, COLUMN_INT, COLUMN_TEXT } column_kind;

typedef struct column_spec { /* a measured or derived column of a row */
    const char *name;        /* with its unit: fwd_ms, peak_bytes, fwd_tflops */
    column_kind kind;
    bool console;     /* also shown in the table on stdout */
    const char *help; /* one line; --list prints it, and make columns quotes it */
} column_spec;        /* a table ends with {0} */

/* The columns around a bench's own, the same in every row, and the versions of the CSV; rows.h has it. */
typedef struct row_layout {
    const column_spec *first, *last; /* before the parameters, and after the bench's columns; each ends with {0} */
    const column_spec *run;          /* what holds for a whole run: lines of machine.csv; ends with {0} */
    int schema, method;
    const char *const *timed; /* columns that a bench without times does not have; ends with NULL */
} row_layout;

/* Which list of ./run_all.sh a run is in. */
enum run_lists {
    RUN_QUICK = 1,    /* --quick; with several GPUs also the default list, if the run needs one GPU */
    RUN_DEFAULT = 2,  /* the default list, which --full does as well */
    RUN_FULL = 4,     /* only --full */
    RUN_CPU = 8,      /* of machines without a GPU, whatever the list */
    RUN_LOAD = 16,    /* --full-loads: fills the GPUs and stands beside a peer (tests/peers) */
    RUN_HEADLINE = 32 /* --headlines: a case of the report's first table, measured again and again */
};

typedef struct bench_run {
    unsigned lists;
    int gpus;            /* least number of GPUs; 0: it runs on the CPU, also beside GPUs unless it is RUN_CPU */
    double seconds;      /* it takes about so long on H200s, or on two cores */
    const char *options; /* beside the defaults; {gpus} stands for the number of GPUs */
} bench_run;

struct options;
typedef struct bench_info {
    const char *name;           /* "bench_flash" */
    const char *summary;        /* the question it answers, one sentence */
    const char *notes;          /* what a row means, formulas, limits; printed by --help */
    const char *examples;       /* command lines, one per line */
    const option_spec *options; /* its own; one with the name of a common option replaces that one's entry */
    const variant_spec *variants;
    const column_spec *columns;
    /* Contradictions between options: write one sentence to msg and return false. May be NULL. */
    bool (*validate)(const struct options *o, char *msg, size_t msg_bytes);
    /* Whether a swept option means something to a variant. Where not, the variant's cases are not multiplied by it,
     * have no value of it (empty text, 0) and their cell is empty; variants are then swept outermost. NULL: every
     * option to every variant, innermost. */
    bool (*applies)(const char *option, const char *variant);
    /* What run_all.sh, the figures and the report do with it; --list-runs prints this. */
    int order;                  /* its place among the benches: the smallest comes first */
    const char *small;          /* options of its run under run_all.sh --small: a few seconds on a CPU */
    const bench_run *runs;      /* its other runs in run_all.sh; ends with {0} */
    const char *section;        /* of the report: plots/report/sections/<section>.c */
    const char *const *figures; /* plots/figures/<name>.*; ends with NULL */
    bool apart;                 /* runs only when it is asked for by name */
    bool untimed;               /* its rows are no measurements, and have neither clocks nor settings of timing */
} bench_info;

/* The tables of a main, by the names that every main gives them. */
/* clang-format off */
#define MEDIAN_COLUMNS(part, console, what) /* of a time in ms */                 \
    {part "_ms", COLUMN_REAL, console, what ", median"},                          \
    {part "_p10_ms", COLUMN_REAL, false, what ", 10th percentile"},               \
    {part "_p90_ms", COLUMN_REAL, false, what ", 90th percentile"}
#define MEASURED_COLUMNS(part, console, what) /* what measure() fills */          \
    MEDIAN_COLUMNS(part, console, what),                                          \
    {"n_" part, COLUMN_INT, false, what ", samples"},                             \
    {"timer_" part, COLUMN_TEXT, false, what ", how it was timed: event, graph or host"}
/* clang-format on */

#define BENCH_TABLES .options = option_table, .variants = variant_table, .columns = column_table, .runs = run_table

typedef struct options options;

/* What the parser is told about the machine. */
typedef struct options_env {
    const char *device_default; /* of --device: "cuda" or "cpu" */
    const char *no_cuda;        /* why CUDA is not available, so that --device cuda is an error; NULL: it is */
    const row_layout *layout;   /* for --list and --version; NULL: only the bench's own columns are listed */
} options_env;

/* Parses argv. Prints and exits 0 for --help, --version, --list, --list-options and --list-runs; exits 2 with one
 * sentence on bad input. Never touches a device. --dry-run is only recorded: the session prints the cases. */
options *options_parse(const bench_info *bench, int argc, char **argv, const options_env *env);
void options_free(options *o);

/* Same, but returns NULL and writes the sentence to msg instead of exiting; for tests. After --help and its like msg is
 * empty. */
options *options_try(const bench_info *bench, int argc, char **argv, const options_env *env, char *msg,
                     size_t msg_bytes);

const bench_info *options_bench(const options *o);
bool options_have(const options *o, const char *name); /* whether the bench has an option of this name */
/* Whether rows of the bench have this column of the layout. */
bool row_layout_has(const row_layout *l, const bench_info *bench, const char *column);
/* For the bench_info.validate of a bench that times nothing: false with a sentence where --l2 or --timer says how. */
bool options_untimed(const options *o, char *msg, size_t msg_bytes);
/* Single values. An unknown name is a bug of the caller and dies. */
int64_t option_int(const options *o, const char *name);
double option_real(const options *o, const char *name);
const char *option_text(const options *o, const char *name);
bool option_flag(const options *o, const char *name);
int option_choice(const options *o, const char *name); /* the place of the word among the option's choices, from 0 */
bool option_given(const options *o, const char *name); /* the user wrote it */
/* The chosen values of a list option. */
size_t option_count(const options *o, const char *name);
int64_t option_int_at(const options *o, const char *name, size_t i);
int64_t option_int_most(const options *o, const char *name); /* the largest of a list */
const char *option_text_at(const options *o, const char *name, size_t i);

/* Every value of every option as "name=value" joined by spaces; for run metadata. Caller frees. */
char *options_describe(const options *o);
/* Whether a run that options_describe described had the same value for each OPTION_SETTING. */
bool options_same_settings(const options *o, const char *described);
const char *options_command_line(const options *o);

/* ---- cases: the product of all list options in table order, the last option fastest, adjacent ones faster, variants
 * innermost ---- */
typedef struct bench_case bench_case;
size_t cases_count(const options *o);                /* cases x chosen variants that they apply to */
bench_case *case_at(const options *o, size_t index); /* caller frees with case_free */
void case_free(bench_case *c);
bool case_has(const bench_case *c, const char *name);    /* whether the bench has an option of this name */
int64_t case_int(const bench_case *c, const char *name); /* list or single option, by name */
double case_real(const bench_case *c, const char *name);
const char *case_text(const bench_case *c, const char *name);
const char *case_variant(const bench_case *c);
/* "seq=128 head_dim=16 dtype=bf16 variant=flash": the identity of a row; --resume and seeds use it. */
const char *case_key(const bench_case *c);
/* The same for readers: only what differs from the defaults, and the variant. "the default case" where nothing does. */
const char *case_name(const bench_case *c);
/* A parameter column's value of this case as CSV text, as it was asked for. i counts the parameter columns. */
size_t options_param_count(const options *o);
const char *options_param_name(const options *o, size_t i); /* column name ('-' became '_') */
bool options_param_is_text(const options *o, size_t i);     /* no number */
const char *case_param(const bench_case *c, size_t i);
/* The same as its row has it: in place of "not set", the number that holds then. */
const char *case_cell(const bench_case *c, size_t i);
/* The chosen values of parameter column i, and whether it means something to a variant. */
size_t options_param_values(const options *o, size_t i);
const char *options_param_value(const options *o, size_t i, size_t value);
bool options_param_applies(const options *o, size_t i, const char *variant);
/* Whether a value of parameter column i goes without saying, being the only default; and whether it means "not set". */
bool options_param_is_default(const options *o, size_t i, const char *value);
bool options_param_is_unset(const options *o, size_t i, const char *value);
/* The chosen variants; 0 for a bench without variants. */
size_t options_variant_count(const options *o);
const char *options_variant(const options *o, size_t i);
/* The key of the case whose parameter columns hold values[0..options_param_count). Caller frees. */
char *case_key_of(const options *o, const char *const *values, const char *variant);
