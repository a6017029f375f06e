/* SPDX-License-Identifier: MIT */
/* The documents say what is so: each quoted figure is that of its CSV, links and paths lead somewhere, commands are
 * accepted, the course's page names sections of the report, and the page of columns is what the benches say.
 *
 * A figure is tied to its CSV by a comment behind it, in which the newest `ok` row with these values is meant:
 *   756 TFLOP/s <!-- results/h200-x1/bench_flash.csv fwd_tflops variant=flash seq=65536 head_dim=128 -->
 * The unit says how the column is scaled; the figure must be the value, rounded to as many places as it has. */
#include "tests/support/test.h"

#include <ctype.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- documents, line by line ---- */

typedef struct document {
    char *path, *text;
} document;

typedef struct documents {
    document *all;
    size_t n;
} documents;

static documents documents_open(void)
{
    static const char *const patterns[] = {"*.md", "docs/*.md", "docs/*/*.md"};
    documents d = {0};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        glob_t found;
        if (glob(patterns[p], 0, NULL, &found) != 0)
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++) {
            d.all = xrealloc(d.all, (d.n + 1) * sizeof *d.all);
            d.all[d.n++] = (document){xstrdup(found.gl_pathv[i]), file_text(found.gl_pathv[i])};
        }
        globfree(&found);
    }
    assert_true(d.n > 5); /* the tests run in the project's root */
    return d;
}

static void documents_close(documents *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->all[i].path);
        free(d->all[i].text);
    }
    free(d->all);
}

static int line_of(const document *d, const char *at)
{
    int line = 1;
    for (const char *c = d->text; c < at; c++)
        line += *c == '\n';
    return line;
}

static bool exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* ---- figures ---- */

typedef struct quote {
    double value, half_unit; /* half of the last place that is given */
    char unit[16];
} quote;

/* The number before `end`, and the word behind it. False when there is none near. */
static bool quote_before(const char *text, const char *end, quote *q)
{
    const char *last = end;
    while (last > text && end - last < 80 && !isdigit((unsigned char)last[-1]))
        last--;
    const char *first = last;
    while (first > text && (isdigit((unsigned char)first[-1]) || strchr(".,", first[-1]) ||
                            (strchr("eE", first[-1]) && first >= text + 2 && isdigit((unsigned char)first[-2])) ||
                            (first[-1] == '-' && first >= text + 2 && strchr("eE", first[-2]))))
        first--;
    if (first == last)
        return false;
    char number[64];
    size_t n = 0;
    int places = 0;
    bool fraction = false, exponent = false;
    for (const char *c = first; c < last && n + 1 < sizeof number; c++) {
        if (*c == ',')
            continue; /* between thousands */
        exponent = exponent || *c == 'e' || *c == 'E';
        places += fraction && !exponent;
        fraction = fraction || *c == '.';
        number[n++] = *c;
    }
    number[n] = 0;
    q->value = strtod(number, NULL);
    const char *e = strpbrk(number, "eE");
    q->half_unit = 0.5 * pow(10, (e ? atoi(e + 1) : 0) - places);
    q->unit[0] = 0;
    sscanf(last, " %15[A-Za-z/%]", q->unit);
    return true;
}

/* What one of a column is in the unit; NAN when the unit does not fit the column. */
static double scale_of(const char *column, const char *unit)
{
    static const struct {
        const char *suffix, *unit;
        double scale;
    } known[] = {{"_bytes", "bytes", 1},
                 {"_bytes", "KB", 1e-3},
                 {"_bytes", "MB", 1e-6},
                 {"_bytes", "GB", 1e-9},
                 {"_bytes", "KiB", 0x1p-10},
                 {"_bytes", "MiB", 0x1p-20},
                 {"_bytes", "GiB", 0x1p-30},
                 {"_ms", "ms", 1},
                 {"_ms", "us", 1e3},
                 {"_ms", "s", 1e-3},
                 {"_us", "us", 1},
                 {"_gb_s", "GB/s", 1},
                 {"_gb_s", "TB/s", 1e-3},
                 {"_tb_s", "TB/s", 1},
                 {"tflops", "TFLOP/s", 1},
                 {"_pct", "%", 1},
                 {"tokens_per_s", "tokens/s", 1},
                 {"tokens_per_j", "tokens/J", 1}};
    bool has_unit = strcmp(column, "gb_s") == 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t length = strlen(column), suffix = strlen(known[i].suffix);
        if (length < suffix || strcmp(column + length - suffix, known[i].suffix) != 0)
            continue;
        has_unit = true;
        if (strcmp(unit, known[i].unit) == 0)
            return known[i].scale;
    }
    if (strcmp(column, "gb_s") == 0 && strcmp(unit, "GB/s") == 0)
        return 1;
    return has_unit ? NAN : 1;
}

static bool row_matches(const csv *c, size_t row, char *const *filters, size_t n)
{
    if (csv_column(c, "status") >= 0 && !csv_is(c, row, "status", "ok")) /* rows of peers have none */
        return false;
    for (size_t i = 0; i < n; i++) {
        char name[64];
        const char *equals = strchr(filters[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - filters[i]), filters[i]);
        if (!csv_is(c, row, name, equals + 1))
            return false;
    }
    return true;
}

/* False with a sentence in why. `reference` is what stands between the comment's marks. */
static bool figure_is_right(const quote *q, const char *reference, char *why, size_t why_bytes)
{
    char *copy = xstrdup(reference), *words[32], *rest = copy;
    size_t n = 0;
    for (char *w; n < 32 && (w = strtok_r(rest, " \n", &rest));)
        words[n++] = w;
    bool right = false;
    OWNED_CSV csv *c = n >= 2 ? csv_read(words[0]) : NULL;
    bool filters = n >= 2;
    for (size_t i = 2; i < n; i++)
        filters = filters && strchr(words[i], '=');
    if (!c || !filters || csv_column(c, words[1]) < 0) {
        snprintf(why, why_bytes, "no such file or column, or no filter of the form name=value");
    } else {
        size_t newest = c->rows;
        for (size_t r = 0; r < c->rows; r++)
            if (row_matches(c, r, words + 2, n - 2) &&
                (newest == c->rows || strcmp(csv_cell(c, r, "utc"), csv_cell(c, newest, "utc")) >= 0))
                newest = r;
        const double scale = scale_of(words[1], q->unit);
        const double value = newest < c->rows ? csv_real(c, newest, words[1]) * scale : NAN;
        right = fabs(q->value - value) <= q->half_unit * (1 + 1e-9);
        if (newest == c->rows)
            snprintf(why, why_bytes, "no row is ok and has these values");
        else if (isnan(scale))
            snprintf(why, why_bytes, "'%s' is no unit of %s", q->unit, words[1]);
        else
            snprintf(why, why_bytes, "the CSV has %.6g", value);
    }
    free(copy);
    return right;
}

static int check_figures(const document *d, int *count)
{
    static const char mark[] = "<!-- results/";
    int wrong = 0;
    for (const char *at = d->text; (at = strstr(at, mark)); at++) {
        char *reference = xasprintf("%.*s", (int)(strstr(at, "-->") - at - 5), at + 5),
             why[256] = "no number before it";
        quote q;
        if (!quote_before(d->text, at, &q) || !figure_is_right(&q, reference, why, sizeof why)) {
            print_error("%s:%d: %g: %s (%s)\n", d->path, line_of(d, at), q.value, why, reference);
            wrong++;
        }
        (*count)++;
        free(reference);
    }
    return wrong;
}

TEST(figures)
{
    documents d = documents_open();
    int wrong = 0, count = 0;
    for (size_t i = 0; i < d.n; i++)
        wrong += check_figures(&d.all[i], &count);
    documents_close(&d);
    assert_int_equal(wrong, 0);
    assert_true(count > 10);
}

/* The checker itself. */
TEST_IN_FOLDER(wrong_figures)
{
    OWNED char *path = folder_path(*state, "t.csv");
    file_write(path,
               "variant,status,t_ms,utc\nflash,ok,1.2344,1\nflash,ok,1.2345678,3\nflash,ok,9,2\nflash,fail,7,4\n");
    const struct {
        const char *text, *filters;
        bool right;
    } cases[] = {{"1.2346 ms", "variant=flash", true},  {"1.23 ms", "variant=flash", true},
                 {"1235 us", "variant=flash", true},    {"1.24 ms", "variant=flash", false},
                 {"1.23 us", "variant=flash", false},   {"1.23", "variant=flash", false},
                 {"1.23 ms", "variant=unfused", false}, {"1.23 ms", "nothing=1", false},
                 {"1.2e0 ms", "variant=flash", true},   {"1,234.57 us", "variant=flash", true},
                 {"7 ms", "variant=flash", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[256], *reference = xasprintf("%s t_ms %s", path, cases[i].filters);
        quote q;
        assert_true(quote_before(cases[i].text, cases[i].text + strlen(cases[i].text), &q));
        if (figure_is_right(&q, reference, why, sizeof why) != cases[i].right)
            fail_msg("'%s' %s: %s", cases[i].text, cases[i].filters, why);
        free(reference);
    }
}

/* ---- links and paths ---- */

/* A heading's anchor, as GitHub makes it: lower case, no punctuation, blanks as hyphens. */
static void anchor_of(const char *heading, size_t length, char *out, size_t out_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < out_bytes; i++) {
        const unsigned char c = (unsigned char)heading[i];
        if (isalnum(c) || c == '-' || c == '_' || c == ' ')
            out[n++] = c == ' ' ? '-' : (char)tolower(c);
    }
    out[n] = 0;
}

static bool has_anchor(const char *path, const char *anchor)
{
    char *text = file_text(path), found[256];
    bool has = false;
    for (const char *line = text; line && !has; line = strchr(line, '\n'), line += line != NULL) {
        const size_t hashes = strspn(line, "#");
        if (hashes && line[hashes] == ' ') {
            anchor_of(line + hashes + 1, strcspn(line, "\n") - hashes - 1, found, sizeof found);
            has = strcmp(found, anchor) == 0;
        }
    }
    free(text);
    return has;
}

/* target: "file#anchor", relative to the document. */
static bool leads_somewhere(const document *d, const char *target)
{
    const char *slash = strrchr(d->path, '/'), *hash = strchr(target, '#');
    const size_t length = hash ? (size_t)(hash - target) : strlen(target);
    OWNED char *path =
        length == 0 ? xstrdup(d->path)
                    : xasprintf("%.*s%.*s", slash ? (int)(slash + 1 - d->path) : 0, d->path, (int)length, target);
    return exists(path) && (!hash || has_anchor(path, hash + 1));
}

TEST(links)
{
    documents all = documents_open();
    int wrong = 0;
    for (size_t i = 0; i < all.n; i++) {
        const document *d = &all.all[i];
        for (const char *at = d->text; (at = strstr(at, "]("));) {
            at += 2;
            OWNED char *target = xasprintf("%.*s", (int)strcspn(at, ")\n"), at);
            if (!strstr(target, "://") && !leads_somewhere(d, target)) {
                print_error("%s:%d: the link to %s leads nowhere\n", d->path, line_of(d, at), target);
                wrong++;
            }
        }
    }
    documents_close(&all);
    assert_int_equal(wrong, 0);
}

/* `common/rows/rows.h` in backquotes must be there; a wildcard must match something. A path and a colon at the end of a
 * line give a name to the code below, which test_example.c tries. */
TEST(paths)
{
    static const char *const folders[] = {"bench/", "common/", "kernels/", "plots/", "tests/", "docs/"};
    documents all = documents_open();
    int wrong = 0;
    for (size_t i = 0; i < all.n; i++) {
        const document *d = &all.all[i];
        if (strcmp(d->path, "CHANGELOG.md") == 0 || strcmp(d->path, "docs/kernels/log.md") == 0)
            continue; /* history has names of its time */
        for (const char *at = d->text; (at = strchr(at, '`'));) {
            at++;
            const size_t length = strcspn(at, "` \n");
            bool is_path = false;
            for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
                is_path = is_path || strncmp(at, folders[f], strlen(folders[f])) == 0;
            OWNED char *path = xasprintf("%.*s", (int)length, at);
            glob_t found;
            if (is_path && at[length] == '`' && strncmp(at + length, "`:\n", 3) != 0 && !strpbrk(path, "<{")) {
                if (glob(path, 0, NULL, &found) != 0) {
                    print_error("%s:%d: there is no %s\n", d->path, line_of(d, at), path);
                    wrong++;
                } else {
                    globfree(&found);
                }
            }
        }
    }
    documents_close(&all);
    assert_int_equal(wrong, 0);
}

/* ---- commands ---- */

static const char *programs(void)
{
    const char *folder = getenv("STEPBENCH_BIN");
    return folder ? folder : ".";
}

/* Lines of code such as "    ./bench_flash --seq 128   # comment", and the same in backquotes. */
static int check_commands(const document *d, const char *before, int *count)
{
    int wrong = 0;
    for (const char *at = d->text; (at = strstr(at, before));) {
        at += strlen(before) - strlen("./bench_");
        const bool quoted = at[-1] == '`';
        OWNED char *line = xasprintf("%.*s", (int)strcspn(at, quoted ? "`\n" : "\n"), at);
        char *comment = strstr(line, " #");
        if (comment)
            *comment = 0;
        if (!strchr(line, '<') && !strchr(line, '|')) {
            OWNED char *command = xasprintf("%s/%s --dry-run%s >/dev/null", programs(), line + 2,
                                            strstr(line, "--device") ? "" : " --device cpu");
            const int status = system(command);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                print_error("%s:%d: %s: exit %d\n", d->path, line_of(d, at), line, WEXITSTATUS(status));
                wrong++;
            }
            (*count)++;
        }
        at++;
    }
    return wrong;
}

TEST(commands)
{
    documents d = documents_open();
    int wrong = 0, count = 0;
    for (size_t i = 0; i < d.n; i++)
        wrong += check_commands(&d.all[i], "\n    ./bench_", &count) + check_commands(&d.all[i], "\n./bench_", &count) +
                 check_commands(&d.all[i], "`./bench_", &count);
    documents_close(&d);
    assert_int_equal(wrong, 0);
    assert_true(count > 20);
}

/* ---- sections ---- */

/* docs/course.md names *sections of the report*: each is a heading of a committed report, or of the program's text. */
TEST(sections)
{
    OWNED char *text = file_text("docs/course.md");
    int wrong = 0, count = 0;
    for (const char *at = text; (at = strstr(at, " *"));) {
        at += 2;
        OWNED char *heading = xasprintf("%.*s", (int)strcspn(at, "*\n"), at);
        setenv("HEADING", heading, 1);
        if (system("grep -rqF -- \"$HEADING\" plots/report/sections results/*/report.md") != 0) {
            print_error("docs/course.md: no report has the section '%s'\n", heading);
            wrong++;
        }
        count++;
        at += strlen(heading) + 1;
    }
    assert_int_equal(wrong, 0);
    assert_true(count > 16);
}

/* ---- columns ---- */

/* make columns has a section for every bench. */
TEST_IN_FOLDER(columns)
{
    OWNED char *now = folder_path(*state, "columns.md");
    OWNED char *command = xasprintf("bash common/build/columns.sh %s >%s && for b in bench/bench_*.c; do "
                                    "b=${b##*/}; grep -q \"^## ${b%%.c}\" %s || exit; done",
                                    programs(), now, now);
    const int status = system(command);
    assert_int_equal(status, 0);
}
