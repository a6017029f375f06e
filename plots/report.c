/* SPDX-License-Identifier: MIT */
/* report: a machine's CSV as report.md and report.html, as the README's table, and as the tidy CSV that the figures are drawn from. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"
#include "common/report/acceptance.h"
#include "common/report/across/across.h"
#include "common/report/checkout.h"
#include "common/report/flash_peers.h"
#include "common/report/section.h"
#include "common/report/ddp/ddp.h"

static const char usage[] =
    "usage: report RESULTS_DIR                     writes RESULTS_DIR/report.md and report.html\n"
    "       report --all OUT_DIR RESULTS_DIR ...     writes OUT_DIR/report-all.md and .html: several folders side by "
    "side, and\n"
    "              figures over commits. A folder may be COMMIT:PATH, as git has it at a commit\n"
    "       report --check RESULTS_DIR [BENCH ...]\n"
    "              whether the folder can be sent: whole (a file for each BENCH; BENCH:2 needs two GPUs), verified, of "
    "one\n"
    "              clean commit, within its GPU's limits. Exit code 4 if not, with a sentence for each reason\n"
    "       report --readme RESULTS_DIR ... README.md\n"
    "              rewrites the table between its two markers; a bench is that of the first folder that has it\n"
    "       report --tidy IN.csv OUT.csv [--axes A,B] [COLUMN=VALUE ...] [COLUMN!=VALUE ...]\n"
    "              the newest row of each case that has the values, and has not those behind !=; with --axes only\n"
    "              the largest group that differs in nothing but these columns. Prints two lines: machine, device\n"
    "              and date; the common parameters. Writes and prints nothing when no row is left.\n"
    "       report --values IN.csv COLUMN [COLUMN=VALUE ...] [COLUMN!=VALUE ...]\n"
    "              the distinct values of a column on one line\n"
    "       report --ddp RESULTS_DIR OUT.csv\n"
    "              every row of the benches of data parallelism that went well, with the columns that figures want;\n"
    "              writes nothing when there is none\n"
    "       report --flash-peers RESULTS_DIR OUT.csv\n"
    "              ratios of attention in bf16 beside its peers, a row for each shape, for the figure\n";

enum { MAX_AXES = 16, MAX_CONDITIONS = 16 };

/* For a figure. */
static table *open_or_die(const char *path)
{
    table *t = open_rows(path);
    if (!t)
        die(EXIT_CODE_USAGE, "%s can't be read or has no rows", path);
    table_make_drawable(t);
    return t;
}

/* What COLUMN=VALUE and COLUMN!=VALUE arguments and --axes ask for. */
typedef struct selection {
    const char *axes[MAX_AXES + 1];
    struct {
        const char *column, *value;
        bool wanted;
    } conditions[MAX_CONDITIONS];
    size_t axis_count, condition_count;
} selection;

static selection read_selection(int argc, char **argv, bool with_axes)
{
    selection s = {.axis_count = 0};
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (with_axes && strcmp(argv[i], "--axes") == 0 && i + 1 < argc) {
            for (char *name = strtok(argv[++i], ","); name && s.axis_count < MAX_AXES; name = strtok(NULL, ","))
                s.axes[s.axis_count++] = name;
        } else if (equals && equals > argv[i] && s.condition_count < MAX_CONDITIONS) {
            const bool wanted = equals[-1] != '!';
            equals[wanted ? 0 : -1] = '\0';
            s.conditions[s.condition_count].column = argv[i];
            s.conditions[s.condition_count].value = equals + 1;
            s.conditions[s.condition_count++].wanted = wanted;
        } else {
            die(EXIT_CODE_USAGE, "'%s' is neither COLUMN=VALUE nor COLUMN!=VALUE", argv[i]);
        }
    }
    return s;
}

/* The rows that meet all conditions. Caller frees. */
static table *select_rows(const table *t, const selection *s)
{
    table *rows = table_where(t, NULL);
    for (size_t i = 0; i < s->condition_count; i++) {
        const char *const column = s->conditions[i].column, *const value = s->conditions[i].value;
        table *left =
            s->conditions[i].wanted ? table_where(rows, column, value, NULL) : table_without(rows, column, value);
        table_free(rows);
        rows = left;
    }
    return rows;
}

static int tidy(const char *in, const char *out, const selection *s)
{
    table *t = open_or_die(in), *picked = select_rows(t, s);
    table *slice = s->axis_count ? table_main_slice(picked, s->axes, NULL) : table_where(picked, NULL);
    if (slice->n) {
        char *caption = table_caption(slice), *shape = table_shape(slice, s->axes);
        printf("%s\n%s\n", caption, shape);
        free(caption);
        free(shape);
        if (!table_write(slice, out))
            die(EXIT_CODE_FAILURE, "%s: %s", out, strerror(errno));
    }
    table_free(slice);
    table_free(picked);
    table_free(t);
    return EXIT_CODE_OK;
}

static int print_values(const char *path, const char *column, const selection *s)
{
    table *t = open_or_die(path), *picked = select_rows(t, s);
    values list = table_values(picked, column);
    for (size_t i = 0; i < list.n; i++)
        printf("%s%s", i ? " " : "", list.v[i]);
    printf("\n");
    values_free(&list);
    table_free(picked);
    table_free(t);
    return EXIT_CODE_OK;
}

static int write_ddp(const char *dir, const char *path)
{
    ddp_rows *r = ddp_rows_open(dir);
    if (r && !ddp_write(r, path))
        die(EXIT_CODE_FAILURE, "%s: %s", path, strerror(errno));
    ddp_rows_free(r);
    return EXIT_CODE_OK;
}

static int write_flash_peers(const char *dir, const char *path)
{
    csv *c = flash_peers_open(dir);
    if (!flash_peers_write_csv(c, "bf16", path))
        die(EXIT_CODE_FAILURE, "%s: %s", path, strerror(errno));
    csv_free(c);
    return EXIT_CODE_OK;
}

static int by_order(const void *a, const void *b)
{
    return (*(const report_section *const *)a)->order - (*(const report_section *const *)b)->order;
}

/* The sections in the order of the report, ended by NULL; caller frees. */
static const report_section **sections_in_order(void)
{
    size_t n = 0;
    while (report_sections[n])
        n++;
    const report_section **sections = xcalloc(n + 1, sizeof *sections);
    memcpy(sections, report_sections, n * sizeof *sections);
    qsort(sections, n, sizeof *sections, by_order);
    return sections;
}

static document *make_document(const char *dir)
{
    const report_section **sections = sections_in_order();
    char *machine = realpath(dir, NULL);
    document *doc = doc_create(machine ? strrchr(machine, '/') + 1 : dir);
    free(machine);
    doc_paragraph(doc, "Written by %s from the CSV files of this folder; do not edit.", code("build/report"));
    for (const report_section **s = sections; *s; s++)
        if ((*s)->order < 0 && (*s)->write)
            (*s)->write(doc, dir);
    document *findings = doc_create("");
    for (const report_section **s = sections; *s; s++)
        if ((*s)->findings)
            (*s)->findings(findings, dir);
    if (doc_empty(findings)) {
        doc_free(findings);
    } else {
        doc_heading(doc, 2, "In short");
        doc_append(doc, findings);
    }
    for (const report_section **s = sections; *s; s++)
        if ((*s)->order >= 0 && (*s)->write)
            (*s)->write(doc, dir);
    free(sections);
    return doc;
}

static void write_page(const char *dir, const char *name, const document *doc, const doc_writer *writer)
{
    char *path = xasprintf("%s/%s", dir, name), *partial = xasprintf("%s.partial", path);
    FILE *out = fopen(partial, "w");
    if (!out)
        die(EXIT_CODE_FAILURE, "%s: %s", partial, strerror(errno));
    doc_write(doc, writer, &(doc_output){.file = out, .folder = dir});
    bool wrote = !ferror(out);
    if (fclose(out) != 0 || !wrote || rename(partial, path) != 0)
        die(EXIT_CODE_FAILURE, "%s: %s", path, strerror(errno));
    printf("wrote %s\n", path);
    free(partial);
    free(path);
}

static void check_folder(const char *dir)
{
    struct stat info;
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        die(EXIT_CODE_USAGE, "'%s' is not a folder of results, such as results/h200-x1", dir);
}

/* "results/h200-x1/" is h200-x1; "HEAD~1:results/h200-x1" is HEAD~1:h200-x1. Caller frees. */
static char *short_name(const char *folder)
{
    const char *colon = strchr(folder, ':');
    char *path = xstrdup(colon ? colon + 1 : folder), *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        *--end = '\0';
    const char *slash = strrchr(path, '/');
    char *name = xasprintf("%.*s%s", colon ? (int)(colon + 1 - folder) : 0, folder, slash ? slash + 1 : path);
    free(path);
    return name;
}

static int write_all(const char *out, char *const *dirs, size_t n)
{
    across_folder *folders = xcalloc(n, sizeof *folders);
    check_folder(out);
    for (size_t i = 0; i < n; i++) {
        folders[i] = (across_folder){short_name(dirs[i]), checkout_path(dirs[i])};
        check_folder(folders[i].dir);
    }
    document *doc = across_document(folders, n);
    write_page(out, "report-all.md", doc, &markdown_writer);
    write_page(out, "report-all.html", doc, &html_writer);
    doc_free(doc);
    for (size_t i = 0; i < n; i++) {
        free((char *)folders[i].name);
        free((char *)folders[i].dir);
    }
    free(folders);
    return EXIT_CODE_OK;
}

static int write_report(const char *dir)
{
    check_folder(dir);
    document *doc = make_document(dir);
    write_page(dir, "report.md", doc, &markdown_writer);
    write_page(dir, "report.html", doc, &html_writer);
    doc_free(doc);
    return EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
    program_name_set(argv[0]);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return EXIT_CODE_OK;
    }
    if (argc >= 4 && (strcmp(argv[1], "--tidy") == 0 || strcmp(argv[1], "--values") == 0)) {
        bool tidied = strcmp(argv[1], "--tidy") == 0;
        selection s = read_selection(argc - 4, argv + 4, tidied);
        return tidied ? tidy(argv[2], argv[3], &s) : print_values(argv[2], argv[3], &s);
    }
    if (argc >= 3 && strcmp(argv[1], "--check") == 0)
        return results_accept(argv[2], (const char *const *)argv + 3, (size_t)argc - 3, stdout) ? EXIT_CODE_GATE
                                                                                                : EXIT_CODE_OK;
    if (argc >= 4 && strcmp(argv[1], "--all") == 0)
        return write_all(argv[2], argv + 3, (size_t)argc - 3);
    if (argc >= 4 && strcmp(argv[1], "--readme") == 0)
        return readme_update(argv + 2, (size_t)argc - 3, argv[argc - 1]) ? EXIT_CODE_OK : EXIT_CODE_FAILURE;
    if (argc == 4 && strcmp(argv[1], "--ddp") == 0)
        return write_ddp(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "--flash-peers") == 0)
        return write_flash_peers(argv[2], argv[3]);
    if (argc == 2 && argv[1][0] != '-')
        return write_report(argv[1]);
    fputs(usage, stderr);
    return EXIT_CODE_USAGE;
}
