/* SPDX-License-Identifier: MIT */
/* What --help, --list, --list-options, --list-runs and --version print; everything comes from the tables. */
#include "common/core/build_info.h"
#include "common/core/version.h"
#include "common/options/internal.h"

#include <string.h>

static const char *const kind_names[] = {
    [OPTION_INT] = "int",       [OPTION_REAL] = "real", [OPTION_BYTES] = "bytes",
    [OPTION_CHOICE] = "choice", [OPTION_FLAG] = "flag", [OPTION_TEXT] = "text",
};

/* Prints text of one or more lines, each indented. */
static void print_indented(const char *text, FILE *out)
{
    while (*text) {
        int length = (int)strcspn(text, "\n");
        fprintf(out, length ? "  %.*s\n" : "\n", length, text);
        text += length + (text[length] == '\n');
    }
}

/* "width; 0: that of the size" */
static void print_meaning(const option_spec *s, FILE *out)
{
    fprintf(out, "%s%s%s", s->help, s->unset ? "; " : "", s->unset ? s->unset : "");
}

static void print_option(const option_spec *s, FILE *out)
{
    char accepts[384];
    option_accepts(s, accepts, sizeof accepts);
    fprintf(out, "  --%-14s ", s->name);
    print_meaning(s, out);
    fprintf(out, "\n");
    fprintf(out, "  %16s %s [default %s", "", accepts, *s->def ? s->def : "empty");
    if (s->def_cpu)
        fprintf(out, "; on the CPU %s", s->def_cpu);
    fprintf(out, "]\n");
}

void options_print_help(const options *o, FILE *out)
{
    const bench_info *b = o->bench;
    fprintf(out, "%s: %s\n\nusage: %s [--name value]...\n", b->name, b->summary, b->name);
    fprintf(out, "  --name=value works too. A list is a,b,c; a range is lo:hi, lo:hi:+step or lo:hi:*factor; lists may "
                 "hold ranges.\n"
                 "  K, M, G after a whole number are powers of 1024; KB, MB, GB after bytes are powers of 1000.\n"
                 "  A flag without a value means 1. Every combination of the lists is one case.\n");
    if (b->examples && *b->examples) {
        fprintf(out, "\nexamples:\n");
        print_indented(b->examples, out);
    }
    fprintf(out, "\noptions of %s:\n", b->name);
    for (size_t i = 0; i < o->n; i++)
        if (o->entries[i].own)
            print_option(&o->entries[i].spec, out);
    fprintf(out, "\noptions of every bench:\n");
    for (size_t i = 0; i < o->n; i++)
        if (!o->entries[i].own)
            print_option(&o->entries[i].spec, out);
    fprintf(out, "  -h --help        this text\n"
                 "  -V --version     version, commit and compiler\n"
                 "  --list           the variants and the columns of a row\n"
                 "  --list-options   the options as a table of tab-separated values\n"
                 "  --list-runs      this bench's runs in run_all.sh, its section of the report and its figures, "
                 "tab-separated\n");
    if (b->notes && *b->notes) {
        fprintf(out, "\nnotes:\n");
        print_indented(b->notes, out);
    }
    fprintf(out, "\nexit codes: 0 ok, 1 failure, 2 bad input, 3 wrong result, 4 bound missed, 5 no progress, 77 "
                 "nothing can run\n");
}

static void print_columns(const options *o, const column_spec *columns, FILE *out)
{
    static const char *const names[] = {[COLUMN_REAL] = "real", [COLUMN_INT] = "int", [COLUMN_TEXT] = "text"};
    for (; columns && columns->name; columns++)
        if (!o->layout || row_layout_has(o->layout, o->bench, columns->name))
            fprintf(out, "  %-20s %-6s %s\n", columns->name, names[columns->kind], columns->help);
}

void options_print_list(const options *o, FILE *out)
{
    if (o->variant)
        fprintf(out, "variants:\n");
    for (const variant_spec *v = o->bench->variants; v && v->name; v++)
        fprintf(out, "  %-20s %s\n", v->name, v->summary);
    fprintf(out, "%scolumns:\n", o->variant ? "\n" : "");
    print_columns(o, o->layout ? o->layout->first : NULL, out);
    for (size_t i = 0; i < o->params_n; i++) {
        const option_spec *s = &o->params[i]->spec;
        fprintf(out, "  %-20s %-6s ", o->columns[i], kind_names[s->kind]);
        print_meaning(s, out);
        fprintf(out, "%s%s%s\n", *s->unit ? " (" : "", s->unit, *s->unit ? ")" : "");
    }
    print_columns(o, o->bench->columns, out);
    print_columns(o, o->layout ? o->layout->last : NULL, out);
    if (o->layout) {
        fprintf(out, "\nof the run, in machine.csv:\n");
        print_columns(o, o->layout->run, out);
    }
}

void options_print_table(const options *o, FILE *out)
{
    fprintf(out, "name\tkind\tdefault\tmin\tmax\tchoices\tunit\tunset\thelp\n");
    for (size_t i = 0; i < o->n; i++) {
        const option_spec *s = &o->entries[i].spec;
        char min[32] = "", max[32] = "";
        if (s->min < s->max && s->kind <= OPTION_BYTES) {
            snprintf(min, sizeof min, "%.15g", s->min);
            snprintf(max, sizeof max, "%.15g", s->max);
        }
        fprintf(out, "%s\t%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s->name, kind_names[s->kind],
                s->flags & OPTION_LIST ? " list" : "", s->def, min, max, s->choices ? s->choices : "", s->unit,
                s->unset ? s->unset : "", s->help);
    }
}

/* The lists, the GPUs, the seconds and the options. */
static void print_run(const bench_run *r, FILE *out)
{
    static const struct {
        unsigned list;
        const char *name;
    } lists[] = {{RUN_QUICK, "quick"}, {RUN_DEFAULT, "default"}, {RUN_FULL, "full"},
                 {RUN_CPU, "cpu"},     {RUN_LOAD, "load"},       {RUN_HEADLINE, "headline"}};
    const char *separator = "";
    fprintf(out, "run\t");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (r->lists & lists[i].list) {
            fprintf(out, "%s%s", separator, lists[i].name);
            separator = "+";
        }
    fprintf(out, "\t%d\t%.0f\t%s\n", r->gpus, r->seconds, r->options);
}

static void print_facts(const char *name, const char *const *values, FILE *out)
{
    for (; values && *values; values++)
        fprintf(out, "%s\t%s\n", name, *values);
}

void options_print_runs(const options *o, FILE *out)
{
    const bench_info *b = o->bench;
    fprintf(out, "name\t%s\norder\t%d\nsummary\t%s\nsmall\t%s\n", b->name, b->order, b->summary,
            b->small ? b->small : "");
    for (const bench_run *r = b->runs; r && r->lists; r++)
        print_run(r, out);
    fprintf(out, "section\t%s\n", b->section ? b->section : "");
    if (b->apart)
        fprintf(out, "apart\t1\n");
    print_facts("figure", b->figures, out);
}

void options_print_version(const options *o, FILE *out)
{
    fprintf(out, "stepbench " STEPBENCH_VERSION " (commit %s%s)\n%s", build_commit(),
            build_dirty() == 1 ? " with changes" : "", o->bench->name);
    if (o->layout)
        fprintf(out, ", results schema %d, method %d", o->layout->schema, o->layout->method);
    fprintf(out, "\n%s\n", build_describe());
}
